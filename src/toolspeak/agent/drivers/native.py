"""One model turn whose calls are the API's own."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal, cast

from toolspeak import dialects
from toolspeak.agent.drivers.base import NO_RUN, DriverContext, TurnRequest
from toolspeak.agent.drivers.text import TextConversation, TextDriver, with_limit
from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import Message, TextMessage, TextPart, ToolChoice
from toolspeak.data.values import evolve
from toolspeak.dialects import Dialect
from toolspeak.dialects.detection.unparsed_calls import LeakedCalls
from toolspeak.dialects.prompt import choice_text
from toolspeak.errors import ProviderError
from toolspeak.providers.base import Provider
from toolspeak.wire.base import Earlier, ModelRequest
from toolspeak.wire.json_conversion import is_native

_REFUSES_TOOLS = ("support", "enable", "--jinja", "not allowed", "unrecognized", "unknown", "template")
"""Words with which servers say that the model, or they themselves, take no tools: Ollama `does not support tools`,
vLLM `requires --enable-auto-tool-choice`, llama.cpp `tools param requires --jinja flag`."""

_CUT_OFF = (
    "the turn ended at its limit of tokens, so that the end of this call may be missing, and it did not run; make it "
    "again, in smaller pieces if it is long"
)

_NO_CALL_ENDS = frozenset((TextDelta, ReasoningDelta, ArgumentsDelta, CallStarted, PartEnded))
"""Deltas that `_LastCall` passes on as they are while nothing is `waiting`."""


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
        self.resumes = resume and provider.capabilities.resume
        self.fallback = fallback
        self.fell_back = False
        """Whether the server was found to take no tools."""
        self.forces = True
        """Whether the server takes a choice that forces a call."""

    @property
    def starts_early(self) -> bool:
        return not self.fell_back or (self.fallback is not None and self.fallback.starts_early)

    def prompt(self, request: TurnRequest) -> str:
        if self.fell_back and self.fallback is not None:
            return self.fallback.prompt(request)
        return request.instructions

    def open(self, run: DriverContext = NO_RUN) -> NativeConversation:
        return NativeConversation(self, run)

    def reader(self, request: TurnRequest) -> Callable[[Delta], Sequence[Delta]]:
        """Reads a turn's deltas with the calls in its text."""
        leaks, tools = self._leaks, request.tools
        if leaks is None or not tools:
            return _pass_through
        echoes = request.output is None
        return LeakedCalls(lambda: leaks.parser(tools), echoes=echoes, late=self._late_leaks).feed

    async def aclose(self) -> None:
        await self.provider.aclose()


class NativeConversation:
    """A run's turns with a `NativeDriver`."""

    def __init__(self, driver: NativeDriver, run: DriverContext) -> None:
        self._driver = driver
        self._run = run
        self._messages: list[Message | TextMessage] = []  # as they are sent, the prompt in front
        self._prompt: str | None = None
        self._count = 0  # messages of the request that are in `_messages`
        self._earlier: Earlier | None = None  # what the server has of them
        self._in_text: TextConversation | None = None

    async def turn(self, request: TurnRequest) -> AsyncIterator[Delta]:
        driver, on_raw_delta = self._driver, self._run.on_raw_delta
        fallback = driver.fallback
        while fallback is None or not driver.fell_back:
            model_request = self.model_request(request)
            has_received, last, read = False, _LastCall(), _pass_through
            stream = cast("AsyncGenerator[Delta]", driver.provider.stream(model_request))
            try:
                async for piece in stream:
                    if not has_received:
                        read, has_received = driver.reader(request), True
                    on_raw_delta(piece)
                    if type(piece) in _NO_CALL_ENDS and not last.waiting_deltas:
                        for delta in read(piece):
                            yield delta
                        continue
                    if type(piece) is TurnEnded:
                        piece = with_limit(piece, model_request.options) if model_request.options else piece
                        if driver.resumes and piece.response_id is not None:
                            self._earlier = Earlier(piece.response_id, len(self._messages))
                    for own in last.feed(piece):
                        for delta in read(own):
                            yield delta
                    if type(piece) is TurnEnded:
                        return
                raise ProviderError(f"{driver.name} ended its turn without saying so; ask again", retryable=True)
            except ProviderError as error:
                if has_received:
                    raise
                if model_request.earlier is not None and error.code == "forgotten":
                    self._earlier = None
                elif _is_forced(model_request.choice) and _refuses_choice(error):
                    driver.forces = False
                elif fallback is not None and request.tools and _refuses_tools(error):
                    driver.fell_back = True
                else:
                    raise
            finally:
                await stream.aclose()
        async for delta in self._text(fallback).turn(request):
            yield delta

    def model_request(self, request: TurnRequest) -> ModelRequest:
        """The request to the provider for a turn."""
        driver, choice = self._driver, request.choice
        if driver.fell_back and driver.fallback is not None:
            return self._text(driver.fallback).model_request(request)
        messages, capabilities = self._request_messages(request), driver.provider.capabilities
        # An API that cannot enforce a choice still gets all tools: a prompt whose beginning
        # changes is read anew.
        is_unforced = not driver.forces and _is_forced(choice)
        is_enforced = choice.mode == "auto" or (capabilities.tool_choice and not is_unforced)
        return ModelRequest(
            messages if is_enforced else with_choice(messages, request),
            request.tools,
            ToolChoice() if is_unforced else choice,
            parallel=request.parallel,
            output=request.output,
            options=request.options,
            cache=capabilities.cache_markers,
            earlier=self._earlier if self._earlier is not None and _is_kept(messages, self._earlier) else None,
            keep=driver.resumes,
            references=capabilities.tool_references,
        )

    def _text(self, fallback: TextDriver) -> TextConversation:
        """The conversation with the driver's fallback."""
        if self._in_text is None:
            self._in_text = fallback.open(self._run)
        return self._in_text

    def _request_messages(self, request: TurnRequest) -> list[Message | TextMessage]:
        """The conversation as it is sent, with the messages that are new."""
        prompt = request.instructions
        if self._prompt != prompt:
            self._prompt, self._count, self._earlier = prompt, 0, None
            self._messages = [Message.system(prompt)] if prompt else []
        self._messages += request.messages[self._count :]
        self._count = len(request.messages)
        return self._messages

    async def aclose(self) -> None:
        self._messages, self._prompt = [], None


