"""Cogency's JSON protocol (v3.2+): think, execute a JSON array of calls, read the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolspeak.data.messages import JSON, MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.grammar.json_frames import json_call
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.parser.block_state import BlockFormat
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.prompts.rendering import dump_json
from toolspeak.dialects.protocols.cogency import (
    BATCH,
    EARLIER,
    EXECUTE,
    MARKERS,
    CogencyDialect,
    marker_table,
    unreadable,
)
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.text.scan import Caps, Problem, decode_json
from toolspeak.dialects.turn_rules import BatchRule, Section

_TABLE = marker_table("[{<")
_SHAPE = CallShape(arguments_key="args", array=True, arguments_required=True)

_INTRODUCTION = """\
## Tools

You can use tools. To call them, write one <execute> block that holds a JSON array of calls:

{example}

- Each call is {"name": "tool_name", "args": {…}} with the tool's own argument names and JSON types.
- It is strict JSON: double quotes, no comments, no trailing comma; in a string write a line break as \\n, a
  quote as \\" and a backslash as \\\\. Anything else, tags included, may stand in a string as it is.
- The calls of a block may run in parallel: count on no order among them, and put a call that needs the outcome of
  another into a later block.
- At most one block in a message. Without a block your message is the answer, and the work is over."""


def _new_body(_marker: Marker, first_index: int, caps: Caps, _tools: Mapping[str, ToolSpec]) -> JsonCalls:
    return JsonCalls(_SHAPE, first_index, caps)


class CogencyJson(CogencyDialect):
    """Implements `Dialect`."""

    name = "cogency-json"
    info = DialectInfo(
        "cogency-json",
        '<execute>[{"name": …, "args": {…}}, …]</execute>; results as a JSON array',
        "Cogency, docs/execution.md (v3.2+)",
        "parallel",
        results="a JSON array in <results>, in a user turn",
        earlier=EARLIER,
    )
    introduction = _INTRODUCTION

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> BlockParser:
        by_name = {spec.name: spec for spec in tools}
        format = BlockFormat(_TABLE, BATCH, _new_body, by_name, thoughts_hide=True, writes=self.example)  # noqa: A001
        return BlockParser(format, starts_in)

    def grammar_parts(self) -> tuple[Frame, Sequence[Marker], BatchRule]:
        return _FRAME, _TABLE.markers, self.batch

    def render_calls(self, calls: Sequence[ToolCall | MalformedCall], tools: Sequence[ToolSpec]) -> str:
        whole = unreadable(calls)
        if whole is not None:
            return f"<{EXECUTE}>{whole.raw}</{EXECUTE}>"
        body = ",\n".join(f"  {_element(call)}" for call in calls)
        return f"<{EXECUTE}>\n[\n{body}\n]\n</{EXECUTE}>"


_FRAME = Frame(
    call=json_call(MARKERS, name_key="name", arguments_key="args"),
    start=f"<{EXECUTE}>\n[\n  ",
    joint=",\n  ",
    end=f"\n]\n</{EXECUTE}>",
    triggers=lambda _: [f"<{EXECUTE}>"],
)


def _element(call: ToolCall | MalformedCall) -> str:
    if isinstance(call, ToolCall):
        return dump_json({"name": call.name, "args": call.arguments}, MARKERS)
    value: JSON = decode_json(call.raw)
    return dump_json(call.raw if isinstance(value, Problem) else value, MARKERS)


COGENCY_JSON = CogencyJson()
