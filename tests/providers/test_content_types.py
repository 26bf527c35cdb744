"""Bodies whose type the server named wrongly, or not at all: what they are is read from how they begin."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from loopback_server import Answer, Exchange, hang_up, http_chunks
from native import GEMINI_API, OLLAMA_API, Api

from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.data.messages import Usage
from toolspeak.errors import ProviderError

DELTAS = [TextDelta("Hé"), TextDelta("l😀"), TurnEnded("stop", Usage(3, 2), "m-1")]
WRONG = ["", "content-type: text/plain\r\n", "content-type: application/octet-stream\r\n"]

every_api = pytest.mark.parametrize("api", [GEMINI_API, OLLAMA_API], ids=lambda api: api.name)


def answer_of_type(header: str, pieces: Sequence[bytes]) -> Answer:
    head = f"HTTP/1.1 200 OK\r\n{header}transfer-encoding: chunked\r\n\r\n".encode()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(head, http_chunks(pieces), b"0\r\n\r\n")

    return answer


def byte_by_byte(content: bytes) -> list[bytes]:
    return [content[at : at + 1] for at in range(len(content))]


@every_api
@pytest.mark.parametrize("header", WRONG)
def test_a_stream(api: Api, header: str):
    content = b"".join(api.frames)
    deltas, server = api.ask(answer_of_type(header, [content]), answer_of_type(header, byte_by_byte(content)), turns=2)
    assert deltas == DELTAS + DELTAS
    assert server.connections == 1


@pytest.mark.parametrize(
    "before", [b"\xef\xbb\xbf", b"\r\n\r\n", b": hello\n\n", b"event: message\n", b"id: 1\n", b"retry: 5\n\n"]
)
@pytest.mark.parametrize("header", [*WRONG, "content-type: application/json\r\n"])
def test_a_stream_of_events_that_begins_with_something_else(header: str, before: bytes):
    content = before + b"".join(GEMINI_API.frames)
    assert (
        GEMINI_API.ask(answer_of_type(header, [content]), answer_of_type(header, byte_by_byte(content)), turns=2)[0]
        == DELTAS + DELTAS
    )


@every_api
@pytest.mark.parametrize("header", WRONG)
def test_a_whole_answer(api: Api, header: str):
    content = b" " + json.dumps(api.chunks[1]).encode()
    assert (
        api.ask(answer_of_type(header, [content]), answer_of_type(header, byte_by_byte(content)), turns=2)[0]
        == DELTAS[1:] * 2
    )


@every_api
@pytest.mark.parametrize("header", [*WRONG, "content-type: text/html\r\n"])
@pytest.mark.parametrize("content", [b"<html>data: {}</html>", b"Not found", b"", b"dat"])
def test_what_is_neither(api: Api, header: str, content: bytes):
    with pytest.raises(ProviderError, match=r"instead of (lines of JSON|an event stream or JSON)") as raised_error:
        api.ask(answer_of_type(header, [content]))
    assert raised_error.value.code == "ill_formed"


@every_api
def test_one_that_drops_before_it_is_known(api: Api):
    with pytest.raises(ProviderError, match="the connection dropped") as raised_error:
        api.ask(hang_up(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"))
    assert raised_error.value.retryable
