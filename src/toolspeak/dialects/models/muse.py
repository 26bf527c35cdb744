"""Muse: a turn is several messages, each with an addressee (` to=user<|message|>…<|eom|>`).

Messages to the model itself are reasoning, those to the user are text, and those to a tool hold
`<atem:function_calls>`. In any other message these elements are text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolspeak.data.deltas import Delta, TextDelta
from toolspeak.data.messages import FinishReason, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, DeclaredHistory, Tools
from toolspeak.dialects.declarations.element_dialect import ElementLayout, call_node, write_call
from toolspeak.dialects.grammar.avoid import texts
from toolspeak.dialects.grammar.ir import Node, Rules, series
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.parser.block_format import BlockFormat
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.prompts.rendering import result_text
from toolspeak.dialects.readers.element_tags import ElementSyntax
from toolspeak.dialects.readers.elements import ElementCalls
from toolspeak.dialects.readers.tagged_values import escape_name
from toolspeak.dialects.text.block_delimiters import Texts, begins
from toolspeak.dialects.text.markers import Marker, MarkerMatch, MarkerTable
from toolspeak.dialects.text.scan import MAX_CANDIDATE
from toolspeak.dialects.turn_rules import Section

_START, _MESSAGE, _EOM = "<|start|>assistant", "<|message|>", "<|eom|>"
ENDS = (_EOM, "<|eot|>")
_END = re.compile("|".join(map(re.escape, ENDS)))
_HEADER = re.compile(r"\s*(?:<\|start\|>assistant)?\s*to=([^\s<|]*)<\|message\|>")
_ADDRESSEE = re.compile(r"[^\s<|]*")
_BLOCK = ("<atem:function_calls>", "</atem:function_calls>")
_LIVE = re.compile(r"<(?=\||\s*+(?:/\s*+)?(?ai:atem:|tool_output))")
_SYNTAX = ElementSyntax("<atem:invoke", "<atem:parameter", guesses=True, doubled=True)
_FRAME = re.compile(rf"{_SYNTAX.ends.pattern}|{_LIVE.pattern}")


def begins_turn(text: str) -> bool | None:
    """Whether a turn begins with a header; None asks for more text."""
    return True if _HEADER.match(text) else None if _may_become_header(text) else False


class MuseParser(BlockParser):
    """Implements `Parser`: reads blocks in messages with addressees."""

    def __init__(self, format: BlockFormat, starts_in: Section = "text") -> None:  # noqa: A002
        super().__init__(format)
        self._to = "self" if starts_in == "reasoning" else "user"
        self._state = self._text if starts_in == "reasoning" else self._header

    def close(self, reason: FinishReason) -> list[Delta]:
        out: list[Delta] = []
        thinks = self._state == self._text and self._to == "self"
        if self._pending and self._block is None and self._draft is None and thinks:
            out.append(self._reasoning_kind(self._pending))
            self._pending = ""
        return [*out, *super().close(reason)]

    def _header(self, text: str, position: int, out: list[Delta]) -> int:
        rest = text[position : position + MAX_CANDIDATE]
        header = _HEADER.match(rest)
        if header is None and len(rest) < MAX_CANDIDATE and _may_become_header(rest):
            self._pending = text[position:]
            return len(text)
        self._to = header[1] if header else "user"
        self._state = self._text_state
        if header and self._to == "self":
            self._markup(text, position, position + header.end(), out)
        return position + header.end() if header else position

    def _plain(self, chunk: str) -> list[Delta] | None:
        return None  # all text is in messages; see `_text`

    def _text(self, text: str, position: int, out: list[Delta]) -> int:
        if self._to == "self":
            return self._to_self(text, position, out)
        if self._to != "user":
            return self._to_tool(text, position, out)
        ending = _END.search(text, position)
        if ending:
            self._emit(TextDelta, text, position, ending.start(), out)
            self._report_unmarked(self._position + ending.start(), out)
            self._begin_section()
            self._state = self._header
            return ending.end()
        at = text.rfind("<", max(position, len(text) - len(_EOM)))
        hold = at if at >= 0 and any(end.startswith(text[at:]) for end in ENDS) else len(text)
        self._emit(TextDelta, text, position, hold, out)
        self._pending = text[hold:]
        return len(text)

    def _draft_parser(self) -> MuseParser:
        parser = MuseParser(self._format)
        parser._to, parser._state = "tool", parser._text
        return parser

    def _to_self(self, text: str, position: int, out: list[Delta]) -> int:
        start = position
        while (at := text.find("<", position)) >= 0:
            end_match = _END.match(text, at)
            if end_match:
                self._add_reasoning(text, start, at, out)
                self._end_reasoning(out)
                self._markup(text, at, end_match.end(), out)
                self._state = self._header
                return end_match.end()
            if text.startswith(_START, at):  # the next message begins, though this one has no end
                self._add_reasoning(text, start, at, out)
                self._end_reasoning(out)
                self._state = self._header
                return at
            verdict = self._table.decide(text[at : at + MAX_CANDIDATE])
            if isinstance(verdict, MarkerMatch) and verdict.marker.kind == "calls":
                start = self._add_reasoning(text, start, at, out)
                self._begin_draft(verdict, self._position + at)
            elif verdict in ("undecided", "opened") or begins(text, at, *ENDS, _START):
                self._add_reasoning(text, start, at, out)
                return self._hold(text, at)
            position = at + 1
        return self._add_reasoning(text, start, len(text), out)

    def _closing(self, text: str, position: int, out: list[Delta]) -> int:
        if text.startswith(_EOM, position):  # the message's end ends its block
            block = self._block
            assert block is not None, "a block state without a block is our bug"
            self._finish_unclosed(block, out)
            return position
        return self._hold(text, position) if begins(text, position, _EOM) else super()._closing(text, position, out)

    def _to_tool(self, text: str, position: int, out: list[Delta]) -> int:
        """Inside a message to a tool: blocks with white space between them. Anything else makes the rest text."""
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return position
        rest = text[position : position + MAX_CANDIDATE]
        end_match = _END.match(rest)
        if end_match:
            self._state = self._header
            return position + end_match.end()
        verdict = self._table.decide(rest)
        if isinstance(verdict, MarkerMatch):
            return self._open(verdict, position)
        if verdict in ("undecided", "opened") or any(end.startswith(rest) for end in ENDS):
            self._pending = text[position:]
            return len(text)
        self._to = "user"
        return position


def _may_become_header(rest: str) -> bool:
    rest = rest.lstrip()
    if _START.startswith(rest):
        return True
    rest = rest.removeprefix(_START).lstrip()
    if "to=".startswith(rest):
        return True
    if not rest.startswith("to="):
        return False
    name = _ADDRESSEE.match(rest, 3)
    return _MESSAGE.startswith(rest[name.end() if name else 3 :])


class MuseDialect(DeclaredDialect):
    """A declared dialect with its own parser and history."""

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> BlockParser:
        return MuseParser(self.format(tools), starts_in)

    def history(self, tools: Sequence[ToolSpec] = (), *, tool_role: bool = False) -> DeclaredHistory:
        return MuseHistory(self, tools, tool_role=tool_role)


class MuseHistory(DeclaredHistory):
    def join_calls(self, text: str, calls: Calls, block: str) -> str:
        """A turn with calls is several messages; the first begins after the prompt's `<|start|>assistant`."""
        return (f" to=user{_MESSAGE}{text}{_EOM}{_START}" if text else "") + block


