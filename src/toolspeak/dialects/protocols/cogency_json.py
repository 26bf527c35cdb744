"""Cogency's JSON protocol (v3.2+): think, execute a JSON array of calls, read the results."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.data.messages import JSON, MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.grammar.json_frames import json_call
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompts.rendering import dump_json
from toolspeak.dialects.protocols.cogency import (
    EARLIER,
    EXECUTE,
    MARKERS,
    CogencyDialect,
    marker_table,
)
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.text.scan import Caps, Problem, decode_json

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


class CogencyJson(CogencyDialect):
    """Implements `Dialect`."""

    name = "cogency-json"
    info = DialectInfo(
        "cogency-json",
        '<execute>[{"name": …, "args": {…}}, …]</execute>; results as a JSON array',
        "Cogency, docs/execution.md (v3.2+)",
        results="a JSON array in <results>, in a user turn",
        earlier=EARLIER,
    )
    introduction = _INTRODUCTION
    table = marker_table("[{<")
    frame = Frame(
        call=json_call(MARKERS, name_key="name", arguments_key="args"),
        start=f"<{EXECUTE}>\n[\n  ",
        joint=",\n  ",
        end=f"\n]\n</{EXECUTE}>",
        triggers=lambda _: [f"<{EXECUTE}>"],
    )

    def new_body(self, marker: Marker, first_index: int, caps: Caps, tools: Mapping[str, ToolSpec]) -> JsonCalls:
        return JsonCalls(_SHAPE, first_index, caps)

    def render_call(self, call: ToolCall | MalformedCall, tools: Mapping[str, ToolSpec]) -> str:
        if isinstance(call, ToolCall):
            return dump_json({"name": call.name, "args": call.arguments}, MARKERS)
        value: JSON = decode_json(call.raw)
        return dump_json(call.raw if isinstance(value, Problem) else value, MARKERS)


COGENCY_JSON = CogencyJson()
