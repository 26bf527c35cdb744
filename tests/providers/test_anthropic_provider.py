"""Turns with the Anthropic provider against a server on the loopback interface."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest
from loopback_server import (
    STREAM_HEAD,
    Answer,
    Exchange,
    Server,
    hang_up,
    http_chunks,
    serve,
    stream,
    until_client_leaves,
    whole,
)

from patience import in_time
from toolspeak import Agent, tool
from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallStarted,
    Delta,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import Message, Opaque, Usage
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ConfigurationError, ProviderError, UnknownProvider
from toolspeak.providers import ModelRequest, Provider, get_provider
from toolspeak.providers.anthropic import API_VERSION, AnthropicProvider
from toolspeak.wire.anthropic.request_writer import MAX_TOKENS

KEY = "sk-ant-test-0123456789abcdef"
READ = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"p": {"type": "string"}}})
REQUEST = ModelRequest([Message.system("Be brief."), Message.user("Grüß")], [READ])
CHUNKED_HEAD = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"


def event(data: Any, end: bytes = b"\n\n") -> bytes:
    """One event as Anthropic's API sends it: with its name."""
    return b"event: " + data["type"].encode() + end[: len(end) // 2] + b"data: " + json.dumps(data).encode() + end


def block(index: int, **fields: Any) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": fields})


def delta(index: int, **fields: Any) -> bytes:
    return event({"type": "content_block_delta", "index": index, "delta": fields})


def stop(index: int) -> bytes:
    return event({"type": "content_block_stop", "index": index})


EVENTS = [
    event({"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "usage": {"input_tokens": 3}}}),
    event({"type": "ping"}),
    block(0, type="thinking", thinking="", signature=""),
    delta(0, type="thinking_delta", thinking="h😀"),
    delta(0, type="signature_delta", signature="c2ln"),
    stop(0),
    block(1, type="text", text=""),
    delta(1, type="text_delta", text="Hé"),
    stop(1),
    block(2, type="tool_use", id="toolu_1", name="read", input={}),
    delta(2, type="input_json_delta", partial_json='{"p":'),
    delta(2, type="input_json_delta", partial_json='"a"}'),
    stop(2),
    event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}}),
    event({"type": "message_stop"}),
]
DELTAS: list[Delta] = [
    ReasoningDelta("h😀"),
    PartEnded("reasoning", Opaque("anthropic", "m", {"signature": "c2ln"})),
    TextDelta("Hé"),
    CallStarted(0, "read", "toolu_1"),
    ArgumentsDelta(0, '{"p":'),
    ArgumentsDelta(0, '"a"}'),
    CallCompleted(0, "read", {"p": "a"}, "toolu_1"),
    BatchEnded((0,), True),
    TurnEnded("tool_calls", Usage(3, 2), "m-1", limit=MAX_TOKENS),
]


async def turn(provider: Provider, request: ModelRequest = REQUEST) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


def ask(*answers: Answer, timeout: float | None = 20, turns: int = 1, **settings: Any) -> tuple[list[Delta], Server]:
    async def run() -> tuple[list[Delta], Server]:
        async with serve(*answers) as server:
            options = {"timeout": timeout, "retries": 0, **settings}
            provider = AnthropicProvider("m", base_url=server.base_url, api_key=KEY, **options)
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


# --- requests ----------------------------------------------------------------------------------------------------


def test_the_request_as_the_server_gets_it():
    _, server = ask(stream(*EVENTS), options={"max_tokens": 99, "thinking": {"type": "adaptive"}})
    (exchange,) = server.exchanges
    assert exchange.request_line == "POST /v1/messages HTTP/1.1"
    assert exchange.headers["x-api-key"] == KEY
    assert exchange.headers["anthropic-version"] == API_VERSION
    assert exchange.json == {
        "model": "m",
        "max_tokens": 99,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Grüß"}]}],
        "tools": [{"name": "read", "description": "Reads a file.", "input_schema": READ.parameters}],
        "stream": True,
        "thinking": {"type": "adaptive"},
    }


