"""A dialect around another one, from which only its parser differs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from toolspeak.data.messages import Message, TextMessage, ToolChoice, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import Dialect, DialectInfo, History, Listing, Parser
from toolspeak.dialects.grammar.special_tokens import SpecialTokens
from toolspeak.dialects.grammar.target import Grammar, Target
from toolspeak.dialects.prompt import Prompt
from toolspeak.dialects.turn_rules import BatchRule, Section


class WrappedDialect(ABC):
    """Implements `Dialect`, all but the parser."""

    __slots__ = ()

    @property
    @abstractmethod
    def renderer(self) -> Dialect:
        """The dialect that writes the prompt, the history and the grammar."""

    @property
    def info(self) -> DialectInfo:
        return self.renderer.info

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def batch(self) -> BatchRule:
        return self.renderer.batch

    @property
    def tool_turns(self) -> bool:
        return self.renderer.tool_turns

    def instructions(
        self, tools: Sequence[ToolSpec], choice: ToolChoice = ToolChoice(), listing: Listing = "trained"
    ) -> str:
        return self.renderer.instructions(tools, choice, listing)

    def prompt(self, system: str, tools: Sequence[ToolSpec], listing: Listing = "trained") -> Prompt:
        return self.renderer.prompt(system, tools, listing)

    def history(self, tools: Sequence[ToolSpec] = (), *, tool_role: bool = False) -> History:
        return self.renderer.history(tools, tool_role=tool_role)

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, tool_role: bool = False
    ) -> list[TextMessage]:
        return self.renderer.render(messages, tools, tool_role=tool_role)

    def render_results(self, results: Sequence[ToolResult]) -> str:
        return self.renderer.render_results(results)

    def grammar(
        self,
        tools: Sequence[ToolSpec],
        choice: ToolChoice = ToolChoice(),
        *,
        target: Target,
        max_calls: int | None = None,
        starts_in: Section = "text",
        reasoning: bool = True,
        special_tokens: SpecialTokens = (),
    ) -> Grammar:
        return self.renderer.grammar(
            tools,
            choice,
            target=target,
            max_calls=max_calls,
            starts_in=starts_in,
            reasoning=reasoning,
            special_tokens=special_tokens,
        )

    @abstractmethod
    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser: ...
