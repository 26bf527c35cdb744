"""One model turn: a provider's stream, read by a dialect."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import field, replace
from typing import Any, Protocol, TypeAlias, cast

from toolspeak.agent.drivers.cut import with_limit
from toolspeak.agent.drivers.media import Media, marked, restored
from toolspeak.data.deltas import BatchEnded, CallCompleted, CallMalformed, CallStarted, Delta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, Message, TextMessage, ToolCall, ToolChoice, Usage, no_extra
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects import Dialect, History, Listing, Section
from toolspeak.dialects.prompt import Prompt, joined
from toolspeak.dialects.schema_text import asks_text, choice_text
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.execute import ToolExecution
from toolspeak.providers.base import Provider
from toolspeak.tools.context import StateView
from toolspeak.wire.base import Constraint, ModelRequest, OutputSchema

_Wanted: TypeAlias = tuple[Sequence[ToolSpec], ToolChoice, bool | None]
"""What a grammar depends on, of a request."""

_Prompted: TypeAlias = tuple[str, Sequence[ToolSpec], OutputSchema | None, Callable[[ToolSpec], bool]]
"""What a prompt depends on."""

_MOST_KEPT = 64
"""Prompts that a driver keeps; an agent has one, a gateway's clients have many."""

_STRAY_CHARACTERS = 256
"""How much a model may say behind its calls before its end is no longer waited for."""


def _unheard(_piece: Delta) -> None:
    return None


ToolRunner: TypeAlias = Callable[[Sequence[ToolCall]], Awaitable[tuple[ToolExecution, ...]]]
"""Has calls run within a turn."""


async def _no_tools(_calls: Sequence[ToolCall]) -> tuple[ToolExecution, ...]:
    raise ConfigurationError("run_tools is for drivers of an agent: here there is no run whose tools it could be")


def _untold(_event: object) -> None:
    return None


def _nobody_is_asked(_tool: ToolSpec) -> bool:
    return False


@quick()
class TurnRequest:
    """What a turn is asked with. `instructions` are the agent's own, without the dialect's.

    `memo` is what a driver keeps between the turns of one run, whose messages only grow. `heard` is told of each piece
    of text and reasoning as the provider sent it, the text of calls included, before anything is made of it: so that a
    turn that is cut off is kept as it was; what it returns is awaited, unless it is None. `output` is the form the
    answer has to have. `asks` tells of which tools somebody may be asked whether a call runs. `parallel`: whether a
    turn may hold several calls; None leaves it to the API and the dialect. `options` go to the API as they are
    (`ModelRequest.options`).

    `state` is the run as it stands, with its metadata; `tell` tells the run's observers of something. `run_tools` is
    for a driver that runs tools within its turn, ahead of what it yields: it has calls run as those of any step
    (journal, approvals, limits) and gives back what came of them. If the run pauses or ends at them the driver is left
    there; it is asked anew when the run goes on, with the results in its messages.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    instructions: str = ""
    choice: ToolChoice = ToolChoice()
    memo: dict[str, Any] = field(default_factory=dict[str, Any])
    heard: Callable[[Delta], Awaitable[None] | None] = _unheard
    output: OutputSchema | None = None
    asks: Callable[[ToolSpec], bool] = _nobody_is_asked
    parallel: bool | None = None
    options: Mapping[str, JSON] = field(default_factory=no_extra)
    state: StateView | None = None
    tell: Callable[[Any], object] = _untold
    run_tools: ToolRunner = _no_tools


class Driver(Protocol):
    """Asks for one turn. Another way to reach a model (native calls, ReAct) is another driver."""

    @property
    def name(self) -> str: ...

    @property
    def starts_early(self) -> bool:
        """Whether a call that is complete will count, unless its turn goes wrong: then reads may start at once."""
        ...

    def prompt(self, request: TurnRequest) -> str:
        """The system prompt as it will be sent; its digest tells whether instructions changed."""
        ...

    def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        """The turn's deltas, `TurnEnded` last. Raises ProviderError."""
        ...

    async def aclose(self) -> None: ...


TOOK_CALLS = (
    "the server took the model's tool calls out of its text, although no tools were sent to it; switch its own "
    "tool-call parser off (vLLM: start it without --enable-auto-tool-choice), or ask for native calls with "
    "dialect='native'"
)


_GO_ON = "Go on."


