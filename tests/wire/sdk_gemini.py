"""Gemini against Google's own package (`make test-sdk`): its types take what we write, its client talks to our server
role, and we read what it writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from format_server import FormatServer
from google import genai
from google.genai import errors, types
from hypothesis import given, settings
from loopback_server import Exchange, serve
from whole_calls import joined_deltas
from wire_strategies import requests, turns

from toolspeak.data.deltas import (
    BatchEnded,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import Message, Opaque, TextPart, ToolCall, ToolChoice, ToolResult, Usage
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.gemini import GEMINI
from toolspeak.wire.gemini.request_reader import decode_request_at

MODEL = "gemini-3-pro"
SIGNATURE = Opaque("gemini", MODEL, {"thoughtSignature": "c2lnbmF0dXJl"})
READ = {
    "name": "read",
    "description": "Reads.",
    "parameters": {"type": "OBJECT", "properties": {"p": {"type": "STRING"}}},
}


# --- types -------------------------------------------------------------------------------------------------------


@given(requests(parallel=False, opaque=SIGNATURE))
@settings(deadline=None)
def test_its_types_take_our_requests(request: ModelRequest):
    body = GEMINI.encode_request(request, model=MODEL, stream=True)
    for content in [*body["contents"], *([body["systemInstruction"]] if "systemInstruction" in body else [])]:
        read = types.Content.model_validate(content)
        assert read.parts
        assert len(read.parts) == len(content["parts"])
    for tool in body.get("tools", []):
        types.Tool.model_validate(tool)
    types.ToolConfig.model_validate(body.get("toolConfig", {}))
    types.GenerateContentConfig.model_validate(body.get("generationConfig", {}))


@given(turns(opaque=SIGNATURE, response_id="r"))
@settings(deadline=None)
def test_its_types_take_our_answers_and_we_read_what_it_makes_of_them(turn: list[Delta]):
    body = GEMINI.encode_response(turn, model="m-1", response_id="r", created_at=0)
    response_json = dump(types.GenerateContentResponse.model_validate(body))
    assert joined_deltas(GEMINI.decode_response(response_json, model=MODEL)) == joined_deltas(turn)
    encoder = GEMINI.encoder(WireRequest(ModelRequest([]), "m-1", True), response_id="r", created_at=0)
    decoder = GEMINI.decoder(model=MODEL)
    read: list[Delta] = []
    for delta in turn:
        for _, chunk in encoder.feed(delta):
            read += decoder.feed(dump(types.GenerateContentResponse.model_validate(chunk)))
    assert joined_deltas(read + decoder.close()) == joined_deltas(turn)


def dump(response: types.GenerateContentResponse) -> Any:
    """With a null for each field that is not there."""
    return response.model_dump(mode="json", by_alias=True)


def test_every_finish_reason_it_knows_is_read():
    for reason in types.FinishReason:
        decoder = GEMINI.decoder()
        decoder.feed({"candidates": [{"finishReason": reason.value, "index": 0}]})
        assert decoder.finished == (reason is not types.FinishReason.FINISH_REASON_UNSPECIFIED)
        assert isinstance(decoder.close()[-1], TurnEnded)


# --- its client against our server role --------------------------------------------------------------------------


TURN: list[Delta] = [
    ReasoningDelta("Hm."),
    TextDelta("I "),
    TextDelta("look."),
    CallStarted(0, "read", "c0"),
    CallCompleted(0, "read", {"p": "ü"}, "c0", opaque=SIGNATURE),
    CallStarted(1, "ping"),
    CallCompleted(1, "ping", {}),
    BatchEnded((0, 1), True),
    TurnEnded("tool_calls", Usage(10, 6, 4, 2)),
]
ANSWER: list[Delta] = [
    TextDelta('{"n":'),
    TextDelta(" 7}"),
    PartEnded("text", SIGNATURE),
    TurnEnded("stop", Usage(3, 2)),
]


class Server(FormatServer):
    wire = GEMINI

    def read(self, exchange: Exchange) -> WireRequest:
        return decode_request_at(exchange.request_line.split()[1], exchange.json)


def talk(server: Server, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with serve(server) as listening:
            retries = types.HttpRetryOptions(attempts=1)
            url = f"http://127.0.0.1:{listening.port}"
            options = types.HttpOptions(base_url=url, retry_options=retries)
            client = genai.Client(api_key="AIza-0123456789", vertexai=False, http_options=options)
            try:
                return await work(client.aio.models)
            finally:
                await client.aio.aclose()
                client.close()

    return asyncio.run(run())


def config(**fields: Any) -> types.GenerateContentConfig:
    tools = [
        types.Tool(
            function_declarations=[types.FunctionDeclaration.model_validate(each) for each in (READ, {"name": "ping"})]
        )
    ]
    return types.GenerateContentConfig(
        system_instruction="Be brief.",
        tools=tools,
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        **fields,
    )


def results(calls: list[types.FunctionCall]) -> types.Content:
    parts = [
        types.Part(function_response=types.FunctionResponse(id=c.id, name=c.name, response={"result": "ok"}))
        for c in calls
    ]
    return types.Content(role="user", parts=parts)


USER = types.Content(role="user", parts=[types.Part(text="Hi")])


def test_a_conversation_whole():
    server = Server(TURN, ANSWER)
    asks = types.ToolConfig(
        function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY)
    )

    async def work(models: Any) -> None:
        first = await models.generate_content(model=MODEL, contents=[USER], config=config(tool_config=asks, seed=7))
        calls = [(call.id, call.name, call.args) for call in first.function_calls]
        assert calls == [("c0", "read", {"p": "ü"}), ("r1-1", "ping", {})]
        assert (first.text, first.candidates[0].finish_reason) == ("I look.", types.FinishReason.STOP)
        counts = first.usage_metadata
        assert (counts.total_token_count, counts.cached_content_token_count, counts.thoughts_token_count) == (16, 4, 2)
        reply = first.candidates[0].content
        contents = [USER, reply, results(first.function_calls)]
        second = await models.generate_content(model=MODEL, contents=contents, config=config())
        assert second.text == '{"n": 7}'

    talk(server, work)
    first, second = server.requests
    assert (first.model, first.stream) == (MODEL, False)
    assert (first.request.choice, first.request.options) == (ToolChoice("required"), {"seed": 7})
    assert [tool.name for tool in first.request.tools] == ["read", "ping"]
    assert first.request.tools[0].parameters == {"type": "object", "properties": {"p": {"type": "string"}}}
    read = ToolCall("c0", "read", {"p": "ü"}, "c0", opaque=SIGNATURE)
    ping = ToolCall("r1-1", "ping", {}, "r1-1")
    system, user, reply, tool_message = second.request.messages
    assert (system, user) == (Message.system("Be brief."), Message.user("Hi"))
    assert isinstance(reply, Message)
    assert reply.parts[1:] == (TextPart("I look."), read, ping)
    assert tool_message == Message(
        "tool", tuple(ToolResult(call.id, call.name, "success", (TextPart("ok"),)) for call in (read, ping))
    )


def test_a_stream():
    server = Server(TURN)

    async def work(models: Any) -> list[types.GenerateContentResponse]:
        stream = await models.generate_content_stream(model=MODEL, contents="Hi", config=config())
        return [chunk async for chunk in stream]

    chunks = talk(server, work)
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or []]
    assert "".join(part.text for part in parts if part.text and not part.thought) == "I look."
    assert [part.text for part in parts if part.thought] == ["Hm."]
    calls = [part for part in parts if part.function_call]
    assert [part.function_call.id for part in calls] == ["c0", "r1-1"]
    assert calls[0].thought_signature == b"signature"
    assert chunks[-1].usage_metadata.total_token_count == 16
    assert (server.requests[0].model, server.requests[0].stream) == (MODEL, True)


def test_an_answer_of_a_schema():
    server = Server(ANSWER)
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}

    async def work(models: Any) -> Any:
        config = types.GenerateContentConfig(response_mime_type="application/json", response_json_schema=schema)
        return await models.generate_content(model=MODEL, contents="Hi", config=config)

    response = talk(server, work)
    assert json.loads(response.text) == {"n": 7}
    assert response.candidates[0].content.parts[0].thought_signature == b"signature"
    assert server.requests[0].request.output == OutputSchema("response", schema)


def test_a_malformed_call_of_a_dialect_is_text():
    turn = [CallMalformed(0, "<tool_call>{", "cut", "cut off", 3), BatchEnded((), False), TurnEnded("length")]

    async def work(models: Any) -> Any:
        return await models.generate_content(model=MODEL, contents="Hi", config=config())

    response = talk(Server(turn), work)
    assert (response.text, response.function_calls) == ("<tool_call>{", None)
    assert response.candidates[0].finish_reason is types.FinishReason.MAX_TOKENS


def test_errors_as_the_client_raises_them():
    async def check_errors(models: Any) -> None:
        search = types.GenerateContentConfig(tools=[types.Tool(google_search=types.GoogleSearch())])
        await models.generate_content(model=MODEL, contents="Hi", config=search)

    with pytest.raises(errors.ClientError, match="googleSearch: not supported here") as raised_error:
        talk(Server(), check_errors)
    assert (raised_error.value.code, raised_error.value.status) == (400, "INVALID_ARGUMENT")

    async def read_to_end(models: Any) -> None:
        stream = await models.generate_content_stream(model=MODEL, contents="Hi")
        async for _ in stream:
            pass

    with pytest.raises(errors.APIError, match="the model broke off"):
        talk(Server(TURN, break_off=True), read_to_end)