def test_the_requests_own_options_win_over_the_providers():
    async def run() -> Exchange:
        async with serve(stream(*EVENTS)) as server:
            provider = AnthropicProvider("m", base_url=server.base_url, options={"max_tokens": 1}, version="2023-06-01")
            await turn(provider, ModelRequest([Message.user("Hi")], options={"max_tokens": 2}))
            await provider.aclose()
            return server.exchanges[0]

    exchange = asyncio.run(run())
    assert exchange.json["max_tokens"] == 2
    assert exchange.headers["anthropic-version"] == "2023-06-01"
    assert "x-api-key" not in exchange.headers


@pytest.mark.parametrize(
    ("suffix", "path"),
    [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/v1/", "/v1/messages"),
        ("/api", "/api/v1/messages"),
    ],
)
def test_base_urls_with_and_without_v1(suffix: str, path: str):
    async def run() -> Exchange:
        async with serve(stream(*EVENTS)) as server:
            provider = AnthropicProvider("m", base_url=f"http://127.0.0.1:{server.port}{suffix}")
            assert await turn(provider) == DELTAS
            await provider.aclose()
            return server.exchanges[0]

    assert asyncio.run(run()).request_line == f"POST {path} HTTP/1.1"


def test_the_environment_names_key_and_address():
    async def run() -> Server:
        async with serve(stream(*EVENTS)) as server:
            environ = {"ANTHROPIC_API_KEY": f" {KEY}\n", "ANTHROPIC_BASE_URL": server.base_url}
            provider = get_provider("anthropic:m", environ)
            assert provider.name == "anthropic:m"
            assert await turn(provider) == DELTAS
            await provider.aclose()
            return server

    assert asyncio.run(run()).exchanges[0].headers["x-api-key"] == KEY
    assert asyncio.run(AnthropicProvider("m", api_key=KEY).aclose()) is None
    with pytest.raises(UnknownProvider, match="Set ANTHROPIC_API_KEY"):
        get_provider("anthropic:m", {"ANTHROPIC_API_KEY": " "})
    with pytest.raises(ConfigurationError, match="characters that are not ASCII"):
        AnthropicProvider("m", api_key="sk ant")


def test_what_the_api_can_do():
    capabilities = AnthropicProvider("m", api_key=KEY).capabilities
    assert capabilities.tools
    assert capabilities.parallel
    assert capabilities.tool_choice
    assert capabilities.output
    assert capabilities.reasoning
    assert capabilities.cache_markers
    assert not capabilities.tool_role
    assert not capabilities.resume


