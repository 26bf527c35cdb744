"""A dialect that is declared by its markers, a reader of a block's body, and functions that write calls and results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from toolspeak.data.messages import MalformedCall, Message, TextMessage, ToolCall, ToolChoice, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.base import DialectInfo, Listing, Parser
from toolspeak.dialects.grammar.build import WithGrammar
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.parser.attempts import sample_call
from toolspeak.dialects.parser.block_format import BlockFormat
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.prompt import AssistantTurns, Prompt, append_message, choice_text, join_paragraphs
from toolspeak.dialects.prompts.rendering import calls_to_write, join_block, render_all, result_text
from toolspeak.dialects.prompts.schema_text import example_tools, list_tools, sample_arguments
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Caps
from toolspeak.dialects.trained.template import Template
from toolspeak.dialects.trained.template_table import default_template
from toolspeak.dialects.turn_rules import BatchRule, Section

Tools: TypeAlias = Mapping[str, ToolSpec]
Calls: TypeAlias = Sequence[ToolCall | MalformedCall]

_INSTRUCTIONS = """\
## Tools

You can use tools. To call them, write:

{example}

{rules}
- The results come back in the next message, in the order of the calls. Only the system writes results: stop after
  your calls and wait. When a call failed, read why, and correct it.
- A message without a call is your answer, and the work is over."""


@quick()
class ResultLayout:
    """The layout of a batch's results in one message."""

    start: str = ""
    """The text before each result."""
    end: str = ""
    """The text after each result."""
    between: str = "\n"
    before: str = ""
    """The text before the first result."""
    after: str = ""
    """The text after the last result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredDialect(WithGrammar):
    """Implements `Dialect` from its parts.

    The text of results in a history comes from the first of these that applies:

    1. A message of the role `tool` for each result, where the server takes that role and the template has `tool_turns`:
       the result without a frame (`bare_result`, else `result_text`). The server's chat template frames it.
    2. `template.results`, which gets the results with their texts without a frame.
    3. `write_results`.
    4. `results`, a layout around the text of each result.

    `render_results` is 3 or 4: what the dialect writes by itself, without a template.
    """

    info: DialectInfo
    table: MarkerTable
    new_body: Callable[[Marker, int, Caps, Tools], Body]
    """Makes the reader of a block, from its marker, the index of its first call, the caps and the tools."""
    write_calls: Callable[[Calls, Tools], str]
    """Writes a turn's calls as the model's chat template does."""
    live: re.Pattern[str]
    """Matches the first character of each live marker: of each text that could open or end a block."""
    frame: Frame
    """The frame of calls in a grammar."""
    results: ResultLayout = ResultLayout()
    write_results: Callable[[Sequence[ToolResult]], str] | None = None
    """Writes a batch's results, without live markers; None: as `results` says."""
    rules: str = ""
    """Further lines of the instructions, each starting with `- `."""
    batch: BatchRule = BatchRule("all_calls")
    bare_result: Callable[[ToolResult], str] | None = None
    """Writes a result without a frame; None: `result_text` does, with `live`."""
    template: Template | None = None
    """The chat template of a known model (`trained_dialect`); None: the dialect's default."""
    numbers_calls: bool = False
    """Whether the ids in the text count the calls of the conversation."""
    by_tools: Callable[[tuple[str, ...]], MarkerTable] | None = None
    """Makes the table for tools of these names: only a tool's name identifies a call without its marker."""

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def tool_turns(self) -> bool:
        return self.chat_template is not None and self.chat_template.tool_turns

    @property
    def chat_template(self) -> Template | None:
        """The chat template of the prompt and the history: the model's if that is known, else the dialect's default."""
        return self.template or default_template(self.name)

    def instructions(
        self, tools: Sequence[ToolSpec], choice: ToolChoice = ToolChoice(), listing: Listing = "trained"
    ) -> str:
        if listing == "trained" and tools and self.chat_template is not None:
            return join_paragraphs(self.prompt("", tools).text, choice_text(choice, tools))
        most = self.batch.max_calls or 2
        calls = [
            ToolCall(f"{i}", spec.name, sample_arguments(spec)) for i, spec in enumerate(example_tools(tools)[:most])
        ]
        example = self.write_calls(calls, {spec.name: spec for spec in tools})
        introduction = _INSTRUCTIONS.replace("{rules}", self.rules).replace("{example}", example)
        return join_paragraphs(
            introduction, choice_text(choice, tools), "## The tools you have", list_tools(tools, listing)
        )

    def prompt(self, system: str, tools: Sequence[ToolSpec], listing: Listing = "trained") -> Prompt:
        if not tools:
            return Prompt((system,))
        if listing == "trained" and self.chat_template is not None:
            try:
                return self.chat_template.place(system, tools)
            except RecursionError:  # a schema deeper than any argument may be, which the other listings cut
                listing = "prose"
        return Prompt((join_paragraphs(system, self.instructions(tools, listing=listing)),))

    def history(self, tools: Sequence[ToolSpec] = (), *, tool_role: bool = False) -> DeclaredHistory:
        return DeclaredHistory(self, tools, tool_role=tool_role)

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, tool_role: bool = False
    ) -> list[TextMessage]:
        return render_all(self.history(tools, tool_role=tool_role), messages)

    def render_results(self, results: Sequence[ToolResult]) -> str:
        if self.write_results is not None:
            return self.write_results(results)
        layout = self.results
        texts = (f"{layout.start}{result_text(each, self.live)}{layout.end}" for each in results)
        return layout.before + layout.between.join(texts) + layout.after

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        return BlockParser(self.format(tools), starts_in)

    def format(self, tools: Sequence[ToolSpec]) -> BlockFormat:
        """How the dialect's blocks are recognised and read."""
        by_name = {spec.name: spec for spec in tools}
        table = self.by_tools(tuple(by_name)) if self.by_tools and by_name else self.table
        aside = self.info.text_aside
        return BlockFormat(table, self.batch, self.new_body, by_name, text_aside=aside, writes=self.example)

    def example(self, tools: Sequence[ToolSpec]) -> str:
        """A call of one of the tools, as the model should write it."""
        call, specs = sample_call(tools)
        return self.write_calls([call], {spec.name: spec for spec in specs})

    def grammar_parts(self) -> tuple[Frame, Sequence[Marker], BatchRule]:
        return self.frame, self.table.markers, self.batch


