"""One model turn whose calls are the API's own."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import field, replace
from functools import cache
from typing import Literal, cast

from toolspeak import dialects
from toolspeak.agent.drivers.cut import NO_CALL_ENDS, LastCall, with_limit
from toolspeak.agent.drivers.driver import TextDriver, TurnRequest
from toolspeak.data.deltas import Delta, TurnEnded
from toolspeak.data.messages import Message, TextMessage, TextPart, ToolChoice
from toolspeak.data.values import quick
from toolspeak.dialects import Dialect
from toolspeak.dialects.leaked import LeakedCalls
from toolspeak.dialects.schema_text import choice_text
from toolspeak.errors import ProviderError
from toolspeak.providers.base import Provider
from toolspeak.wire.base import Earlier, ModelRequest
from toolspeak.wire.request_encoding import is_native

_REFUSES_TOOLS = ("support", "enable", "--jinja", "not allowed", "unrecognized", "unknown", "template")
"""Words with which servers say that the model, or they themselves, take no tools: Ollama `does not support tools`,
vLLM `requires --enable-auto-tool-choice`, llama.cpp `tools param requires --jinja flag`."""


@quick(frozen=False, eq=False)
class _Sent:
    """What a driver keeps of a run: its messages with the prompt in front, and what the server has of them."""

    prompt: str
    messages: list[Message | TextMessage] = field(default_factory=list[Message | TextMessage])
    known: int = 0
    earlier: Earlier | None = None


class NativeDriver:
    """Implements `Driver` for APIs that have tool calls.

    `leaks` reads calls that the server left in the text (see `dialects.leaked`), by default whatever dialect they are
    in; None leaves them there. With `resume` only what is new is sent, where the server keeps conversations; if it
    forgot, everything is sent again. `fallback` takes over for good from a server that says it takes no tools; one that
    refuses only to have a call forced is told of the choice in words from then on. `late_leaks`: calls left in the text
    come at the turn's end, those alone that did not come natively too.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        leaks: Dialect | Literal["auto"] | None = "auto",
        resume: bool = False,
        fallback: TextDriver | None = None,
        late_leaks: bool = False,
    ) -> None:
        self.provider = provider
        self.name = provider.name
        # Who hears of calls late is a client of the gateway: it takes a call that is broken for text more easily.
        self._leaks = _any_leaks(broken=not late_leaks) if leaks == "auto" else leaks
        self._late_leaks = late_leaks
        self._resume = resume and provider.capabilities.resume
        self._fallback = fallback
        self._fell_back = False
        self._forces = True

    @property
    def starts_early(self) -> bool:
        return not self._fell_back or (self._fallback is not None and self._fallback.starts_early)

    def prompt(self, request: TurnRequest) -> str:
        if self._fell_back and self._fallback is not None:
            return self._fallback.prompt(request)
        return request.instructions

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        while self._fallback is None or not self._fell_back:
            sent = self._sent(request)
            asked = self._asked(request, sent)
            heard, said, last, read = request.heard, False, LastCall(), _as_it_is
            stream = cast("AsyncGenerator[Delta]", self.provider.stream(asked))
            try:
                async for piece in stream:
                    if not said:
                        read, said = self._reader(request), True
                    waits = heard(piece)
                    if waits is not None:
                        await waits
                    if type(piece) in NO_CALL_ENDS and not last.held:
                        for delta in read(piece):
                            yield delta
                        continue
                    if type(piece) is TurnEnded:
                        piece = with_limit(piece, asked.options) if asked.options else piece
                        if self._resume and piece.response_id is not None:
                            sent.earlier = Earlier(piece.response_id, len(sent.messages))
                    for own in last.feed(piece):
                        for delta in read(own):
                            yield delta
                    if type(piece) is TurnEnded:
                        return
                raise ProviderError(f"{self.name} ended its turn without saying so; ask again", retryable=True)
            except ProviderError as error:
                if said:
                    raise
                if asked.earlier is not None and error.code == "forgotten":
                    sent.earlier = None
                elif _is_forced(asked.choice) and _refuses_choice(error):
                    self._forces = False
                elif self._fallback is not None and request.tools and _refuses_tools(error):
                    self._fell_back = True
                    request.memo.clear()
                else:
                    raise
            finally:
                await stream.aclose()
        async for delta in self._fallback.turn(request):
            yield delta

    def _reader(self, request: TurnRequest) -> Callable[[Delta], Sequence[Delta]]:
        """What gives a turn's deltas with the calls that stand in its text."""
        leaks, tools = self._leaks, request.tools
        if leaks is None or not tools:
            return _as_it_is
        echoes = request.output is None
        return LeakedCalls(lambda: leaks.parser(tools), echoes=echoes, late=self._late_leaks).feed

    def asked(self, request: TurnRequest) -> ModelRequest:
        """What the provider is asked for a turn."""
        if self._fell_back and self._fallback is not None:
            return self._fallback.asked(request)
        return self._asked(request, self._sent(request))

    def _asked(self, request: TurnRequest, sent: _Sent) -> ModelRequest:
        # An API that cannot hold the model to a choice is told of all tools all the same: a prompt whose beginning
        # changes is read anew.
        choice = request.choice
        freed = not self._forces and _is_forced(choice)
        held = choice.mode == "auto" or (self.provider.capabilities.tool_choice and not freed)
        return ModelRequest(
            sent.messages if held else with_choice(sent.messages, request),
            request.tools,
            ToolChoice() if freed else choice,
            parallel=request.parallel,
            output=request.output,
            options=request.options,
            cache=self.provider.capabilities.cache_markers,
            earlier=sent.earlier if sent.earlier is not None and _is_kept(sent, sent.earlier) else None,
            keep=self._resume,
        )

    def _sent(self, request: TurnRequest) -> _Sent:
        prompt = request.instructions
        sent: _Sent | None = request.memo.get("native")
        if sent is None or sent.prompt != prompt:
            sent = _Sent(prompt, [Message.system(prompt)] if prompt else [])
            request.memo["native"] = sent
        fresh = request.messages[sent.known :]
        sent.messages += fresh
        sent.known += len(fresh)
        return sent

    async def aclose(self) -> None:
        await self.provider.aclose()


