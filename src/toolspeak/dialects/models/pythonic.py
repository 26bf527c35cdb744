"""Llama 3.2 and 4, LFM2, Olmo 3: calls written as Python, `[f(a='x', n=2), g()]`, bare or between markers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import cast

from toolspeak.data.messages import JSON, MalformedCall, ToolCall, ToolResult, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, ResultLayout, Tools
from toolspeak.dialects.declarations.json_dialect import BARE, bare_markers
from toolspeak.dialects.grammar.avoid import Pattern
from toolspeak.dialects.grammar.call_frames import before_call, python_arguments, python_notation
from toolspeak.dialects.grammar.ir import Node, Rules, series
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.prompts.rendering import (
    MarkerEscaper,
    dump_json,
    escape_text,
    marker_prefix,
    result_or_error,
    result_text,
)
from toolspeak.dialects.readers.body import Body, ChosenBody, skip_space
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.readers.python_calls import KEY, NAME, VALUE_START, PythonCalls
from toolspeak.dialects.text.block_delimiters import Matches, Signature
from toolspeak.dialects.text.candidates import beginnings_of
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Caps

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_BARE_CALL = re.compile(rf"\[(?=\s*+{NAME.replace('*', '*+')}\s*+\()")
_TO_ESCAPE = re.compile(r"[\\\x00-\x1f\x7f\ud800-\udfff\u2028\u2029]")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


# --- writing ------------------------------------------------------------------------------------


def write_literal(value: JSON, quote: str, live: re.Pattern[str], in_objects: str = "") -> str:
    """A value as a Python literal, on one line, without live markers.

    `in_objects` is the quote of texts inside objects, if that differs.
    """
    match value:
        case str():
            text = _TO_ESCAPE.sub(_escape, value).replace(quote, f"\\{quote}")
            return quote + live.sub("\\\\x3c", text) + quote
        case Mapping():
            inner = in_objects or quote
            items = (
                f"{write_literal(k, inner, live)}: {write_literal(v, inner, live)}"
                for k, v in as_mapping(value).items()
            )
            return "{" + ", ".join(items) + "}"
        case list() | tuple():
            each = (write_literal(one, quote, live, in_objects) for one in cast("Sequence[JSON]", value))
            return "[" + ", ".join(each) + "]"
        case _:
            return repr(value)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _ESCAPES.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")


def write_call(call: ToolCall | MalformedCall, quote: str, live: re.Pattern[str], in_objects: str = "") -> str:
    """One call. Arguments with names that Python does not allow go into `**{…}`."""
    if isinstance(call, MalformedCall):
        return call.raw
    by_name = [(key, value) for key, value in call.arguments.items() if _PLAIN_KEY.fullmatch(key)]
    others = {key: value for key, value in call.arguments.items() if not _PLAIN_KEY.fullmatch(key)}
    parts = [f"{key}={write_literal(value, quote, live, in_objects)}" for key, value in by_name]
    parts += [f"**{write_literal(others, quote, live, in_objects)}"] if others else []
    return f"{call.name}({', '.join(parts)})"


def _write_list(
    calls: Calls, quote: str, live: re.Pattern[str], start: str = "", end: str = "", in_objects: str = ""
) -> str:
    """The calls in one list, and malformed blocks as the model wrote them."""
    blocks: list[str] = []
    items: list[str] = []
    for call in calls:
        if isinstance(call, MalformedCall) and call.whole_block:
            blocks.append(call.raw)
        else:
            items.append(write_call(call, quote, live, in_objects))
    blocks += [f"[{', '.join(items)}]"] if items else []
    return "\n".join(f"{start}{each}{end}" for each in blocks)


def _write_quoted_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(_write_quoted_result(result) for result in results)


def _write_quoted_result(result: ToolResult) -> str:
    text = dump_json(result_or_error(result), _LLAMA_RESULTS)
    # In JSON a brace cannot be escaped; in a string the quotes after it are.
    return dump_json(text, _LLAMA_RESULTS) if _BARE_JSON.search(text) else text


def _frame(live: re.Pattern[str], start: str, end: str, joint: str = ", ") -> Frame:
    """The layout of `_write_list` for grammars, with strings in single or double quotes.

    Without markers a tool's name after the bracket begins the calls.
    """
    notation = python_notation([lambda value, quote=quote: write_literal(value, quote, live) for quote in "'\""])

    def call(spec: ToolSpec, rules: Rules) -> Node:
        return series(spec.name, python_arguments(spec, rules, notation))

    def triggers(tools: Sequence[ToolSpec]) -> list[str]:
        return [f"{start}{spec.name}(" for spec in tools]

    def avoid(tools: Sequence[ToolSpec]) -> list[Pattern]:
        return [before_call(spec.name, "[", "(") for spec in tools]

    trigger = start.rstrip("[")
    if trigger:
        return Frame(call=call, start=start, joint=joint, end=end, triggers=lambda _: [trigger], avoid=avoid)
    return Frame(call=call, start=start, joint=joint, end=end, triggers=triggers, avoid=avoid)


# --- Llama --------------------------------------------------------------------------------------

_LLAMA = marker_prefix(("|python_start|>", "|python_end|>"))
_LLAMA_RESULTS = re.compile(f"{_BARE_CALL.pattern}|{_LLAMA.pattern}")
_ARGUMENT = rf"(?:\)|\*\*|{KEY}\s*=\s*{VALUE_START})"
_CALLS = re.compile(rf"[\[{{]|{NAME}\s*\(")
_CALLS_START = re.compile(rf"(?:{NAME}\s*)?")


def _between(start: str, end: str) -> Marker:
    """The marker of calls in brackets, a call without brackets, JSON, or nothing, which is malformed."""
    return Marker("calls", start, end, Matches(_CALLS, _CALLS_START, end))


_PYTHON_START = _between("<|python_start|>", "<|python_end|>")
_BARE_JSON = MarkerEscaper(MarkerTable(bare_markers())).pattern
_STOP_3, _STOP_4 = ("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"), ("<|eom|>", "<|eot|>", "<|end_of_text|>")
LLAMA_HEAD = "<|start_header_id|>assistant<|end_header_id|>"
"""Llama's template writes this before a turn, and some models repeat it."""
_HEADS = (LLAMA_HEAD, "<|header_start|>assistant<|header_end|>")