def _write_calls(calls: Calls, tools: Tools) -> str:
    messages: list[str] = []
    for call in calls:
        text = write_call(call, tools.get(call.name or ""), _SYNTAX, _LAYOUT, _FRAME)
        name = call.name if isinstance(call, ToolCall) else ""
        to = name if name and _ADDRESSEE.fullmatch(name) and name not in ("self", "user") else "tool"
        messages.append(f" to={to}{_MESSAGE}{_BLOCK[0]}\n{text}\n{_BLOCK[1]}")
    return f"{_EOM}{_START}".join(messages)


def _write_results(results: Sequence[ToolResult]) -> str:
    texts = [(escape_name(result.name), result_text(result, _LIVE)) for result in results]
    return "\n".join(f'<tool_output name="{name}">\n{text}\n</tool_output>' for name, text in texts)


def _call_node(spec: ToolSpec, rules: Rules) -> Node:
    to = spec.name if _ADDRESSEE.fullmatch(spec.name) and spec.name not in ("self", "user") else "tool"
    element = call_node(spec, rules, _SYNTAX, _LAYOUT, _FRAME)
    return series(f" to={to}{_MESSAGE}{_BLOCK[0]}\n", element, f"\n{_BLOCK[1]}")


_LAYOUT = ElementLayout()
MUSE = MuseDialect(
    info=DialectInfo(
        "muse",
        ' to=f<|message|><atem:function_calls> <atem:invoke name="f"> <atem:parameter name="k">value',
        "llama.cpp, tests/test-chat.cpp (Muse template)",
        models=("muse",),
        arguments="text, typed by the tool's schema; JSON where that says nothing",
        results="<tool_output name=…> in a message of the tool",
        reasoning="to=self",
        stop=("<|eot|>",),
        earlier=EarlierThoughts(f" to=self{_MESSAGE}", f"{_EOM}{_START}", "always", calls_only=True),
    ),
    table=MarkerTable([Marker("calls", *_BLOCK, Texts(("<atem:invoke", _BLOCK[1])))], specials=ENDS[1:]),
    new_body=lambda _marker, first, caps, tools: ElementCalls(_SYNTAX, _BLOCK, tools, first, caps, breaks=(_EOM,)),
    write_calls=_write_calls,
    write_results=_write_results,
    live=_LIVE,
    frame=Frame(
        call=_call_node,
        joint=f"{_EOM}{_START}",
        text_start=f" to=user{_MESSAGE}",
        text_before_calls=(f" to=user{_MESSAGE}", _EOM, _START),
        reasoning=((f" to=self{_MESSAGE}", _EOM, _START),),
        avoid=lambda _: texts(*ENDS, _START),
    ),
    rules="""\
- A message to a tool holds one block; its addressee is the tool. One element for each argument, its value between
  the tags as it is: no quotes, no escapes; objects and arrays as JSON.
- Every message but the last ends with <|eom|>, and the next begins with <|start|>assistant to=….""",
)
