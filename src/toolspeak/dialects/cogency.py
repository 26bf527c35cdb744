"""What the two Cogency protocols share: markers, phases, results, and the shape of the history."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.messages import (
    JSON,
    MalformedCall,
    Message,
    TextMessage,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import BatchRule
from toolspeak.dialects.render import dump_json, join_block, marker_prefix, merge_users, result_value

EXECUTE, RESULTS, THINK = "execute", "results", "think"
MARKERS = marker_prefix((EXECUTE, RESULTS, THINK))
BATCH = BatchRule("first_block")

RESULTS_TEXT = """\
Afterwards the system answers with the results, in the order of the calls: the first result belongs to the first call.

<results>
[
  {"tool": "name", "status": "success", "content": …},
  {"tool": "name", "status": "failure", "content": "what went wrong"}
]
</results>

Only the system writes <results>: stop after </execute> and wait. When a call failed, read why, and correct it."""

THINK_TEXT = "You may think first, between <think> and </think>; nothing in there is executed or shown."


class CogencyHistory:
    """Renders a conversation; a subclass writes the calls of one block."""

    def render_calls(self, calls: Sequence[ToolCall | MalformedCall], tools: Sequence[ToolSpec]) -> str:
        raise AssertionError("a dialect writes its own calls")

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, tool_role: bool = False
    ) -> list[TextMessage]:
        """Results become user messages: `tool_role` changes nothing in this protocol."""
        rendered: list[TextMessage] = []
        for message in messages:
            if message.role == "tool":
                rendered.append(TextMessage("user", self.render_results(message.results)))
            else:
                rendered.append(TextMessage(message.role, self._text(message, tools)))
        return merge_users(rendered)

    def _text(self, message: Message, tools: Sequence[ToolSpec]) -> str:
        text, block = "", list[ToolCall | MalformedCall]()
        for part in message.parts:
            if isinstance(part, ToolCall | MalformedCall):
                block.append(part)
            elif isinstance(part, TextPart):
                text += part.text
        return join_block(text, self.render_calls(block, tools)) if block else text

    def render_results(self, results: Sequence[ToolResult]) -> str:
        rows = [_row(result) for result in results]
        body = ",\n".join(f"  {dump_json(row, MARKERS)}" for row in rows)
        return f"<{RESULTS}>\n[\n{body}\n]\n</{RESULTS}>" if rows else f"<{RESULTS}>\n[]\n</{RESULTS}>"


def _row(result: ToolResult) -> dict[str, JSON]:
    return {"tool": result.name or None, "status": result.status, "content": result_value(result)}


def unreadable(calls: Sequence[ToolCall | MalformedCall]) -> MalformedCall | None:
    """The block that could not be read at all, if this is one."""
    return next((call for call in calls if isinstance(call, MalformedCall) and call.whole_block), None)
