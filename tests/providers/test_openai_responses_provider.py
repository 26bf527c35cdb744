"""The provider of OpenAI Responses against a server on the loopback interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from loopback_server import STREAM_HEAD, Answer, Exchange, Server, event, hang_up, http_chunks, serve, stream, whole
from loopback_server import until_client_leaves as hangs

from patience import in_time
from toolspeak import Agent, tool
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.data.deltas import CallCompleted, CallStarted, Delta, TextDelta, TurnEnded
from toolspeak.data.messages import FinishReason, Message, Opaque, ReasoningPart, Usage
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ConfigurationError, ProviderError, UnknownProvider
from toolspeak.providers import ModelRequest, get_provider
from toolspeak.providers.openai_responses import OpenAIResponsesProvider
from toolspeak.wire.base import Earlier, WireRequest
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

KEY = "sk-test-0123456789abcdef"
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
REQUEST = ModelRequest([Message.system("Be brief."), Message.user("Grüß")], (READ,), options={"temperature": 0})
NEXT_REQUEST = ModelRequest([*REQUEST.messages, Message.user("And?")], earlier=Earlier("resp_1", 2), keep=True)
CHUNKED_HEAD = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
TEXT: list[Delta] = [TextDelta("Hé"), TextDelta("l😀"), TurnEnded("stop", Usage(3, 2, 0, 0))]
CALL: list[Delta] = [CallCompleted(0, "read", {"path": "é"}, "call_1"), TurnEnded("tool_calls", Usage(3, 2))]


def events(deltas: Sequence[Delta], response_id: str = "resp_1") -> list[bytes]:
    """A turn as the server role writes it."""
    encoder = OPENAI_RESPONSES.encoder(WireRequest(REQUEST, "m"), response_id=response_id, created_at=0)
    frames = [frame for delta in deltas for frame in encoder.feed(delta)]
    return [f"event: {name}\n".encode() + event(data) for name, data in frames]


async def turn(
    server: Server, request: ModelRequest = REQUEST, *, model: str = "m", timeout: float = 20
) -> list[Delta]:
    provider = OpenAIResponsesProvider(model, base_url=server.base_url, api_key=KEY, timeout=timeout, retries=0)
    try:
        return [delta async for delta in provider.stream(request)]
    finally:
        await provider.aclose()


def ask(*answers: Answer, request: ModelRequest = REQUEST, model: str = "m") -> tuple[list[Delta], Server]:
    async def run() -> tuple[list[Delta], Server]:
        async with serve(*answers) as server:
            return await turn(server, request, model=model), server

    return asyncio.run(run())


def fail(*answers: Answer, request: ModelRequest = REQUEST, timeout: float = 20) -> ProviderError:
    async def run() -> None:
        async with serve(*answers) as server:
            await turn(server, request, timeout=timeout)

    with pytest.raises(ProviderError) as raised_error:
        asyncio.run(run())
    assert KEY not in str(raised_error.value)
    return raised_error.value


def text(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def finish(deltas: Sequence[Delta]) -> FinishReason:
    assert isinstance(deltas[-1], TurnEnded)
    return deltas[-1].finish


# --- a turn ------------------------------------------------------------------------------------------------------


def test_what_is_sent_and_what_comes():
    deltas, server = ask(stream(*events(TEXT)))
    (exchange,) = server.exchanges
    assert exchange.request_line == "POST /v1/responses HTTP/1.1"
    assert exchange.headers["authorization"] == f"Bearer {KEY}"
    assert exchange.json == OPENAI_RESPONSES.encode_request(REQUEST, model="m", stream=True)
    assert [delta for delta in deltas if isinstance(delta, TextDelta)] == TEXT[:-1]
    assert deltas[-1] == TurnEnded("stop", Usage(3, 2, 0, 0), "m", "resp_1")


def test_a_call_in_awkward_pieces():
    data = b"".join(events(CALL))
    for size in (1, 2, 3, 7, 64):
        deltas, _ = ask(stream(*(data[i : i + size] for i in range(0, len(data), size))))
        assert CallStarted(0, "read", "call_1") in deltas
        assert [d.arguments for d in deltas if isinstance(d, CallCompleted)] == [{"path": "é"}]
        assert finish(deltas) == "tool_calls"


def test_a_server_that_does_not_stream():
    body = OPENAI_RESPONSES.encode_response(CALL, model="m", response_id="resp_1", created_at=0)
    deltas, _ = ask(whole("200 OK", json.dumps(body).encode()))
    assert finish(deltas) == "tool_calls"


def test_unknown_events_comments_and_a_last_done_are_passed_over():
    unknown_events = [event({"type": "response.something.new", "delta": "x"}), b": ping\n\n", event({})]
    deltas, _ = ask(stream(*unknown_events, *events(TEXT), event("[DONE]")))
    assert text(deltas) == "Hél😀"


def test_a_stream_with_no_output_is_an_empty_turn():
    assert [type(delta) for delta in ask(stream(*events(TEXT[-1:])))[0]] == [TurnEnded]


def test_the_next_turn_uses_the_same_connection():
    async def run() -> int:
        async with serve(stream(*events(TEXT))) as server:
            provider = OpenAIResponsesProvider("m", base_url=server.base_url, api_key=KEY)
            for _ in range(3):
                assert text([delta async for delta in provider.stream(REQUEST)]) == "Hél😀"
            await provider.aclose()
            return server.connections

    assert asyncio.run(run()) == 1


@pytest.mark.parametrize("ending", ["reset", "open"])
def test_a_turn_is_whole_with_its_last_event_whatever_the_connection_does(ending: str):
    pieces = [CHUNKED_HEAD, http_chunks(events(TEXT))]
    servers = [Server()]
    answer = hang_up(*pieces) if ending == "reset" else hangs(lambda: servers[0], *pieces)
    assert finish(ask(answer)[0]) == "stop"


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        ("gpt-5", True),
        ("gpt-5.4-mini", True),
        ("o3", True),
        ("openai/gpt-oss-20b", True),
        ("codex-mini-latest", True),
        ("gpt-4o", False),
        ("gpt-5-chat-latest", False),
        ("qwen3:8b", False),
        ("solo1", False),
    ],
)
def test_only_models_that_reason_are_asked_for_encrypted_reasoning(model: str, reasons: bool):
    _, server = ask(stream(*events(TEXT)), model=model)
    assert server.exchanges[0].json.get("include") == (["reasoning.encrypted_content"] if reasons else None)


def test_reasoning_is_bound_to_the_model_that_was_asked_for():
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gA"}
    body = {"id": "resp_1", "model": "gpt-5-2025-08-07", "status": "completed", "output": [item]}
    answer = whole("200 OK", json.dumps(body).encode())
    deltas, _ = ask(answer, model="gpt-5")
    opaque = Opaque("openai-responses", "gpt-5", item)
    assert opaque in [getattr(delta, "opaque", None) for delta in deltas]
    again = ModelRequest([Message.user("Hi"), Message("assistant", (ReasoningPart("", opaque),)), Message.user("So?")])
    assert item in ask(answer, model="gpt-5", request=again)[1].exchanges[0].json["input"]


# --- faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "hint", "retryable"),
    [
        ("401 Unauthorized", "key is missing or wrong", False),
        ("404 Not Found", "Check the model's name", False),
        ("429 Too Many Requests", "wait and try again", True),
        ("500 Internal Server Error", "failed or is overloaded", True),
    ],
)
def test_statuses(status: str, hint: str, retryable: bool):
    body = json.dumps(OPENAI_RESPONSES.encode_error("that is why", int(status[:3]))).encode()
    error = fail(whole(status, body, "application/json", "retry-after: 0"))
    assert "that is why" in str(error)
    assert hint in str(error)
    assert (error.status, error.retryable) == (int(status[:3]), retryable)


@pytest.mark.parametrize(
    "answer",
    [
        hang_up(CHUNKED_HEAD, http_chunks(events(TEXT)[:5])),
        hang_up(CHUNKED_HEAD, http_chunks(events(TEXT)[:5]), b"40\r\ndata: {"),
        stream(*events(TEXT)[:5]),
        stream(*events(TEXT)[:5], event("[DONE]")),
    ],
    ids=["between events", "inside an event", "complete without its last event", "done without its last event"],
)
def test_a_stream_that_stops_in_the_middle(answer: Answer):
    error = fail(answer)
    assert "the connection dropped after 2 characters of the answer" in str(error)
    assert error.retryable


def test_a_server_that_falls_silent():
    def attempt(seconds: float) -> None:
        error = fail(hangs(Server, CHUNKED_HEAD, http_chunks(events(TEXT)[:5])), timeout=seconds)
        assert f"sent nothing for {seconds:g} seconds after 2 characters of the answer" in str(error)
        assert error.retryable

    in_time(attempt, 0.5, 5, 30)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (stream(event("{nonsense")), "an event that is not JSON: '{nonsense'"),
        (stream(event([])), "an event of the stream should be an object"),
        (whole("200 OK", b"{"), "a body that is not JSON"),
        (whole("200 OK", b'{"choices": []}'), "the response has no output"),
        (whole("200 OK", b"<html>", "text/html"), "answered with 'text/html' instead of an event stream or JSON"),
        (stream(event({"type": "error", "message": f"no {KEY}", "code": "x"})), r"no \[API key\]"),
    ],
)
def test_answers_that_make_no_sense(answer: Answer, problem: str):
    with pytest.raises(ProviderError, match=problem):
        raise fail(answer)


def test_a_turn_that_failed_in_its_stream():
    encoder = OPENAI_RESPONSES.encoder(WireRequest(REQUEST, "m"), response_id="resp_1", created_at=0)
    frames = [*encoder.feed(TextDelta("Hé")), *encoder.fail("overheated")]
    error = fail(stream(*(event(data) for _, data in frames)))
    assert str(error).startswith("the server reported an error: overheated. The server failed")
    assert error.retryable


# --- turns that the server keeps ---------------------------------------------------------------------------------


def error_body(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", **fields}}


NOT_FOUND = error_body("Previous response with id 'resp_1' not found.", code="previous_response_not_found")
UNKNOWN_RESPONSES = {
    "OpenAI": whole("400 Bad Request", json.dumps(NOT_FOUND).encode()),
    "404": whole("404 Not Found", json.dumps(NOT_FOUND).encode()),
    "vLLM": whole("404 Not Found", json.dumps(error_body("Response with id 'resp_1' not found.")).encode()),
    "short": whole("400 Bad Request", json.dumps(error_body("Invalid `previous_response_id`.")).encode()),
    "in the stream": stream(event({"type": "error", "status": 400, **NOT_FOUND})),
    "in the stream, flat": stream(event({**NOT_FOUND["error"], "type": "error", "sequence_number": 0})),
}


@pytest.mark.parametrize("answer", UNKNOWN_RESPONSES.values(), ids=UNKNOWN_RESPONSES)
def test_a_turn_that_the_server_forgot_is_told_apart(answer: Answer):
    error = fail(answer, request=NEXT_REQUEST)
    assert (error.code, error.retryable) == ("forgotten", False)
    assert fail(answer, request=REQUEST).code != "forgotten"


@pytest.mark.parametrize(
    "answer",
    [
        whole("400 Bad Request", json.dumps(error_body("No tool output found for function call call_1.")).encode()),
        whole("404 Not Found", json.dumps(error_body("The model `m` does not exist.")).encode()),
        whole("500 Internal Server Error", json.dumps(error_body("Cannot load resp_1")).encode()),
        hang_up(CHUNKED_HEAD, http_chunks(events(TEXT)[:5])),
    ],
    ids=["call", "model", "server", "connection"],
)
def test_other_failures_of_a_resumed_turn_are_not_taken_for_it(answer: Answer):
    assert fail(answer, request=NEXT_REQUEST).code != "forgotten"


def test_an_agent_goes_on_where_the_server_is_and_starts_over_where_it_forgot():
    @tool(read_only=True)
    def read(path: str) -> str:
        """Reads."""
        return f"content of {path}"

    def call_stream(n: int) -> Answer:
        return stream(*events([CallCompleted(0, "read", {"path": str(n)}, f"call_{n}"), CALL[-1]], f"resp_{n}"))

    async def run() -> tuple[Any, list[Exchange]]:
        async with serve(
            call_stream(1), call_stream(2), UNKNOWN_RESPONSES["OpenAI"], stream(*events(TEXT, "resp_3"))
        ) as server:
            provider = OpenAIResponsesProvider("m", base_url=server.base_url, api_key=KEY)
            agent = Agent(NativeDriver(provider, resume=True), tools=[read])
            result = await agent.run("Read them.")
            await provider.aclose()
            return result, server.exchanges

    result, exchanges = asyncio.run(run())
    assert result.answer == "Hél😀"
    bodies = [exchange.json for exchange in exchanges]
    assert [body.get("previous_response_id") for body in bodies] == [None, "resp_1", "resp_2", None]
    assert all(body["store"] for body in bodies)
    assert [item["type"] for item in bodies[1]["input"]] == ["function_call_output"]
    kinds = ["message", "function_call", "function_call_output", "function_call", "function_call_output"]
    assert [item["type"] for item in bodies[3]["input"]] == kinds


# --- setting up --------------------------------------------------------------------------------------------------


def test_from_the_environment():
    provider = get_provider("openai-responses:gpt-5", {"OPENAI_API_KEY": f" {KEY}\n"})
    assert provider.name == "openai-responses:gpt-5"
    assert provider.capabilities.tools
    assert provider.capabilities.resume
    with pytest.raises(UnknownProvider, match="neither OPENAI_API_KEY nor OPENAI_BASE_URL is set"):
        get_provider("openai-responses:gpt-5", {})


@pytest.mark.parametrize("key", ["sk-a b", "sk-ä"])
def test_a_key_that_cannot_be_is_not_shown(key: str):
    with pytest.raises(ConfigurationError) as raised_error:
        OpenAIResponsesProvider("m", api_key=key)
    assert key not in str(raised_error.value)
