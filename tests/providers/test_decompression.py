"""A small body that unpacks to a large one: it is ended, and others have their turn meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import json
from functools import cache

import pytest
from every_api import API_CASES, provider_of, streamed_text
from loopback_server import serve

from toolspeak.errors import ProviderError

MIB = 1024 * 1024
STREAM = {"ollama": "application/x-ndjson"}


@cache
def compress(name: str, size: int) -> bytes:
    """Lines that say nothing."""
    line = b" " * (MIB - 1) + b"\n" if name == "ollama" else b":" + b"x" * (MIB - 2) + b"\n"
    return gzip.compress(line * (size // MIB))


def answering(body: bytes, kind: str, status: str = "200 OK"):
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n"

    async def answer(exchange):
        await exchange.send(head.encode() + body)

    return answer


def error_and_turns(name: str, body: bytes, kind: str, status: str = "200 OK") -> tuple[str, int]:
    """What the error says, and how often others had their turn."""
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def main():
        async with serve(answering(body, kind, status)) as server:
            provider = provider_of(name, f"http://127.0.0.1:{server.port}", retries=0)
            others = asyncio.create_task(take_turns())
            try:
                await streamed_text(provider)
            finally:
                others.cancel()
                await provider.aclose()

    with pytest.raises(ProviderError) as raised_error:
        asyncio.run(main())
    return str(raised_error.value), turns


@pytest.mark.over_a_second
@pytest.mark.parametrize("name", sorted(API_CASES))
def test_a_stream_that_unpacks_to_far_more_than_was_sent_is_ended(name):
    body = compress(name, 80 * MIB)
    assert len(body) < MIB
    error, turns = error_and_turns(name, body, STREAM.get(name, "text/event-stream"))
    assert "unpack to more than" in error
    assert turns >= 60


@pytest.mark.over_a_second
@pytest.mark.parametrize("kind", ["application/json", ""])
@pytest.mark.parametrize("name", ["openai", "ollama"])
def test_a_whole_answer_that_unpacks_to_far_more_is_ended_too(name, kind):
    body = gzip.compress(b" " * (80 * MIB))
    error, turns = error_and_turns(name, body, kind)
    # Of a body that names no type, the beginning says what it is.
    assert "unpack to more than" in error if kind else "JSON" in error or "no stream" in error or "connection" in error
    assert turns


def test_an_error_that_unpacks_to_much_is_read_in_its_beginning():
    body = gzip.compress(json.dumps({"error": {"message": "x" * 80 * MIB}}).encode())
    error, _ = error_and_turns("openai", body, "application/json", "400 Bad Request")
    assert "400" in error
    assert len(error) < 10_000


def test_others_have_their_turn_while_many_events_come_at_once():
    event = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'
    error, turns = error_and_turns("openai", gzip.compress(event * 20_000, 1), "text/event-stream")
    assert "dropped after 20000 characters" in error
    assert turns >= 60
