from __future__ import annotations

import asyncio
import json
import socket
from contextlib import aclosing

import pytest
from loopback_server import (
    STREAM_HEAD,
    Exchange,
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
from openai_turns import CHUNKED_HEAD, DELTAS, EVENTS, KEY, REQUEST, ask, turn

from toolspeak.data.deltas import Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import Usage
from toolspeak.errors import ConfigurationError, ProviderError, UnknownProvider
from toolspeak.providers import ModelRequest
from toolspeak.providers.openai import OpenAIProvider

# --- requests ----------------------------------------------------------------------------------------------------


def test_the_request_as_the_server_gets_it():
    _, server = ask(stream(*EVENTS))
    (exchange,) = server.exchanges
    assert exchange.request_line == "POST /v1/chat/completions HTTP/1.1"
    assert exchange.headers["authorization"] == f"Bearer {KEY}"
    assert exchange.headers["content-type"] == "application/json"
    assert exchange.json == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüß\ufffd"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
    }


@pytest.mark.parametrize(
    ("suffix", "path"),
    [
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("", "/chat/completions"),
        ("/", "/chat/completions"),
        ("/v1?api-version=2", "/v1/chat/completions?api-version=2"),
    ],
)
def test_base_urls_with_and_without_a_trailing_slash(suffix: str, path: str):
    async def run() -> Exchange:
        async with serve(stream(*EVENTS)) as server:
            provider = OpenAIProvider("m", base_url=f"http://127.0.0.1:{server.port}{suffix}")
            assert await turn(provider) == DELTAS
            await provider.aclose()
            return server.exchanges[0]

    exchange = asyncio.run(run())
    assert exchange.request_line == f"POST {path} HTTP/1.1"
    assert "authorization" not in exchange.headers


def test_the_providers_options_go_into_every_request_and_the_requests_own_win():
    async def run() -> Exchange:
        async with serve(stream(*EVENTS)) as server:
            provider = OpenAIProvider("m", base_url=server.base_url, options={"temperature": 1, "seed": 7})
            await turn(provider)
            await provider.aclose()
            return server.exchanges[0]

    body = asyncio.run(run()).json
    assert (body["temperature"], body["seed"]) == (0, 7)


@pytest.mark.parametrize("option", [{1, 2}, float("nan"), object()])
def test_an_option_that_is_no_json_is_the_callers_mistake(option: object):
    provider = OpenAIProvider("m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ConfigurationError, match="options must be JSON"):
        asyncio.run(turn(provider, ModelRequest([], options={"x": option})))


# --- streams -----------------------------------------------------------------------------------------------------


def test_a_whole_stream():
    assert ask(stream(*EVENTS))[0] == DELTAS


def test_a_stream_cut_at_every_byte():
    body = b"".join(EVENTS)
    cuts = [stream(body[:at], body[at:]) for at in range(1, len(body))]
    assert ask(*cuts, turns=len(cuts))[0] == DELTAS * len(cuts)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"], ids=repr)
def test_a_stream_byte_by_byte_whatever_its_line_ends(end: bytes):
    body = b"".join(piece.replace(b"\n\n", end) for piece in EVENTS)
    assert ask(stream(*(body[at : at + 1] for at in range(len(body)))))[0] == DELTAS


def test_comments_keep_the_connection_alive_and_other_fields_are_passed_over():
    comments = b": OPENROUTER PROCESSING\n\n"
    named_event = b"event: message\nid: 7\nretry: 5\n" + EVENTS[0]
    assert ask(stream(comments, named_event, b":\n", EVENTS[1], comments, *EVENTS[2:]))[0] == DELTAS


def test_an_event_may_have_several_data_lines_and_no_space():
    lines = json.dumps(says("Hé"), indent=1).encode().split(b"\n")
    assert ask(stream(b"\n".join(b"data:" + line for line in lines) + b"\n\n", *EVENTS[1:]))[0] == DELTAS


def test_the_stream_is_utf8_whatever_the_header_says():
    head = b"HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; charset=iso-8859-1\r\n\r\n"
    assert ask(hang_up(head, *EVENTS))[0] == DELTAS


def test_reasoning_is_kept_apart():
    thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}
    assert ask(stream(event(thought), *EVENTS))[0] == [ReasoningDelta("hm"), *DELTAS]


def test_a_plain_json_body_is_read_as_an_answer_that_was_not_streamed():
    body = {"model": "m-1", "choices": [{"message": {"content": "Hi"}, "finish_reason": "length"}]}
    answer = whole("200 OK", json.dumps(body).encode(), "application/json; charset=utf-8")
    assert ask(answer)[0] == [TextDelta("Hi"), TurnEnded("length", Usage(), "m-1")]


@pytest.mark.parametrize("ending", [b"", b"data: [DONE]"], ids=["nothing", "unfinished"])
def test_a_stream_with_a_finish_reason_needs_no_done(ending: bytes):
    assert ask(stream(*EVENTS[:3], ending))[0] == DELTAS


def test_done_without_a_finish_reason_is_a_stop():
    assert ask(stream(EVENTS[0], EVENTS[3]))[0] == [TextDelta("Hé"), TurnEnded("stop", Usage(), "m-1")]


def test_a_connection_that_drops_after_the_finish_reason_lost_only_the_usage():
    answer = hang_up(CHUNKED_HEAD, http_chunks(EVENTS[:2]))
    assert ask(answer)[0] == [*DELTAS[:2], TurnEnded("stop", Usage(), "m-1")]


