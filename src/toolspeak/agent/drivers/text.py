"""Drivers of models whose calls are text: a provider's stream, read by a dialect."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import field, replace
from typing import TypeAlias, cast

from toolspeak.agent.drivers.base import NO_RUN, DriverContext, TurnRequest
from toolspeak.data.deltas import BatchEnded, CallCompleted, CallMalformed, CallStarted, Delta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FilePart, ImagePart, Message, Part, TextMessage, TextPart, ToolChoice, Usage
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import evolve, quick
from toolspeak.dialects import Dialect, History, Listing, Section
from toolspeak.dialects.prompt import Prompt, asks_text, choice_text, join_paragraphs
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.providers.base import Provider
from toolspeak.wire.base import Constraint, ModelRequest, OutputSchema
from toolspeak.wire.json_conversion import token_limit

_GrammarKey: TypeAlias = tuple[Sequence[ToolSpec], ToolChoice, bool | None]
"""The parts of a request that a grammar depends on."""

_PromptKey: TypeAlias = tuple[str, Sequence[ToolSpec], OutputSchema | None, Callable[[ToolSpec], bool]]
"""The parts of a request that a prompt depends on."""

_MAX_PROMPTS = 64
"""The most prompts that a driver caches. An agent has one; the clients of a gateway have many."""

_STRAY_CHARACTERS = 256
"""How many characters a model may write after its calls before toolspeak stops waiting for the end of the turn."""

Media = ImagePart | FilePart

_MARK = re.compile("\ue0f1\u2063(\\d+)\u2063\ue0f1")
"""Stands for an image or a file in the text that a dialect renders, by its number in the conversation. No keyboard has
these private-use characters. If a user's text contains a mark anyway, it becomes that image."""

TOOK_CALLS = (
    "the server took the model's tool calls out of its text, although no tools were sent to it; switch its own "
    "tool-call parser off (vLLM: start it without --enable-auto-tool-choice), or ask for native calls with "
    "dialect='native'"
)

_GO_ON = "Go on."