def test_a_request_that_cannot_be_sent_sends_nothing():
    provider = AnthropicProvider("m", base_url="http://127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="rename it"):
        asyncio.run(turn(provider, ModelRequest([Message.user("Hi")], [ToolSpec("a.b", "", {})])))
    with pytest.raises(ConfigurationError, match="options must be JSON"):
        asyncio.run(turn(provider, ModelRequest([Message.user("Hi")], options={"x": {1}})))


# --- streams -----------------------------------------------------------------------------------------------------


def test_a_whole_stream():
    assert ask(stream(*EVENTS))[0] == DELTAS


def test_a_stream_cut_in_two_anywhere():
    body = b"".join(EVENTS)
    cuts = [stream(body[:at], body[at:]) for at in range(1, len(body), 7)]
    assert ask(*cuts, turns=len(cuts))[0] == DELTAS * len(cuts)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"], ids=repr)
def test_a_stream_byte_by_byte_whatever_its_line_ends(end: bytes):
    body = b"".join(EVENTS).replace(b"\n", end[: len(end) // 2])
    assert ask(stream(*(body[at : at + 1] for at in range(len(body)))))[0] == DELTAS


def test_events_without_names_and_comments_are_read():
    bare = [piece.partition(b"\n")[2] for piece in EVENTS]
    assert ask(stream(b": hello\n\n", *bare[:3], b":\n", *bare[3:], b"data: [DONE]\n\n"))[0] == DELTAS


def test_unknown_events_are_passed_over():
    later = event({"type": "message_metadata", "index": "?"})
    assert ask(stream(EVENTS[0], later, *EVENTS[1:5], later, *EVENTS[5:]))[0] == DELTAS


def test_a_plain_json_body_is_read_as_an_answer_that_was_not_streamed():
    body = {
        "type": "message",
        "model": "m-1",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Hi"}],
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    assert ask(whole("200 OK", json.dumps(body).encode()))[0] == [
        ReasoningDelta("hm"),
        PartEnded("reasoning", Opaque("anthropic", "m", {"signature": "s"})),
        TextDelta("Hi"),
        TurnEnded("length", Usage(1, 2), "m-1", limit=MAX_TOKENS),
    ]


def test_an_answer_without_content_is_an_empty_turn():
    end = event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}})
    assert ask(stream(EVENTS[0], end, EVENTS[-1]))[0] == [TurnEnded("stop", Usage(3, 1), "m-1", limit=MAX_TOKENS)]


def test_turns_share_a_connection():
    deltas, server = ask(stream(*EVENTS), turns=3)
    assert deltas == DELTAS * 3
    assert server.connections == 1


def test_the_turn_is_over_with_its_last_event_although_the_connection_stays():
    servers = [Server()]
    answer = until_client_leaves(lambda: servers[0], CHUNKED_HEAD, http_chunks(EVENTS))
    assert ask(answer, timeout=None)[0] == DELTAS


def test_a_connection_that_drops_after_the_stop_reason_loses_nothing():
    assert ask(hang_up(CHUNKED_HEAD, http_chunks(EVENTS[:-1])))[0] == DELTAS


def test_leaving_early_closes_the_connection():
    async def run() -> list[Delta]:
        servers: list[Server] = []
        async with serve(until_client_leaves(lambda: servers[0], CHUNKED_HEAD, http_chunks(EVENTS[:-2]))) as server:
            servers.append(server)
            provider = AnthropicProvider("m", base_url=server.base_url)
            async with aclosing(provider.stream(REQUEST)) as deltas:
                first = [await anext(deltas)]
            await server.client_gone.wait()
            await provider.aclose()
            return first

    assert asyncio.run(run()) == DELTAS[:1]


# --- an agent ----------------------------------------------------------------------------------------------------


@tool(read_only=True)
def read(p: str) -> str:
    """Reads a file."""
    return f"the text of {p}"


def test_an_agents_call_goes_back_with_its_signed_thought_and_its_result():
    answer = [
        EVENTS[0],
        block(0, type="text", text=""),
        delta(0, type="text_delta", text="Done."),
        stop(0),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
        EVENTS[-1],
    ]

    async def run() -> tuple[str | None, Server]:
        async with serve(stream(*EVENTS), stream(*answer)) as server:
            provider = AnthropicProvider("m", base_url=server.base_url, api_key=KEY)
            result = await Agent(provider, tools=[read], instructions="Be brief.").run("What does a say?")
            await provider.aclose()
            return result.answer, server

    final_answer, server = asyncio.run(run())
    assert final_answer == "Done."
    first, second = (exchange.json for exchange in server.exchanges)
    mark = {"cache_control": {"type": "ephemeral"}}
    question = {"type": "text", "text": "What does a say?", **mark}
    assert first["system"] == second["system"] == [{"type": "text", "text": "Be brief.", **mark}]
    assert [spec["name"] for spec in second["tools"]] == ["read"]
    assert first["messages"] == [{"role": "user", "content": [question]}]
    assert second["messages"] == [
        *first["messages"],
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "h😀", "signature": "c2ln"},
                {"type": "text", "text": "Hé"},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"p": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "the text of a"}],
                    **mark,
                }
            ],
        },
    ]


# --- what goes wrong ---------------------------------------------------------------------------------------------


