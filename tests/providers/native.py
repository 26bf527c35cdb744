"""Gemini's and Ollama's providers against a server on the loopback interface: one table for what both promise."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from loopback_server import Answer, Server, event, http_chunks, serve

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import Message
from toolspeak.errors import ProviderError
from toolspeak.providers import ModelRequest, Provider
from toolspeak.providers.gemini import GeminiProvider
from toolspeak.providers.ollama import OllamaProvider

KEY = "AIzaSyTest-0123456789abcdef"
REQUEST = ModelRequest([Message.system("Be brief."), Message.user("Grüß\ud800")], options={"temperature": 0})


def part(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [*parts]}, "index": 0, **fields}]}


def ndjson(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"


def line(content: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m-1", "message": {"role": "assistant", "content": content}, "done": False, **fields}


@dataclass(frozen=True)
class Api:
    """`chunks` says "Hé" and "l😀", the last of them is the end; `frame` makes bytes of one."""

    name: str
    content_type: str
    provider: Callable[[str, float | None], Provider]
    frame: Callable[[Any], bytes]
    chunks: tuple[dict[str, Any], ...]
    error: dict[str, Any]
    wrong: dict[str, Any]
    empty: dict[str, Any]

    @property
    def frames(self) -> list[bytes]:
        return [self.frame(chunk) for chunk in self.chunks]

    @property
    def head(self) -> bytes:
        return f"HTTP/1.1 200 OK\r\ncontent-type: {self.content_type}\r\n".encode()

    def stream(self, *pieces: bytes) -> Answer:
        """A complete answer; the connection stays open for the next request."""

        async def answer(exchange: Any) -> None:
            await exchange.send(self.head + b"transfer-encoding: chunked\r\n\r\n", http_chunks(pieces), b"0\r\n\r\n")

        return answer

    def ask(self, *answers: Answer, timeout: float | None = 20, turns: int = 1) -> tuple[list[Delta], Server]:
        async def run() -> tuple[list[Delta], Server]:
            async with serve(*answers) as server:
                provider = self.provider(f"http://127.0.0.1:{server.port}", timeout)
                try:
                    return [delta for _ in range(turns) for delta in await turn(provider)], server
                finally:
                    await provider.aclose()

        return asyncio.run(run())

    def fail(self, *answers: Answer, timeout: float | None = 20) -> ProviderError:
        with pytest.raises(ProviderError) as raised_error:
            self.ask(*answers, timeout=timeout)
        assert KEY not in str(raised_error.value)
        return raised_error.value


async def turn(provider: Provider, request: ModelRequest = REQUEST) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


GEMINI_API = Api(
    "gemini",
    "text/event-stream",
    lambda url, timeout: GeminiProvider("gemini-3-pro", base_url=url, api_key=KEY, timeout=timeout, retries=0),
    event,
    (
        part({"text": "Hé"}),
        {
            **part({"text": "l😀"}, finishReason="STOP"),
            "modelVersion": "m-1",
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2},
        },
    ),
    {"error": {"code": 503, "message": f"overheated, key {KEY}", "status": "UNAVAILABLE"}},
    {"candidates": "x"},
    {"candidates": [{}], "news": [1]},
)
OLLAMA_API = Api(
    "ollama",
    "application/x-ndjson",
    lambda url, timeout: OllamaProvider("m", host=url, api_key=KEY, timeout=timeout, retries=0),
    ndjson,
    (
        line("Hé"),
        {**line("l😀"), "done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 2},
    ),
    {"error": f"overheated, key {KEY}"},
    {"message": "x"},
    {"message": {}, "news": [1]},
)
APIS = [GEMINI_API, OLLAMA_API]