class TextDriver:
    """Implements `Driver` for models whose calls are text, over any provider.

    `starts_in="reasoning"` is for chat templates that open the reasoning block in the prompt. A turn whose
    batch is known before its end is not read further, for what follows the calls is a guess at their results,
    unless no call counts in it anyway. Native calls, which nobody asked for, are an error of the server's.

    Where calls are required the turn is held to a grammar, if the server takes one (`Capabilities.grammar`); it may
    think first if it can (`reasoning`). Where the dialect has no grammar for these tools, or the server refuses it, the
    model is only asked.

    `grace`: how many seconds a turn whose batch is known is read on, for its usage alone: a model that ends by itself
    does so at once. Nothing of what it says then is used.

    `listing` is how the prompt lists the tools (`Listing`). What a template puts in front of the user's last message
    stays in front of the one that was the last when the run began, so that the prompt is the same at every step.
    """

    def __init__(
        self,
        provider: Provider,
        dialect: Dialect,
        *,
        starts_in: Section = "text",
        grace: float = 0.0,
        listing: Listing = "trained",
    ) -> None:
        self.provider = provider
        self.dialect = dialect
        self.grace = grace
        self.listing: Listing = listing
        self._starts_in: Section = starts_in
        self._tool_role = provider.capabilities.tool_role and getattr(dialect, "tool_turns", False)
        # Each entry one value, for several turns may be under way: what was asked, and what was made of it.
        self._kept: dict[tuple[str, int], tuple[Sequence[ToolSpec], Prompt]] = {}
        self._prompted: tuple[_Prompted, Prompt] | None = None
        self._constraint: tuple[_Wanted, Constraint | None] | None = None

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def starts_early(self) -> bool:
        return self.dialect.batch.counts != "last_call"

    def prompt(self, request: TurnRequest) -> str:
        return self._prompt(request).text

    def _prompt(self, request: TurnRequest) -> Prompt:
        # The prompt does not follow the tool choice: a prefix that changes misses the server's prompt cache.
        known, asked = self._prompted, (request.instructions, request.tools, request.output, request.asks)
        if known is None or known[0] != asked:
            self._prompted = known = (asked, self._placed(system_text(request), request.tools))
        return known[1]

    def _placed(self, system: str, tools: Sequence[ToolSpec]) -> Prompt:
        key = system, id(tools)
        known = self._kept.get(key)
        if known is None:  # a list that is kept has its id for itself
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            known = self._kept[key] = (tools, self.dialect.prompt(system, tools, self.listing))
        return known[1]

    def asked(self, request: TurnRequest) -> ModelRequest:
        """What the provider is asked for a turn."""
        media: list[Media] = request.memo.setdefault("media", [])
        rendered, spoken = self._history(request, media)
        messages: Sequence[Message | TextMessage] = _with_choice(
            self._prompt(request).before(rendered, spoken), request
        )
        return ModelRequest(
            restored(messages, media) if media else messages, constraint=self._held(request), options=request.options
        )

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        asked = self.asked(request)
        parser = self.dialect.parser(request.tools, self._starts_in)
        while True:
            said = False
            try:
                async with aclosing(cast("AsyncGenerator[Delta]", self.provider.stream(asked))) as stream:
                    async for piece in stream:
                        said = True
                        waits = request.heard(piece)
                        if waits is not None:
                            await waits
                        match piece:
                            case TextDelta(text):
                                for delta in parser.feed(text):
                                    yield delta
                                    if isinstance(delta, BatchEnded) and request.choice.mode != "none":
                                        usage = await _usage_behind(stream, self.grace) if self.grace else Usage()
                                        yield TurnEnded("closed_by_us", usage)
                                        return
                            case TurnEnded():
                                ended = with_limit(piece, asked.options)
                                last = [*parser.close(ended.read_as)]
                                for delta in last:
                                    yield delta
                                yield ended.behind(last)
                                return
                            case CallStarted() | CallCompleted() | CallMalformed() | BatchEnded():
                                raise ProviderError(TOOK_CALLS)
                            case _:
                                yield piece
                raise ProviderError(f"{self.name} ended its turn without saying so; ask again", retryable=True)
            except ProviderError as error:
                if said:
                    raise
                if asked.constraint is not None and _refuses_grammar(error):
                    asked = replace(asked, constraint=None)
                    self._constraint = (self._wanted(request), None)
                elif (
                    self._tells_tools_as_text(request) and self._tool_role and refuses_tool_role(error, asked.messages)
                ):
                    self._tool_role = False
                    request.memo.clear()
                    asked = replace(self.asked(request), constraint=asked.constraint)
                else:
                    raise

    def _tells_tools_as_text(self, request: TurnRequest) -> bool:
        """Whether results go as text, which may have another role."""
        return True

    def _held(self, request: TurnRequest) -> Constraint | None:
        """The grammar that this turn is held to. The last one is kept: turns of a run ask the same again."""
        target = self.provider.capabilities.grammar
        choice = request.choice
        if target is None or choice.mode not in ("required", "specific"):
            return None
        if any(request.options.get(name) is not None for name in ("grammar", "response_format")):
            return None  # the caller has one of its own
        wanted = self._wanted(request)
        if self._constraint is None or self._constraint[0] != wanted:
            most = 1 if request.parallel is False else None
            try:
                made = self.dialect.grammar(
                    request.tools,
                    choice,
                    target=target,
                    max_calls=most,
                    starts_in=self._starts_in,
                    reasoning=self.provider.capabilities.reasoning,
                )
                constraint = Constraint(target, made.source)
            except ConfigurationError:
                constraint = None
            self._constraint = (wanted, constraint)
        return self._constraint[1]

    @staticmethod
    def _wanted(request: TurnRequest) -> _Wanted:
        return request.tools, request.choice, request.parallel

    def _history(self, request: TurnRequest, media: list[Media]) -> tuple[list[TextMessage], int | None]:
        """The conversation as it is sent, and where the user spoke last when it was first asked on."""
        memo = cast("tuple[History, Sequence[ToolSpec], int, int | None] | None", request.memo.get("history"))
        if memo is None or memo[1] != request.tools:
            media.clear()
            memo = (
                self.dialect.history(request.tools, tool_role=self._tool_role),
                request.tools,
                0,
                None,
            )
        history, tools, known, spoken = memo
        for i in range(known, len(request.messages)):
            message = request.messages[i]
            history.add(marked(message, media))
            if known == 0 and message.role == "user":
                spoken = len(history.messages) - 1
        request.memo["history"] = (history, tools, len(request.messages), spoken)
        return history.messages, spoken

    async def aclose(self) -> None:
        await self.provider.aclose()