class DeclaredHistory:
    """Implements `History`: a turn's calls follow its text, a batch's results in one message."""

    def __init__(self, dialect: DeclaredDialect, tools: Sequence[ToolSpec], *, tool_role: bool) -> None:
        self._dialect = dialect
        self._template = dialect.chat_template
        self._tools = {spec.name: spec for spec in tools}
        self._result_role: Literal["tool", "user"] = "tool" if tool_role else "user"
        self._model_ids: dict[str, str] = {}  # for calls with an id from the model, or with a number
        self._count = 0
        self.messages: list[TextMessage] = []
        self._turns = AssistantTurns(self.messages, dialect.info.earlier, dialect.live)

    def add(self, message: Message) -> None:
        dialect, template, ids = self._dialect, self._template, self._model_ids
        if message.role == "assistant":
            calls: Calls = calls_to_write(message.calls, self._tools)
            calls = self._number_calls(calls) if dialect.numbers_calls else calls
            ids.update((call.id, call.provider_id) for call in calls if isinstance(call, ToolCall) and call.provider_id)
            text = message.text
            if calls:
                text = self.join_calls(text, calls, dialect.write_calls(calls, self._tools))
            self._turns.add(message, text)
        elif message.role != "tool":
            self._turns.end_run()
            append_message(self.messages, TextMessage(message.role, message.text))
        else:
            results = [replace(each, call_id=ids.get(each.call_id, each.call_id)) for each in message.results]
            if self._result_role == "tool" and template is not None and template.tool_turns:
                self.messages += [TextMessage("tool", self._bare(each)) for each in results]
                return
            if template is not None and template.results is not None:
                text = template.results(results, [self._bare(each) for each in results])
            else:
                text = dialect.render_results(results)
            append_message(self.messages, TextMessage(self._result_role, text))

    def join_calls(self, text: str, calls: Calls, block: str) -> str:
        """A turn of the model without its thoughts: `text`, and `block`, which holds the calls."""
        template = self._template
        if template is not None and template.turn is not None:
            return template.turn(text, calls, block)
        if template is not None and template.gap is not None:
            return f"{text}{template.gap}{block}" if text else block
        return join_block(text, block)

    def _bare(self, result: ToolResult) -> str:
        write = self._dialect.bare_result
        return result_text(result, self._dialect.live) if write is None else write(result)

    def _number_calls(self, calls: Calls) -> Calls:
        if not self._count and calls:  # a conversation without its beginning continues the model's numbers
            own = getattr(calls[0], "provider_id", None) or ""
            self._count = int(own) if own.isdecimal() and len(own) < 9 else 0
        first, self._count = self._count, self._count + len(calls)
        return [
            replace(call, provider_id=f"{n}") if isinstance(call, ToolCall) else call
            for n, call in enumerate(calls, first)
        ]
