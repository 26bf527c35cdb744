from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from loopback_server import (
    STREAM_HEAD,
    Answer,
    Server,
    event,
    hang_up,
    http_chunks,
    says,
    serve,
    stream,
    until_client_leaves,
    whole,
)
from openai_turns import CHUNKED_HEAD, EVENTS, KEY, ask, fail, turn

from patience import in_time
from toolspeak.errors import ProviderError
from toolspeak.providers.openai import OpenAIProvider


def test_an_error_inside_the_stream():
    error = {"error": {"message": f"overheated, key {KEY}", "type": "server_error", "code": 503}}
    failure = fail(stream(EVENTS[0], event(error)))
    assert str(failure).startswith("the server reported an error: overheated, key [API key]. The server failed")
    assert (failure.status, failure.retryable) == (503, True)


@pytest.mark.parametrize(
    "answer",
    [
        hang_up(CHUNKED_HEAD, http_chunks(EVENTS[:1])),
        hang_up(CHUNKED_HEAD, http_chunks(EVENTS[:1]), b"40\r\ndata: {"),
        hang_up(STREAM_HEAD + b"\r\n", EVENTS[0]),
        hang_up(STREAM_HEAD + b"\r\n", EVENTS[0], EVENTS[1][:20]),
        hang_up(STREAM_HEAD + b"content-length: 999\r\n\r\n", EVENTS[0]),
        stream(EVENTS[0]),
    ],
    ids=["between chunks", "inside a chunk", "no length", "inside an event", "known length", "complete without an end"],
)
def test_a_connection_that_drops_inside_the_answer(answer: Answer):
    error = fail(answer)
    assert "the connection dropped after 2 characters of the answer" in str(error)
    assert (error.status, error.retryable) == (None, True)


@pytest.mark.parametrize("content", [b"", b"HTTP/1.1 200", STREAM_HEAD])
def test_a_connection_that_drops_before_the_answer(content: bytes):
    error = fail(hang_up(content))
    assert "the connection dropped before the answer" in str(error)
    assert ".." not in str(error)
    assert error.retryable


def test_nobody_listens():
    async def run() -> str:
        async with serve(stream()) as server:
            return server.base_url

    base_url = asyncio.run(run())
    with pytest.raises(ProviderError) as raised_error:
        asyncio.run(turn(OpenAIProvider("m", base_url=base_url + "/")))
    assert base_url in str(raised_error.value)
    assert "the connection was refused. Start the server there, or correct the base URL" in str(raised_error.value)
    assert (raised_error.value.status, raised_error.value.retryable) == (None, True)


@pytest.mark.parametrize(
    ("pieces", "where"), [([], ""), ([CHUNKED_HEAD, http_chunks(EVENTS[:1])], " after 2 characters of the answer")]
)
def test_a_server_that_falls_silent(pieces: list[bytes], where: str):
    def attempt(seconds: float) -> None:
        error = fail(until_client_leaves(Server, *pieces), timeout=seconds)
        assert f"sent nothing for {seconds:g} seconds{where}" in str(error)
        assert error.retryable

    in_time(attempt, 0.5, 5, 30)


STATUS_TABLE = [
    ("401 Unauthorized", "key is missing or wrong", False),
    ("402 Payment Required", "no credit", False),
    ("403 Forbidden", "API key may not use this model", False),
    ("404 Not Found", "Check the model's name, and that the base URL", False),
    ("400 Bad Request", "refuses the request", False),
    ("408 Request Timeout", "try again", True),
    ("409 Conflict", "failed or is overloaded", True),
    ("413 Content Too Large", "too large for the server", False),
    ("418 Teapot", "own log may say more", False),
    ("425 Too Early", "failed or is overloaded", True),
    ("429 Too Many Requests", "wait and try again", True),
    ("500 Internal Server Error", "failed or is overloaded", True),
    ("501 Not Implemented", "does not support this request", False),
    ("503 Service Unavailable", "failed or is overloaded", True),
    ("529 Overloaded", "failed or is overloaded", True),
]


@pytest.mark.parametrize(("status", "hint", "retryable"), STATUS_TABLE, ids=[status for status, *_ in STATUS_TABLE])
def test_the_table_of_statuses(status: str, hint: str, retryable: bool):
    error = fail(whole(status, b'{"error": {"message": "that is why"}}'))
    assert f"answered HTTP {status[:3]}: 'that is why'" in str(error)
    assert hint in str(error)
    assert (error.status, error.retryable) == (int(status[:3]), retryable)


