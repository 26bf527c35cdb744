"""A dialect as a declaration: markers, the reader of a block's body, and two functions that write calls and results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from toolspeak.data.messages import MalformedCall, Message, TextMessage, ToolCall, ToolChoice, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import BatchRule, DialectInfo, Listing, Parser, Section
from toolspeak.dialects.blocks import BlockParser
from toolspeak.dialects.body import Body
from toolspeak.dialects.grammar.build import WithGrammar
from toolspeak.dialects.grammar.turn import Frame
from toolspeak.dialects.markers import Marker, MarkerTable
from toolspeak.dialects.open_block import BlockFormat
from toolspeak.dialects.render import append_message, join_block, render_all
from toolspeak.dialects.scan import Caps
from toolspeak.dialects.schema_text import choice_text, example_tools, list_tools, sample_arguments

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredDialect(WithGrammar):
    """Implements `Dialect` from its parts.

    `new_body` makes the reader of a block. `write_calls` writes a turn's calls as the model's own chat template does,
    `write_results` a batch's results, in which `live` (the first character of each live marker) is escaped.
    `frame` is how the calls stand in a grammar. `rules` are further lines of the instructions, each starting with `- `.
    """

    info: DialectInfo
    table: MarkerTable
    new_body: Callable[[Marker, int, Caps, Tools], Body]
    write_calls: Callable[[Calls, Tools], str]
    write_results: Callable[[Sequence[ToolResult]], str]
    live: re.Pattern[str]
    frame: Frame
    rules: str = ""
    batch: BatchRule = BatchRule("all_calls")

    @property
    def name(self) -> str:
        return self.info.name

    def instructions(
        self, tools: Sequence[ToolSpec], choice: ToolChoice = ToolChoice(), listing: Listing = "described"
    ) -> str:
        most = self.batch.max_calls or 2
        shown = [
            ToolCall(f"{i}", spec.name, sample_arguments(spec)) for i, spec in enumerate(example_tools(tools)[:most])
        ]
        example = self.write_calls(shown, {spec.name: spec for spec in tools})
        parts = [_INSTRUCTIONS.replace("{rules}", self.rules).replace("{example}", example), choice_text(choice, tools)]
        parts += ["## The tools you have", list_tools(tools, listing)]
        return "\n\n".join(part for part in parts if part)

    def history(self, tools: Sequence[ToolSpec] = (), *, tool_role: bool = False) -> DeclaredHistory:
        return DeclaredHistory(self, {spec.name: spec for spec in tools}, "tool" if tool_role else "user")

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, tool_role: bool = False
    ) -> list[TextMessage]:
        return render_all(self.history(tools, tool_role=tool_role), messages)

    def render_results(self, results: Sequence[ToolResult]) -> str:
        return self.write_results(results)

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        return BlockParser(self.format(tools), starts_in)

    def format(self, tools: Sequence[ToolSpec]) -> BlockFormat:
        """How the dialect's blocks are recognised and read."""
        by_name = {spec.name: spec for spec in tools}

        def new_body(marker: Marker, first_index: int, caps: Caps) -> Body:
            return self.new_body(marker, first_index, caps, by_name)

        return BlockFormat(self.table, self.batch, new_body, text_aside=self.info.text_aside)

    def grammar_parts(self) -> tuple[Frame, Sequence[Marker], BatchRule]:
        return self.frame, self.table.markers, self.batch


class DeclaredHistory:
    """Implements `History`: a turn's calls behind its text, a batch's results in one message."""

    def __init__(self, dialect: DeclaredDialect, tools: Tools, result_role: Literal["tool", "user"]) -> None:
        self._dialect = dialect
        self._tools = tools
        self._result_role: Literal["tool", "user"] = result_role
        self._model_ids: dict[str, str] = {}  # of calls that the model itself gave an id
        self.messages: list[TextMessage] = []

    def add(self, message: Message) -> None:
        if message.role == "tool":
            known = self._model_ids
            results = [replace(each, call_id=known.get(each.call_id, each.call_id)) for each in message.results]
            rendered = TextMessage(self._result_role, self._dialect.write_results(results))
        else:
            calls = message.calls
            made = (call for call in calls if isinstance(call, ToolCall))
            self._model_ids.update((call.id, call.provider_id) for call in made if call.provider_id)
            text = message.text
            text = join_block(text, self._dialect.write_calls(calls, self._tools)) if calls else text
            rendered = TextMessage(message.role, text)
        append_message(self.messages, rendered)

    def flush(self) -> None:
        """Nothing waits here: every message is rendered when it is added."""