def error_body(kind: str, message: str = "that is why") -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}).encode()


STATUSES = [
    ("400 Bad Request", "invalid_request_error", "refuses the request", False),
    ("401 Unauthorized", "authentication_error", "key is missing or wrong", False),
    ("403 Forbidden", "permission_error", "may not use this model", False),
    ("404 Not Found", "not_found_error", "Check the model's name", False),
    ("413 Too Large", "request_too_large", "too large for the server", False),
    ("429 Too Many Requests", "rate_limit_error", "wait and try again", True),
    ("500 Internal Server Error", "api_error", "failed or is overloaded", True),
    ("529 Overloaded", "overloaded_error", "failed or is overloaded", True),
]


@pytest.mark.parametrize(("status", "kind", "hint", "retryable"), STATUSES, ids=[status for status, *_ in STATUSES])
def test_the_table_of_statuses(status: str, kind: str, hint: str, retryable: bool):
    error = fail(whole(status, error_body(kind, f"that is why, {KEY}")))
    assert f"answered HTTP {status[:3]}: 'that is why, [API key]'" in str(error)
    assert hint in str(error)
    assert (error.status, error.retryable) == (int(status[:3]), retryable)


def test_too_many_requests_tells_how_long_to_wait():
    error = fail(whole("429 Too Many Requests", error_body("rate_limit_error"), "application/json", "retry-after: 20"))
    assert str(error).endswith("Retry-After: 20 seconds.")
    assert error.retryable


@pytest.mark.parametrize(
    ("kind", "status", "retryable"),
    [("overloaded_error", 529, True), ("api_error", 500, True), ("invalid_request_error", 400, False)],
)
def test_an_error_inside_the_stream(kind: str, status: int, retryable: bool):
    error = fail(stream(*EVENTS[:8], b"event: error\ndata: " + error_body(kind, f"key {KEY}") + b"\n\n"))
    assert str(error).startswith("the server reported an error: key [API key]. ")
    assert (error.status, error.retryable) == (status, retryable)


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        (hang_up(CHUNKED_HEAD, http_chunks(EVENTS[:8])), 4),
        (hang_up(CHUNKED_HEAD, http_chunks(EVENTS[:8]), b"40\r\ndata: {"), 4),
        (hang_up(CHUNKED_HEAD, http_chunks(EVENTS[:13])), 13),
        (stream(*EVENTS[:8]), 4),
    ],
    ids=["between chunks", "inside a chunk", "before the stop reason", "complete without an end"],
)
def test_a_connection_that_drops_inside_the_answer(answer: Answer, count: int):
    error = fail(answer)
    assert f"the connection dropped after {count} characters of the answer" in str(error)
    assert (error.status, error.retryable) == (None, True)


def test_a_server_that_falls_silent():
    def attempt(seconds: float) -> None:
        error = fail(until_client_leaves(Server, CHUNKED_HEAD, http_chunks(EVENTS[:8])), timeout=seconds)
        assert f"sent nothing for {seconds:g} seconds after 4 characters of the answer" in str(error)
        assert error.retryable

    in_time(attempt, 0.3, 5, 30)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (whole("200 OK", b"<html>", "text/html"), "answered with 'text/html' instead of an event stream or JSON"),
        (whole("200 OK", b"{"), "a body that is not JSON: '{'"),
        (whole("200 OK", b'{"choices": []}'), "the response has no content"),
        (stream(b"data: {nonsense\n\n"), "an event that is not JSON: '{nonsense'"),
        (stream(b"data: []\n\n"), "an event of the stream should be an object"),
        (stream(block(0, type="text", text=5)), "'text' of a content block should be a string"),
    ],
)
def test_answers_that_make_no_sense(answer: Answer, problem: str):
    error = fail(answer)
    assert problem in str(error)
    assert not error.retryable


def test_the_default_limit_is_sent():
    _, server = ask(stream(*EVENTS))
    assert server.exchanges[0].json["max_tokens"] == MAX_TOKENS
