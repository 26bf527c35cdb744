"""Answers of Anthropic's Messages API, written, and read again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_strategies import byte_pieces, sse, turns

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
    ToolProgress,
    TurnEnded,
)
from toolspeak.data.messages import FinishReason, Opaque, Usage
from toolspeak.dialects import get_dialect
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest, StreamFrame, WireRequest

MODEL = "m-1"
REQUEST = WireRequest(ModelRequest([]), MODEL, stream=True)
SIGNATURE = Opaque("anthropic", MODEL, {"signature": "c2ln"})
REDACTION = Opaque("anthropic", MODEL, {"redacted": "x"})
END = TurnEnded("tool_calls", Usage(7, 5))


def encode(deltas: Iterable[Delta]) -> list[StreamFrame]:
    encoder = ANTHROPIC.encoder(REQUEST, response_id="msg_1", created_at=0)
    return [frame for delta in deltas for frame in encoder.feed(delta)]


def whole(deltas: Iterable[Delta]) -> dict[str, Any]:
    return ANTHROPIC.encode_response(deltas, model=MODEL, response_id="msg_1", created_at=0)


def decode(events: Iterable[Any]) -> list[Delta]:
    decoder = ANTHROPIC.decoder(model=MODEL)
    return [delta for event in events for delta in decoder.feed(event)] + decoder.close()


def events_of(pieces: Sequence[bytes]) -> list[Any]:
    """What a client's reader of server-sent events makes of a body that comes in these pieces."""
    headers = {"content-type": "text/event-stream"}
    with (
        httpx2.Client(
            transport=httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=iter(pieces)))
        ) as client,
        client.stream("GET", "http://server.example") as response,
    ):
        sse_events = [*httpx2.EventSource(response)]
    assert all(event.event == json.loads(event.data)["type"] for event in sse_events)
    return [json.loads(event.data) for event in sse_events]


def call_deltas(index: int, *pieces: str, name: str = "read") -> list[Delta]:
    return [
        CallStarted(index, name, f"toolu_{index}"),
        *(ArgumentsDelta(index, piece) for piece in pieces),
        CallCompleted(index, name, json.loads("".join(pieces) or "{}"), f"toolu_{index}"),
    ]


def contents(frames: Iterable[StreamFrame]) -> list[str]:
    """What stands in each block, in short: its type, and its pieces; raises if blocks are not one after the other."""
    out: list[str] = []
    open_index: int | None = None
    for name, data in frames:
        assert name == data["type"]
        if name == "content_block_start":
            assert open_index is None
            open_index = data["index"]
            assert open_index == len(out)
            out.append(data["content_block"]["type"])
        elif name == "content_block_delta":
            assert data["index"] == open_index
            kind = data["delta"]["type"]
            field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(
                kind, "partial_json"
            )
            out[-1] += f" {data['delta'][field]}"
        elif name == "content_block_stop":
            assert data["index"] == open_index
            open_index = None
    assert open_index is None
    return out


def stop_reason(frames: Iterable[StreamFrame]) -> str | None:
    return next(data["delta"]["stop_reason"] for name, data in frames if name == "message_delta")


# --- the sequence of events --------------------------------------------------------------------------------------


def test_the_events_of_a_turn():
    frames = encode(
        [TextDelta("Let me "), TextDelta("see."), *call_deltas(0, '{"p":', "1}"), BatchEnded((0,), True), END]
    )
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    use = {"type": "tool_use", "id": "toolu_0", "name": "read", "input": {}}
    expected: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "see."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": use},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"p":'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 5, "input_tokens": 7},
        },
        {"type": "message_stop"},
    ]
    assert frames == [(event["type"], event) for event in expected]


