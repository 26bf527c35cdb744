"""Ollama against its own package (`make test-sdk`): its types take what we write, its client talks to our server role,
and we read what it writes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import ollama
import pytest
from format_server import FormatServer
from hypothesis import given, settings
from loopback_server import serve
from ollama._client import _parse_host
from ollama._types import ChatRequest, ChatResponse
from whole_calls import joined_deltas
from wire_strategies import requests, turns

from toolspeak.data.deltas import (
    BatchEnded,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import ImagePart, Message, TextPart, Usage
from toolspeak.providers.ollama import host_url
from toolspeak.wire.base import ModelRequest, OutputSchema, StreamFrame, WireRequest
from toolspeak.wire.ollama import OLLAMA


def read_file(path: str) -> str:
    """Reads a file.

    Args:
        path: Where it is.
    """
    return path


# --- types -------------------------------------------------------------------------------------------------------


@given(requests(parallel=False))
@settings(deadline=None)
def test_its_types_take_our_requests(request: ModelRequest):
    body = OLLAMA.encode_request(request, model="m", stream=True)
    read = ChatRequest.model_validate(body)
    assert read.messages is not None
    for message, message_json in zip(read.messages, body["messages"], strict=True):
        # Its type of an image takes bytes or a file; what it sends of them is base64.
        images = [{"value": base64.b64decode(image)} for image in message_json.get("images", ())]
        typed_message = ollama.Message.model_validate({**message, "images": images})
        assert typed_message.model_dump()["images"] == message_json.get("images", [])
        assert (typed_message.role, typed_message.content) == (message_json["role"], message_json["content"])
        assert [call.function.name for call in typed_message.tool_calls or ()] == [
            call["function"]["name"] for call in message_json.get("tool_calls", ())
        ]


@given(turns())
@settings(deadline=None)
def test_its_types_take_our_answers(turn: list[Delta]):
    body = OLLAMA.encode_response(turn, model="m-1", response_id="r", created_at=0)
    whole = ChatResponse.model_validate(body)
    expected = joined_deltas(turn)
    assert (whole.message.content, whole.message.thinking or "") == (expected["text"], expected["reasoning"])
    encoder = OLLAMA.encoder(WireRequest(ModelRequest([]), "m-1", True), response_id="r", created_at=0)
    lines = [ChatResponse.model_validate(line) for delta in turn for _, line in encoder.feed(delta)]
    assert "".join(line.message.content or "" for line in lines) == expected["text"]
    calls = [call.function for line in lines for call in line.message.tool_calls or ()]
    assert [(call.name, call.arguments) for call in calls] == [(c.name, c.arguments) for c in expected["completed"]]
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]


@pytest.mark.parametrize(
    "host",
    ["", "1.2.3.4", ":56789", "1.2.3.4:56789", "http://1.2.3.4", "https://1.2.3.4", "example.com/", "example.com:5/p/",
     "[0001:002:003:0004::1]", "https://[0001:002:003:0004::1]:56789/path", "http://example.com"],
)  # fmt: skip
def test_a_host_is_read_as_its_client_reads_it(host: str):
    assert host_url(host) == _parse_host(host)


# --- its client against our server role --------------------------------------------------------------------------

TURN: list[Delta] = [
    ReasoningDelta("Hm."),
    TextDelta("I "),
    TextDelta("look."),
    CallStarted(0, "read_file", "c0"),
    CallCompleted(0, "read_file", {"path": "ü"}, "c0"),
    CallStarted(1, "ping"),
    CallCompleted(1, "ping", {}),
    BatchEnded((0, 1), True),
    TurnEnded("tool_calls", Usage(10, 6)),
]
ANSWER: list[Delta] = [TextDelta('{"n":'), TextDelta(" 7}"), TurnEnded("stop", Usage(3, 2))]


class Server(FormatServer):
    wire = OLLAMA
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"

    def write(self, frames: list[StreamFrame]) -> bytes:
        return "".join(json.dumps(line) + "\n" for _, line in frames).encode()


def talk(server: Server, work: Callable[[ollama.AsyncClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with serve(server) as listening:
            client = ollama.AsyncClient(host=f"http://127.0.0.1:{listening.port}")
            try:
                return await work(client)
            finally:
                await client.close()

    return asyncio.run(run())


USER = {"role": "user", "content": "Hi", "images": [b"\x89P"]}


def test_a_conversation_whole():
    server = Server(TURN, ANSWER)

    async def work(client: ollama.AsyncClient) -> None:
        first = await client.chat("m", [USER], tools=[read_file], think=True, options={"num_ctx": 4096, "seed": 7})
        reply = first.message
        assert (reply.content, reply.thinking, first.done_reason) == ("I look.", "Hm.", "stop")
        assert (first.prompt_eval_count, first.eval_count) == (10, 6)
        assert reply.tool_calls is not None
        calls = [(call.function.name, call.function.arguments) for call in reply.tool_calls]
        assert calls == [("read_file", {"path": "ü"}), ("ping", {})]
        # Its types know no ids: results are told apart by their tool.
        results = [{"role": "tool", "tool_name": name, "content": f"of {name}"} for name in ("ping", "read_file")]
        second = await client.chat("m", [USER, reply, *results])
        assert second.message.content == '{"n": 7}'

    talk(server, work)
    first, second = server.requests
    assert (first.stream, first.request.options) == (False, {"think": True, "num_ctx": 4096, "seed": 7})
    assert first.request.messages == [Message("user", (TextPart("Hi"), ImagePart("image/*", b"\x89P")))]
    [tool] = first.request.tools
    assert (tool.name, tool.description, tool.parameters["required"]) == ("read_file", "Reads a file.", ["path"])
    calls, results = second.request.messages[1:]
    assert isinstance(calls, Message)
    assert isinstance(results, Message)
    by_id = {call.id: call.name for call in calls.calls}
    assert [(by_id[result.call_id], result.text) for result in results.results] == [
        ("ping", "of ping"),
        ("read_file", "of read_file"),
    ]


def test_a_stream():
    server = Server(TURN)

    async def work(client: ollama.AsyncClient) -> list[ChatResponse]:
        return [line async for line in await client.chat("m", [USER], tools=[read_file], stream=True)]

    lines = talk(server, work)
    assert "".join(line.message.content or "" for line in lines) == "I look."
    assert [line.message.thinking for line in lines if line.message.thinking] == ["Hm."]
    calls = [call.function.name for line in lines for call in line.message.tool_calls or ()]
    assert calls == ["read_file", "ping"]
    assert (lines[-1].done, lines[-1].eval_count) == (True, 6)
    assert server.requests[0].stream


def test_an_answer_of_a_schema():
    server = Server(ANSWER)
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}

    async def work(client: ollama.AsyncClient) -> ChatResponse:
        return await client.chat("m", [USER], format=schema)

    assert json.loads(talk(server, work).message.content) == {"n": 7}
    assert server.requests[0].request.output == OutputSchema("response", schema)


def test_a_malformed_call_of_a_dialect_is_text():
    turn = [CallMalformed(0, "<tool_call>{", "cut", "cut off", 3), BatchEnded((), False), TurnEnded("length")]

    async def work(client: ollama.AsyncClient) -> ChatResponse:
        return await client.chat("m", [USER], tools=[read_file])

    response = talk(Server(turn), work)
    assert (response.message.content, response.message.tool_calls) == ("<tool_call>{", None)
    assert response.done_reason == "length"


def test_errors_as_the_client_raises_them():
    async def check_errors(client: ollama.AsyncClient) -> None:
        await client.chat("m", [])

    with pytest.raises(ollama.ResponseError, match="at least one message is needed") as raised_error:
        talk(Server(), check_errors)
    assert raised_error.value.status_code == 400

    async def read_to_end(client: ollama.AsyncClient) -> None:
        async for _ in await client.chat("m", [USER], stream=True):
            pass

    with pytest.raises(ollama.ResponseError, match="the model broke off"):
        talk(Server(TURN, break_off=True), read_to_end)
