"""Answers of OpenAI Chat Completions as a server writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_strategies import PATIENT, byte_pieces, per_call, read_sse, sse, turns

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
from toolspeak.errors import ProviderError
from toolspeak.testing.splits import join_deltas
from toolspeak.wire.base import ModelRequest, WireRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT

REQUEST = WireRequest(ModelRequest([]), "m-1", stream=True)
HEAD = {"id": "r1", "object": "chat.completion.chunk", "created": 7, "model": "m-1"}


def frames(deltas: list[Delta], *, usage: bool = True) -> list[Any]:
    encoder = OPENAI_CHAT.encoder(WireRequest(ModelRequest([]), "m-1", True, usage), response_id="r1", created_at=7)
    stream_frames = [frame for delta in deltas for frame in encoder.feed(delta)]
    assert all(name is None for name, _ in stream_frames)
    return [data for _, data in stream_frames]


def written_chunks(deltas: list[Delta]) -> list[tuple[Any, Any]]:
    """The delta and the finish reason of each chunk."""
    *chunks, last_event = frames(deltas, usage=False)
    assert last_event == "[DONE]"
    return [(chunk["choices"][0]["delta"], chunk["choices"][0]["finish_reason"]) for chunk in chunks]


def whole(deltas: list[Delta]) -> Any:
    return OPENAI_CHAT.encode_response(deltas, model="m-1", response_id="r1", created_at=7)


def decode(chunks: list[Any]) -> list[Delta]:
    decoder = OPENAI_CHAT.decoder(model="m-1")
    return [delta for chunk in chunks for delta in decoder.feed(chunk)] + decoder.close()


# --- what a server writes, a client reads ------------------------------------------------------------------------

DETAILS = Opaque("openai-chat", "m-1", {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]})


@PATIENT
@given(st.data(), turns(opaque=DETAILS, interleaved=True) | turns())
def test_a_turn_comes_back_in_every_split_of_the_stream(data: st.DataObject, turn: list[Delta]):
    encoder = OPENAI_CHAT.encoder(REQUEST, response_id="r1", created_at=7)
    stream = sse([frame for delta in turn for frame in encoder.feed(delta)])
    read = decode(read_sse(data.draw(byte_pieces(stream))))
    assert join_deltas(per_call(read)) == join_deltas(per_call(turn))


@PATIENT
@given(turns(opaque=DETAILS, interleaved=True) | turns())
def test_a_turn_comes_back_whole(turn: list[Delta]):
    read = OPENAI_CHAT.decode_response(whole(turn), model="m-1")
    assert join_deltas(per_call(read)) == join_deltas(per_call(turn))


# --- chunks ------------------------------------------------------------------------------------------------------

CALL = [
    CallStarted(0, "read", "c0"),
    ArgumentsDelta(0, '{"path": '),
    ArgumentsDelta(0, '"a"}'),
    CallCompleted(0, "read", {"path": "a"}, "c0"),
]


def call_start(place: int, name: str, id_: str, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": ""}
    return {"tool_calls": [{"index": place, "id": id_, "type": "function", "function": function}], **more}


def arguments(place: int, text: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": place, "function": {"arguments": text}}]}


FIRST = ({"role": "assistant", "content": ""}, None)


def test_the_chunks_of_a_turn():
    turn = [
        ReasoningDelta("hm"),
        TextDelta("So"),
        *CALL,
        BatchEnded((0,), True),
        TurnEnded("tool_calls", Usage(3, 2, 1, 0)),
    ]
    assert written_chunks(turn) == [
        FIRST,
        ({"reasoning_content": "hm"}, None),
        ({"content": "So"}, None),
        (call_start(0, "read", "c0"), None),
        (arguments(0, '{"path": '), None),
        (arguments(0, '"a"}'), None),
        ({}, "tool_calls"),
    ]
    *_, last, counts, last_event = frames(turn)
    assert last == {**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    assert counts == {
        **HEAD,
        "choices": [],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
    assert last_event == "[DONE]"


def test_a_turn_that_says_nothing_has_its_role_all_the_same():
    assert written_chunks([TurnEnded("stop")]) == [FIRST, ({}, None), ({}, "stop")]


@pytest.mark.parametrize("usage", [Usage(), Usage(3), Usage(None, 2)])
def test_usage_that_is_not_known_is_not_told(usage: Usage):
    assert frames([TurnEnded("stop", usage)]) == frames([TurnEnded("stop", usage)], usage=False)
    assert "usage" not in whole([TurnEnded("stop", usage)])


@pytest.mark.parametrize(
    ("finish", "alone", "with_a_call"),
    [
        ("stop", "stop", "tool_calls"),
        ("tool_calls", "stop", "tool_calls"),
        ("closed_by_us", "stop", "tool_calls"),
        ("length", "length", "length"),
        ("pause", "length", "length"),
        ("content_filter", "content_filter", "content_filter"),
        ("cancelled", "error", "error"),
        ("error", "error", "error"),
    ],
)
def test_finish_reasons(finish: FinishReason, alone: str, with_a_call: str):
    assert written_chunks([TextDelta("x"), TurnEnded(finish)])[-1] == ({}, alone)
    assert written_chunks([*CALL, TurnEnded(finish)])[-1] == ({}, with_a_call)
    assert whole([*CALL, TurnEnded(finish)])["choices"][0]["finish_reason"] == with_a_call


def test_a_refusal():
    turn = [TextDelta("I will not."), TurnEnded("refusal")]
    assert written_chunks(turn)[-1] == ({}, "content_filter")
    (choice,) = whole(turn)["choices"]
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": "I will not."}
    assert OPENAI_CHAT.decode_response(whole(turn)) == [TextDelta("I will not."), TurnEnded("refusal", model="m-1")]


def test_calls_alone_have_no_content():
    (choice,) = whole([*CALL, TurnEnded("stop")])["choices"]
    function = {"name": "read", "arguments": '{"path": "a"}'}
    call = {"id": "c0", "type": "function", "function": function}
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}


# --- what a dialect's parser gives -------------------------------------------------------------------------------


def test_ids_that_a_dialect_lacks_or_repeats():
    turn: list[Delta] = []
    for index, own in [(0, None), (1, "1"), (2, "1"), (3, None)]:
        turn += [
            CallStarted(index, "ping", own),
            ArgumentsDelta(index, "{}"),
            CallCompleted(index, "ping", {}, own),
        ]
    turn.append(TurnEnded("stop"))
    (choice,) = whole(turn)["choices"]
    ids = [call["id"] for call in choice["message"]["tool_calls"]]
    assert ids[1] == "1"
    assert len(set(ids)) == 4
    tool_calls = [delta["tool_calls"][0] for delta, _ in written_chunks(turn) if "tool_calls" in delta]
    assert [each["id"] for each in tool_calls if "id" in each] == ids


def test_a_call_that_was_not_streamed_is_sent_whole():
    """A call that repair made."""
    assert written_chunks([CallCompleted(4, "read", {"path": "é"}, "c4"), TurnEnded("stop")])[1:] == [
        (call_start(0, "read", "c4"), None),
        (arguments(0, '{"path": "é"}'), None),
        ({}, "tool_calls"),
    ]


def test_a_call_without_fragments_has_its_arguments_at_the_end():
    turn = [CallStarted(0, "ping"), CallCompleted(0, "ping", {}), TurnEnded("stop")]
    assert written_chunks(turn)[2] == (arguments(0, "{}"), None)


def test_what_is_no_call_is_told_as_text():
    malformed_call = CallMalformed(0, "<tool_call>{", "unclosed", "it has no end", 5)
    turn = [malformed_call, BatchEnded((), False), TurnEnded("stop")]
    assert written_chunks(turn) == [FIRST, ({"content": "<tool_call>{"}, None), ({}, "stop")]


@pytest.mark.parametrize("arguments", ["", '{"path": ', '{"path": "a"}', '{"path": "a'])
@pytest.mark.parametrize("reason", ["cut off", 'end it with "}'])
def test_a_malformed_call_that_was_streamed_runs_nowhere(arguments: str, reason: str):
    """Its arguments may be whole: what is wrong may stand behind them."""
    turn: list[Delta] = [CallStarted(0, "read", "c0"), *([ArgumentsDelta(0, arguments)] if arguments else [])]
    turn += [CallMalformed(0, arguments, "cut", reason, 5), *_call_at(1), TurnEnded("stop")]
    for read in (decode(frames(turn)[:-1]), OPENAI_CHAT.decode_response(whole(turn))):
        (malformed_call,) = (delta for delta in read if isinstance(delta, CallMalformed))
        assert malformed_call.raw == f"{arguments} ({reason})"
        assert [delta.name for delta in read if isinstance(delta, CallCompleted)] == ["ping"]


def _call_at(index: int) -> list[Delta]:
    call_id = f"c{index}"
    return [CallStarted(index, "ping", call_id), ArgumentsDelta(index, "{}"), CallCompleted(index, "ping", {}, call_id)]


def test_places_count_what_was_sent():
    turn = [CallMalformed(0, "x", "cut", "cut", 0), *_call_at(1), *_call_at(3), TurnEnded("stop")]
    places = [delta["tool_calls"][0]["index"] for delta, _ in written_chunks(turn) if "tool_calls" in delta]
    assert places == [0, 0, 1, 1]


def test_what_clients_need_not_know_is_left_out():
    quiet: list[Delta] = [
        CallIgnored(0, "last block counts"),
        ForgedResults("<results>"),
        ToolProgress("c0", "50 %"),
        PartEnded("text"),
        PartEnded("reasoning", Opaque("anthropic", "m-1", {"signature": "x"})),
        BatchEnded((), True),
    ]
    assert written_chunks([TextDelta("x"), *quiet, TurnEnded("stop")]) == [
        FIRST,
        ({"content": "x"}, None),
        ({}, "stop"),
    ]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_text_dialect_becomes_native_calls(size: int):
    text = 'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
    parser = get_dialect("hermes").parser()
    turn = [delta for i in range(0, len(text), size) for delta in parser.feed(text[i : i + size])]
    turn += parser.close("stop")
    read = decode(frames([*turn, TurnEnded("stop", Usage(1, 2))])[:-1])
    (call,) = (delta for delta in read if isinstance(delta, CallCompleted))
    assert (call.name, call.arguments) == ("read", {"path": "a"})
    assert "".join(d.text for d in read if isinstance(d, TextDelta)).strip() == "I look."
    assert read[-2:] == [BatchEnded((0,), True), TurnEnded("tool_calls", Usage(1, 2), "m-1")]


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request_error", False),
        (401, "authentication_error", False),
        (403, "permission_error", False),
        (404, "not_found_error", False),
        (422, "invalid_request_error", False),
        (429, "rate_limit_error", True),
        (500, "server_error", True),
        (503, "server_error", True),
    ],
)
def test_an_error_as_clients_read_it(status: int, kind: str, retryable: bool):
    assert OPENAI_CHAT.encode_error("no", status) == {
        "error": {"message": "no", "type": kind, "param": None, "code": None}
    }
    encoder = OPENAI_CHAT.encoder(REQUEST, response_id="r1", created_at=7)
    (frame,) = encoder.fail("no", status)
    with pytest.raises(ProviderError, match="the server reported an error: no") as raised_error:
        decode([frame[1]])
    assert raised_error.value.retryable is retryable
