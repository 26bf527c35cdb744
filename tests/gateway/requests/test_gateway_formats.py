"""Clients of every API in front of upstreams of every API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from loopback_server import STREAM_HEAD, Answer, Exchange, http_chunks, serve
from serving import ENDPOINTS, TOOLS, at, run_gateway

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import ImagePart, Message, TextPart, ToolCall, ToolChoice, ToolResult, Usage
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest, WireRequest
from toolspeak.wire.gemini import GEMINI
from toolspeak.wire.gemini.request_reader import decode_request_at
from toolspeak.wire.ollama import OLLAMA
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

UPSTREAMS = {
    "openai": OPENAI_CHAT,
    "openai-responses": OPENAI_RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "ollama": OLLAMA,
}
ARGUMENTS = {"city": "Grüß 😀", "days": 3}
CALLING: list[Delta] = [
    ReasoningDelta("Hm. "),
    TextDelta("Let me "),
    TextDelta("look."),
    CallStarted(0, "weather", "call_1"),
    ArgumentsDelta(0, '{"city": "Grüß 😀"'),
    ArgumentsDelta(0, ', "days": 3}'),
    CallCompleted(0, "weather", ARGUMENTS, "call_1"),
    BatchEnded((0,), ok=True),
    TurnEnded("tool_calls", Usage(30, 12)),
]
ANSWERING: list[Delta] = [TextDelta("It is "), TextDelta("fine."), TurnEnded("stop", Usage(40, 3))]
QUESTION = Message("user", (TextPart("How is it?"), ImagePart("image/png", b"\x89PNG")))


def asked_of(name: str, exchange: Exchange) -> WireRequest:
    if name == "gemini":
        return decode_request_at(exchange.request_line.split()[1].partition("?")[0], exchange.json)
    return UPSTREAMS[name].decode_request(exchange.json)


def playing(name: str, *turns: Sequence[Delta]) -> Answer:
    queue = list(turns)
    wire = UPSTREAMS[name]

    async def answer(exchange: Exchange) -> None:
        encoder = wire.encoder(asked_of(name, exchange), response_id="r1", created_at=1)
        frames = [frame for delta in queue.pop(0) for frame in encoder.feed(delta)]
        if name == "ollama":
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
            content = b"".join(json.dumps(data).encode() + b"\n" for _, data in frames)
        else:
            head = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
            texts = [data if isinstance(data, str) else json.dumps(data) for _, data in frames]
            content = b"".join(f"data: {text}\n\n".encode() for text in texts)
        pieces = [content[i : i + 29] for i in range(0, len(content), 29)]
        await exchange.send(head, http_chunks(pieces), b"0\r\n\r\n")

    return answer


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("name", UPSTREAMS)
def test_a_tool_conversation_from_any_api_to_any_other(name: str, path: str, stream: bool):
    async def run() -> None:
        async with serve(playing(name, CALLING, ANSWERING)) as server:
            url = server.base_url if name.startswith("openai") else server.base_url.removesuffix("/v1")
            async with run_gateway(at(server, url=url, provider=name, model="real", dialect="native")) as gateway:
                limit = {"max_output_tokens" if path == "/v1/responses" else "max_tokens": 77}
                request = client_request(QUESTION)
                turn, _ = await gateway.ask(path, request, stream=stream, **limit)
                (call,) = turn.calls
                assert isinstance(call, ToolCall)
                assert (call.name, call.arguments) == ("weather", ARGUMENTS)
                assert (turn.text, turn.finish) == ("Let me look.", "tool_calls")
                assert turn.reasoning == "Hm. "
                if path != "/v1/chat/completions" or not stream:
                    assert (turn.usage.input, turn.usage.output) == (30, 12)
                first = asked_of(name, server.exchanges[0]).request
                assert "77" in json.dumps(server.exchanges[0].json)
                assert [tool.name for tool in first.tools] == ["weather", "clock"]
                assert [message.role for message in first.messages][:2] == ["system", "user"]
                assert any(isinstance(part, ImagePart) for part in first.messages[1].parts)
                result = ToolResult(call.id, "weather", "success", (TextPart("sunny"),))
                request = client_request(QUESTION, turn.message, Message("tool", (result,)))
                turn, _ = await gateway.ask(path, request, stream=stream)
                assert (turn.text, turn.finish) == ("It is fine.", "stop")
                second = asked_of(name, server.exchanges[1]).request
                (last_result,) = [result for message in second.messages for result in message.results]
                assert "sunny" in str(last_result.content)
                (earlier_call,) = [call for message in second.messages for call in message.calls]
                assert isinstance(earlier_call, ToolCall)
                assert (earlier_call.name, earlier_call.arguments) == ("weather", ARGUMENTS)

    asyncio.run(run())


def client_request(*messages: Message) -> ModelRequest:
    return ModelRequest([Message.system("Be brief."), *messages], TOOLS)


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("name", ["openai", "openai-responses", "anthropic", "gemini"])
def test_a_tool_choice_reaches_an_upstream_that_enforces_it(name: str, path: str):
    async def run() -> ToolChoice:
        async with serve(playing(name, CALLING)) as server:
            url = server.base_url if name.startswith("openai") else server.base_url.removesuffix("/v1")
            async with run_gateway(at(server, url=url, provider=name, model="real", dialect="native")) as gateway:
                request = ModelRequest([QUESTION], TOOLS, ToolChoice("specific", "weather"))
                await gateway.ask(path, request, stream=True)
                return asked_of(name, server.exchanges[0]).request.choice

    choice = asyncio.run(run())
    assert choice in (ToolChoice("specific", "weather"), ToolChoice("required"))
