"""One turn with the OpenAI provider against a server on the loopback interface."""

from __future__ import annotations

import asyncio

import pytest
from loopback_server import STREAM_HEAD, Answer, Server, event, says, serve

from toolspeak.data.deltas import Delta, TextDelta, TurnEnded
from toolspeak.data.messages import TextMessage, Usage
from toolspeak.errors import ProviderError
from toolspeak.providers import ModelRequest, Provider
from toolspeak.providers.openai import OpenAIProvider

KEY = "sk-test-0123456789abcdef"
MESSAGES = [TextMessage("system", "Be brief."), TextMessage("user", "Grüß\ud800")]
REQUEST = ModelRequest(MESSAGES, options={"temperature": 0})
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
EVENTS = [event(says("Hé")), event(says("l😀", "stop")), event(USAGE), event("[DONE]")]
DELTAS = [TextDelta("Hé"), TextDelta("l😀"), TurnEnded("stop", Usage(3, 2), "m-1")]
CHUNKED_HEAD = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"


async def turn(provider: Provider, request: ModelRequest = REQUEST) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


def ask(*answers: Answer, timeout: float | None = 20, turns: int = 1) -> tuple[list[Delta], Server]:
    async def run() -> tuple[list[Delta], Server]:
        async with serve(*answers) as server:
            provider = OpenAIProvider("m", base_url=server.base_url, api_key=KEY, timeout=timeout, retries=0)
            try:
                return [delta for _ in range(turns) for delta in await turn(provider)], server
            finally:
                await provider.aclose()

    return asyncio.run(run())


def fail(*answers: Answer, timeout: float | None = 20) -> ProviderError:
    with pytest.raises(ProviderError) as raised_error:
        ask(*answers, timeout=timeout)
    assert KEY not in str(raised_error.value)
    return raised_error.value