def test_reasoning_with_its_signature_and_what_is_hidden():
    deltas = [
        ReasoningDelta("h"),
        ReasoningDelta("m"),
        PartEnded("reasoning", SIGNATURE),
        PartEnded("reasoning", REDACTION),
        PartEnded("reasoning", SIGNATURE),
        ReasoningDelta("so"),
        PartEnded("reasoning"),
        ReasoningDelta("and"),
        TextDelta("Hi"),
        TurnEnded("stop"),
    ]
    assert contents(encode(deltas)) == [
        "thinking h m c2ln",
        "redacted_thinking",
        "thinking c2ln",
        "thinking so",
        "thinking and",
        "text Hi",
    ]


def test_another_providers_opaque_data_is_not_told():
    deltas = [
        ReasoningDelta("hm"),
        PartEnded("reasoning", Opaque("gemini", "g", {"signature": "x"})),
        TurnEnded("stop"),
    ]
    assert contents(encode(deltas)) == ["thinking hm"]


def test_a_turn_that_says_nothing():
    frames = encode([TextDelta(""), PartEnded("text"), ToolProgress("c", "…"), ForgedResults("…"), TurnEnded("stop")])
    assert [name for name, _ in frames] == ["message_start", "message_delta", "message_stop"]
    assert whole([TurnEnded("stop")])["content"] == []


FINISHES: list[tuple[FinishReason, str | None]] = [
    ("stop", "end_turn"),
    ("tool_calls", "end_turn"),
    ("closed_by_us", "end_turn"),
    ("length", "max_tokens"),
    ("pause", "pause_turn"),
    ("refusal", "refusal"),
    ("content_filter", "refusal"),
    ("error", None),
    ("cancelled", None),
]


@pytest.mark.parametrize(("finish", "reason"), FINISHES)
def test_why_a_turn_ended(finish: FinishReason, reason: str | None):
    assert stop_reason(encode([TextDelta("Hi"), TurnEnded(finish)])) == reason
    assert whole([TextDelta("Hi"), TurnEnded(finish)])["stop_reason"] == reason
    with_call = "tool_use" if reason == "end_turn" else reason
    assert stop_reason(encode([*call_deltas(0), TurnEnded(finish)])) == with_call


def test_tokens_from_a_cache_are_told_apart():
    message = whole([TurnEnded("stop", Usage(110, 20, 100, 7))])
    assert message["usage"] == {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 7},
    }


# --- calls -------------------------------------------------------------------------------------------------------


