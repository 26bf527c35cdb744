"""What Gemini's and Ollama's providers do with awkward streams and with everything that goes wrong."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_server import Server, hang_up, http_chunks, serve, until_client_leaves, whole
from native import APIS, KEY, REQUEST, Api

from patience import in_time
from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.data.messages import Usage
from toolspeak.errors import ProviderError
from toolspeak.providers.reply import Reply

DELTAS = [TextDelta("Hé"), TextDelta("l😀"), TurnEnded("stop", Usage(3, 2), "m-1")]

every_api = pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])


@every_api
def test_a_turn_and_the_next_on_the_same_connection(api: Api):
    deltas, server = api.ask(api.stream(*api.frames), turns=2)
    assert deltas == DELTAS + DELTAS
    assert server.connections == 1


@every_api
def test_every_cut_of_the_stream(api: Api):
    content = b"".join(api.frames)
    cuts = [api.stream(content[:at], content[at:]) for at in range(len(content))]
    deltas, _ = api.ask(*cuts, turns=len(cuts))
    assert deltas == DELTAS * len(cuts)


@every_api
def test_byte_by_byte_with_crlf_and_blank_lines(api: Api):
    content = b"\n\n".join(frame.replace(b"\n", b"\r\n") for frame in api.frames)
    assert api.ask(api.stream(*(content[at : at + 1] for at in range(len(content)))))[0] == DELTAS


@every_api
def test_a_last_event_that_is_not_ended(api: Api):
    content = b"".join(api.frames).rstrip(b"\n") + (b"\n\n" if api.name == "gemini" else b"")
    assert api.ask(api.stream(content))[0] == DELTAS


@every_api
def test_a_whole_answer_instead_of_a_stream(api: Api):
    answer = whole("200 OK", json.dumps(api.chunks[1]).encode())
    assert api.ask(answer)[0] == DELTAS[1:]


@every_api
def test_an_empty_candidate_and_unknown_fields(api: Api):
    empty = api.frame(api.empty)
    assert api.ask(api.stream(empty, api.frames[0], empty, api.frames[1]))[0] == DELTAS


@every_api
def test_a_stall_after_the_end_does_no_harm(api: Api):
    head = api.head + b"transfer-encoding: chunked\r\n\r\n"
    answer = until_client_leaves(Server, head, http_chunks(api.frames))

    def attempt(seconds: float) -> None:
        assert api.ask(answer, timeout=seconds)[0] == DELTAS

    in_time(attempt, 0.5, 5, 30)


@every_api
def test_closing_the_turn_early_closes_the_connection(api: Api):
    async def run() -> None:
        servers: list[Server] = []
        head = api.head + b"transfer-encoding: chunked\r\n\r\n"
        async with serve(until_client_leaves(lambda: servers[0], head, http_chunks(api.frames[:1]))) as server:
            servers.append(server)
            provider = api.provider(f"http://127.0.0.1:{server.port}", 20)
            async with aclosing(provider.stream(REQUEST)) as deltas:  # type: ignore[type-var]
                assert await anext(deltas) == DELTAS[0]
            await asyncio.wait_for(server.client_gone.wait(), 60)
            await provider.aclose()

    asyncio.run(run())


# --- faults ------------------------------------------------------------------------------------------------------


@every_api
@pytest.mark.parametrize("kind", ["between chunks", "inside a chunk", "no length", "complete without an end"])
def test_a_connection_that_drops_inside_the_answer(api: Api, kind: str):
    head, first, second = api.head, *api.frames
    answer = {
        "between chunks": hang_up(head + b"transfer-encoding: chunked\r\n\r\n", http_chunks([first])),
        "inside a chunk": hang_up(
            head + b"transfer-encoding: chunked\r\n\r\n", http_chunks([first]), b"99\r\n", second[:9]
        ),
        "no length": hang_up(head + b"content-length: 999\r\n\r\n", first),
        "complete without an end": api.stream(first),
    }[kind]
    error = api.fail(answer)
    assert "the connection dropped after 2 characters of the answer" in str(error)
    assert (error.status, error.retryable) == (None, True)


@every_api
def test_a_connection_that_drops_before_the_answer(api: Api):
    error = api.fail(hang_up(b"HTTP/1.1 200"))
    assert "the connection dropped before the answer" in str(error)
    assert error.retryable


@every_api
def test_a_server_that_falls_silent(api: Api):
    pieces = [api.head + b"transfer-encoding: chunked\r\n\r\n", http_chunks(api.frames[:1])]

    def attempt(seconds: float) -> None:
        error = api.fail(until_client_leaves(Server, *pieces), timeout=seconds)
        assert f"sent nothing for {seconds:g} seconds after 2 characters of the answer" in str(error)
        assert error.retryable

    in_time(attempt, 0.5, 5, 30)


@every_api
def test_an_error_inside_the_stream(api: Api):
    error = api.fail(api.stream(api.frames[0], api.frame(api.error)))
    assert str(error).startswith("the server reported an error: overheated, key [API key]. ")


@every_api
@pytest.mark.parametrize(
    ("status", "hint", "retryable"),
    [
        ("401 Unauthorized", "key is missing or wrong", False),
        ("403 Forbidden", "API key may not use this model", False),
        ("429 Too Many Requests", "wait and try again. Retry-After: 20 seconds", True),
        ("500 Internal Server Error", "failed or is overloaded", True),
        ("503 Service Unavailable", "failed or is overloaded", True),
    ],
)
def test_statuses(api: Api, status: str, hint: str, retryable: bool):
    body = json.dumps({"error": {"message": f"that is why ({KEY})", "status": "X"}}).encode()
    error = api.fail(whole(status, body, "application/json", "retry-after: 20"))
    assert "that is why ([API key])" in str(error)
    assert hint in str(error)
    assert (error.status, error.retryable) == (int(status[:3]), retryable)


@every_api
@pytest.mark.parametrize("kind", ["type", "body", "event", "field", "nothing"])
def test_answers_that_make_no_sense(api: Api, kind: str):
    answer, problem = {
        "type": (whole("200 OK", b"<html>", "text/html"), "answered with 'text/html' instead of"),
        "body": (whole("200 OK", b"{"), "a body that is not JSON: '{'"),
        "event": (api.stream(api.frame({}).replace(b"{}", b"{nonsense")), "that is not JSON: '{nonsense'"),
        "field": (api.stream(api.frame(api.wrong)), "the server sent an ill-formed answer"),
        "nothing": (whole("200 OK", b"{}"), "the response has no"),
    }[kind]
    error = api.fail(answer)
    assert problem in str(error)
    assert not error.retryable


# --- lines -------------------------------------------------------------------------------------------------------


async def lines_of(pieces: list[bytes], longest: int = 1000) -> list[bytes]:
    async def body():
        for piece in pieces:
            yield piece

    return [line async for line in Reply(httpx2.Response(200, content=body())).lines(longest)]


@given(st.lists(st.binary(max_size=4) | st.sampled_from([b"\n", b"\r\n", "\u2028\x85\x0b".encode()]), max_size=9))
@settings(deadline=None)
def test_lines_end_where_a_newline_stands_and_nowhere_else(pieces: list[bytes]):
    expected = [line for line in b"".join(pieces).split(b"\n") if line.strip()]
    assert asyncio.run(lines_of(pieces)) == expected


def test_a_line_without_an_end_is_refused():
    assert asyncio.run(lines_of([b"x" * 60 + b"\n", b"x" * 60], 100)) == [b"x" * 60] * 2
    with pytest.raises(ProviderError, match="a line of more than 100 bytes"):
        asyncio.run(lines_of([b"x" * 60, b"x" * 60], 100))