@cache
def _any_leaks(*, broken: bool) -> Dialect:
    return dialects.StrictDialect(dialects.get_dialect("auto"), broken=broken)


def _as_it_is(delta: Delta) -> Sequence[Delta]:
    return (delta,)


def with_choice(messages: Sequence[Message | TextMessage], request: TurnRequest) -> Sequence[Message | TextMessage]:
    """The messages with the tool choice asked for in words at their end."""
    asked = choice_text(request.choice, request.tools) if request.tools else ""
    if not asked:
        return messages
    last = messages[-1] if messages else None
    if not isinstance(last, Message) or last.role != "user" or not last.parts:
        return [*messages, Message.user(asked)]
    *before, end = last.parts
    said = (replace(end, text=f"{end.text}\n\n{asked}"),) if isinstance(end, TextPart) else (end, TextPart(asked))
    return [*messages[:-1], replace(last, parts=(*before, *said))]


def _is_kept(sent: _Sent, earlier: Earlier) -> bool:
    """Whether the answer that the server keeps is the one in the history: a turn may be lost, and a call that cannot
    be answered (a malformed one) leaves the server waiting."""
    if len(sent.messages) <= earlier.messages:
        return False
    answer = sent.messages[earlier.messages]
    return isinstance(answer, Message) and answer.role == "assistant" and all(map(is_native, answer.parts))


def _is_forced(choice: ToolChoice) -> bool:
    return choice.mode in ("required", "specific")


def _refuses_choice(error: ProviderError) -> bool:
    """Whether it is the tool choice alone that a server will not have: Anthropic and DeepSeek `Thinking mode does not
    support this tool_choice`, LM Studio `Invalid tool_choice type: 'object'`."""
    return error.status in (400, 422) and re.search("tool.choice", str(error)) is not None


def _refuses_tools(error: ProviderError) -> bool:
    told = str(error).lower()
    return error.status in (400, 404, 422, 500, 501) and "tool" in told and any(word in told for word in _REFUSES_TOOLS)