class TextDriver:
    """Implements `Driver` for models whose calls are text, over any provider.

    The driver closes the stream at `BatchEnded`, because text after the calls is a guess at their results. With the
    tool choice `none` it reads the whole turn. A native call, which the request did not allow, is an error of the
    server.

    If calls are required and the server accepts grammars (`Capabilities.grammar`), the turn must match one. A model
    that reasons may do that first (`Capabilities.reasoning`). If the dialect has no grammar for these tools, or the
    server refuses it, the prompt alone asks for the call.

    - `starts_in`: "reasoning" if the model's chat template opens the reasoning block in the prompt.
    - `grace`: how many seconds the driver waits for the turn's usage after `BatchEnded`. It discards text that comes
      meanwhile.
    - `listing`: how the prompt lists the tools (`Listing`). A text that the template puts before the user's last
      message stays before the message that was the last when the run began, so the prompt is the same at every step.
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
        self.name = provider.name
        self.dialect = dialect
        self.starts_early = dialect.batch.counts != "last_call"
        self.grace = grace
        self.listing: Listing = listing
        self.starts_in: Section = starts_in
        self.takes_tool_role = provider.capabilities.tool_role and getattr(dialect, "tool_turns", False)
        """Whether results go as messages of the role `tool`. A server that refuses one gets text from then on."""
        # Each cache entry is one value, for several turns may be under way: its key, and what was made of it.
        self._placed_prompts: dict[tuple[str, tuple[str, ...]], tuple[Sequence[ToolSpec], Prompt, str]] = {}
        self._last_prompt: tuple[_PromptKey, Prompt, str] | None = None
        self._last_grammar: tuple[_GrammarKey, Constraint | None] | None = None

    def prompt(self, request: TurnRequest) -> str:
        return self.placed_prompt(request)[1]

    def open(self, run: DriverContext = NO_RUN) -> TextConversation:
        return TextConversation(self, run)

    def placed_prompt(self, request: TurnRequest) -> tuple[Prompt, str]:
        """The prompt with its place in the conversation, and as one text."""
        # The prompt does not follow the tool choice: a prefix that changes misses the server's prompt cache.
        last, key = self._last_prompt, (request.instructions, request.tools, request.output, request.needs_approval)
        if last is not None and last[0] == key:
            return last[1:]
        system, tools = system_text(request), request.tools
        names = tuple([spec.name for spec in tools])
        cache_entry = self._placed_prompts.get((system, names))
        if cache_entry is None or cache_entry[0] != tools:  # compared by content: another list may have the same names
            if len(self._placed_prompts) >= _MAX_PROMPTS:
                self._placed_prompts.clear()
            prompt = self.dialect.prompt(system, tools, self.listing)
            cache_entry = tools, prompt, prompt.text
            self._placed_prompts[system, names] = cache_entry
        self._last_prompt = key, *cache_entry[1:]
        return cache_entry[1:]

    def constraint(self, request: TurnRequest) -> Constraint | None:
        """The grammar that a turn with a required call is held to. The last one is cached: turns ask the same again."""
        target = self.provider.capabilities.grammar
        choice = request.choice
        if target is None:
            return None
        if any(request.options.get(name) is not None for name in ("grammar", "response_format")):
            return None  # the caller has one of its own
        key = request.tools, request.choice, request.parallel
        if self._last_grammar is None or self._last_grammar[0] != key:
            try:
                grammar = self.dialect.grammar(
                    request.tools,
                    choice,
                    target=target,
                    max_calls=1 if request.parallel is False else None,
                    starts_in=self.starts_in,
                    reasoning=self.provider.capabilities.reasoning,
                )
                constraint = Constraint(target, grammar.source)
            except ConfigurationError:
                constraint = None
            self._last_grammar = (key, constraint)
        return self._last_grammar[1]

    def drop_constraint(self, request: TurnRequest) -> None:
        """The server refused the grammar of such a turn: it is not sent again."""
        self._last_grammar = ((request.tools, request.choice, request.parallel), None)

    async def aclose(self) -> None:
        await self.provider.aclose()


@quick(frozen=False, eq=False)
class _Rendering:
    """A conversation as the dialect writes it, so far."""

    history: History
    tools: Sequence[ToolSpec]
    count: int = 0
    """Messages of the request that are rendered."""
    task: int | None = None
    """Where the user spoke last when the conversation began."""
    media: list[Media] = field(default_factory=list[Media])


class TextConversation:
    """A run's turns with a `TextDriver`."""

    def __init__(self, driver: TextDriver, run: DriverContext) -> None:
        self._driver = driver
        self._on_raw_delta = None if run is NO_RUN else run.on_raw_delta
        self._rendering: _Rendering | None = None

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        driver, on_raw_delta = self._driver, self._on_raw_delta
        model_request = self.model_request(request)
        parser = driver.dialect.parser(request.tools, driver.starts_in)
        while True:
            has_received = False
            try:
                async with aclosing(cast("AsyncGenerator[Delta]", driver.provider.stream(model_request))) as stream:
                    async for piece in stream:
                        has_received = True
                        if on_raw_delta is not None:
                            on_raw_delta(piece)
                        match piece:
                            case TextDelta(text):
                                for delta in parser.feed(text):
                                    yield delta
                                    if isinstance(delta, BatchEnded) and request.choice.mode != "none":
                                        usage = (
                                            await _usage_after_batch(stream, driver.grace) if driver.grace else Usage()
                                        )
                                        yield TurnEnded("closed_by_us", usage)
                                        return
                            case TurnEnded():
                                turn_end = with_limit(piece, model_request.options) if model_request.options else piece
                                has_limit = turn_end.limit is not None
                                last = [*parser.close(turn_end.read_as if has_limit else turn_end.finish)]
                                for delta in last:
                                    yield delta
                                yield turn_end.after(last) if has_limit else turn_end
                                return
                            case CallStarted() | CallCompleted() | CallMalformed() | BatchEnded():
                                raise ProviderError(TOOK_CALLS)
                            case _:
                                yield piece
                raise ProviderError(f"{driver.name} ended its turn without saying so; ask again", retryable=True)
            except ProviderError as error:
                if has_received:
                    raise
                if model_request.constraint is not None and _refuses_grammar(error):
                    model_request = replace(model_request, constraint=None)
                    driver.drop_constraint(request)
                elif self._may_drop_tool_role(request) and refuses_tool_role(error, model_request.messages):
                    driver.takes_tool_role = False
                    self._rendering = None
                    model_request = replace(self.model_request(request), constraint=model_request.constraint)
                else:
                    raise

    def model_request(self, request: TurnRequest) -> ModelRequest:
        """The request to the provider for a turn."""
        driver, rendering = self._driver, self._rendering
        if rendering is None or rendering.tools != request.tools:
            history = driver.dialect.history(request.tools, tool_role=driver.takes_tool_role)
            self._rendering = rendering = _Rendering(history, request.tools)
        first, rendering.count = rendering.count, len(request.messages)
        for i in range(first, rendering.count):  # the messages that are new
            message = request.messages[i]
            if message.role != "user":
                rendering.history.add(message)
                continue
            rendering.history.add(with_marks(message, rendering.media))
            if first == 0:
                rendering.task = len(rendering.history.messages) - 1
        prompt, _ = driver.placed_prompt(request)
        # The tool choice is at the end of the conversation: the prompt stays as it is.
        forces = request.choice.mode in ("required", "specific")
        words = choice_text(request.choice, request.tools) if request.tools and request.choice.mode != "auto" else ""
        messages: Sequence[TextMessage] = prompt.before(rendering.history.messages, rendering.task)
        if words or (messages and messages[-1].role == "assistant"):
            messages = with_words(messages, words)
        return ModelRequest(
            with_media(messages, rendering.media) if rendering.media else messages,
            constraint=driver.constraint(request) if forces else None,
            options=request.options,
        )

    def _may_drop_tool_role(self, request: TurnRequest) -> bool:
        """Whether results may go as text in another role."""
        return self._driver.takes_tool_role

    async def aclose(self) -> None:
        self._rendering = None