def test_a_second_call_begins_at_once_when_the_first_is_whole():
    encoder = ANTHROPIC.encoder(REQUEST, response_id="msg_1", created_at=0)
    for delta in [CallStarted(0, "a", "t0"), ArgumentsDelta(0, '{"p": 1'), ArgumentsDelta(0, "}")]:
        encoder.feed(delta)
    assert [name for name, _ in encoder.feed(CallStarted(1, "b", "t1"))] == [
        "content_block_stop",
        "content_block_start",
    ]
    rest = [CallCompleted(0, "a", {"p": 1}, "t0"), CallCompleted(1, "b", {}, "t1"), END]
    frames = [frame for delta in rest for frame in encoder.feed(delta)]
    assert [name for name, _ in frames] == [
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_what_is_told_while_a_call_is_open_waits_for_its_end():
    one, two = call_deltas(0, '{"p":', "1}"), call_deltas(1, '{"p":', "2}")
    deltas = [one[0], one[1], two[0], TextDelta("Hm"), two[1], one[2], two[2], one[3], two[3], END]
    assert contents(encode(deltas)) == ['tool_use {"p": 1}', 'tool_use {"p": 2}', "text Hm"]


def test_a_call_that_comes_in_one_piece():
    (use,) = whole([CallCompleted(0, "read", {"p": "é"}, None), BatchEnded((0,), True), END])["content"]
    assert use == {"type": "tool_use", "id": "toolu_msg_1_0", "name": "read", "input": {"p": "é"}}
    assert contents(encode([CallCompleted(0, "read", {"p": "é"}, None), END])) == ['tool_use {"p": "é"}']


def test_ids_are_accepted_and_no_two_are_the_same():
    deltas = [CallCompleted(i, "f", {}, call_id) for i, call_id in enumerate(["a.b", "a.b", "ok", "ok", None, ""])]
    ids = [block["id"] for block in whole([*deltas, BatchEnded(tuple(range(6)), True), END])["content"]]
    assert len(set(ids)) == 6
    assert ids[2] == "ok"
    assert all(each.replace("_", "").replace("-", "").isalnum() and each.isascii() for each in ids)


def test_a_malformed_call_of_which_nothing_was_sent_is_text():
    malformed_call = CallMalformed(0, '{"p": ', "invalid_arguments", "cut off", 0, "read")
    assert contents(encode([malformed_call, END])) == ['text {"p": ']
    assert whole([malformed_call, END])["content"] == [{"type": "text", "text": '{"p": '}]
    assert whole([malformed_call, END])["stop_reason"] == "end_turn"


MALFORMED_CASES = [
    CallStarted(0, "read", "t0"),
    ArgumentsDelta(0, '{"p": "a'),
    CallMalformed(0, '{"p": "a', "x", "y", 0, "read"),
]


@pytest.mark.parametrize("rest", [[], [TextDelta("Hm")], call_deltas(1, "{}")], ids=["the end", "text", "a call"])
def test_nobody_can_read_half_a_call_that_was_sent(rest: list[Delta]):
    frames = encode([*MALFORMED_CASES, *rest, BatchEnded((), False), TurnEnded("stop")])
    assert contents(frames)[0] == 'tool_use {"p": "a \0'
    deltas = decode(data for _, data in frames)
    assert [each.index for each in deltas if isinstance(each, CallMalformed)] == [0]


def test_a_call_that_never_ends_is_half_a_call():
    frames = encode(
        [CallStarted(0, "read", "t0"), ArgumentsDelta(0, '{"p": 1'), CallStarted(1, "f"), TurnEnded("stop")]
    )
    assert contents(frames) == ['tool_use {"p": 1 \0', "tool_use \0"]


def test_a_call_that_the_token_limit_cut_off_is_told_as_the_api_does():
    frames = encode([*MALFORMED_CASES, BatchEnded((), False), TurnEnded("length")])
    assert contents(frames) == ['tool_use {"p": "a']
    assert stop_reason(frames) == "max_tokens"


def test_a_malformed_call_that_still_waits_is_text():
    one = call_deltas(0, '{"p":', "1}")
    waits = [CallStarted(1, "f"), ArgumentsDelta(1, "{"), CallMalformed(1, "f({", "x", "y", 0, "f")]
    assert contents(encode([*one[:2], *waits, *one[2:], END])) == ['tool_use {"p": 1}', "text f({"]


def test_an_ignored_call_that_still_waits_is_not_sent():
    one = call_deltas(0, '{"p":', "1}")
    assert contents(encode([*one[:2], CallStarted(1, "f"), CallIgnored(1, "second"), *one[2:], END])) == [
        'tool_use {"p": 1}'
    ]


def test_a_whole_answer_holds_the_calls_that_count():
    deltas = [
        *call_deltas(0, "{}"),
        *call_deltas(1, "{}"),
        *call_deltas(2, "{}"),
        CallIgnored(2, "last"),
        BatchEnded((1, 2), True),
        END,
    ]
    assert [block["id"] for block in whole(deltas)["content"]] == ["toolu_1"]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_a_dialects_parser_reads_is_written(size: int):
    text = 'Let me see.\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
    parser = get_dialect("hermes").parser()
    deltas = [each for at in range(0, len(text), size) for each in parser.feed(text[at : at + size])]
    frames = encode([*deltas, *parser.close("stop"), TurnEnded("stop")])
    read_deltas = decode(data for _, data in frames)
    assert [each.arguments for each in read_deltas if isinstance(each, CallCompleted)] == [{"path": "a"}]
    assert "".join(each.text for each in read_deltas if isinstance(each, TextDelta)).strip() == "Let me see."
    assert stop_reason(frames) == "tool_use"


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (422, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors(status: int, kind: str):
    body = {"type": "error", "error": {"type": kind, "message": "why"}}
    assert ANTHROPIC.encode_error("why", status) == body
    assert ANTHROPIC.encoder(REQUEST, response_id="msg_1", created_at=0).fail("why", status) == [("error", body)]


# --- written and read --------------------------------------------------------------------------------------------


def joined_turn(deltas: Iterable[Delta]) -> tuple[Any, ...]:
    """A turn with its fragments joined: what was said in its order, each call's arguments, the calls, the end."""
    passages: list[Any] = []
    arguments: dict[int, str] = {}
    for delta in deltas:
        match delta:
            case TextDelta(text) | ReasoningDelta(text):
                if passages and passages[-1][0] is type(delta):
                    passages[-1] = (type(delta), passages[-1][1] + text)
                else:
                    passages.append((type(delta), text))
            case PartEnded(_, None):
                pass
            case ArgumentsDelta(index, text):
                arguments[index] = arguments.get(index, "") + text
            case CallCompleted():
                pass
            case TurnEnded(finish, usage, model):
                finish = "refusal" if finish == "content_filter" else finish
                usage = Usage(usage.input or 0, usage.output or 0, usage.cached, usage.reasoning, usage.cache_write)
                passages.append((finish, usage, model))
            case _:
                passages.append((delta,))
    completed_calls = sorted((each for each in deltas if isinstance(each, CallCompleted)), key=lambda each: each.index)
    return passages, arguments, completed_calls


@settings(deadline=None)
@given(st.data(), st.booleans())
def test_a_turn_is_read_as_it_was_written(data: st.DataObject, interleaved: bool):
    turn = data.draw(turns(opaque=SIGNATURE, model=MODEL, interleaved=interleaved))
    frames = encode(turn)
    contents(frames)
    pieces = data.draw(byte_pieces(sse(frames)))
    assert joined_turn(decode(events_of(pieces))) == joined_turn(turn)


@settings(deadline=None)
@given(turns(opaque=SIGNATURE, model=MODEL))
def test_a_whole_turn_is_read_as_it_was_written(turn: list[Delta]):
    body = json.loads(json.dumps(whole(turn)))
    passages, arguments, completed_calls = joined_turn(ANTHROPIC.decode_response(body, model=MODEL))
    expected, raw, calls = joined_turn(turn)
    assert (passages, completed_calls) == (expected, calls)
    assert {index: json.loads(text) for index, text in arguments.items()} == {
        i: json.loads(text) for i, text in raw.items()
    }


DELTAS = st.one_of(
    st.builds(TextDelta, st.sampled_from(["", "Hm"])),
    st.builds(ReasoningDelta, st.sampled_from(["", "hm"])),
    st.builds(PartEnded, st.sampled_from(["text", "reasoning"]), st.sampled_from([None, SIGNATURE, REDACTION])),
    st.builds(CallStarted, st.integers(0, 2), st.just("f"), st.sampled_from([None, "t"])),
    st.builds(ArgumentsDelta, st.integers(0, 2), st.sampled_from(["{", "}", '"a": 1'])),
    st.builds(CallCompleted, st.integers(0, 2), st.just("f"), st.just({"a": 1})),
    st.builds(CallMalformed, st.integers(0, 2), st.sampled_from(["", "f("]), st.just("x"), st.just("y"), st.just(0)),
    st.builds(CallIgnored, st.integers(0, 2), st.just("no")),
)


@settings(deadline=None)
@given(st.lists(DELTAS, max_size=12), st.sampled_from(["stop", "length"]))
def test_whatever_the_deltas_the_blocks_stand_one_after_the_other(deltas: list[Delta], finish: FinishReason):
    frames = encode([*deltas, TurnEnded(finish)])
    contents(frames)
    assert [name for name, _ in frames[-2:]] == ["message_delta", "message_stop"]
    starts = [data["content_block"] for name, data in frames if name == "content_block_start"]
    ids = [block["id"] for block in starts if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids)
