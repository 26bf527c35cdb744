"""Functionary: v3.1 writes `<function=name>{…}</function>`, v3.2 `>>>name` on its own line and JSON below it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolspeak.data.messages import ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo, Parser
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect
from toolspeak.dialects.declarations.named_layout import NamedLayout
from toolspeak.dialects.grammar.avoid import texts
from toolspeak.dialects.grammar.ir import optional
from toolspeak.dialects.grammar.json_frames import named_call
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.models.pythonic import LLAMA_HEAD
from toolspeak.dialects.parser.prefill import PrefilledParser
from toolspeak.dialects.prompts.rendering import result_text
from toolspeak.dialects.readers.named_calls import Header, NamedCalls, NamedShape
from toolspeak.dialects.text.block_delimiters import Follows
from toolspeak.dialects.text.candidates import NAME
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.turn_rules import Section

_ONE_NAME = re.compile(rf"\s*({NAME})\s*")


def _read_header(text: str) -> Header | None:
    match = _ONE_NAME.fullmatch(text)
    return Header(match[1]) if match else None


# --- v3.1 ---------------------------------------------------------------------------------------

_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_STOP_V31 = ("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>")
_STOP_V32 = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
_LIVE_V31 = re.compile(r"<(?=function=|\s*+(?:/\s*+)?(?ai:function))")
_SHAPE_V31 = NamedShape(_read_header, "<function=name>{…}</function>", separator=">", others=(_FUNCTION_END,))
_CALL_V31 = re.compile(rf"\s*{NAME}\s*>\s*(?:\{{|```|</function|\[|null)")
_COMING_V31 = re.compile(rf"\s*(?:{NAME}\s*(?:>\s*(?:n(?:ul?)?|(?P<tail>`{{0,2}}|</?[a-z]*))?)?)?")


def _call_follows_v31(rest: str) -> bool | None:
    if _CALL_V31.match(rest):
        return True
    match = _COMING_V31.fullmatch(rest)
    return None if match and (not match["tail"] or f"```{_FUNCTION_END}".find(match["tail"]) in (0, 3)) else False


_LAYOUT_V31 = NamedLayout(
    live=_LIVE_V31,
    head=lambda name, _id: f"{_FUNCTION}{name}>",
    tail=_FUNCTION_END,
    write_malformed=lambda call: f"{_FUNCTION}{call.raw}{_FUNCTION_END}",
)
FUNCTIONARY_V31 = DeclaredDialect(
    info=DialectInfo(
        "functionary-v31",
        "<function=name>{…}</function>, repeated",
        "chat template of meetkai/functionary-medium-v3.1",
        aliases=("functionary-v3.1",),
        models=("functionary-small-v3.1", "functionary-medium-v3.1"),
        results="plain text in an ipython turn",
        reasoning="",
        stop=_STOP_V31,
    ),
    table=MarkerTable(
        [Marker("calls", _FUNCTION, _FUNCTION_END, Follows(_call_follows_v31))], specials=(*_STOP_V31, LLAMA_HEAD)
    ),
    new_body=lambda _marker, first, caps, tools: NamedCalls(_SHAPE_V31, first, caps, tools),
    write_calls=_LAYOUT_V31.write_calls,
    live=_LIVE_V31,
    frame=_LAYOUT_V31.frame(triggers=lambda _: [_FUNCTION]),
    rules="- The arguments are one JSON object. Several calls follow each other directly.",
)


# --- v3.2 ---------------------------------------------------------------------------------------

_TO, _TO_ALL = ">>>", ">>>all\n"
_LIVE_V32 = re.compile(r">(?=>>)")
_SHAPE_V32 = NamedShape(_read_header, ">>>name\n{…}", others=(_TO,), unended=True)
_CALL_V32 = re.compile(rf"({NAME})[ \t]*\r?\n\s*\{{")
_COMING_V32 = re.compile(rf"(?:{NAME}[ \t]*(?:\r?\n?\s*)?)?")


def _call_follows_v32(rest: str) -> bool | None:
    if _CALL_V32.match(rest):
        return True
    return None if _COMING_V32.fullmatch(rest) else False


_LAYOUT_V32 = NamedLayout(
    live=_LIVE_V32, head=lambda name, _id: f"{_TO}{name}\n", write_malformed=lambda call: f"{_TO}{call.raw}"
)


def _write_results_v32(results: Sequence[ToolResult]) -> str:
    text = "\n".join(result_text(result, _LIVE_V32) for result in results)
    # Without a line break first, the text could be a turn that begins after the prompt's `>>>`.
    return f"\n{text}" if _CALL_V32.match(text) or text.startswith("all\n") else text


class _FunctionaryV32(DeclaredDialect):
    """A dialect whose prompt ends with the first `>>>`, so that a turn may begin after it.

    If the tools are known, the first line is a recipient only if it names one of them. After another prompt a reply
    may begin with any word and JSON below it.
    """

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        names = frozenset(spec.name for spec in tools)
        return PrefilledParser(super().parser(tools, starts_in), _TO, lambda text: _opens_v32(text, names))


def _opens_v32(text: str, tools: frozenset[str]) -> bool | None:
    if text.startswith("all\n"):
        return True
    match = _CALL_V32.match(text)
    if match:
        return not tools or match[1] in tools
    return None if _COMING_V32.fullmatch(text) else False


FUNCTIONARY_V32 = _FunctionaryV32(
    info=DialectInfo(
        "functionary-v32",
        ">>>name, a line break, {…}; text to the user after >>>all",
        "chat template of meetkai/functionary-medium-v3.2",
        aliases=("functionary-v3.2",),
        models=("functionary-small-v3.2", "functionary-medium-v3.2"),
        results="plain text in a tool turn",
        reasoning="",
        stop=_STOP_V32,
    ),
    table=MarkerTable(
        [Marker("noise", _TO_ALL, None), Marker("calls", _TO, None, Follows(_call_follows_v32))],
        specials=(*_STOP_V32, LLAMA_HEAD),
    ),
    new_body=lambda _marker, first, caps, tools: NamedCalls(_SHAPE_V32, first, caps, tools),
    write_calls=_LAYOUT_V32.write_calls,
    write_results=_write_results_v32,
    live=_LIVE_V32,
    frame=Frame(
        call=named_call(_LIVE_V32, lambda name: f"{name}\n"),
        joint=_TO,
        lead=optional(_TO),  # the prompt may have written it already
        text_start="all\n",
        text_before_calls=("all\n", _TO, ""),
        avoid=lambda _: texts(_TO),
    ),
    rules="- The name stands on a line of its own after >>>; the arguments are one JSON object on the next line.",
)
