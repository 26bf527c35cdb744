"""OpenAI Responses: answers, as a server writes them and a client reads them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_strategies import PATIENT, byte_pieces, per_call, sse, turns

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    Delta,
    ForgedResults,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import FinishReason, Message, Opaque, ToolChoice, Usage
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import get_dialect
from toolspeak.errors import ProviderError
from toolspeak.wire.base import ModelRequest, OutputSchema, StreamFrame, WireRequest
from toolspeak.wire.json_conversion import read_arguments
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {}})
REQUEST = WireRequest(ModelRequest([Message.user("Hi")], (READ,)), "m", stream=True)
SECRET = Opaque("openai-responses", "m", {"type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": "gA"})
END = TurnEnded("stop", Usage(3, 2))


def encode(deltas: Iterable[Delta], request: WireRequest = REQUEST) -> list[StreamFrame]:
    encoder = OPENAI_RESPONSES.encoder(request, response_id="resp_7", created_at=5)
    return [frame for delta in deltas for frame in encoder.feed(delta)]


def whole(deltas: Iterable[Delta]) -> Any:
    return OPENAI_RESPONSES.encode_response(deltas, model="m", response_id="resp_7", created_at=5)


def decode(frames: Iterable[StreamFrame]) -> list[Delta]:
    decoder = OPENAI_RESPONSES.decoder(model="m")
    return [delta for _, data in frames for delta in decoder.feed(data)] + decoder.close()


def last(frames: list[StreamFrame]) -> Any:
    return frames[-1][1]["response"]


def kinds(frames: list[StreamFrame]) -> list[str]:
    assert all(name == data["type"] for name, data in frames)
    return [data["type"].removeprefix("response.") for _, data in frames]


def test_the_events_of_a_text():
    frames = encode([TextDelta("Hel"), TextDelta("lo"), END])
    assert kinds(frames) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [data["sequence_number"] for _, data in frames] == [*range(10)]
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    item = {"type": "message", "id": "msg_7_0", "status": "completed", "role": "assistant", "content": [part]}
    assert [data.get("item_id") for _, data in frames[3:8]] == ["msg_7_0"] * 5
    assert [data["output_index"] for _, data in frames[2:9]] == [0] * 7
    assert frames[2][1]["item"] == {**item, "status": "in_progress", "content": []}
    assert frames[8][1]["item"] == item
    assert last(frames)["output"] == [item]
    assert last(frames)["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }


def test_the_events_of_a_call():
    call = CallCompleted(0, "read", {"a": 1}, "call_1")
    frames = encode([CallStarted(0, "read", "call_1"), ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ":1}"), call, END])
    assert kinds(frames)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    item = {"type": "function_call", "id": "fc_7_0", "status": "completed", "call_id": "call_1", "name": "read"}
    assert frames[2][1]["item"] == {**item, "status": "in_progress", "arguments": ""}
    assert [data["item_id"] for _, data in frames[3:6]] == ["fc_7_0"] * 3
    assert last(frames)["output"] == [frames[6][1]["item"]] == [{**item, "arguments": '{"a":1}'}]


def test_the_response_repeats_what_was_asked():
    output = OutputSchema("a", {"type": "object"})
    request = ModelRequest(
        [Message.system("Be brief."), Message.user("Hi")],
        (READ,),
        ToolChoice("specific", "read"),
        parallel=False,
        output=output,
        options={"temperature": 0.5, "metadata": {"a": "b"}, "seed": 7},
    )
    response = encode([END], WireRequest(request, "m", stream=True))[0][1]["response"]
    assert response["instructions"] == "Be brief."
    assert [tool["name"] for tool in response["tools"]] == ["read"]
    assert response["tool_choice"] == {"type": "function", "name": "read"}
    assert response["parallel_tool_calls"] is False
    assert response["text"]["format"]["name"] == "a"
    assert (response["temperature"], response["metadata"], response["top_p"]) == (0.5, {"a": "b"}, None)
    assert (response["status"], response["usage"], response["store"]) == ("in_progress", None, False)
    assert "seed" not in response


def test_parts_that_ended_are_items_of_their_own():
    commentary = Opaque("openai-responses", "m", {"phase": "commentary"})
    deltas = [
        ReasoningDelta("hm"),
        PartEnded("reasoning", SECRET),
        TextDelta("a"),
        PartEnded("text", commentary),
        TextDelta("b"),
        PartEnded("text"),
        PartEnded("text"),
        PartEnded("reasoning"),
        PartEnded("reasoning", SECRET),
        END,
    ]
    output = whole(deltas)["output"]
    assert [item["id"] for item in output] == ["rs_7_0", "msg_7_1", "msg_7_2", "rs_x"]
    assert [item.get("encrypted_content") for item in output] == ["gA", None, None, "gA"]
    assert [item.get("phase") for item in output] == [None, "commentary", None, None]
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert output[3]["content"] == []


def test_ids_of_calls_are_there_and_unique():
    calls = [CallCompleted(i, "read", {}, call_id) for i, call_id in enumerate([None, "x", "x"])]
    output = whole([*calls, END])["output"]
    assert [item["call_id"] for item in output] == ["call_7_0", "x", "call_7_2"]
    assert [item["arguments"] for item in output] == ["{}"] * 3


# --- turns that a text dialect read ------------------------------------------------------------------------------


def test_a_malformed_call_that_was_not_sent_is_said_as_text():
    frames = encode([TextDelta("So: "), CallMalformed(0, "<bad>", "no_json", "no JSON", 4), BatchEnded((), False), END])
    assert [d.text for d in decode(frames) if isinstance(d, TextDelta)] == ["So: ", "<bad>"]


@pytest.mark.parametrize("arguments", ["", '{"a"', '{"a": 1}', "{}", "null"])
@pytest.mark.parametrize(
    "ending",
    [CallMalformed(0, "raw", "no_end", "its end is missing", 0, "read"), CallIgnored(0, "the block"), None],
    ids=["malformed", "ignored", "never ended"],
)
def test_a_call_that_was_sent_in_part_cannot_run_and_is_no_unfinished_item(arguments: str, ending: Delta | None):
    deltas: list[Delta] = [CallStarted(0, "read", "c"), *([ArgumentsDelta(0, arguments)] if arguments else [])]
    frames = encode([*deltas, *([ending] if ending else []), END])
    assert kinds(frames).count("output_item.done") == 1
    (item,) = last(frames)["output"]
    assert item["status"] == "incomplete"
    assert item["arguments"].startswith(arguments)
    assert read_arguments(item["arguments"], whole=False)[0] is None
    assert item["arguments"] == "".join(data["delta"] for _, data in frames if "delta" in data)
    assert not [delta for delta in decode(frames) if isinstance(delta, CallCompleted)]


def test_what_the_model_made_up_and_calls_that_were_never_sent_are_left_out():
    output = whole([ForgedResults("<results>"), CallIgnored(0, "x"), ArgumentsDelta(4, "{}"), TextDelta(""), END])
    assert output["output"] == []


def test_a_dialects_turn_is_native_calls():
    text = 'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
    parser = get_dialect("hermes").parser([READ])
    deltas = [delta for character in text for delta in parser.feed(character)] + parser.close("stop")
    read_deltas = decode(encode([*deltas, END]))
    assert [(d.name, d.arguments) for d in read_deltas if isinstance(d, CallCompleted)] == [("read", {"path": "a"})]
    assert "".join(d.text for d in read_deltas if isinstance(d, TextDelta)).strip() == "I look."
    assert isinstance(read_deltas[-1], TurnEnded)
    assert read_deltas[-1].finish == "tool_calls"


# --- endings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finish", "event", "read"),
    [
        ("stop", "completed", "stop"),
        ("tool_calls", "completed", "stop"),
        ("closed_by_us", "completed", "stop"),
        ("pause", "completed", "stop"),
        ("length", "incomplete", "length"),
        ("content_filter", "incomplete", "content_filter"),
        ("refusal", "incomplete", "content_filter"),
    ],
)
def test_how_a_turn_ended(finish: FinishReason, event: str, read: FinishReason):
    frames = encode([TextDelta("x"), TurnEnded(finish)])
    assert kinds(frames)[-1] == last(frames)["status"] == event
    assert last(frames)["output"][0]["status"] == event
    assert decode(frames)[-1] == TurnEnded(read, Usage(), "m", "resp_7")


@pytest.mark.parametrize("finish", ["error", "cancelled"])
def test_a_turn_that_failed_is_no_answer(finish: FinishReason):
    frames = encode([TextDelta("x"), TurnEnded(finish)])
    assert kinds(frames)[-1] == "failed"
    with pytest.raises(ProviderError, match="send the request again"):
        decode(frames)
    with pytest.raises(ProviderError, match="send the request again"):
        OPENAI_RESPONSES.decode_response(whole([TextDelta("x"), TurnEnded(finish)]))


@pytest.mark.parametrize("before", [[], [TextDelta("x")], [CallStarted(0, "read")]])
@pytest.mark.parametrize(("status", "retryable"), [(500, True), (429, True), (400, False)])
def test_a_turn_that_broke_off(before: list[Delta], status: int, retryable: bool):
    encoder = OPENAI_RESPONSES.encoder(REQUEST, response_id="resp_7", created_at=5)
    frames = [frame for delta in before for frame in encoder.feed(delta)] + encoder.fail("it broke", status)
    assert kinds(frames)[0] == "created"
    assert kinds(frames).count("output_item.added") == kinds(frames).count("output_item.done")
    with pytest.raises(ProviderError, match="it broke") as raised_error:
        decode(frames)
    assert raised_error.value.retryable is retryable


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (429, "rate_limit_error"), (500, "server_error"), (503, "server_error")],
)
def test_errors(status: int, kind: str):
    error_body = OPENAI_RESPONSES.encode_error("why", status)
    assert error_body == {"error": {"message": "why", "type": kind, "param": None, "code": None}}


def test_a_turn_without_deltas_has_failed():
    assert whole([])["status"] == "failed"


# --- the two roles -----------------------------------------------------------------------------------------------


def comparable(deltas: Iterable[Delta], *, streamed: bool) -> list[Delta]:
    """Texts joined, fragments by their call; without the ends of parts and the ids that the server gave its items."""
    out: list[Delta] = []
    for delta in deltas if streamed else per_call(deltas):
        if isinstance(delta, PartEnded):
            secret = delta.opaque.data.get("encrypted_content") if delta.opaque is not None else None
            if secret:
                out.append(PartEnded(delta.part, Opaque("", "", secret)))
        elif isinstance(delta, CallCompleted):
            out.append(CallCompleted(delta.index, delta.name, delta.arguments, delta.id))
        elif isinstance(delta, TurnEnded):
            usage = delta.usage
            full = Usage(usage.input, usage.output, usage.cached or 0, usage.reasoning or 0)
            out.append(TurnEnded(delta.finish, usage if usage.input is None else full, "m", "resp_7"))
        elif out and isinstance(delta, TextDelta | ReasoningDelta) and type(out[-1]) is type(delta):
            out[-1] = type(delta)(out[-1].text + delta.text)  # type: ignore[attr-defined]
        elif out and isinstance(delta, ArgumentsDelta) and isinstance(out[-1], ArgumentsDelta):
            out[-1] = ArgumentsDelta(delta.index, out[-1].text + delta.text)
        else:
            out.append(delta)
    return out


def by_kind(deltas: list[Delta]) -> list[Delta]:
    """The deltas with each call's completion right behind its arguments, as a whole answer has it."""
    ends = {delta.index: delta for delta in deltas if isinstance(delta, CallCompleted)}
    out: list[Delta] = []
    for delta in deltas:
        if isinstance(delta, CallCompleted):
            continue
        out.append(delta)
        if isinstance(delta, ArgumentsDelta):
            out.append(ends[delta.index])
    return out