@pytest.mark.over_a_second
def test_turns_share_a_connection_also_at_the_same_time():
    _, server = ask(stream(*EVENTS), turns=3)
    assert server.connections == 1

    async def run() -> tuple[list[list[Delta]], int]:
        everybody = asyncio.Event()
        exchanges: list[Exchange] = []

        async def answer(exchange: Exchange) -> None:
            exchanges.append(exchange)
            if len(exchanges) >= 120:  # each of the first ones needs a connection
                everybody.set()
            await everybody.wait()
            await stream(*EVENTS)(exchange)

        async with serve(answer) as server:
            provider = OpenAIProvider("m", base_url=server.base_url)
            turns = await asyncio.gather(*(turn(provider) for _ in range(120)))
            turns += await asyncio.gather(*(turn(provider) for _ in range(120)))
            await provider.aclose()
            return turns, server.connections

    assert asyncio.run(run()) == ([DELTAS] * 240, 120)


def test_a_provider_can_be_used_in_one_event_loop_after_the_other():
    closing = hang_up(STREAM_HEAD + b"connection: close\r\n\r\n", *EVENTS)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        provider = OpenAIProvider("m", base_url=f"http://127.0.0.1:{listening.getsockname()[1]}/v1")

        async def run() -> list[Delta]:
            async with serve(closing, sock=listening.dup()):
                return await turn(provider)

        assert asyncio.run(run()) == DELTAS
        assert asyncio.run(run()) == DELTAS


def test_closing_the_iterator_closes_the_connection():
    async def run() -> None:
        servers: list[Server] = []
        answer = until_client_leaves(lambda: servers[0], CHUNKED_HEAD, http_chunks([EVENTS[0]]))
        async with serve(answer) as server:
            servers.append(server)
            provider = OpenAIProvider("m", base_url=server.base_url)
            async with aclosing(provider.stream(REQUEST)) as deltas:
                assert await anext(deltas) == TextDelta("Hé")
            await asyncio.wait_for(server.client_gone.wait(), 60)
            await provider.aclose()

    asyncio.run(run())


def test_cancelling_a_turn_closes_the_connection():
    async def run() -> None:
        servers: list[Server] = []
        answer = until_client_leaves(lambda: servers[0], CHUNKED_HEAD, http_chunks([EVENTS[0]]))
        async with serve(answer) as server:
            servers.append(server)
            provider = OpenAIProvider("m", base_url=server.base_url)
            start = asyncio.Event()

            async def consume() -> None:
                async for _ in provider.stream(REQUEST):
                    start.set()

            task = asyncio.create_task(consume())
            await start.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
            await asyncio.wait_for(server.client_gone.wait(), 60)
            await provider.aclose()

    asyncio.run(run())


# --- settings ----------------------------------------------------------------------------------------------------


def test_without_key_and_address_it_says_how_to_point_it_at_a_local_server():
    with pytest.raises(UnknownProvider) as raised_error:
        OpenAIProvider.from_env("qwen3:8b", {"OPENAI_API_KEY": " "})
    for words in (
        "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set",
        "OPENAI_BASE_URL=http://127.0.0.1:11434/v1",
        "OPENAI_BASE_URL=http://127.0.0.1:1234/v1",
        "OPENAI_BASE_URL=http://127.0.0.1:8080/v1",
        "OPENAI_BASE_URL=http://127.0.0.1:8000/v1",
    ):
        assert words in str(raised_error.value)


def test_the_environment_gives_key_and_address():
    async def run(environ: dict[str, str]) -> Exchange:
        async with serve(stream(*EVENTS)) as server:
            provider = OpenAIProvider.from_env("m", {"OPENAI_BASE_URL": server.base_url, **environ})
            assert provider.name == "openai:m"
            await turn(provider)
            await provider.aclose()
            return server.exchanges[0]

    assert "authorization" not in asyncio.run(run({})).headers
    assert asyncio.run(run({"OPENAI_API_KEY": f"{KEY}\n"})).headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "base_url", ["localhost:11434/v1", "127.0.0.1:8080", "ftp://x/v1", "http://", "/v1", "http://x:port"]
)
def test_a_base_url_that_cannot_be(base_url: str):
    with pytest.raises(ConfigurationError, match="the base URL"):
        OpenAIProvider("m", base_url=base_url)


@pytest.mark.parametrize("key", ["sk-a b", "sk-ä", "sk-a\nb", "sk-\x00"])
def test_a_key_that_cannot_be_is_not_shown(key: str):
    with pytest.raises(ConfigurationError) as raised_error:
        OpenAIProvider("m", api_key=key)
    assert key not in str(raised_error.value)


def test_user_and_password_of_the_address_are_not_shown():
    answer = whole("401 Unauthorized", b"")

    async def run() -> None:
        async with serve(answer) as server:
            provider = OpenAIProvider("m", base_url=server.base_url.replace("//", "//me:hush@") + "?key=hush")
            try:
                await turn(provider)
            finally:
                await provider.aclose()

    with pytest.raises(ProviderError) as raised_error:
        asyncio.run(run())
    assert "hush" not in str(raised_error.value)


def test_a_closed_provider_says_so():
    async def run() -> None:
        provider = OpenAIProvider("m", base_url="http://127.0.0.1:9/v1")
        await provider.aclose()
        await provider.aclose()
        await turn(provider)

    with pytest.raises(ConfigurationError, match="this provider is closed"):
        asyncio.run(run())