def with_marks(message: Message, media: list[Media]) -> Message:
    """A user's message with a mark in the place of each image and file, which are added to `media`."""
    if not any(isinstance(part, Media) for part in message.parts):
        return message
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Media):
            parts.append(TextPart(f"\ue0f1\u2063{len(media)}\u2063\ue0f1"))
            media.append(part)
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts))


def with_media(messages: Sequence[TextMessage], media: Sequence[Media]) -> list[Message | TextMessage]:
    """The rendered messages with images and files in place of their marks."""
    return [_with_media(message, media) if "\ue0f1" in message.text else message for message in messages]


def _with_media(message: TextMessage, media: Sequence[Media]) -> Message | TextMessage:
    parts: list[Part] = []
    begin = 0
    for mark in _MARK.finditer(message.text):
        number = int(mark[1])
        if message.role == "user" and number < len(media):
            if before := message.text[begin : mark.start()]:
                parts.append(TextPart(before))
            parts.append(media[number])
            begin = mark.end()
    if not parts:
        return message
    if rest := message.text[begin:]:
        parts.append(TextPart(rest))
    return Message("user", tuple(parts))


def with_limit(turn_end: TurnEnded, options: Mapping[str, JSON]) -> TurnEnded:
    """The end of a turn with the token limit of the request's options, unless the provider names a limit."""
    if turn_end.limit is not None:
        return turn_end
    limit = token_limit(options)
    return turn_end if limit is None else evolve(turn_end, limit=limit)


async def _usage_after_batch(stream: AsyncGenerator[Delta], seconds: float) -> Usage:
    """The usage in the end of a turn, if that comes within `seconds`; otherwise unknown usage."""
    characters = 0
    with suppress(TimeoutError, ProviderError):
        async with asyncio.timeout(seconds):
            async for piece in stream:
                if isinstance(piece, TurnEnded):
                    return piece.usage
                characters += len(piece.text) if isinstance(piece, TextDelta) else 0
                if characters > _STRAY_CHARACTERS:
                    break
    return Usage()


def with_words(messages: Sequence[TextMessage], words: str) -> Sequence[TextMessage]:
    """The messages with these words at their end."""
    if messages and messages[-1].role == "assistant":  # a turn that paused: not all models take one to continue with
        return [*messages, TextMessage("user", words or _GO_ON)]
    if not words:
        return messages
    if not messages:
        return [TextMessage("user", words)]
    last = messages[-1]
    if last.role == "tool":
        return [*messages, TextMessage("user", words)]
    return [*messages[:-1], TextMessage(last.role, f"{last.text}\n\n{words}")]


def _refuses_grammar(error: ProviderError) -> bool:
    """Whether a server that accepts grammars refused this one. If it cannot compile the grammar (vLLM `Invalid
    grammar`, llama.cpp `Failed to parse grammar`), the schema is at fault, and the turn need not fail."""
    message = str(error).lower()
    return error.status in (400, 422, 500) and any(
        word in message for word in ("grammar", "structural", "response_format", "schema", "structured")
    )


def refuses_tool_role(error: ProviderError, messages: Sequence[Message | TextMessage]) -> bool:
    """Whether a server, or the chat template it uses, refuses the messages of role `tool`: OpenAI
    `messages with role 'tool' must be a response to a preceeding message with 'tool_calls'`, LM Studio `Invalid
    'messages' in payload`, chat templates `conversation roles must alternate`."""
    if error.status not in (400, 422, 500) or error.code == "context_length":
        return False
    return (
        any(message.role == "tool" for message in messages)
        and re.search(r"role|tool|messages\b|template", str(error), re.IGNORECASE) is not None
    )


def system_text(request: TurnRequest) -> str:
    """The agent's instructions, with the texts about approval and the answer's form. The dialect adds the tools."""
    approval_text = asks_text([spec.name for spec in request.tools if request.needs_approval(spec)], request.tools)
    schema = "" if request.output is None else schema_instruction(request.output.schema)
    return join_paragraphs(request.instructions, approval_text, schema)


def schema_instruction(schema: Mapping[str, JSON]) -> str:
    """The words that ask for an answer of a JSON Schema."""
    schema_json = json.dumps(dict(schema), ensure_ascii=False)
    return f"Your final answer must be one JSON value of this schema, without prose or code fence:\n{schema_json}"


def text_digest(text: str) -> str:
    """SHA-256 (hex) of a text; lone surrogates count as they are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
