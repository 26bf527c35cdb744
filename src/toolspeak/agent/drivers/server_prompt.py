"""Turns whose prompt the server writes, by the model's own chat template, and whose reply we read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from toolspeak.agent.drivers.base import NO_RUN, DriverContext, TurnRequest
from toolspeak.agent.drivers.native import with_choice
from toolspeak.agent.drivers.text import TOOK_CALLS, TextConversation, TextDriver, refuses_tool_role, system_text
from toolspeak.data.deltas import Delta, TurnEnded
from toolspeak.data.messages import (
    JSON,
    MalformedCall,
    Message,
    Opaque,
    Part,
    ReasoningPart,
    TextMessage,
    ToolChoice,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ProviderError
from toolspeak.providers.base import Provider
from toolspeak.wire.base import ModelRequest

_UNFILTERED_OPTIONS: Mapping[str, Mapping[str, JSON]] = {"vllm": {"skip_special_tokens": False}}
"""Options for an unfiltered reply, by the provider's name. vLLM removes special tokens from a text in which it looks
for no calls (its tool parsers' `adjust_request`), and the markers of many models are such tokens."""

_NO_REFUSAL = frozenset(("context_length", "authentication", "quota", "rate_limit", "content_filter", "connection"))
"""Codes of errors that do not depend on who writes the prompt."""

_PROBE = ToolSpec(
    "look_at_the_weather",
    "Tells what the weather is like in a town today: how warm it is, how much it rains and where the wind comes from.",
    {"type": "object", "properties": {"town": {"type": "string"}, "country": {"type": "string"}}, "required": ["town"]},
)
_PROBE_TOKENS = 10
"""A prompt with `_PROBE` has at least this many tokens more than one without: in any tokenizer its description alone
has twice as many."""


class ServerPromptDriver(TextDriver):
    """A `TextDriver` for servers that write tools, calls and results into the prompt by the model's own chat template
    while they leave the reply as it is: vLLM and llama.cpp's server do both where the tool choice is `none`.

    So the prompt is exactly the one that the model was trained on, and the parser, the grammar and the schedule are
    ours. The driver probes the server once (`writes_tools`). If the server does not write tools, or refuses such a
    turn, the driver writes the prompt itself from then on, as any `TextDriver` does.

    A turn with a malformed call is sent as text in the dialect, with its results, because an API has no field for a
    malformed call.
    """

    writes: bool | None = None
    """Whether the server writes tools into its prompt; None until it was probed."""

    def prompt(self, request: TurnRequest) -> str:
        return system_text(request) if self.serves(request) else super().prompt(request)

    def serves(self, request: TurnRequest) -> bool:
        """Whether the server writes the prompt of such a turn."""
        return self.writes is not False and bool(request.tools)

    def open(self, run: DriverContext = NO_RUN) -> ServerPromptConversation:
        return ServerPromptConversation(self, run)


class ServerPromptConversation(TextConversation):
    """A run's turns with a `ServerPromptDriver`."""

    _driver: ServerPromptDriver

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        driver = self._driver
        if driver.writes is None and request.tools:
            driver.writes = bool(await writes_tools(driver.provider))
        has_received = False
        try:
            async with aclosing(cast("AsyncGenerator[Delta]", super().turn(request))) as stream:
                async for delta in stream:
                    has_received = True
                    yield delta
            return
        except ProviderError as error:
            if has_received or not driver.serves(request) or not _is_refusal(error):
                raise
            if refuses_tool_role(error, request.messages):
                driver.takes_tool_role = False
        driver.writes = False
        self._rendering = None
        async with aclosing(cast("AsyncGenerator[Delta]", super().turn(request))) as stream:
            async for delta in stream:
                yield delta

    def model_request(self, request: TurnRequest) -> ModelRequest:
        driver = self._driver
        if not driver.serves(request):
            return super().model_request(request)
        prompt = system_text(request)
        messages: list[Message | TextMessage] = [Message.system(prompt)] if prompt else []
        messages += self._api_messages(request)
        api = driver.provider.name.partition(":")[0]
        # The prompt states the tool choice, and our grammar enforces it: `none` keeps the server's parser off.
        forces = request.choice.mode in ("required", "specific")
        return ModelRequest(
            with_choice(messages, request),
            request.tools,
            ToolChoice("none"),
            constraint=driver.constraint(request) if forces else None,
            options={**_UNFILTERED_OPTIONS.get(api, {}), **request.options},
        )

    def _may_drop_tool_role(self, request: TurnRequest) -> bool:
        return not self._driver.serves(request) and super()._may_drop_tool_role(request)

    def _api_messages(self, request: TurnRequest) -> Iterator[Message | TextMessage]:
        """The conversation in the API's own form, except for turns that have no such form."""
        dialect, malformed_turn = self._driver.dialect, list[Message]()
        for message in request.messages:
            if malformed_turn:
                if message.role == "tool":
                    malformed_turn.append(message)
                yield from dialect.render(malformed_turn, request.tools)
                malformed_turn = []
                if message.role == "tool":
                    continue
            if message.role == "assistant" and any(type(part) is MalformedCall for part in message.parts):
                malformed_turn = [message]
            else:
                yield self._with_thoughts(message)
        if malformed_turn:
            yield from dialect.render(malformed_turn, request.tools)

    def _with_thoughts(self, message: Message) -> Message:
        """The message with its reasoning marked as the server's own. The chat template decides which reasoning of a
        conversation the model reads again."""
        if message.role != "assistant" or not any(type(part) is ReasoningPart for part in message.parts):
            return message
        model = self._driver.provider.name.partition(":")[2]
        mark = Opaque("openai-chat", model, {"field": "reasoning_content"})
        parts: list[Part] = [
            replace(part, opaque=mark) if type(part) is ReasoningPart and part.opaque is None else part
            for part in message.parts
        ]
        return replace(message, parts=tuple(parts))


async def writes_tools(provider: Provider, choice: ToolChoice = ToolChoice("none")) -> bool | None:
    """Whether the server writes tools into the prompt with this tool choice: then a request with a tool has more tokens
    than the same request without it. The server's endpoint for token counts answers that, or two requests for one
    token. False if the server reports no usage, or refuses such a request. None if the request without the tool fails
    because the server does not have the model, or has a fault: that says nothing about tools. Raises ProviderError for
    a failure that is not about the request, such as a rate limit or a lost connection."""
    messages = [Message.user("Hi")]
    is_about_tools = False
    try:
        without = await _tokens(provider, ModelRequest(messages))
        is_about_tools = True
        with_tool = await _tokens(provider, ModelRequest(messages, [_PROBE], choice))
    except ProviderError as error:
        if not _is_refusal(error):
            raise
        return None if not is_about_tools and error.status in (404, 500) else False
    return without is not None and with_tool is not None and with_tool - without >= _PROBE_TOKENS


async def _tokens(provider: Provider, request: ModelRequest) -> int | None:
    """The length of a request's prompt in tokens; None if the server does not report it."""
    count: Callable[[ModelRequest], Awaitable[int | None]] | None = getattr(provider, "count_tokens", None)
    if count is not None and (token_count := await count(request)) is not None:
        return token_count
    probe = replace(request, options={"max_tokens": 1, "max_completion_tokens": None})
    async with aclosing(cast("AsyncGenerator[Delta]", provider.stream(probe))) as stream:
        async for delta in stream:
            if type(delta) is TurnEnded:
                return delta.usage.input
    return None


def _is_refusal(error: ProviderError) -> bool:
    """Whether a server does not write such a prompt, or parses the reply anyway."""
    if str(error) == TOOK_CALLS:
        return True
    return error.status in (400, 404, 422, 500, 501) and error.code not in _NO_REFUSAL
