"""A model behind a real server of each API: it plays a script of turns and faults, in the format's server role."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from clocks import TestClock
from loopback_server import Exchange, Server, http_chunks, serve, whole

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import JSON, Usage
from toolspeak.providers import Provider, capabilities_of
from toolspeak.providers.anthropic import AnthropicProvider
from toolspeak.providers.gemini import GeminiProvider
from toolspeak.providers.http_settings import Timeouts
from toolspeak.providers.ollama import OllamaProvider
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.providers.openai_responses import OpenAIResponsesProvider
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import StreamFrame, WireFormat, WireRequest
from toolspeak.wire.gemini import GEMINI
from toolspeak.wire.gemini.request_reader import decode_request_at
from toolspeak.wire.ollama import OLLAMA
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

KEY = "sk-test-0123456789abcdef"
OPENAI = capabilities_of("openai", "gpt-4o")


@dataclass(frozen=True)
class Api:
    """`make(url, …)` is the provider of a server at `url`."""

    wire: WireFormat
    make: Callable[..., Provider]
    lines: bool = False

    def read(self, exchange: Exchange) -> WireRequest:
        if self.wire is GEMINI:
            return decode_request_at(exchange.request_line.split()[1], exchange.json)
        body = exchange.json
        if self.wire is OLLAMA and not any(message.get("tool_calls") for message in body["messages"]):
            # Results of calls that are text: Ollama takes them without a call, and so does no client's conversation.
            roles = {"tool": "user"}
            messages = [{**each, "role": roles.get(each["role"], each["role"])} for each in body["messages"]]
            body = {**body, "messages": messages}
        return self.wire.decode_request(body)

    def write(self, frames: Sequence[StreamFrame]) -> bytes:
        if self.lines:
            return "".join(json.dumps(data, ensure_ascii=False) + "\n" for _, data in frames).encode()
        return "".join(_event(name, data) for name, data in frames).encode()

    @property
    def nonsense(self) -> bytes:
        return b"{nonsense\n" if self.lines else b"data: {nonsense\n\n"

    @property
    def head(self) -> bytes:
        kind = "application/x-ndjson" if self.lines else "text/event-stream"
        return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


def _event(name: str | None, data: JSON) -> str:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return ("" if name is None else f"event: {name}\n") + f"data: {text}\n\n"


APIS = {
    "openai": Api(
        OPENAI_CHAT,
        lambda url, **more: OpenAIProvider("gpt-4o", base_url=f"{url}/v1", **{"capabilities": OPENAI, **more}),
    ),
    "openai-responses": Api(
        OPENAI_RESPONSES, lambda url, **more: OpenAIResponsesProvider("gpt-4o", base_url=f"{url}/v1", **more)
    ),
    "anthropic": Api(ANTHROPIC, lambda url, **more: AnthropicProvider("claude-sonnet-5", base_url=url, **more)),
    "gemini": Api(GEMINI, lambda url, **more: GeminiProvider("gemini-3-pro", base_url=url, **more)),
    "ollama": Api(OLLAMA, lambda url, **more: OllamaProvider("qwen3", host=url, **more), lines=True),
}

each_api = pytest.mark.parametrize("api", APIS.values(), ids=APIS)


# --- turns -------------------------------------------------------------------------------------------------------

Call: TypeAlias = tuple[str, dict[str, JSON]]


def turn(text: str = "", *calls: Call, thought: str = "", usage: Usage = Usage(10, 5), finish: str = "") -> list[Delta]:
    """What a model says in a turn."""
    deltas: list[Delta] = [ReasoningDelta(piece) for piece in _pieces(thought)]
    deltas += [TextDelta(piece) for piece in _pieces(text)]
    for at, (name, arguments) in enumerate(calls):
        deltas.append(CallStarted(at, name, f"call_{at}"))
        deltas += [ArgumentsDelta(at, piece) for piece in _pieces(json.dumps(arguments, ensure_ascii=False))]
        deltas.append(CallCompleted(at, name, arguments, f"call_{at}"))
    if calls:
        deltas.append(BatchEnded(tuple(range(len(calls))), ok=True))
    finish_reason: Any = finish or ("tool_calls" if calls else "stop")
    return [*deltas, TurnEnded(finish_reason, usage)]


def _pieces(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def _cut(data: bytes) -> list[bytes]:
    """In pieces of 1, 2, 3, 5, 8, 13, 1, 2, … bytes: through names, escapes, characters and ends of lines."""
    pieces, at = list[bytes](), 0
    for size in itertools.cycle((1, 2, 3, 5, 8, 13, 400)):
        if at >= len(data):
            return pieces
        pieces.append(data[at : at + size])
        at += size
    raise AssertionError


# --- faults ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Status:
    """The request is refused."""

    line: str
    headers: tuple[str, ...] = ()
    message: str = "that is why"


@dataclass(frozen=True)
class Breaks:
    """The turn begins, and before its end `how` happens: `reset`, `stall`, an `error` in the stream, or `nonsense` that
    is no JSON."""

    how: str
    turn: list[Delta] = field(default_factory=lambda: turn("It begins well and"))


@dataclass(frozen=True)
class Odd:
    """A whole turn with something between its events: an `unknown` one, or an `empty` choice."""

    what: str
    turn: list[Delta]


_ODD: dict[tuple[str, str], StreamFrame] = {
    ("openai-chat", "unknown"): ("weird", {"object": "weird.event", "weird": [1]}),
    ("openai-chat", "empty"): (None, {"choices": [{}]}),
    ("openai-responses", "unknown"): ("response.weird.delta", {"type": "response.weird.delta", "weird": [1]}),
    ("openai-responses", "empty"): (None, {"type": "response.output_text.delta", "output_index": 0, "delta": ""}),
    ("anthropic", "unknown"): ("weird", {"type": "weird", "weird": [1]}),
    ("anthropic", "empty"): ("message_delta", {"type": "message_delta", "delta": {}}),
    ("gemini", "unknown"): (None, {"weird": [1]}),
    ("gemini", "empty"): (None, {"candidates": [{}]}),
    ("ollama", "unknown"): (None, {"weird": [1], "message": {"weird": 1}}),
    ("ollama", "empty"): (None, {"message": {}}),
}

Step: TypeAlias = "list[Delta] | str | Status | Breaks | Odd"


@dataclass
class Model:
    """Plays one step of its script per request. `requests` has them as the server role reads them, `bodies` as sent."""

    api: Api
    script: Sequence[Step]
    requests: list[WireRequest] = field(default_factory=list[WireRequest])
    bodies: list[Any] = field(default_factory=list[Any])

    async def __call__(self, exchange: Exchange) -> None:
        self.bodies.append(exchange.json)
        self.requests.append(self.api.read(exchange))
        number = len(self.bodies)
        assert number <= len(self.script), f"request {number}, and the script has {len(self.script)} steps"
        step = self.script[number - 1]
        if isinstance(step, Status):
            body = json.dumps(self.api.wire.encode_error(step.message, int(step.line[:3]))).encode()
            await whole(step.line, body, "application/json", *step.headers)(exchange)
            return
        deltas = turn(step) if isinstance(step, str) else step.turn if isinstance(step, Breaks | Odd) else step
        encoder = self.api.wire.encoder(self.requests[-1], response_id=f"r{number}", created_at=1)
        if isinstance(step, Breaks):
            frames = [frame for delta in deltas[:-1] for frame in encoder.feed(delta)]
            frames += (
                encoder.fail("an error was encountered while running the model: unexpected EOF", 503)
                if step.how == "error"
                else []
            )
            data = self.api.write(frames) + (self.api.nonsense if step.how == "nonsense" else b"")
            await exchange.send(self.api.head, http_chunks(_cut(data)))
            if step.how == "stall":
                await exchange.reader.read()  # until the client leaves
            exchange.writer.close()
            return
        frames = [frame for delta in deltas for frame in encoder.feed(delta)]
        if isinstance(step, Odd):
            odd = _ODD[self.api.wire.name, step.what]
            frames = [each for frame in frames[:-1] for each in (frame, odd)] + frames[-1:]
        await exchange.send(self.api.head, http_chunks(_cut(self.api.write(frames))), b"0\r\n\r\n")


@dataclass
class ReachableModel:
    """A provider and the model behind it."""

    provider: Provider
    model: Model
    clock: TestClock
    server: Server


@asynccontextmanager
async def reach(api: Api, *script: Step, silence: float = 20, **settings: Any) -> AsyncGenerator[ReachableModel]:
    """The provider of a server that plays the script; `settings` are the provider's."""
    model, clock = Model(api, script), TestClock()
    async with serve(model) as server:
        more = {"timeout": Timeouts(first_byte=silence, silence=silence), **settings}
        provider = api.make(f"http://127.0.0.1:{server.port}", api_key=KEY, clock=clock, **more)
        try:
            yield ReachableModel(provider, model, clock, server)
        finally:
            await provider.aclose()
