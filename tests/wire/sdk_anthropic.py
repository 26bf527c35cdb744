"""Anthropic's Messages API against the `anthropic` package: its types accept what we write, we read what it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, get_type_hints

import anthropic
import pytest
from anthropic.lib._parse._transform import transform_schema
from anthropic.types import Message as TheirMessage
from anthropic.types import RawMessageStreamEvent
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from anthropic.types.shared.error_response import ErrorResponse
from format_server import FormatServer
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import Exchange, serve
from pydantic import BaseModel, TypeAdapter
from strict_types import STRICT, nodes, refused_by_anthropic
from wire_strategies import PATIENT, requests, turns

from toolspeak.data.deltas import (
    ArgumentsDelta,
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
from toolspeak.data.messages import Message, Opaque, ReasoningPart, TextPart, ToolCall, ToolChoice, ToolResult, Usage
from toolspeak.providers.anthropic import API_VERSION
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.anthropic.common import ERROR_TYPES
from toolspeak.wire.base import ModelRequest, WireRequest
from toolspeak.wire.strict_schema import anthropic_form

SIGNATURE = Opaque("anthropic", "m", {"signature": "c2ln"})
REDACTION = Opaque("anthropic", "m", {"redacted": "eHh4"})

# --- their types accept what we write ----------------------------------------------------------------------------

PARAMS = {
    stream: (TypeAdapter(kind), frozenset(get_type_hints(kind)))
    for stream, kind in ((True, MessageCreateParamsStreaming), (False, MessageCreateParamsNonStreaming))
}
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
OURS = {"temperature", "seed", "user"}  # options that the tests make up, which this API does not have


def read_through(value: Any) -> Any:
    """The value with everything in it read: pydantic checks an `Iterable` while it is read."""
    if isinstance(value, dict):
        return {key: read_through(each) for key, each in value.items()}
    return [read_through(each) for each in value] if isinstance(value, list | Iterator) else value


def kinds_of(value: Any) -> Iterator[tuple[str, frozenset[str]]]:
    """The content blocks in a value: their types and their fields."""
    if isinstance(value, list):
        for each in value:
            yield from kinds_of(each)
    elif isinstance(value, dict):
        yield str(value.get("type")), frozenset(value)
        yield from kinds_of(value.get("content"))


@PATIENT
@given(requests(opaque=SIGNATURE), st.booleans())
def test_requests_are_what_the_packages_types_say(request: ModelRequest, cache: bool):
    model_request = ModelRequest(
        request.messages, request.tools, request.choice, request.parallel, request.output, request.options, cache
    )
    for stream, (adapter, fields) in PARAMS.items():
        body = ANTHROPIC.encode_request(model_request, model="m", stream=stream)
        read = read_through(adapter.validate_python(body))
        # A union that took a block for another kind would have dropped fields of it.
        assert [*kinds_of(read["messages"])] == [*kinds_of(body["messages"])]
        assert read == {name: value for name, value in body.items() if name in fields}
        assert set(body) - fields <= OURS


@PATIENT
@given(turns(opaque=SIGNATURE))
def test_answers_are_what_the_packages_types_say(turn: list[Delta]):
    body = ANTHROPIC.encode_response(turn, model="m", response_id="r", created_at=1)
    read = TheirMessage.model_validate(body, strict=True)
    assert [each.to_dict() for each in read.content] == body["content"]
    encoder = ANTHROPIC.encoder(WireRequest(ModelRequest([]), "m", True), response_id="r", created_at=1)
    for delta in turn:
        for name, data in encoder.feed(delta):
            assert EVENT.validate_python(data, strict=True).type == name


def test_errors_are_what_the_packages_types_say():
    unknown_statuses = {409, 413}  # documented, and no types of the package's
    for status in {*ERROR_TYPES, 418, 503} - unknown_statuses:
        body = ANTHROPIC.encode_error("why", status)
        assert ErrorResponse.model_validate(body, strict=True).error.message == "why"


# --- the package's client against our server role ----------------------------------------------------------------

TURN: list[Delta] = [
    ReasoningDelta("h"),
    ReasoningDelta("m"),
    PartEnded("reasoning", SIGNATURE),
    PartEnded("reasoning", REDACTION),
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
SCHEMA: Any = {"type": "object", "properties": {}}
TOOLS: Any = [
    {"name": "read", "description": "Reads.", "input_schema": SCHEMA},
    {"name": "ping", "input_schema": SCHEMA},
]
USER: Any = {"role": "user", "content": "Hi"}
OPTIONS: Any = {"model": "m", "max_tokens": 99}


class Server(FormatServer):
    wire = ANTHROPIC
    failure = 529

    def __init__(self, *turns: list[Delta], break_off: bool = False) -> None:
        super().__init__(*turns, break_off=break_off)
        self.headers: dict[str, str] = {}

    def read(self, exchange: Exchange) -> WireRequest:
        assert exchange.request_line == "POST /v1/messages HTTP/1.1"
        self.headers = exchange.headers
        return super().read(exchange)


def talk(server: Server, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with (
            serve(server) as listening,
            anthropic.AsyncAnthropic(
                base_url=f"http://127.0.0.1:{listening.port}", api_key="k", max_retries=0
            ) as client,
        ):
            return await work(client.messages)

    return asyncio.run(run())


CONTENT = [
    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "eHh4"},
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "c0", "name": "read", "input": {"path": "a"}},
    {"type": "tool_use", "id": "toolu_r1_1", "name": "ping", "input": {}},
]


def content(message: Any) -> list[Any]:
    return [block.to_dict() for block in message.content]


def test_a_conversation_whole():
    server = Server(TURN, ANSWER)

    async def work(messages: Any) -> None:
        thinking = {"type": "adaptive"}
        first = await messages.create(
            **OPTIONS, system="Be brief.", messages=[USER], tools=TOOLS, tool_choice={"type": "any"}, thinking=thinking
        )
        assert (content(first), first.stop_reason) == (CONTENT, "tool_use")
        usage = first.usage
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (2, 1, 2)
        assert usage.output_tokens_details.thinking_tokens == 1
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "ok"}
            for block in first.content
            if block.type == "tool_use"
        ]
        reply = {"role": "assistant", "content": first.content}
        second = await messages.create(**OPTIONS, messages=[USER, reply, {"role": "user", "content": results}])
        assert content(second) == [{"type": "text", "text": '{"n": 7}'}]

    talk(server, work)
    assert server.headers["anthropic-version"] == API_VERSION
    first, second = server.requests
    assert first.request.choice == ToolChoice("required")
    assert first.request.options == {"max_tokens": 99, "thinking": {"type": "adaptive"}}
    assert list(first.request.messages) == [Message.system("Be brief."), Message.user("Hi")]
    assert [tool.name for tool in first.request.tools] == ["read", "ping"]
    calls = (ToolCall("c0", "read", {"path": "a"}, "c0"), ToolCall("toolu_r1_1", "ping", {}, "toolu_r1_1"))
    assert list(second.request.messages) == [
        Message.user("Hi"),
        Message(
            "assistant", (ReasoningPart("hm", SIGNATURE), ReasoningPart("", REDACTION), TextPart("I look."), *calls)
        ),
        Message("tool", tuple(ToolResult(call.id, call.name, "success", (TextPart("ok"),)) for call in calls)),
    ]


def test_a_stream_of_events():
    async def work(messages: Any) -> list[Any]:
        stream = await messages.create(**OPTIONS, messages=[USER], tools=TOOLS, stream=True)
        return [event async for event in stream]

    events = talk(Server(TURN), work)
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-2], kinds[-1]) == ("message_start", "message_delta", "message_stop")
    assert [event.index for event in events if event.type == "content_block_stop"] == [0, 1, 2, 3, 4]
    assert events[-2].usage.output_tokens == 2


def test_the_stream_helper_puts_the_message_together():
    async def work(messages: Any) -> tuple[list[str], Any]:
        async with messages.stream(**OPTIONS, messages=[USER], tools=TOOLS) as stream:
            texts = [text async for text in stream.text_stream]
            return texts, await stream.get_final_message()

    texts, final = talk(Server(TURN), work)
    assert texts == ["I ", "look."]
    assert (content(final), final.stop_reason) == (CONTENT, "tool_use")
    assert (final.usage.input_tokens, final.usage.cache_read_input_tokens, final.usage.output_tokens) == (2, 1, 2)


class Count(BaseModel):
    n: int


def test_an_answer_of_a_schema():
    server = Server(ANSWER, ANSWER)

    async def work(messages: Any) -> list[Any]:
        whole = await messages.parse(**OPTIONS, messages=[USER], output_format=Count)
        async with messages.stream(**OPTIONS, messages=[USER], output_format=Count) as stream:
            stream_message = await stream.get_final_message()
        return [each.parsed_output for each in (whole, stream_message)]

    assert talk(server, work) == [Count(n=7)] * 2
    for request in server.requests:
        assert request.request.output is not None
        assert request.request.output.schema["required"] == ["n"]


MALFORMED_CALL_TURN: list[Delta] = [
    CallStarted(0, "read", "c0"),
    ArgumentsDelta(0, '{"path": "a'),
    CallMalformed(0, '{"path": "a', "cut", "cut off", 3, "read"),
    BatchEnded((), False),
]


def test_half_a_call_that_was_streamed_is_never_taken_for_one():
    async def work(messages: Any) -> Any:
        async with messages.stream(**OPTIONS, messages=[USER], tools=TOOLS) as stream:
            return await stream.get_final_message()

    with pytest.raises(ValueError, match="Unable to parse tool parameter JSON"):
        talk(Server([*MALFORMED_CALL_TURN, TurnEnded("stop")]), work)
    # What the token limit cut off is told as the API does it: the client has what came, and the reason.
    cut = talk(Server([*MALFORMED_CALL_TURN, TurnEnded("length")]), work)
    assert cut.stop_reason == "max_tokens"


def test_errors_as_the_client_raises_them():
    async def check_errors(messages: Any) -> None:
        await messages.create(**OPTIONS, messages=[USER], tools=[{"type": "web_search_20250305", "name": "web_search"}])

    with pytest.raises(anthropic.BadRequestError, match="is one of Anthropic's own tools") as raised_error:
        talk(Server(), check_errors)
    assert raised_error.value.type == "invalid_request_error"

    async def read_to_end(messages: Any) -> None:
        stream = await messages.create(**OPTIONS, messages=[USER], stream=True)
        async for _ in stream:
            pass

    with pytest.raises(anthropic.APIStatusError, match="the model broke off") as raised_error:
        talk(Server(TURN, break_off=True), read_to_end)
    assert raised_error.value.type == "overloaded_error"


# --- their events, read by us ------------------------------------------------------------------------------------


def test_events_of_theirs_with_every_field_are_read():
    """What the package dumps has nulls where the API leaves a field out."""
    encoder = ANTHROPIC.encoder(WireRequest(ModelRequest([]), "m", True), response_id="r", created_at=1)
    decoder = ANTHROPIC.decoder(model="m")
    read: list[Delta] = []
    for delta in TURN:
        for _, data in encoder.feed(delta):
            read += decoder.feed(EVENT.validate_python(data).model_dump())
    read += decoder.close()
    calls = [(d.name, d.arguments, d.id) for d in read if isinstance(d, CallCompleted)]
    assert calls == [("read", {"path": "a"}, "c0"), ("ping", {}, "toolu_r_1")]
    assert [d for d in read if isinstance(d, PartEnded)] == [
        PartEnded("reasoning", SIGNATURE),
        PartEnded("reasoning", REDACTION),
    ]
    assert read[-1] == TurnEnded("tool_calls", Usage(3, 2, 1, 1), "m")


def test_an_answer_of_theirs_with_every_field_is_read():
    body = ANTHROPIC.encode_response(TURN, model="m", response_id="r", created_at=1)
    read = ANTHROPIC.decode_response(TheirMessage.model_validate(body).model_dump(), model="m")
    assert "".join(d.text for d in read if isinstance(d, TextDelta)) == "I look."
    assert [d.arguments for d in read if isinstance(d, CallCompleted)] == [{"path": "a"}, {}]
    assert read[-1] == TurnEnded("tool_calls", Usage(3, 2, 1, 1), "m")


@pytest.mark.parametrize("type_", STRICT)
def test_its_package_makes_the_same_of_a_type(type_: Any):
    theirs, ours = transform_schema(type_), anthropic_form(type_.model_json_schema())
    assert refused_by_anthropic(theirs) == []
    assert anthropic_form(theirs) == theirs
    objects = [
        [
            (sorted(node.get("properties", ())), node.get("required", []))
            for node in nodes(schema)
            if "properties" in node
        ]
        for schema in (theirs, ours)
    ]
    assert objects[0] == objects[1]
