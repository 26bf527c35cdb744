"""What the two Cogency protocols share: markers, phases, results, and the shape of the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from toolspeak.dialects.base import Listing
from toolspeak.dialects.grammar.build import WithGrammar
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.parser.attempts import sample_call
from toolspeak.dialects.parser.block_format import BlockFormat
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.prompt import (
    AssistantTurns,
    EarlierThoughts,
    Prompt,
    append_message,
    choice_text,
    join_paragraphs,
)
from toolspeak.dialects.prompts.rendering import (
    calls_to_write,
    dump_json,
    join_block,
    marker_prefix,
    render_all,
    result_value,
)
from toolspeak.dialects.prompts.schema_text import example_tools, list_tools, sample_arguments
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.text.block_delimiters import AtEnd, Starts
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Caps
from toolspeak.dialects.turn_rules import BatchRule, Section

EXECUTE, RESULTS, THINK = "execute", "results", "think"
MARKERS = marker_prefix((EXECUTE, RESULTS, THINK))
BATCH = BatchRule("first_block")
EARLIER = EarlierThoughts(f"<{THINK}>", f"</{THINK}>\n", "always")
"""The reference implementation shows the model its earlier thoughts again (Cogency, conversation.py)."""


def marker_table(calls_start: str) -> MarkerTable:
    """The protocols' markers; only the calls' first characters differ."""
    return MarkerTable(
        [
            Marker("calls", f"<{EXECUTE}>", f"</{EXECUTE}>", Starts(calls_start)),
            Marker("results", f"<{RESULTS}>", f"</{RESULTS}>", Starts("[{")),
            Marker("reasoning", f"<{THINK}>", f"</{THINK}>"),
            Marker("noise", "<end>", None, AtEnd(or_line=True), ends_turn=True),
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

THINK_TEXT = "You may think first, between <think> and </think>; nothing in there is executed, or part of your answer."


class CogencyHistory:
    """Implements `History`: results become user messages, one block for the calls of a turn."""

    def __init__(self, dialect: CogencyDialect, tools: Sequence[ToolSpec]) -> None:
        self._dialect = dialect
        self._tools = tools
        self._by_name = {spec.name: spec for spec in tools}
        self.messages: list[TextMessage] = []
        self._turns = AssistantTurns(self.messages, EARLIER, MARKERS)

    def add(self, message: Message) -> None:
        if message.role == "tool":
            append_message(self.messages, TextMessage("user", self._dialect.render_results(message.results)))
        elif message.role == "assistant":
            calls = calls_to_write(message.calls, self._by_name)
            text = join_block(message.text, self._dialect.render_calls(calls, self._tools)) if calls else message.text
            self._turns.add(message, text)
        else:
            append_message(self.messages, TextMessage(message.role, message.text))


class CogencyDialect(WithGrammar):
    """What the two protocols have in common. A subclass introduces, writes and reads the calls of a block.

    `introduction` is the first part of the instructions, with `{example}` for the examples.
    """

    introduction = ""
    table: MarkerTable
    frame: Frame
    batch: BatchRule = BATCH
    tool_turns = False

    def instructions(
        self, tools: Sequence[ToolSpec], choice: ToolChoice = ToolChoice(), listing: Listing = "trained"
    ) -> str:
        examples = [ToolCall("", spec.name, sample_arguments(spec)) for spec in example_tools(tools)]
        example = self.render_calls(examples, tools)
        if len(examples) > 1:
            example += f"\n\nA single call stands in such a block too:\n\n{self.render_calls(examples[:1], tools)}"
        parts = [self.introduction.replace("{example}", example), THINK_TEXT, RESULTS_TEXT]
        return join_paragraphs(*parts, choice_text(choice, tools), "## The tools you have", list_tools(tools, listing))

    def prompt(self, system: str, tools: Sequence[ToolSpec], listing: Listing = "trained") -> Prompt:
        return Prompt((join_paragraphs(system, self.instructions(tools, listing=listing) if tools else ""),))

    def example(self, tools: Sequence[ToolSpec]) -> str:
        """A call of one of the tools, as the model should write it."""
        call, specs = sample_call(tools)
        return self.render_calls([call], specs)

    def new_body(self, marker: Marker, first_index: int, caps: Caps, tools: Mapping[str, ToolSpec]) -> Body:
        raise AssertionError("a dialect reads its own calls")

    def render_calls(self, calls: Sequence[ToolCall | MalformedCall], tools: Sequence[ToolSpec]) -> str:
        """The block of a turn's calls."""
        whole = next((call for call in calls if isinstance(call, MalformedCall) and call.whole_block), None)
        if whole is not None:
            return f"<{EXECUTE}>{whole.raw}</{EXECUTE}>"
        by_name = {spec.name: spec for spec in tools}
        body = self.frame.joint.join(self.render_call(call, by_name) for call in calls)
        start = self.frame.start if calls else self.frame.start.rstrip(" ")  # the indentation of the first call
        return f"{start}{body}{self.frame.end}"

    def render_call(self, call: ToolCall | MalformedCall, tools: Mapping[str, ToolSpec]) -> str:
        raise AssertionError("a dialect writes its own calls")

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> BlockParser:
        by_name = {spec.name: spec for spec in tools}
        format = BlockFormat(  # noqa: A001
            self.table, BATCH, self.new_body, by_name, thoughts_hide=True, writes=self.example
        )
        return BlockParser(format, starts_in)

    def grammar_parts(self) -> tuple[Frame, Sequence[Marker], BatchRule]:
        return self.frame, self.table.markers, self.batch

    def history(self, tools: Sequence[ToolSpec] = (), *, tool_role: bool = False) -> CogencyHistory:
        """`tool_role` has no effect: results are user messages in this protocol."""
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
    return {"tool": result.name, "status": result.status, "content": result_value(result)}