async def _usage_behind(stream: AsyncGenerator[Delta], seconds: float) -> Usage:
    """The usage that the end of a turn tells, if it comes within `seconds`; else it is unknown."""
    said = 0
    with suppress(TimeoutError, ProviderError):
        async with asyncio.timeout(seconds):
            async for piece in stream:
                if isinstance(piece, TurnEnded):
                    return piece.usage
                said += len(piece.text) if isinstance(piece, TextDelta) else 0
                if said > _STRAY_CHARACTERS:
                    break
    return Usage()


def _with_choice(messages: Sequence[TextMessage], request: TurnRequest) -> Sequence[TextMessage]:
    """The messages with the tool choice asked for at their end: the prompt stays as it is (see `prompt`)."""
    return with_words(messages, choice_text(request.choice, request.tools) if request.tools else "")


def with_words(messages: Sequence[TextMessage], asked: str) -> Sequence[TextMessage]:
    """The messages with this asked for at their end."""
    if messages and messages[-1].role == "assistant":  # a turn that paused: not all models take one to go on with
        return [*messages, TextMessage("user", asked or _GO_ON)]
    if not asked:
        return messages
    if not messages:
        return [TextMessage("user", asked)]
    last = messages[-1]
    if last.role == "tool":
        return [*messages, TextMessage("user", asked)]
    return [*messages[:-1], TextMessage(last.role, f"{last.text}\n\n{asked}")]


def _refuses_grammar(error: ProviderError) -> bool:
    """Whether a server that has grammars will not take this one: one that it cannot compile (vLLM `Invalid grammar`,
    llama.cpp `Failed to parse grammar`) is an error of the schema's, and no reason to fail the turn."""
    told = str(error).lower()
    return error.status in (400, 422, 500) and any(
        word in told for word in ("grammar", "structural", "response_format", "schema", "structured")
    )


def refuses_tool_role(error: ProviderError, messages: Sequence[Message | TextMessage]) -> bool:
    """Whether a server, or the chat template it uses, will not have the messages of role `tool` as they are: OpenAI
    `messages with role 'tool' must be a response to a preceeding message with 'tool_calls'`, LM Studio `Invalid
    'messages' in payload`, chat templates `conversation roles must alternate`."""
    if error.status not in (400, 422, 500) or error.code == "context_length":
        return False
    return (
        any(message.role == "tool" for message in messages)
        and re.search(r"role|tool|messages\b|template", str(error), re.IGNORECASE) is not None
    )


def system_text(request: TurnRequest) -> str:
    """The instructions with what our loop says besides: all else is as the model's template writes it."""
    asks = asks_text([spec.name for spec in request.tools if request.asks(spec)], request.tools)
    schema = "" if request.output is None else schema_asked(request.output.schema)
    return joined(request.instructions, asks, schema)


def schema_asked(schema: Mapping[str, JSON]) -> str:
    """The words that ask for an answer of a JSON Schema."""
    shown = json.dumps(dict(schema), ensure_ascii=False)
    return f"Your final answer must be one JSON value of this schema, without prose or code fence:\n{shown}"


def text_digest(text: str) -> str:
    """SHA-256 (hex) of a text; lone surrogates count as they are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
