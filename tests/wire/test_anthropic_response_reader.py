"""Answers of Anthropic's Messages API, read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from toolspeak.data.messages import FinishReason, Opaque, Usage
from toolspeak.errors import ProviderError
from toolspeak.wire.anthropic import ANTHROPIC

MODEL = "claude-opus-5-5"


def begin(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "msg_1", "model": MODEL, "content": [], "usage": usage}}


def block(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    return [block(index, "text", text=""), *(delta(index, "text_delta", text=piece) for piece in pieces), stop(index)]


def tool(index: int, *pieces: str, name: str = "read", call_id: str = "toolu_1") -> list[dict[str, Any]]:
    start = block(index, "tool_use", id=call_id, name=name, input={})
    return [start, *(delta(index, "input_json_delta", partial_json=piece) for piece in pieces), stop(index)]


def end(reason: str | None = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def decode(*events: Any, model: str | None = None) -> list[Delta]:
    decoder = ANTHROPIC.decoder(model=model)
    return [delta for event in events for delta in decoder.feed(event)] + decoder.close()


def whole(*content: Any, reason: str | None = "end_turn", **fields: Any) -> list[Delta]:
    return ANTHROPIC.decode_response(
        {"model": MODEL, "content": [*content], "stop_reason": reason, **fields}, model="asked"
    )


CALL_DELTAS = [CallStarted(0, "read", "toolu_1"), ArgumentsDelta(0, '{"p":'), ArgumentsDelta(0, '"a"}')]
CALL_END = CallCompleted(0, "read", {"p": "a"}, "toolu_1")


def test_a_turn_with_a_thought_a_text_and_a_call():
    deltas = decode(
        begin(input_tokens=5, output_tokens=1),
        block(0, "thinking", thinking="", signature=""),
        {"type": "ping"},
        delta(0, "thinking_delta", thinking="h"),
        delta(0, "thinking_delta", thinking="m"),
        delta(0, "signature_delta", signature="c2ln"),
        stop(0),
        *text(1, "Let me ", "see."),
        *tool(2, "", '{"p":', '"a"}'),
        *end("tool_use", output_tokens=9),
    )
    assert deltas == [
        ReasoningDelta("h"),
        ReasoningDelta("m"),
        PartEnded("reasoning", Opaque("anthropic", MODEL, {"signature": "c2ln"})),
        TextDelta("Let me "),
        TextDelta("see."),
        *CALL_DELTAS,
        CALL_END,
        BatchEnded((0,), True),
        TurnEnded("tool_calls", Usage(5, 9), MODEL),
    ]


def test_signatures_are_bound_to_the_model_that_was_asked_for():
    thought = [block(0, "thinking", thinking="", signature=""), delta(0, "signature_delta", signature="s"), stop(0)]
    redacted_events = [block(1, "redacted_thinking", data="x"), stop(1)]
    assert decode(begin(), *thought, *redacted_events, *end(), model="alias")[:2] == [
        PartEnded("reasoning", Opaque("anthropic", "alias", {"signature": "s"})),
        PartEnded("reasoning", Opaque("anthropic", "alias", {"redacted": "x"})),
    ]


def test_thinking_without_a_signature_is_a_part_of_its_own():
    thought = [block(0, "thinking", thinking=""), delta(0, "thinking_delta", thinking="hm"), stop(0)]
    assert decode(*thought, *end())[:2] == [ReasoningDelta("hm"), PartEnded("reasoning")]
    assert decode(block(0, "thinking"), stop(0), *end()) == [TurnEnded("stop")]


def test_a_call_is_complete_when_the_next_event_says_that_it_was_not_cut_off():
    decoder = ANTHROPIC.decoder()
    first, second = tool(0, '{"p":', '"a"}'), tool(1, "{}", call_id="toolu_2")
    assert [delta for event in first for delta in decoder.feed(event)] == CALL_DELTAS
    assert decoder.feed(second[0]) == [CALL_END, CallStarted(1, "read", "toolu_2")]
    assert decoder.feed({"type": "ping"}) == []
    assert [delta for event in second[1:] for delta in decoder.feed(event)] == [ArgumentsDelta(1, "{}")]
    assert decoder.feed(end("tool_use")[0]) == [CallCompleted(1, "read", {}, "toolu_2")]
    assert decoder.close() == [BatchEnded((0, 1), True), TurnEnded("tool_calls")]


def test_a_call_without_arguments_has_none():
    assert decode(*tool(0), *end("tool_use"))[:3] == [
        CallStarted(0, "read", "toolu_1"),
        ArgumentsDelta(0, "{}"),
        CallCompleted(0, "read", {}, "toolu_1"),
    ]


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal", "unheard_of"])
@pytest.mark.parametrize("pieces", [[], ['{"p":'], ['{"p": 1']], ids=["nothing", "a key", "no brace"])
def test_a_call_that_is_cut_off_never_runs(reason: str, pieces: list[str]):
    deltas = decode(*tool(0, *pieces), *end(reason))
    (malformed_call,) = [each for each in deltas if isinstance(each, CallMalformed)]
    assert "the turn ended in the middle of its arguments" in malformed_call.reason
    assert deltas[-2] == BatchEnded((), False)


def test_calls_before_the_one_that_is_cut_off_are_whole():
    deltas = decode(*tool(0), *tool(1, '{"p', call_id="toolu_2"), *end("max_tokens"))
    assert BatchEnded((0,), False) in deltas


@pytest.mark.parametrize("arguments", [{}, {"p": "a"}])
def test_a_whole_answer_that_was_cut_off_ends_in_no_call(arguments: dict[str, Any]):
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": arguments}
    deltas = whole({"type": "text", "text": "Hm"}, {**call, "id": "toolu_0"}, call, reason="max_tokens")
    assert [each.index for each in deltas if isinstance(each, CallCompleted)] == [0]
    assert [each.index for each in deltas if isinstance(each, CallMalformed)] == [1]
    assert deltas[-2:] == [BatchEnded((0,), False), TurnEnded("length", Usage(), MODEL)]


def test_arguments_that_come_whole_with_the_start_of_their_block():
    start = block(0, "tool_use", id="toolu_1", name="read", input={"p": "a"})
    assert decode(start, stop(0), *end("tool_use"))[1:3] == [ArgumentsDelta(0, '{"p": "a"}'), CALL_END]
    again = [start, delta(0, "input_json_delta", partial_json='{"p": "a"}'), stop(0)]
    assert decode(*again, *end("tool_use"))[1:3] == [ArgumentsDelta(0, '{"p": "a"}'), CALL_END]


def test_blocks_in_turns_are_known_by_their_index():
    one, two = tool(0, "{", '"p":1}'), tool(1, '{"p":', "2}", call_id="toolu_2")
    deltas = decode(one[0], two[0], one[1], two[1], two[2], one[2], stop(0), stop(1), *end("tool_use"))
    assert [each.arguments for each in deltas if isinstance(each, CallCompleted)] == [{"p": 1}, {"p": 2}]


def test_a_whole_answer():
    deltas = whole(
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Hi", "citations": None},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"p": "é"}},
        reason="tool_use",
        usage={"input_tokens": 3, "output_tokens": 4},
    )
    assert deltas == [
        ReasoningDelta("hm"),
        PartEnded("reasoning", Opaque("anthropic", "asked", {"signature": "s"})),
        PartEnded("reasoning", Opaque("anthropic", "asked", {"redacted": "x"})),
        TextDelta("Hi"),
        CallStarted(0, "read", "toolu_1"),
        ArgumentsDelta(0, '{"p": "é"}'),
        CallCompleted(0, "read", {"p": "é"}, "toolu_1"),
        BatchEnded((0,), True),
        TurnEnded("tool_calls", Usage(3, 4), MODEL),
    ]


def test_an_answer_without_content_is_an_empty_turn():
    assert whole() == [TurnEnded("stop", Usage(), MODEL)]
    assert decode(begin(), *end()) == [TurnEnded("stop", Usage(), MODEL)]


STOPS: list[tuple[str, FinishReason]] = [
    ("end_turn", "stop"),
    ("stop_sequence", "stop"),
    ("tool_use", "tool_calls"),
    ("max_tokens", "length"),
    ("model_context_window_exceeded", "length"),
    ("pause_turn", "pause"),
    ("refusal", "refusal"),
    ("unheard_of", "error"),
]


@pytest.mark.parametrize(("reason", "finish"), STOPS)
def test_why_a_turn_ended(reason: str, finish: FinishReason):
    assert decode(*text(0, "Hi"), *end(reason))[-1] == TurnEnded(finish)
    assert whole(reason=reason)[-1] == TurnEnded(finish, Usage(), MODEL)


def test_a_turn_is_whole_when_its_reason_or_its_last_event_has_come():
    decoder = ANTHROPIC.decoder()
    for event in [begin(), *text(0, "Hi")]:
        decoder.feed(event)
    assert (decoder.finished, decoder.stopped) == (False, False)
    decoder.feed(end()[0])
    assert (decoder.finished, decoder.stopped) == (True, False)
    decoder.feed(end()[1])
    assert (decoder.finished, decoder.stopped) == (True, True)


# --- usage -------------------------------------------------------------------------------------------------------


def test_every_token_is_counted_once():
    start = begin(input_tokens=5, cache_creation_input_tokens=100, cache_read_input_tokens=1000, output_tokens=1)
    details = {"thinking_tokens": 7}
    assert decode(start, *end(output_tokens=20, output_tokens_details=details))[-1] == TurnEnded(
        "stop", Usage(1105, 20, 1000, 7, 100), MODEL
    )


def test_later_counts_replace_earlier_ones():
    deltas = decode(
        begin(input_tokens=0, output_tokens=0), *end(input_tokens=9, output_tokens=2, cache_read_input_tokens=3)
    )
    assert deltas[-1] == TurnEnded("stop", Usage(12, 2, 3), MODEL)
    for nothing in (None, 0):  # servers that speak the format end with 0
        kept_deltas = decode(begin(input_tokens=5), *end(input_tokens=nothing, output_tokens=2))
        assert kept_deltas[-1] == TurnEnded("stop", Usage(5, 2), MODEL)


@pytest.mark.parametrize("usage", [None, 5, {}, {"input_tokens": "5"}, {"input_tokens": True}, {"output_tokens": -1}])
def test_counts_that_are_none_are_unknown(usage: Any):
    assert whole(usage=usage)[-1] == TurnEnded("stop", Usage(), MODEL)


# --- what is unknown, and what is wrong --------------------------------------------------------------------------

UNKNOWN_EVENTS: list[Any] = [
    {"type": "ping"},
    {"type": "message_metadata", "x": 1},
    {},
    delta(0, "citations_delta", citation={}),
    delta(0, "later_delta", x=1),
    block(7, "server_tool_use", id="s", name="web_search", input={}),
    delta(7, "input_json_delta", partial_json='{"query":'),
    stop(7),
]


def test_what_is_unknown_is_passed_over():
    before, *rest = text(0, "Hi")
    assert decode(begin(), before, *UNKNOWN_EVENTS, *rest, *end()) == [
        TextDelta("Hi"),
        TurnEnded("stop", Usage(), MODEL),
    ]


ERRORS = [
    ("overloaded_error", 529, True),
    ("rate_limit_error", 429, True),
    ("api_error", 500, True),
    ("timeout_error", 504, True),
    ("invalid_request_error", 400, False),
    ("authentication_error", 401, False),
    ("unheard_of", None, False),
]


@pytest.mark.parametrize(("kind", "status", "retryable"), ERRORS, ids=[kind for kind, *_ in ERRORS])
def test_an_error_inside_the_stream(kind: str, status: int | None, retryable: bool):
    event = {"type": "error", "error": {"type": kind, "message": "that is why"}}
    for read in (lambda: decode(begin(), event), lambda: ANTHROPIC.decode_response(event)):
        with pytest.raises(ProviderError, match="the server reported an error: that is why") as raised_error:
            read()
        assert (raised_error.value.status, raised_error.value.retryable) == (status, retryable)


@pytest.mark.parametrize(
    "event", [{"type": "error"}, {"error": "overheated"}, {"type": "error", "error": "overheated"}]
)
def test_an_error_of_another_shape(event: Any):
    with pytest.raises(ProviderError, match="the server reported an error"):
        decode(event)


ILL_FORMED = [
    (5, "an event of the stream should be an object, found a number"),
    ([], "an event of the stream should be an object, found a list"),
    ({"type": "message_start"}, "'message' of the message_start should be an object"),
    ({"type": "content_block_start", "index": 0}, "'content_block' of a content_block_start should be an object"),
    (
        {"type": "content_block_start", "content_block": {"type": "text"}},
        "'index' of a content_block_start should be a number",
    ),
    (block(0, "tool_use", name=5), "a call's 'name' should be a string, found a number"),
    (block(0, "tool_use", name="x", id=5), "a call's 'id' should be a string"),
    (block(0, "tool_use", name="x", id="i", input="{}"), "a call's 'input' should be an object"),
    (block(0, "text", text=5), "'text' of a content block should be a string"),
    ({"type": "content_block_delta", "index": 0}, "'delta' of a content_block_delta should be an object"),
    (delta(0, "text_delta", text=5), "'text' of a text_delta should be a string, found a number"),
    (delta(0, "input_json_delta", partial_json="{"), "arguments for content block 0, which it did not start"),
    ({"type": "message_delta", "delta": {"stop_reason": 5}}, "'stop_reason' should be a string"),
]


@pytest.mark.parametrize(("event", "problem"), ILL_FORMED, ids=[problem for _, problem in ILL_FORMED])
def test_an_ill_formed_event_is_named(event: Any, problem: str):
    with pytest.raises(ProviderError) as raised_error:
        decode(event)
    assert problem in str(raised_error.value)


def test_arguments_that_are_no_text():
    with pytest.raises(ProviderError, match="'partial_json' of an input_json_delta should be a string"):
        decode(tool(0)[0], delta(0, "input_json_delta", partial_json={"p": 1}))


@pytest.mark.parametrize(
    ("body", "problem"),
    [([], "the response should be an object"), ({"choices": []}, "is this an API like Anthropic's")],
)
def test_a_body_that_is_no_answer(body: Any, problem: str):
    with pytest.raises(ProviderError, match=problem):
        ANTHROPIC.decode_response(body)


FIELDS = ["type", "index", "delta", "text", "content_block", "message", "partial_json", "usage", "name", "id", "input"]
KINDS = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "text_delta",
]
EVENTS = st.recursive(
    st.none() | st.integers(0, 1) | st.sampled_from([*KINDS, "tool_use", "input_json_delta", "thinking", "{"]),
    lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=8,
)


def test_a_call_whose_block_ends_twice_is_one_call():
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "c", "name": "f"}}
    deltas = decode(begin(), start, stop(0), stop(0))
    assert [each for each in deltas if isinstance(each, CallCompleted)] == [CallCompleted(0, "f", {}, "c")]


@given(st.lists(EVENTS, max_size=4))
@settings(deadline=None)
def test_no_event_breaks_the_reader(events: list[Any]):
    try:
        deltas = decode(begin(), *json.loads(json.dumps(events)))
    except ProviderError:
        return
    assert isinstance(deltas[-1], TurnEnded)