@PATIENT
@given(turns(opaque=SECRET), st.booleans())
def test_a_client_reads_what_a_server_writes(deltas: list[Delta], interleaved: bool):
    streamed = decode(encode(deltas))
    assert comparable(streamed, streamed=True) == comparable(deltas, streamed=True)
    read = OPENAI_RESPONSES.decode_response(json.loads(json.dumps(whole(deltas))), model="m")
    assert comparable(read, streamed=True) == by_kind(comparable(deltas, streamed=True))


@PATIENT
@given(turns(interleaved=True))
def test_calls_whose_fragments_come_in_turns(deltas: list[Delta]):
    assert comparable(decode(encode(deltas)), streamed=False) == comparable(deltas, streamed=False)


@PATIENT
@given(st.data())
def test_every_split_of_the_stream(data: st.DataObject):
    deltas = data.draw(turns())
    pieces = data.draw(byte_pieces(sse(encode(deltas))))

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

    async def read() -> list[Delta]:
        head = {"content-type": "text/event-stream"}
        response = httpx2.Response(200, headers=head, stream=Body(), request=httpx2.Request("POST", "http://x"))
        decoder, deltas = OPENAI_RESPONSES.decoder(model="m"), list[Delta]()
        async with aclosing(aiter(httpx2.EventSource(response))) as events:  # type: ignore[type-var]
            async for event in events:
                assert json.loads(event.data)["type"] == event.event
                deltas += decoder.feed(json.loads(event.data))
        return deltas + decoder.close()

    assert comparable(asyncio.run(read()), streamed=True) == comparable(deltas, streamed=True)
