"""Gemma 4 and FunctionGemma: `call:f{k:<|"|>text<|"|>,n:2}` between markers, one call in each block."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import cast

from toolspeak.data.messages import JSON, MalformedCall, ToolCall, ToolResult, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, Tools
from toolspeak.dialects.grammar.call_frames import gemma_notation
from toolspeak.dialects.grammar.ir import Node, Rules, series
from toolspeak.dialects.grammar.schema_rules import SchemaNodes
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.prompts.rendering import dump_json, escape_text, marker_prefix, result_or_error
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.readers.foreign_formats import form_body, with_forms
from toolspeak.dialects.readers.gemma_calls import GemmaCalls
from toolspeak.dialects.text.block_delimiters import Matches, Something
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Caps

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_.$-]{0,127}")
_NEEDS_JSON = re.compile("[\x00\ud800-\udfff]")
_CALL = re.compile(r"(?:call)?:\s*[\w$]")
_CALL_STARTED = re.compile(r"(?:c|ca|cal|(?:call)?(?::\s*)?)")


@quick()
class GemmaFormat:
    """One version of Gemma's format."""

    call: tuple[str, str]
    """Start and end of a call."""
    result: tuple[str, str]
    """Start and end of a result."""
    quote: str
    """The delimiter of strings."""
    live: re.Pattern[str]
    """Matches the first character of each marker that a result must not hold."""

    def write_calls(self, calls: Calls, _tools: Tools) -> str:
        start, end = self.call
        return "".join(f"{start}{self._call(call)}{end}" for call in calls)

    def _call(self, call: ToolCall | MalformedCall) -> str:
        return call.raw if isinstance(call, MalformedCall) else f"call:{call.name}{self.write(call.arguments)}"

    def write(self, value: JSON) -> str:
        match value:
            case str():
                return self._string(value)
            case Mapping():
                return (
                    "{"
                    + ",".join(f"{self._key(key)}:{self.write(each)}" for key, each in as_mapping(value).items())
                    + "}"
                )
            case list() | tuple():
                return "[" + ",".join(self.write(each) for each in cast("Sequence[JSON]", value)) + "]"
            case _:
                return json.dumps(value)

    def _key(self, key: str) -> str:
        return key if _PLAIN_KEY.fullmatch(key) else self._string(key)

    def _string(self, text: str) -> str:
        if self.quote in text or self.live.search(text) or _NEEDS_JSON.search(text):
            return dump_json(text, self.live)  # the delimiters have no escape
        return f"{self.quote}{text}{self.quote}"

    def frame(self) -> Frame:
        notation = gemma_notation(self.quote, self.call, self.write, self._key)

        def call(spec: ToolSpec, rules: Rules) -> Node:
            closed_schema = {"additionalProperties": False, **spec.parameters}
            arguments = SchemaNodes(notation, spec.parameters, rules, spec.name).object(closed_schema)
            return series(f"{self.call[0]}call:{spec.name}", arguments, self.call[1])

        return Frame(call=call, triggers=lambda _: [self.call[0]])

    def write_results(self, results: Sequence[ToolResult]) -> str:
        start, end = self.result
        return "".join(f"{start}response:{self._result(result)}{end}" for result in results)

    def _result(self, result: ToolResult) -> str:
        value = result_or_error(result)
        text = self.write(value if isinstance(value, Mapping) else {"value": value})
        return escape_text(result.name, self.live) + text

    def new_body(self, marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
        if marker.form:
            return form_body(marker, tools, first_index, caps)
        return GemmaCalls(self.quote, self.call, tools, first_index, caps)


_RULES = """\
- One call in each block: call:name{argument:value,argument:value}. Strings stand between two {quote}, without escapes;
  numbers, true, false, null, [lists] and {objects} stand as they are; keys without quotes.
- No white space between calls; several blocks for several calls."""


def _gemma(info: DialectInfo, form: GemmaFormat, stops: str, *further: Marker) -> DeclaredDialect:
    return DeclaredDialect(
        info=info,
        table=MarkerTable(
            [
                with_forms(Marker("calls", *form.call, Matches(_CALL, _CALL_STARTED, form.call[1])), ("json",)),
                Marker("results", *form.result, Something(), plain=True),
                *further,
            ],
            specials=(info.stop[0], "<bos>", "<eos>"),
            stops=(stops,),
        ),
        new_body=form.new_body,
        write_calls=form.write_calls,
        write_results=form.write_results,
        live=form.live,
        frame=form.frame(),
        rules=_RULES.replace("{quote}", form.quote),
    )


_GEMMA4 = GemmaFormat(
    ("<|tool_call>", "<tool_call|>"),
    ("<|tool_response>", "<tool_response|>"),
    '<|"|>',
    marker_prefix(
        ("|tool_call>", "tool_call|>", "|tool_response>", "tool_response|>", "|channel>", "channel|>", '|"|>')
    ),
)
GEMMA4 = _gemma(
    DialectInfo(
        "gemma4",
        '<|tool_call>call:f{k:<|"|>text<|"|>,n:2}<tool_call|>',
        "chat template of google/gemma-4-31B-it",
        aliases=("gemma4-reasoning",),
        models=("gemma-4",),
        arguments='strings between <|"|>, else by schema',
        results="<|tool_response>response:f{value:…}<tool_response|>",
        earlier=EarlierThoughts("<|channel>thought\n", "\n<channel|>"),
        reasoning="<|channel>thought",
        stop=("<turn|>",),
    ),
    _GEMMA4,
    "<|tool_response>",
    Marker("reasoning", "<|channel>", "<channel|>", label="thought\n", nested=False),
    Marker("noise", "<channel|>", None),
)

_FUNCTIONGEMMA = GemmaFormat(
    ("<start_function_call>", "<end_function_call>"),
    ("<start_function_response>", "<end_function_response>"),
    "<escape>",
    marker_prefix(
        ("start_function_call", "end_function_call", "start_function_response", "end_function_response", "escape>")
    ),
)
FUNCTIONGEMMA = _gemma(
    DialectInfo(
        "functiongemma",
        "<start_function_call>call:f{k:<escape>text<escape>,n:2}<end_function_call>",
        "chat template of google/functiongemma-270m-it",
        models=("functiongemma",),
        arguments="strings between <escape>, else by schema",
        results="<start_function_response>response:f{value:…}<end_function_response>",
        reasoning="",
        stop=("<end_of_turn>", "<start_function_response>"),
    ),
    _FUNCTIONGEMMA,
    "<start_function_response>",
)
