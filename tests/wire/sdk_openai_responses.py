"""OpenAI Responses against OpenAI's own package (`make test-sdk`): its types take what we write, its client talks to
our server role, and we read what it writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import openai
import pytest
from hypothesis import given
from loopback_server import Answer, Exchange, Server, event, serve, stream, whole
from openai.types.responses import Response, ResponseInputItem, ResponseStreamEvent, Tool
from openai.types.responses.response import ToolChoice as ResponseToolChoice
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import BaseModel, TypeAdapter
from wire_strategies import PATIENT, requests, turns

from toolspeak.data.deltas import (
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import Message, Opaque, ToolChoice, Usage
from toolspeak.data.tools import ToolSpec
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

EVENT = TypeAdapter[Any](ResponseStreamEvent)
ITEM = TypeAdapter[Any](ResponseInputItem)
TOOL = TypeAdapter[Any](Tool)
CHOICE = TypeAdapter[Any](ResponseToolChoice)
CREATE = TypeAdapter[Any](ResponseCreateParamsStreaming)

ITEM_DATA = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
SIGNATURE = Opaque("openai-responses", "m", ITEM_DATA)
USAGE = Usage(3, 2, 1, 1)
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})


# --- types -------------------------------------------------------------------------------------------------------


@PATIENT
@given(requests(opaque=SIGNATURE))
def test_its_types_take_our_requests(request: ModelRequest):
    body = OPENAI_RESPONSES.encode_request(request, model="m", stream=True)
    CREATE.validate_python(body)
    for item in body["input"]:
        ITEM.validate_python(item)
    for each in body.get("tools", []):
        TOOL.validate_python(each)
    if "tool_choice" in body:
        CHOICE.validate_python(body["tool_choice"])


@PATIENT
@given(turns(opaque=SIGNATURE))
def test_its_types_take_our_answers_and_we_read_what_it_makes_of_them(deltas: list[Delta]):
    wire_request = WireRequest(ModelRequest([Message.user("Hi")], (READ,)), "m")
    encoder = OPENAI_RESPONSES.encoder(wire_request, response_id="resp_1", created_at=1)
    decoder, again = OPENAI_RESPONSES.decoder(model="m"), OPENAI_RESPONSES.decoder(model="m")
    ours: list[Delta] = []
    theirs: list[Delta] = []
    for delta in deltas:
        for _, data in encoder.feed(delta):
            ours += decoder.feed(data)
            theirs += again.feed(EVENT.validate_python(data).model_dump(mode="json", by_alias=True))
    assert [_without_signature(delta) for delta in theirs + again.close()] == [
        _without_signature(delta) for delta in ours + decoder.close()
    ]
    body = OPENAI_RESPONSES.encode_response(deltas, model="m", response_id="resp_1", created_at=1)
    response_json = Response.model_validate(body).model_dump(mode="json", by_alias=True)
    read = OPENAI_RESPONSES.decode_response(response_json, model="m")
    assert [_without_signature(d) for d in read] == [
        _without_signature(d) for d in OPENAI_RESPONSES.decode_response(body, model="m")
    ]
    # What it gave is what its users append to their input.
    items = [{"type": "message", "role": "user", "content": "Hi"}, *response_json["output"]]
    messages = OPENAI_RESPONSES.decode_request({"model": "m", "input": items}).request.messages
    assert len(messages[-1].calls) == sum(isinstance(delta, CallCompleted) for delta in deltas)


def _without_signature(delta: Delta) -> Delta:
    """Its dump says `null` where we say nothing: an item that goes back is compared by its secret alone."""
    if isinstance(delta, PartEnded) and delta.opaque is not None:
        return PartEnded(delta.part, Opaque("", "", delta.opaque.data.get("encrypted_content")))
    return delta


# --- its client and our server -----------------------------------------------------------------------------------


def serving(deltas: Sequence[Delta], requests: list[WireRequest]) -> Answer:
    async def answer(exchange: Exchange) -> None:
        request = OPENAI_RESPONSES.decode_request(exchange.json)
        requests.append(request)
        if not request.stream:
            body = OPENAI_RESPONSES.encode_response(deltas, model=request.model, response_id="resp_1", created_at=1)
            await whole("200 OK", json.dumps(body).encode())(exchange)
            return
        encoder = OPENAI_RESPONSES.encoder(request, response_id="resp_1", created_at=1)
        frames = [frame for delta in deltas for frame in encoder.feed(delta)]
        await stream(*(f"event: {name}\n".encode() + event(data) for name, data in frames))(exchange)

    return answer


def client_of(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.base_url, api_key="x", max_retries=0)


def run(deltas: Sequence[Delta], use: Callable[[openai.AsyncOpenAI], Awaitable[Any]]) -> tuple[Any, WireRequest]:
    requests: list[WireRequest] = []

    async def go() -> Any:
        async with serve(serving(deltas, requests)) as server, client_of(server) as client:
            return await use(client)

    return asyncio.run(go()), requests[-1]


TOOLS: Any = [
    {"type": "function", "name": "read", "description": "Reads.", "parameters": READ.parameters, "strict": False}
]
CALLS: list[Delta] = [
    ReasoningDelta("hm"),
    TextDelta("I "),
    TextDelta("look."),
    CallStarted(0, "read", "call_a"),
    CallStarted(1, "read", "call_b"),
    CallCompleted(0, "read", {"path": "é"}, "call_a"),
    CallCompleted(1, "read", {}, "call_b"),
    TurnEnded("tool_calls", USAGE),
]


def calls_of(response: Any) -> list[tuple[str, str, str]]:
    return [(item.call_id, item.name, item.arguments) for item in response.output if item.type == "function_call"]


EXPECTED_CALLS = [("call_a", "read", '{"path": "é"}'), ("call_b", "read", "{}")]


def test_create_and_what_its_client_asks():
    async def use(client: openai.AsyncOpenAI) -> Any:
        return await client.responses.create(
            model="m",
            instructions="Be brief.",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
            tools=TOOLS,
            tool_choice={"type": "function", "name": "read"},
            parallel_tool_calls=False,
            temperature=0.5,
            max_output_tokens=9,
        )

    response, wire_request = run(CALLS, use)
    assert calls_of(response) == EXPECTED_CALLS
    assert response.output_text == "I look."
    assert response.usage.output_tokens_details.reasoning_tokens == 1
    request = wire_request.request
    assert request.messages == [Message.system("Be brief."), Message.user("Hi")]
    assert (request.tools, request.choice, request.parallel) == ([READ], ToolChoice("specific", "read"), False)
    assert request.options == {"temperature": 0.5, "max_output_tokens": 9}


def test_create_streamed():
    async def use(client: openai.AsyncOpenAI) -> Any:
        return [each async for each in await client.responses.create(model="m", input="Hi", tools=TOOLS, stream=True)]

    events, wire_request = run(CALLS, use)
    assert wire_request.stream
    assert [each.sequence_number for each in events] == [*range(len(events))]
    assert "".join(each.delta for each in events if each.type == "response.output_text.delta") == "I look."
    assert events[-1].type == "response.completed"
    assert calls_of(events[-1].response) == EXPECTED_CALLS


def test_its_stream_helper():
    async def use(client: openai.AsyncOpenAI) -> Any:
        async with client.responses.stream(model="m", input="Hi", tools=TOOLS) as stream:
            events = [each async for each in stream]
            return events, await stream.get_final_response()

    (events, final), _ = run(CALLS, use)
    snapshots = [each.snapshot for each in events if each.type == "response.function_call_arguments.delta"]
    assert snapshots == ['{"path": "é"}', "{}"]
    assert events[-1].type == "response.completed"
    assert calls_of(final) == EXPECTED_CALLS


class NumberAnswer(BaseModel):
    n: int


def test_parsed_output():
    async def use(client: openai.AsyncOpenAI) -> Any:
        return await client.responses.parse(model="m", input="Hi", text_format=NumberAnswer)

    response, wire_request = run([TextDelta('{"n": 3}'), TurnEnded("stop", USAGE)], use)
    assert response.output_parsed == NumberAnswer(n=3)
    assert isinstance(wire_request.request.output, OutputSchema)
    assert (wire_request.request.output.name, wire_request.request.output.strict) == ("NumberAnswer", True)


def test_its_stream_helper_lives_with_a_malformed_call():
    deltas = [
        CallStarted(0, "read", "c"),
        CallMalformed(0, "{", "no_end", "cut", 0, "read"),
        TurnEnded("length", USAGE),
    ]

    async def use(client: openai.AsyncOpenAI) -> Any:
        async with client.responses.stream(model="m", input="Hi", tools=TOOLS) as stream:
            return [each async for each in stream]

    events, _ = run(deltas, use)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output[0].status == "incomplete"


def test_a_second_turn_with_what_it_gave():
    async def use(client: openai.AsyncOpenAI) -> Any:
        first = await client.responses.create(model="m", input="Hi", tools=TOOLS)
        outputs = [{"type": "function_call_output", "call_id": each, "output": "ok"} for each in ("call_a", "call_b")]
        return await client.responses.create(
            model="m", input=[{"role": "user", "content": "Hi"}, *first.output, *outputs], store=False
        )

    _, wire_request = run(CALLS, use)
    messages = wire_request.request.messages
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
    assert messages[1].text == "I look."
    assert [call.name for call in messages[1].calls] == ["read", "read"]
    assert [result.call_id for result in messages[2].results] == ["call_a", "call_b"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad Request", openai.BadRequestError),
        ("429 Too Many Requests", openai.RateLimitError),
        ("500 Internal Server Error", openai.InternalServerError),
    ],
)
def test_its_errors(status: str, kind: type[openai.APIStatusError]):
    async def go() -> None:
        body = json.dumps(OPENAI_RESPONSES.encode_error("that is why", int(status[:3]))).encode()
        async with serve(whole(status, body)) as server, client_of(server) as client:
            await client.responses.create(model="m", input="Hi")

    with pytest.raises(kind, match="that is why"):
        asyncio.run(go())


def test_a_turn_that_broke_off():
    encoder = OPENAI_RESPONSES.encoder(WireRequest(ModelRequest([]), "m"), response_id="resp_1", created_at=1)
    frames = [*encoder.feed(CALLS[1]), *encoder.fail("it broke")]

    async def go() -> Any:
        answer = stream(*(event(data) for _, data in frames))
        async with (
            serve(answer) as server,
            client_of(server) as client,
            client.responses.stream(model="m", input="Hi") as response_stream,
        ):
            return [each async for each in response_stream][-1]

    raised_error = asyncio.run(go())
    assert (raised_error.type, raised_error.response.error.message) == ("response.failed", "it broke")