def test_a_quota_that_is_used_up_is_not_worth_a_retry():
    error = fail(whole("429 Too Many Requests", b'{"error": {"message": "You exceeded your current quota"}}'))
    assert "see its billing page" in str(error)
    assert not error.retryable


@pytest.mark.parametrize(
    "message", ["This model's maximum context length is 8192 tokens.", "the request exceeds the available context size"]
)
def test_a_conversation_that_is_too_long(message: str):
    error = fail(whole("400 Bad Request", json.dumps({"error": {"message": message}}).encode()))
    assert "longer than the model's context: shorten it" in str(error)


@pytest.mark.parametrize(
    ("body", "quote"),
    [
        (b'{"error": "model \'m\' not found"}', "model 'm' not found"),
        (b'{"message": "gone"}', "'gone'"),
        (b'{"detail": "Not Found"}', "'Not Found'"),
        (b'{"detail": [{"loc": 1}]}', '[{"loc": 1}]'),
        (b"<html>\n<h1>nginx</h1>\x1b[31m", "'<html> <h1>nginx</h1> [31m'"),
        (b"\xff\xfe", "�"),
        (b"", "answered HTTP 404. Check"),
        (b"null", "'null'"),
        (b"x" * 200_000, "x…'"),
        (b"[" * 200_000, "[…'"),
    ],
    ids=["text", "message", "detail", "details", "html", "not utf-8", "empty", "null", "long", "nested"],
)
def test_what_the_server_told_is_quoted_in_short(body: bytes, quote: str):
    error_text = str(fail(whole("404 Not Found", body)))
    assert quote in error_text
    assert len(error_text) < 600
    assert error_text.isprintable()


@pytest.mark.parametrize("key", [KEY, f"Bearer {KEY}", "sk-test-01***cdef", "gsk_abcdefgh1234", f"x{KEY}y"])
def test_keys_are_never_shown(key: str):
    error_text = str(fail(whole("401 Unauthorized", json.dumps({"error": {"message": f"bad key: {key}."}}).encode())))
    assert "[API key]" in error_text
    assert key not in error_text


@pytest.mark.parametrize("before", range(240, 301, 4))
@pytest.mark.parametrize("make", [str.encode, lambda text: json.dumps({"error": {"message": text}}).encode()])
def test_nor_is_the_beginning_of_one_where_the_text_was_cut(before: int, make: Callable[[str], bytes]):
    text = f"{'x' * before} {KEY} y"
    for answer in (whole("401 Unauthorized", make(text)), stream(event({"error": {"message": text, "code": 401}}))):
        assert KEY[:6] not in str(fail(answer))


def test_an_error_whose_body_is_cut_off_is_still_told():
    answer = hang_up(b"HTTP/1.1 500 X\r\ncontent-type: text/plain\r\ncontent-length: 99\r\n\r\nout of mem")
    assert "answered HTTP 500: 'out of mem'" in str(fail(answer))


def test_a_redirect_is_not_followed():
    error = fail(whole("308 Permanent Redirect", b"", "text/plain", "location: https://elsewhere.example/v1"))
    assert "redirects to 'https://elsewhere.example/v1'" in str(error)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (whole("200 OK", b"<html>", "text/html"), "answered with 'text/html' instead of an event stream or JSON"),
        (whole("200 OK", b"{"), "a body that is not JSON: '{'"),
        (whole("200 OK", b"[" * 100_000), "a body that is not JSON"),
        (whole("200 OK", b'{"object": "list"}'), "no choices"),
        (stream(event("{nonsense")), "an event that is not JSON: '{nonsense'"),
        (stream(event({"choices": "x"})), "'choices' should be a list"),
        (
            hang_up(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-type: text/event-stream\r\n\r\nplain"),
            "gzip|header|decompress",
        ),
    ],
)
def test_answers_that_make_no_sense(answer: Answer, problem: str):
    with pytest.raises(ProviderError, match=problem) as raised_error:
        ask(answer)
    assert not raised_error.value.retryable


LAST = b"data: " + json.dumps(says("!", "stop")).encode()


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\ndata: [DONE]", b"\n\ndata:[DONE] \n\n", b"\r\n\r\ndata: [DONE]\r\n"])
def test_a_stream_whose_last_event_lacks_its_blank_line_is_whole(end: bytes):
    deltas, _ = ask(hang_up(STREAM_HEAD + b"\r\n", event(says("Hi")), LAST + end))
    assert [getattr(delta, "text", "") for delta in deltas] == ["Hi", "!", ""]
