"""What the two Cogency protocols share: markers, phases, results, and the shape of the history."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.messages import (
    JSON,
    MalformedCall,
    Message,
    TextMessage,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import BatchRule, Listing
from toolspeak.dialects.grammar.build import WithGrammar
from toolspeak.dialects.markers import Marker, MarkerTable
from toolspeak.dialects.render import (
    append_message,
    dump_json,
    join_block,
    marker_prefix,
    render_all,
    result_value,
)
from toolspeak.dialects.schema_text import choice_text, example_tools, list_tools, sample_arguments

EXECUTE, RESULTS, THINK = "execute", "results", "think"
MARKERS = marker_prefix((EXECUTE, RESULTS, THINK))
BATCH = BatchRule("first_block")


def marker_table(calls_start: str) -> MarkerTable:
    """The protocols' markers; only the calls' first characters differ."""
    return MarkerTable(
        [
            Marker("calls", f"<{EXECUTE}>", f"</{EXECUTE}>", calls_start),
            Marker("results", f"<{RESULTS}>", f"</{RESULTS}>", "[{"),
            Marker("reasoning", f"<{THINK}>", f"</{THINK}>"),
        ]
    )


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
    """Implements `History`: results become user messages, one block for the calls of a turn."""

    def __init__(self, dialect: CogencyDialect, tools: Sequence[ToolSpec]) -> None:
        self._dialect = dialect
        self._tools = tools
        self.messages: list[TextMessage] = []

    def add(self, message: Message) -> None:
        if message.role == "tool":
            rendered = TextMessage("user", self._dialect.render_results(message.results))
        else:
            rendered = TextMessage(message.role, self._text(message))
        append_message(self.messages, rendered)

    def _text(self, message: Message) -> str:
        text = message.text
        return join_block(text, self._dialect.render_calls(message.calls, self._tools)) if message.calls else text


class CogencyDialect(WithGrammar):
    """What the two protocols have in common; a subclass introduces, writes and reads the calls of one block.

    `introduction` holds `{example}` where the worked example goes.
    """

    introduction = ""
    batch: BatchRule = BATCH

    def instructions(
        self, tools: Sequence[ToolSpec], choice: ToolChoice = ToolChoice(), listing: Listing = "described"
    ) -> str:
        shown = [ToolCall("", spec.name, sample_arguments(spec)) for spec in example_tools(tools)]
        parts = [self.introduction.replace("{example}", self.render_calls(shown, tools)), THINK_TEXT, RESULTS_TEXT]
        parts += [choice_text(choice, tools), "## The tools you have", list_tools(tools, listing)]
        return "\n\n".join(part for part in parts if part)

    def render_calls(self, calls: Sequence[ToolCall | MalformedCall], tools: Sequence[ToolSpec]) -> str:
        raise AssertionError("a dialect writes its own calls")

    def history(self, tools: Sequence[ToolSpec] = (), *, tool_role: bool = False) -> CogencyHistory:
        """`tool_role` changes nothing in this protocol: results are user messages."""
        return CogencyHistory(self, tools)

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, tool_role: bool = False
    ) -> list[TextMessage]:
        return render_all(self.history(tools, tool_role=tool_role), messages)

    def render_results(self, results: Sequence[ToolResult]) -> str:
        rows = [_row(result) for result in results]
        body = ",\n".join(f"  {dump_json(row, MARKERS)}" for row in rows)
        return f"<{RESULTS}>\n[\n{body}\n]\n</{RESULTS}>" if rows else f"<{RESULTS}>\n[]\n</{RESULTS}>"


def _row(result: ToolResult) -> dict[str, JSON]:
    return {"tool": result.name or None, "status": result.status, "content": result_value(result)}


def unreadable(calls: Sequence[ToolCall | MalformedCall]) -> MalformedCall | None:
    """The block that could not be read at all, if this is one."""
    return next((call for call in calls if isinstance(call, MalformedCall) and call.whole_block), None)
