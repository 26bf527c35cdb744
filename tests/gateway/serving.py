"""The gateway over HTTP on the loopback interface, with upstreams that answer what a test says."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import uvicorn
from loopback_server import STREAM_HEAD, Answer, Server, event, http_chunks, says, whole

from toolspeak.data.messages import Message, Part, TextPart, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import ParsedTurn, TurnCollector, get_dialect
from toolspeak.gateway.server import Application, server_config
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.providers.http_settings import Timeouts
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest, WireFormat
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES
from uvicorn_here import serving

PATIENCE = 120.0
"""Seconds after which something hangs. A busy machine takes long for what takes a moment elsewhere."""

ENDPOINTS: dict[str, WireFormat] = {
    "/v1/chat/completions": OPENAI_CHAT,
    "/v1/responses": OPENAI_RESPONSES,
    "/v1/messages": ANTHROPIC,
}
WEATHER = ToolSpec(
    "weather",
    "The weather of a place.",
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
)
CLOCK = ToolSpec("clock", "The time.", {"type": "object", "properties": {"zone": {"type": "string"}}})
TOOLS = (WEATHER, CLOCK)


@dataclass
class Gateway:
    """The address of a gateway that serves, and a client of it."""

    port: int
    client: httpx2.AsyncClient
    server: uvicorn.Server

    async def ask(
        self, path: str, request: ModelRequest, *, stream: bool, model: str = "m", **more: Any
    ) -> tuple[ParsedTurn, httpx2.Response]:
        """A turn as a client of that API reads it."""
        wire = ENDPOINTS[path]
        body = {**wire.encode_request(request, model=model, stream=stream), **more}
        response = await self.client.post(path, json=body)
        assert response.status_code == 200, response.text
        return read(wire, response.text, stream=stream), response


def read(wire: WireFormat, text: str, *, stream: bool) -> ParsedTurn:
    collector = TurnCollector(lambda index: f"c{index}")
    if stream:
        decoder = wire.decoder(model="m")
        deltas = [delta for data in events(text) if data != "[DONE]" for delta in decoder.feed(data)]
        assert decoder.finished
        deltas += decoder.close()
    else:
        deltas = wire.decode_response(json.loads(text), model="m")
    for delta in deltas:
        collector.add(delta)
    return collector.turn()


def events(text: str) -> list[Any]:
    """The data of each event of a stream."""
    payloads = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [data if data == "[DONE]" else json.loads(data) for data in payloads]


@asynccontextmanager
async def run_gateway(*upstreams: Upstream, **settings: Any) -> AsyncGenerator[Gateway]:
    config = server_config(Application(Settings(tuple(upstreams), **settings), owns_process=False))
    async with serving(config) as (server, port):
        address = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE, trust_env=False, verify=False) as client:
            yield Gateway(port, client, server)


def at(server: Server, **more: Any) -> Upstream:
    return Upstream(
        **{"url": server.base_url, "timeouts": Timeouts(PATIENCE, PATIENCE, PATIENCE), "retries": 0, **more}
    )


USAGE = {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 12}}


def texts(*pieces: str, finish: str = "stop", usage: bool = True) -> list[bytes]:
    """The events of a turn that is text, in these pieces."""
    frames = [event(says(piece)) for piece in pieces]
    frames.append(event(says("", finish)))
    return [*frames, *([event(USAGE)] if usage else []), event("[DONE]")]


def in_turn(*turns: Iterable[bytes], cut: int = 0) -> Answer:
    """Gives the turns one after the other, whoever asks; the bytes cut into pieces of `cut`, whatever stands there. A
    GET is a 404: such a server says nothing of its models."""
    queue = [list(turn) for turn in turns]

    async def answer(exchange: Any) -> None:
        if exchange.request_line.startswith("GET "):
            await whole("404 Not Found", b"")(exchange)
            return
        frames = queue.pop(0)
        if cut:
            data = b"".join(frames)
            frames = [data[i : i + cut] for i in range(0, len(data), cut)]
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks(frames), b"0\r\n\r\n")

    return answer


def call_text(dialect: str, *calls: tuple[str, dict[str, Any]], before: str = "") -> str:
    """What a model of this dialect writes to call."""
    call_parts: list[Part] = [ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls)]
    parts: Sequence[Part] = [TextPart(before), *call_parts] if before else call_parts
    (message,) = get_dialect(dialect).render([Message("assistant", tuple(parts))], TOOLS)
    return message.text


def pieces(text: str, size: int = 3) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]
