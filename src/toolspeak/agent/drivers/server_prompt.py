"""One model turn whose prompt the server writes, by the model's own chat template, and whose reply we read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from toolspeak.agent.drivers.driver import TOOK_CALLS, TextDriver, TurnRequest, refuses_tool_role, system_text
from toolspeak.agent.drivers.native import with_choice
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

_AS_SAID: Mapping[str, Mapping[str, JSON]] = {"vllm": {"skip_special_tokens": False}}
"""By a provider's name, options for a reply as the model said it. vLLM leaves special tokens out of a text in which it
looks for no calls (its tool parsers' `adjust_request`), and many models' markers are such tokens."""

_NO_REFUSAL = frozenset(("context_length", "authentication", "quota", "rate_limit", "content_filter", "connection"))
"""Codes of errors that a prompt of ours would meet as well."""

_PROBE = ToolSpec(
    "look_at_the_weather",
    "Tells what the weather is like in a town today: how warm it is, how much it rains and where the wind comes from.",
    {"type": "object", "properties": {"town": {"type": "string"}, "country": {"type": "string"}}, "required": ["town"]},
)
_PROBE_TOKENS = 10
"""What a prompt with `_PROBE` has more than one without, at least: in any tokenizer its description alone has twice as
many."""


class ServerPromptDriver(TextDriver):
    """A `TextDriver` for servers that write tools, calls and results into the prompt by the model's own chat template
    while they leave the reply as it is: vLLM and llama.cpp's server do both where the tool choice is `none`.

    So the prompt is exactly the one that the model was trained on, and the parser, the grammar and the schedule are
    ours. Whether a server does so is asked once (`writes_tools`). Where it does not, or refuses such a turn, the
    prompt is ours from then on, as that of any `TextDriver`.

    A turn with a call that could not be read is told as text, with its results, in the dialect: an API has no words
    for it.
    """

    _writes: bool | None = None  # None until the server was asked

    def prompt(self, request: TurnRequest) -> str:
        if not self._serves(request):
            return super().prompt(request)
        return system_text(request)

    def asked(self, request: TurnRequest) -> ModelRequest:
        if not self._serves(request):
            return super().asked(request)
        prompt = self.prompt(request)
        messages: list[Message | TextMessage] = [Message.system(prompt)] if prompt else []
        messages += self._told(request)
        # The tool choice is told in words, and held to by a grammar of ours: `none` is what leaves the reply alone.
        return ModelRequest(
            with_choice(messages, request),
            request.tools,
            ToolChoice("none"),
            constraint=self._held(request),
            options={**_AS_SAID.get(self._api, {}), **request.options},
        )

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        if self._writes is None and request.tools:
            self._writes = await writes_tools(self.provider)
        said = False
        try:
            async with aclosing(cast("AsyncGenerator[Delta]", super().turn(request))) as stream:
                async for delta in stream:
                    said = True
                    yield delta
            return
        except ProviderError as error:
            if said or not self._serves(request) or not _refused(error):
                raise
            if refuses_tool_role(error, request.messages):
                self._tool_role = False
        self._writes = False
        request.memo.clear()
        async with aclosing(cast("AsyncGenerator[Delta]", super().turn(request))) as stream:
            async for delta in stream:
                yield delta

    @property
    def _api(self) -> str:
        return self.provider.name.partition(":")[0]

    def _tells_tools_as_text(self, request: TurnRequest) -> bool:
        return not self._serves(request)

    def _serves(self, request: TurnRequest) -> bool:
        return self._writes is not False and bool(request.tools)

    def _told(self, request: TurnRequest) -> Iterator[Message | TextMessage]:
        """The conversation in the API's own words, but for the turns of which it has none."""
        unread: list[Message] = []
        for message in request.messages:
            if unread:
                if message.role == "tool":
                    unread.append(message)
                yield from self.dialect.render(unread, request.tools)
                unread = []
                if message.role == "tool":
                    continue
            if message.role == "assistant" and any(type(part) is MalformedCall for part in message.parts):
                unread = [message]
            else:
                yield self._with_thoughts(message)
        if unread:
            yield from self.dialect.render(unread, request.tools)

    def _with_thoughts(self, message: Message) -> Message:
        """The message with what was thought in it marked as the server's own: its chat template knows which thoughts of
        a conversation the model reads again."""
        if message.role != "assistant" or not any(type(part) is ReasoningPart for part in message.parts):
            return message
        model = self.provider.name.partition(":")[2]
        mark = Opaque("openai-chat", model, {"field": "reasoning_content"})
        parts: list[Part] = [
            replace(part, opaque=mark) if type(part) is ReasoningPart and part.opaque is None else part
            for part in message.parts
        ]
        return replace(message, parts=tuple(parts))


async def writes_tools(provider: Provider, choice: ToolChoice = ToolChoice("none")) -> bool:
    """Whether the server writes tools into the prompt where the tool choice is this: then a request with one has more
    tokens than the same without. It is counted, or two requests for one token tell. False where nobody says, or the
    server refuses such a request. Raises ProviderError for what says nothing of it, as a limit or a lost connection."""
    said = [Message.user("Hi")]
    try:
        plain = await _tokens(provider, ModelRequest(said))
        told = await _tokens(provider, ModelRequest(said, [_PROBE], choice))
    except ProviderError as error:
        if not _refused(error):
            raise
        return False
    return plain is not None and told is not None and told - plain >= _PROBE_TOKENS


async def _tokens(provider: Provider, request: ModelRequest) -> int | None:
    """How long the prompt of a request is, in tokens."""
    count: Callable[[ModelRequest], Awaitable[int | None]] | None = getattr(provider, "count_tokens", None)
    if count is not None and (counted := await count(request)) is not None:
        return counted
    asked = replace(request, options={"max_tokens": 1, "max_completion_tokens": None})
    async with aclosing(cast("AsyncGenerator[Delta]", provider.stream(asked))) as stream:
        async for delta in stream:
            if type(delta) is TurnEnded:
                return delta.usage.input
    return None


def _refused(error: ProviderError) -> bool:
    """Whether a server will not write such a prompt, or parses the reply all the same."""
    if str(error) == TOOK_CALLS:
        return True
    return error.status in (400, 404, 422, 500, 501) and error.code not in _NO_REFUSAL
