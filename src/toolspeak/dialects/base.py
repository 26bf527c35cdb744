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
from toolspeak.dialects.prompt import Prompt
from toolspeak.dialects.turn_rules import BatchRule, Section

Listing = Literal["trained", "prose", "signatures", "json_schema"]
"""How a prompt lists tools. `trained`: tools, rules and their place as the chat template of the model writes them;
where no template of a dialect is known, as in `prose`. The others follow instructions in our words: `prose` has a
heading for each tool, one line for each parameter, types in words; `signatures` is the same in the fewest characters;
`json_schema` is each tool's definition as one line of JSON."""

PromptListing = Literal["server", "trained", "prose", "signatures", "json_schema"]
"""Who writes the prompt of a turn in text, and how: `server`, by the chat template that the server has for the model,
or we, in one of `Listing`."""

NativeSchedule = Literal["parallel", "sequential"]


@quick()
class EarlierThoughts:
    """How a model reads in the history what it thought in earlier turns, as its chat template writes it.

    `opening` and `closing` stand around it, in front of the turn's text. `keep="run"`: only in the turns behind the
    last user message; `always`: in all. `calls_only`: only in turns with calls.
    """

    opening: str
    closing: str
    keep: Literal["run", "always"] = "run"
    calls_only: bool = False


@quick()
class DialectInfo:
    """What `toolspeak dialects` prints and the catalogue page shows.

    `source` is where the format is specified (repository and file, or the model's chat template). `models` are the
    model families that write it, as they appear in model names. `arguments` says how values get their types, `results`
    how results come back. `stop` are the stop sequences a server may have for the model (we send none).
    `text_aside`: text behind the calls of a turn is none of the answer (`TextAside`), as the engines drop it that speak
    of it. `earlier`: how the model reads what it thought before; None: not at all.
    """

    name: str
    summary: str
    source: str
    native_schedule: NativeSchedule
    aliases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    arguments: str = "JSON"
    results: str = ""
    reasoning: str = "<think>"
    stop: tuple[str, ...] = ()
    text_aside: bool = False
    earlier: EarlierThoughts | None = None


class Parser(Protocol):
    """Reads one turn incrementally. Never raises, whatever the text."""

    def feed(self, chunk: str) -> Iterable[Delta]:
        """What is certain after `chunk`; how the turn is cut into chunks changes nothing when joined."""
        ...

    def close(self, reason: FinishReason) -> Iterable[Delta]:
        """The turn is over; call it once. Ends in `BatchEnded` if the turn held a block and it was not reported yet."""
        ...

    def keep_reasoning(self) -> None:
        """Call it before the first `feed`: reasoning and its markup stay in the text, verbatim. A call inside
        reasoning runs where it would, and nowhere else."""
        ...


class History(Protocol):
    """A conversation rendered message by message, so that a long one is not rendered anew at every step."""

    messages: list[TextMessage]

    def add(self, message: Message) -> None: ...


class Dialect(Protocol):
    """Sans-IO: prompt text, history and parsing of one way to write tool calls."""

    @property
    def info(self) -> DialectInfo: ...

    @property
    def name(self) -> str: ...

    @property
    def batch(self) -> BatchRule: ...

    @property
    def tool_turns(self) -> bool:
        """Whether results are messages of role `tool` where a server takes them: with the text alone, for the frame is
        the chat template's. Else they are the user's everywhere."""
        ...

    def instructions(self, tools: Sequence[ToolSpec], choice: ToolChoice = ..., listing: Listing = "trained") -> str:
        """What a prompt says of the format and the tools where the system text is empty, as one text."""
        ...

    def prompt(self, system: str, tools: Sequence[ToolSpec], listing: Listing = "trained") -> Prompt:
        """What is sent ahead of the conversation: the agent's own system text, which may be empty, and the tools."""
        ...

    def history(self, tools: Sequence[ToolSpec] = (), *, tool_role: bool = False) -> History:
        """Renders a conversation as it grows; options as in `render`."""
        ...

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, tool_role: bool = False
    ) -> list[TextMessage]:
        """The history as the model reads it. `tools` types the arguments where the format leaves it open.

        `tool_role`: the server takes messages of role `tool` without an id; else results go to the user role.
        """
        ...

    def render_results(self, results: Sequence[ToolResult]) -> str:
        """The results of one batch, in call order, as the model reads them."""
        ...

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser: ...

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
        """What the model may write in one turn, for a matcher; options as in `WithGrammar.grammar`."""
        ...
