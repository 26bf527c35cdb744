"""Hermes: `<tool_call>` with one JSON object, repeated. The most widely copied format of open models."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.body import Body
from toolspeak.dialects.declared import Calls, DeclaredDialect, Tools
from toolspeak.dialects.json_calls import CallShape, JsonCalls
from toolspeak.dialects.markers import Marker, MarkerTable
from toolspeak.dialects.render import dump_json, marker_prefix, result_text
from toolspeak.dialects.scan import Caps

_LIVE = marker_prefix(("tool_call", "tool_response", "think"))
_SHAPE = CallShape(arguments_key="arguments", array=False, arguments_required=False)


def _new_body(_marker: Marker, first_index: int, caps: Caps, _tools: Tools) -> Body:
    return JsonCalls(_SHAPE, first_index, caps)


def _write_calls(calls: Calls, _tools: Tools) -> str:
    return "\n".join(f"<tool_call>\n{_object(call)}\n</tool_call>" for call in calls)


def _object(call: ToolCall | MalformedCall) -> str:
    if isinstance(call, MalformedCall):
        return call.raw
    return dump_json({"name": call.name, "arguments": call.arguments}, _LIVE)


def _write_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(f"<tool_response>\n{result_text(result, _LIVE)}\n</tool_response>" for result in results)


HERMES = DeclaredDialect(
    info=DialectInfo(
        "hermes",
        '<tool_call>{"name": …, "arguments": {…}}</tool_call>, repeated',
        "chat template of NousResearch/Hermes-3-Llama-3.1-8B (tool_use), of Qwen/Qwen2.5 and Qwen/Qwen3",
        "parallel",
        models=("hermes", "qwen2.5", "qwen3", "reka"),
        results="<tool_response> in a user turn (Hermes: a tool turn)",
    ),
    table=MarkerTable(
        [
            Marker("calls", "<tool_call>", "</tool_call>", "{[<"),
            Marker("results", "<tool_response>", "</tool_response>", '\n[{"', plain=True),
            Marker("reasoning", "<think>", "</think>"),
        ]
    ),
    new_body=_new_body,
    write_calls=_write_calls,
    write_results=_write_results,
    live=_LIVE,
    rules="- One JSON object in each block: double quotes, no comments; several blocks for several calls.",
)
