"""OpenAI Chat Completions against the `openai` package: its types accept what we write, we read what it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, get_type_hints

import openai
import pytest
from format_server import FormatServer
from hypothesis import given
from loopback_server import serve
from openai.lib._pydantic import to_strict_json_schema
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import BaseModel, TypeAdapter
from strict_types import Cat, Dog, Empty, nodes
from wire_strategies import PATIENT, requests, turns

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolChoice, ToolResult, Usage
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.strict_schema import openai_form

# --- their types accept what we write ----------------------------------------------------------------------------

PARAMS = {
    stream: (TypeAdapter(kind), frozenset(get_type_hints(kind)))
    for stream, kind in ((True, CompletionCreateParamsStreaming), (False, CompletionCreateParamsNonStreaming))
}


def read_through(value: Any) -> Any:
    """The value with everything in it read: pydantic checks an `Iterable` while it is read."""
    if isinstance(value, dict):
        return {key: read_through(each) for key, each in value.items()}
    return [read_through(each) for each in value] if isinstance(value, list | Iterator) else value


@PATIENT
@given(requests())
def test_requests_are_what_the_packages_types_say(request: ModelRequest):
    for stream, (adapter, fields) in PARAMS.items():
        body = OPENAI_CHAT.encode_request(request, model="m", stream=stream)
        assert read_through(adapter.validate_python(body)) == body
        assert set(body) <= fields


@PATIENT
@given(turns())
def test_answers_are_what_the_packages_types_say(turn: list[Delta]):
    body = OPENAI_CHAT.encode_response(turn, model="m", response_id="r", created_at=1)
    ChatCompletion.model_validate(body, strict=True)
    encoder = OPENAI_CHAT.encoder(WireRequest(ModelRequest([]), "m", True), response_id="r", created_at=1)
    *chunks, last_event = [data for delta in turn for _, data in encoder.feed(delta)]
    assert last_event == "[DONE]"
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)


# --- the package's client against our server role ----------------------------------------------------------------

TURN: list[Delta] = [
    TextDelta("I "),
    TextDelta("look."),
    CallStarted(0, "read", "c0"),
    ArgumentsDelta(0, '{"path": '),
    ArgumentsDelta(0, '"a"}'),
    CallStarted(1, "ping"),
    CallCompleted(0, "read", {"path": "a"}, "c0"),
    CallCompleted(1, "ping", {}),
    BatchEnded((0, 1), True),
    TurnEnded("stop", Usage(3, 2, 1, 1)),
]
ANSWER: list[Delta] = [TextDelta('{"n": '), TextDelta("7}"), TurnEnded("stop", Usage(3, 2))]
TOOLS: Any = [
    {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "ping"}},
]
USER: Any = {"role": "user", "content": "Hi"}


class Server(FormatServer):
    wire = OPENAI_CHAT


def talk(server: Server, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with (
            serve(server) as listening,
            openai.AsyncOpenAI(base_url=listening.base_url, api_key="k", max_retries=0) as client,
        ):
            return await work(client.chat.completions)

    return asyncio.run(run())


def calls_of(message: Any) -> list[tuple[str, str, str]]:
    return [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls]


CALLS = [("c0", "read", '{"path": "a"}'), ("call_r1_1", "ping", "{}")]


def test_a_conversation_whole():
    server = Server(TURN, ANSWER)

    async def work(completions: Any) -> None:
        first = await completions.create(model="m", messages=[USER], tools=TOOLS, tool_choice="required", seed=7)
        message = first.choices[0].message
        assert (message.content, calls_of(message), first.choices[0].finish_reason) == ("I look.", CALLS, "tool_calls")
        assert (first.usage.total_tokens, first.usage.prompt_tokens_details.cached_tokens) == (5, 1)
        results = [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in message.tool_calls]
        second = await completions.create(model="m", messages=[USER, message, *results])
        assert second.choices[0].message.content == '{"n": 7}'

    talk(server, work)
    first, second = server.requests
    assert (first.request.choice, first.request.options) == (ToolChoice("required"), {"seed": 7})
    assert [tool.name for tool in first.request.tools] == ["read", "ping"]
    read, ping = ToolCall("c0", "read", {"path": "a"}, "c0"), ToolCall("call_r1_1", "ping", {}, "call_r1_1")
    assert list(second.request.messages) == [
        Message.user("Hi"),
        Message("assistant", (TextPart("I look."), read, ping)),
        Message("tool", tuple(ToolResult(call.id, call.name, "success", (TextPart("ok"),)) for call in (read, ping))),
    ]


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream(usage: bool):
    async def work(completions: Any) -> list[Any]:
        options = {"stream_options": {"include_usage": True}} if usage else {}
        stream = await completions.create(model="m", messages=[USER], tools=TOOLS, stream=True, **options)
        return [chunk async for chunk in stream]

    chunks = talk(Server(TURN), work)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "I look."
    totals = [chunk.usage.total_tokens for chunk in chunks if chunk.usage is not None]
    assert totals == ([5] if usage else [])


def test_the_stream_helper_puts_the_calls_together():
    """It joins whatever comes twice: an id or a name that is repeated in each chunk would be doubled."""

    async def work(completions: Any) -> tuple[list[str], Any]:
        async with completions.stream(model="m", messages=[USER], tools=TOOLS) as stream:
            kinds = [event.type async for event in stream]
            return kinds, await stream.get_final_completion()

    kinds, final = talk(Server(TURN), work)
    (choice,) = final.choices
    assert (choice.message.content, calls_of(choice.message), choice.finish_reason) == ("I look.", CALLS, "tool_calls")
    assert kinds.count("tool_calls.function.arguments.done") == 2


class Count(BaseModel):
    n: int


def test_an_answer_of_a_schema():
    server = Server(ANSWER, ANSWER)

    async def work(completions: Any) -> list[Any]:
        whole = await completions.parse(model="m", messages=[USER], response_format=Count)
        async with completions.stream(model="m", messages=[USER], response_format=Count) as stream:
            stream_message = await stream.get_final_completion()
        return [each.choices[0].message.parsed for each in (whole, stream_message)]

    assert talk(server, work) == [Count(n=7)] * 2
    for request in server.requests:
        output = request.request.output
        assert isinstance(output, OutputSchema)
        assert (output.name, output.strict, output.schema["required"]) == ("Count", True, ["n"])


def test_a_malformed_call_of_a_dialect_does_not_break_the_helper():
    turn = [CallMalformed(0, "<tool_call>{", "cut", "cut off", 3), BatchEnded((), False), TurnEnded("length")]

    async def work(completions: Any) -> Any:
        return await completions.create(model="m", messages=[USER], tools=TOOLS)

    (choice,) = talk(Server(turn), work).choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("<tool_call>{", None, "length")


def test_errors_as_the_client_raises_them():
    async def check_errors(completions: Any) -> None:
        await completions.create(model="m", messages=[USER], n=2)

    with pytest.raises(openai.BadRequestError, match="n: expected 1, found a number") as raised_error:
        talk(Server(), check_errors)
    assert raised_error.value.type == "invalid_request_error"

    async def read_to_end(completions: Any) -> None:
        stream = await completions.create(model="m", messages=[USER], stream=True)
        assert [chunk async for chunk in stream] == []

    with pytest.raises(openai.APIError, match="the model broke off"):
        talk(Server(TURN, break_off=True), read_to_end)


# --- their chunks, read by us ------------------------------------------------------------------------------------


def test_a_chunk_of_theirs_with_every_field_is_read():
    """What the package dumps has nulls where the API leaves a field out."""
    encoder = OPENAI_CHAT.encoder(WireRequest(ModelRequest([]), "m", True), response_id="r", created_at=1)
    decoder = OPENAI_CHAT.decoder(model="m")
    read: list[Delta] = []
    for delta in TURN:
        for _, data in encoder.feed(delta):
            if data != "[DONE]":
                read += decoder.feed(ChatCompletionChunk.model_validate(data).model_dump())
    read += decoder.close()
    assert [(d.name, d.arguments, d.id) for d in read if isinstance(d, CallCompleted)] == [
        ("read", {"path": "a"}, "c0"),
        ("ping", {}, "call_r_1"),
    ]
    assert read[-1] == TurnEnded("tool_calls", Usage(3, 2, 1, 1), "m")


# --- schemas of answers ------------------------------------------------------------------------------------------


def object_rules(schema: Any) -> list[Any]:
    return [
        (sorted(node["properties"]), sorted(node.get("required", ())), node["additionalProperties"])
        for node in nodes(schema)
        if node.get("type") == "object"
    ]


@pytest.mark.parametrize("type_", [Cat, Dog, Empty])
def test_its_package_makes_the_same_of_a_type(type_: Any):
    """What it does not take care of (`oneOf`, `default`, lengths), the API refuses all the same."""
    theirs = to_strict_json_schema(type_)
    assert object_rules(openai_form(OutputSchema("x", type_.model_json_schema())).schema) == object_rules(theirs)
    assert openai_form(OutputSchema("x", theirs)).strict