@lru_cache(64)
def _llama_table(names: tuple[str, ...] = ()) -> MarkerTable:
    """The table for tools of these names: only a name distinguishes a bare call from a list in prose or in an
    example."""
    markers = [_PYTHON_START, _bare_list(names), *bare_markers(";")]
    return MarkerTable(markers, specials=dict.fromkeys((*_STOP_3, *_STOP_4, *_HEADS)))


def _bare_list(names: Sequence[str]) -> Marker:
    any_name = "|".join(re.escape(name) for name in names) or NAME
    whole = re.compile(rf"(?:{any_name})\s*\(\s*{_ARGUMENT}")
    partial_name = beginnings_of(names) or f"(?:{NAME})?"
    beginning = re.compile(rf"(?:(?:{any_name})\s*(?:\(\s*(?:\*|{KEY}\s*(?:=\s*)?)?)?|{partial_name})")
    return Marker("calls", "[", None, Matches(whole, beginning, within=True))


def _new_list(marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
    if marker.end is None:  # the marker of a bare call gives its form
        if marker.text == BARE and isinstance(marker.opening, Signature):
            return JsonCalls(call_shape("arguments", marker.opening.first == "["), first_index, caps, tools)
        return PythonCalls(True, first_index, caps, tools)
    return PythonOrJson(first_index, caps, tools, several=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BareDialect(DeclaredDialect):
    """A dialect whose calls may lack a marker. Only tools' names distinguish them from prose."""


_RULES = """\
- Calls are Python: every argument as name=value with a literal (strings in quotes, numbers, True, False, None, lists,
  dicts); no variables, no expressions. An argument whose name is no Python name goes into **{'its name': value}.
"""


def _llama(info: DialectInfo, start: str, end: str, rule: str) -> BareDialect:
    return BareDialect(
        info=info,
        table=_llama_table(),
        by_tools=_llama_table,
        new_body=_new_list,
        write_calls=lambda calls, _tools: _write_list(calls, "'", _LLAMA, start, end),
        write_results=_write_quoted_results,
        live=_LLAMA_RESULTS,
        frame=_frame(_LLAMA, f"{start}[", f"]{end}"),
        rules=_RULES + rule,
    )


PYTHONIC = _llama(
    DialectInfo(
        "pythonic",
        "[f(a='x', n=2), g()], without markers",
        "chat template of meta-llama/Llama-3.2-3B-Instruct (tools in the system prompt)",
        models=("toolace",),
        arguments="Python literals",
        results="ipython turn, JSON",
        reasoning="",
        stop=_STOP_3,
    ),
    "",
    "",
    "- All calls stand in one list, in square brackets.",
)
LLAMA4_PYTHONIC = _llama(
    DialectInfo(
        "llama4-pythonic",
        "<|python_start|>[f(a='x', n=2), g()]<|python_end|>; the markers may be missing",
        "chat template of meta-llama/Llama-4-Scout-17B-16E-Instruct",
        models=("llama-4",),
        arguments="Python literals",
        results="ipython turn, JSON",
        reasoning="",
        stop=_STOP_4,
    ),
    "<|python_start|>",
    "<|python_end|>",
    "- All calls stand in one list, in square brackets, between <|python_start|> and <|python_end|>.",
)

# --- LFM2 ---------------------------------------------------------------------------------------

_LFM2 = marker_prefix(
    ("|tool_call_start|>", "|tool_call_end|>", "|tool_response_start|>", "|tool_response_end|>", "think")
)


@cache
def call_shape(arguments_key: str, array: bool) -> CallShape:
    return CallShape(arguments_key, array=array, arguments_required=False, arguments_text=True, alone=True)


class PythonOrJson(ChosenBody):
    """Implements `Body`: reads Python calls, or JSON, which LFM2 writes on request and Llama 4 at any time."""

    def __init__(
        self, first_index: int, caps: Caps, tools: Tools, *, several: bool, arguments_key: str = "arguments"
    ) -> None:
        super().__init__(caps)
        self._arguments_key = arguments_key
        self._first_index = first_index
        self._tools = tools
        self._several = several

    def choose(self, text: str, start: int) -> Body | None:
        at = skip_space(text, start)
        array = text.startswith("[", at)
        inner = skip_space(text, at + 1) if array else at
        if inner == len(text) and inner - start < MAX_CANDIDATE:
            return None
        if text.startswith("{", inner):
            shape = call_shape(self._arguments_key, array)
            return JsonCalls(shape, self._first_index, self.caps, self._tools, several=self._several)
        return PythonCalls(True, self._first_index, self.caps, self._tools)


@lru_cache(64)
def _lfm2_table(names: tuple[str, ...] = ()) -> MarkerTable:
    """The table for tools of these names: without markers, which are special tokens, only a name identifies a call."""
    return MarkerTable(
        [
            _between("<|tool_call_start|>", "<|tool_call_end|>"),
            *([replace(_bare_list(names), place="word")] if names else []),
            Marker("results", "<|tool_response_start|>", "<|tool_response_end|>", plain=True),
            Marker("reasoning", "<think>", "</think>"),
        ],
        specials=("<|im_end|>", "<|endoftext|>"),
    )


def _lfm(
    info: DialectInfo,
    quote: str,
    in_objects: str,
    results: ResultLayout,
    write_results: Callable[[Sequence[ToolResult]], str] | None = None,
) -> DeclaredDialect:
    start, end = "<|tool_call_start|>", "<|tool_call_end|>"
    return DeclaredDialect(
        info=info,
        table=_lfm2_table(),
        by_tools=_lfm2_table,
        new_body=_new_list,
        write_calls=lambda calls, _tools: _write_list(calls, quote, _LFM2, start, end, in_objects),
        results=results,
        write_results=write_results,
        live=_LFM2,
        frame=_frame(_LFM2, f"{start}[", f"]{end}"),
        rules=_RULES + "- All calls stand in one list, in square brackets, between the two markers.",
    )


LFM2 = _lfm(
    DialectInfo(
        "lfm2",
        '<|tool_call_start|>[f(a="x", n=2), g()]<|tool_call_end|>',
        "model card and chat template of LiquidAI/LFM2-8B-A1B",
        models=("lfm2.x",),
        arguments="Python literals",
        results="<|tool_response_start|>…<|tool_response_end|> in a tool turn",
        earlier=EarlierThoughts("<think>", "</think>"),
        stop=("<|im_end|>", "<|endoftext|>"),
    ),
    '"',
    "",
    ResultLayout("<|tool_response_start|>", "<|tool_response_end|>"),
)
LFM25 = _lfm(
    DialectInfo(
        "lfm25",
        "<|tool_call_start|>[f(a='x', n=2), g()]<|tool_call_end|>",
        "chat template of LiquidAI/LFM2.5-8B-A1B",
        models=("lfm2.5",),
        arguments="Python literals",
        results="plain text in a tool turn",
        earlier=EarlierThoughts("<think>", "</think>"),
        stop=("<|im_end|>", "<|endoftext|>"),
    ),
    "'",
    '"',
    ResultLayout(),
    write_results=lambda results: "\n".join(escape_text(result_text(each, _LFM2), _BARE_CALL) for each in results),
)

# --- Olmo 3 -------------------------------------------------------------------------------------

_OLMO3 = marker_prefix(("function_calls", "think"))
_LINE = Matches(re.compile(rf"\[?\s*{NAME}\s*\("), re.compile(rf"\[?\s*(?:{NAME}\s*)?"), "</function_calls>")


def _write_olmo3_calls(calls: Calls, _tools: Tools) -> str:
    body = "\n".join(write_call(call, '"', _OLMO3) for call in calls)
    return f"<function_calls>{body}</function_calls>"


OLMO3 = DeclaredDialect(
    info=DialectInfo(
        "olmo3",
        '<function_calls>f(a="x", n=2)</function_calls>, one call a line',
        "chat template of allenai/Olmo-3-7B-Instruct",
        models=("olmo-3.x",),
        arguments="Python literals",
        results="plain text in a turn of the role environment",
        stop=("<|im_end|>", "<|endoftext|>"),
        text_aside=True,
    ),
    table=MarkerTable(
        [
            Marker("calls", "<function_calls>", "</function_calls>", _LINE),
            Marker("reasoning", "<think>", "</think>"),
        ],
        specials=("<|im_end|>", "<|endoftext|>"),
    ),
    new_body=lambda _marker, first, caps, tools: PythonCalls(False, first, caps, tools),
    write_calls=_write_olmo3_calls,
    live=_OLMO3,
    frame=_frame(_OLMO3, "<function_calls>", "</function_calls>", "\n"),
    rules=_RULES + "- One call a line, without brackets around them.",
)
