"""The contract of a dialect: how a model writes calls in text and reads results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import FinishReason, Message, TextMessage, ToolChoice, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.grammar.special_tokens import SpecialTokens
from toolspeak.dialects.grammar.target import Grammar, Target
from toolspeak.dialects.prompt import EarlierThoughts, Prompt
from toolspeak.dialects.turn_rules import BatchRule, Section

Listing = Literal["trained", "prose", "signatures", "json_schema"]
"""How a prompt lists tools.

- `trained`: tools, rules and their place as the model's chat template writes them; `prose` for a dialect without a
  known template.
- `prose`: a heading for each tool, a line for each parameter, types in words. Instructions in our words precede this
  and the following listings.
- `signatures`: the same in the fewest characters.
- `json_schema`: each tool's definition as one line of JSON.
"""

PromptListing = Literal["server", "trained", "prose", "signatures", "json_schema"]
"""Who writes the prompt of a turn in text: the server with the model's chat template (`server`), or toolspeak with one
of `Listing`."""

NativeSchedule = Literal["parallel", "sequential"]


@quick()
class DialectInfo:
    """What `toolspeak dialects` prints and the catalogue page shows."""

    name: str
    summary: str
    """How the model writes calls."""
    source: str
    """Where the format is specified: repository and file, or the model's chat template."""
    native_schedule: NativeSchedule = "parallel"
    """How the format's own specification runs the calls of a turn."""
    aliases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    """The model families that write the format, as they appear in model names."""
    arguments: str = "JSON"
    """How values get their types."""
    results: str = ""
    """How the model reads results."""
    reasoning: str = "<think>"
    stop: tuple[str, ...] = ()
    """The stop sequences that a server may use for the model. toolspeak sends none."""
    text_aside: bool = False
    """Text after the calls of a turn is not part of the answer (`TextAside`). Engines with this format drop it."""
    earlier: EarlierThoughts | None = None
    """How the model reads its thoughts of earlier turns; None: not at all."""


class Parser(Protocol):
    """Reads one turn incrementally. It never raises for a text."""

    def feed(self, chunk: str) -> Iterable[Delta]:
        """The deltas that are certain after `chunk`. Joined, they do not depend on the sizes of chunks."""
        ...

    def close(self, reason: FinishReason) -> Iterable[Delta]:
        """The last deltas of the turn. Call it once, at the end.

        The last delta is `BatchEnded` if the turn has a block and `feed` has not returned `BatchEnded`.
        """
        ...

    def keep_reasoning(self) -> None:
        """Keeps reasoning and its markup in the text, verbatim. Call it before the first `feed`.

        Which calls inside reasoning run does not change.
        """
        ...


class History(Protocol):
    """A conversation that is rendered message by message, so that a step only renders its new messages."""

    messages: list[TextMessage]
    """The rendered messages."""

    def add(self, message: Message) -> None:
        """Renders a message and appends it."""
        ...


class Dialect(Protocol):
    """One way to write tool calls: its prompt, history, parser and grammar, without I/O."""

    @property
    def info(self) -> DialectInfo: ...

    @property
    def name(self) -> str: ...

    @property
    def batch(self) -> BatchRule: ...

    @property
    def tool_turns(self) -> bool:
        """Whether results are messages of role `tool` where a server takes these, with the text alone.

        The chat template writes the frame around the text. If this is False, results are always user messages.
        """
        ...

    def instructions(self, tools: Sequence[ToolSpec], choice: ToolChoice = ..., listing: Listing = "trained") -> str:
        """The prompt for the format and the tools, without a system text, as one text."""
        ...

    def prompt(self, system: str, tools: Sequence[ToolSpec], listing: Listing = "trained") -> Prompt:
        """The prompt before the conversation. `system` is the agent's own system text, which may be empty."""
        ...

    def history(self, tools: Sequence[ToolSpec] = (), *, tool_role: bool = False) -> History:
        """An empty history, to which messages are added. Options as in `render`."""
        ...

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, tool_role: bool = False
    ) -> list[TextMessage]:
        """The conversation as the model reads it.

        `tools`: the types of arguments, for formats that do not write them.
        `tool_role`: the server accepts messages of role `tool` without an id; otherwise results are user messages.
        """
        ...

    def render_results(self, results: Sequence[ToolResult]) -> str:
        """The results of one batch, in the order of the calls, as the model reads them."""
        ...

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        """A parser for one turn. Without `tools`, every name may be a tool. `starts_in`: where the turn starts."""
        ...

    def grammar(
        self,
        tools: Sequence[ToolSpec],
        choice: ToolChoice = ...,
        *,
        target: Target,
        max_calls: int | None = None,
        starts_in: Section = "text",
        reasoning: bool = True,
        special_tokens: SpecialTokens = (),
    ) -> Grammar:
        """The grammar of one turn, for a matcher. Options as in `WithGrammar.grammar`."""
        ...