class _LastCall:
    """Takes the deltas of a turn with an API's own calls, gives them with the last call malformed if the turn was cut.

    An API gives arguments that are JSON whatever the model wrote: some servers close what was cut themselves, and say
    `tool_calls` for a turn that reached its limit (GitHub, vllm-project/vllm#53269, #47963, #57482). So where the turn
    was cut, by its finish reason or its usage (`TurnEnded.is_cut`), a call with nothing after it does not count. Until
    that is known a call that is complete waits for the next delta but white space; nothing else does.
    """

    def __init__(self) -> None:
        self.waiting_deltas: list[Delta] | None = None
        """What waits, if anything does."""
        self._batch: BatchEnded | None = None

    def feed(self, delta: Delta) -> Sequence[Delta]:
        if type(delta) is CallCompleted:
            before, self.waiting_deltas = self.waiting_deltas, list[Delta]((delta,))
            return before or ()
        if type(delta) is BatchEnded:
            self._batch = delta
            return ()
        if type(delta) is TurnEnded:
            return self._end_cut_turn(delta) if delta.is_cut else self._end(delta)
        if self.waiting_deltas and (type(delta) is PartEnded or (type(delta) is TextDelta and not delta.text.strip())):
            self.waiting_deltas.append(delta)
            return ()
        before, self.waiting_deltas = self.waiting_deltas, None
        return (delta,) if before is None else [*before, delta]

    def _end_cut_turn(self, turn_end: TurnEnded) -> Sequence[Delta]:
        batch = self._batch
        if batch is not None and turn_end.finish != "length":
            turn_end = evolve(turn_end, finish="length")
        if self.waiting_deltas and type(call := self.waiting_deltas[0]) is CallCompleted:
            raw = json.dumps(dict(call.arguments), ensure_ascii=False)
            self.waiting_deltas[0] = CallMalformed(call.index, raw, "truncated", _CUT_OFF, 0, call.name)
            if batch is not None:
                remaining = tuple(at for at in batch.selected if at != call.index)
                self._batch = BatchEnded(remaining, False, batch.notes)
        return self._end(turn_end)

    def _end(self, turn_end: TurnEnded) -> Sequence[Delta]:
        batch = () if self._batch is None else (self._batch,)
        return [*(self.waiting_deltas or ()), *batch, turn_end]


@cache
def _any_leaks(*, broken: bool) -> Dialect:
    return dialects.StrictDialect(dialects.get_dialect("auto"), broken=broken)


def _pass_through(delta: Delta) -> Sequence[Delta]:
    return (delta,)


def with_choice(messages: Sequence[Message | TextMessage], request: TurnRequest) -> Sequence[Message | TextMessage]:
    """The messages, with the tool choice in words at their end."""
    words = choice_text(request.choice, request.tools) if request.tools else ""
    if not words:
        return messages
    last = messages[-1] if messages else None
    if not isinstance(last, Message) or last.role != "user" or not last.parts:
        return [*messages, Message.user(words)]
    *before, end = last.parts
    ending = (replace(end, text=f"{end.text}\n\n{words}"),) if isinstance(end, TextPart) else (end, TextPart(words))
    return [*messages[:-1], replace(last, parts=(*before, *ending))]


def _is_kept(messages: Sequence[Message | TextMessage], earlier: Earlier) -> bool:
    """Whether the answer that the server keeps is the one in the history: a turn may be lost, and a call that cannot
    be answered (a malformed one) leaves the server waiting."""
    if len(messages) <= earlier.messages:
        return False
    answer = messages[earlier.messages]
    return isinstance(answer, Message) and answer.role == "assistant" and all(map(is_native, answer.parts))


def _is_forced(choice: ToolChoice) -> bool:
    return choice.mode in ("required", "specific")


def _refuses_choice(error: ProviderError) -> bool:
    """Whether it is the tool choice alone that a server will not have: Anthropic and DeepSeek `Thinking mode does not
    support this tool_choice`, LM Studio `Invalid tool_choice type: 'object'`."""
    return error.status in (400, 422) and re.search("tool.choice", str(error)) is not None


def _refuses_tools(error: ProviderError) -> bool:
    message, statuses = str(error).lower(), (400, 404, 422, 500, 501)
    return error.status in statuses and "tool" in message and any(word in message for word in _REFUSES_TOOLS)
