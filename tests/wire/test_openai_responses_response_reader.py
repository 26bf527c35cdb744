"""OpenAI Responses: answers, as a client reads them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_strategies import PATIENT

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
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
TEXT_ITEM = {**MESSAGE, "content": [{"type": "output_text", "text": "Hello", "annotations": []}]}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "status": "completed"}
SIGNATURE = Opaque("openai-responses", "m", {"id": "fc_1"})
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 8},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 15,
}
TURN_END = TurnEnded("stop", Usage(10, 5, 8, 3), "m-2026", "resp_1")


def answer(*output: Any, status: str = "completed", **fields: Any) -> dict[str, Any]:
    about = {"id": "resp_1", "object": "response", "model": "m-2026", "status": status, "usage": USAGE}
    return {**about, "output": list(output), "error": None, **fields}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": 0, **fields}


def item_added(item: Any, index: int = 0) -> dict[str, Any]:
    return event("output_item.added", item={**item, "status": "in_progress"}, output_index=index)


def item_done(item: Any, index: int = 0) -> dict[str, Any]:
    return event("output_item.done", item=item, output_index=index)


def text(delta: str, item_id: str = "msg_1", index: int = 0) -> dict[str, Any]:
    return event("output_text.delta", item_id=item_id, output_index=index, content_index=0, delta=delta)


def arguments(delta: str, item_id: str = "fc_1", index: int = 0) -> dict[str, Any]:
    return event("function_call_arguments.delta", item_id=item_id, output_index=index, delta=delta)


END = event("completed", response=answer())


def decode(*events: Any, model: str | None = "m") -> list[Delta]:
    decoder = OPENAI_RESPONSES.decoder(model=model)
    return [delta for each in events for delta in decoder.feed(each)] + decoder.close()


def whole(*output: Any, **fields: Any) -> list[Delta]:
    return OPENAI_RESPONSES.decode_response(answer(*output, **fields), model="m")


def test_a_streamed_text():
    assert decode(
        event("created", response=answer(status="in_progress", usage=None)),
        event("in_progress", response=answer(status="in_progress", usage=None)),
        item_added(MESSAGE),
        event("content_part.added", item_id="msg_1", output_index=0, content_index=0, part={"type": "output_text"}),
        text("Hel"),
        text("lo"),
        event("output_text.done", item_id="msg_1", output_index=0, content_index=0, text="Hello"),
        event("content_part.done", item_id="msg_1", output_index=0, content_index=0, part={"type": "output_text"}),
        item_done(TEXT_ITEM),
        event("completed", response=answer(TEXT_ITEM)),
    ) == [TextDelta("Hel"), TextDelta("lo"), PartEnded("text"), TURN_END]


def test_a_turn_is_finished_with_its_last_event():
    decoder = OPENAI_RESPONSES.decoder()
    decoder.feed(item_added(MESSAGE))
    decoder.feed(item_done(TEXT_ITEM))
    assert not decoder.finished
    decoder.feed(END)
    assert decoder.finished


def test_two_calls_whose_fragments_come_in_turns():
    other = {**CALL, "id": "fc_2", "call_id": "call_2", "name": "write"}
    assert decode(
        item_added({**CALL, "arguments": ""}),
        item_added({**other, "arguments": ""}, 1),
        arguments('{"a"'),
        arguments('{"b"', "fc_2", 1),
        arguments(":1}"),
        arguments(":2}", "fc_2", 1),
        event("function_call_arguments.done", item_id="fc_1", output_index=0, arguments='{"a":1}'),
        item_done({**other, "arguments": '{"b":2}'}, 1),
        item_done({**CALL, "arguments": '{"a":1}'}),
        END,
    ) == [
        CallStarted(0, "read", "call_1"),
        CallStarted(1, "write", "call_2"),
        ArgumentsDelta(0, '{"a"'),
        ArgumentsDelta(1, '{"b"'),
        ArgumentsDelta(0, ":1}"),
        ArgumentsDelta(1, ":2}"),
        CallCompleted(1, "write", {"b": 2}, "call_2", opaque=Opaque("openai-responses", "m", {"id": "fc_2"})),
        CallCompleted(0, "read", {"a": 1}, "call_1", opaque=SIGNATURE),
        BatchEnded((0, 1), True),
        TurnEnded("tool_calls", TURN_END.usage, "m-2026", "resp_1"),
    ]


READ_CALL = [
    CallStarted(0, "read", "call_1"),
    ArgumentsDelta(0, '{"a":1}'),
    CallCompleted(0, "read", {"a": 1}, "call_1", opaque=SIGNATURE),
    BatchEnded((0,), True),
    TurnEnded("tool_calls", TURN_END.usage, "m-2026", "resp_1"),
]
WHOLE_CALL = {**CALL, "arguments": '{"a":1}'}
CALL_STREAMS = {
    "no fragments": [item_added(WHOLE_CALL), item_done(WHOLE_CALL), END],
    "the end of the arguments alone": [
        item_added(CALL),
        event("function_call_arguments.done", item_id="fc_1", output_index=0, arguments='{"a":1}'),
        item_done(WHOLE_CALL),
        END,
    ],
    "another id in each event": [
        item_added({**CALL, "id": "x"}),
        arguments('{"a":1}', "y"),
        item_done(WHOLE_CALL),
        END,
    ],
    "no index": [
        event("output_item.added", item=CALL),
        event("function_call_arguments.delta", item_id="fc_1", delta='{"a":1}'),
        event("output_item.done", item=WHOLE_CALL),
        END,
    ],
    "told twice": [
        item_added(CALL),
        arguments('{"a":1}'),
        item_done(WHOLE_CALL),
        item_done(WHOLE_CALL),
        arguments("x"),
        END,
    ],
    "only the item's end": [item_done(WHOLE_CALL), END],
    "only the response's end": [event("completed", response=answer(WHOLE_CALL))],
    "a text at the same index": [
        item_added(MESSAGE),
        item_done({**MESSAGE, "content": []}),
        item_done(WHOLE_CALL),
        END,
    ],
    "unknown events": [
        event("something.new", delta="x"),
        item_added({"type": "web_search_call", "id": "ws_1"}),
        event("web_search_call.searching", item_id="ws_1", output_index=0),
        item_done({"type": "web_search_call", "id": "ws_1"}),
        {},
        item_added(CALL, 1),
        arguments('{"a":1}', index=1),
        item_done(WHOLE_CALL, 1),
        END,
    ],
}


@pytest.mark.parametrize("events", CALL_STREAMS.values(), ids=CALL_STREAMS)
def test_a_call_however_a_server_tells_it(events: list[Any]):
    assert decode(*events) == READ_CALL


def test_two_calls_at_the_same_index():
    first, second = ({**CALL, "id": f"fc_{i}", "call_id": f"call_{i}", "arguments": "{}"} for i in (1, 2))
    deltas = decode(
        item_added(first),
        arguments("{}"),
        item_done(first),
        item_added(second),
        arguments("{}", "fc_2"),
        item_done(second),
        END,
    )
    assert [d.id for d in deltas if isinstance(d, CallCompleted)] == ["call_1", "call_2"]


def test_a_call_that_was_cut_off():
    cut = {**CALL, "status": "incomplete", "arguments": '{"a"'}
    reason = {"reason": "max_output_tokens"}
    last = event("incomplete", response=answer(cut, status="incomplete", incomplete_details=reason))
    for events in (
        [item_added(CALL), arguments('{"a"'), item_done(cut), last],
        [item_added(CALL), arguments('{"a"'), last],
        [last],
    ):
        deltas = decode(*events)
        assert [d.raw for d in deltas if isinstance(d, CallMalformed)] == ['{"a"']
        assert deltas[-2:] == [BatchEnded((), False), TurnEnded("length", TURN_END.usage, "m-2026", "resp_1")]


THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "**A**"}, {"type": "summary_text", "text": "**B**"}],
    "encrypted_content": "gAAA",
}


def test_reasoning_keeps_its_item_and_what_follows_its_ids():
    stream = decode(
        item_added({**THOUGHT, "summary": []}),
        event("reasoning_summary_part.added", item_id="rs_1", output_index=0, summary_index=0),
        event("reasoning_summary_text.delta", item_id="rs_1", output_index=0, summary_index=0, delta="**A**"),
        event("reasoning_summary_text.done", item_id="rs_1", output_index=0, summary_index=0, text="**A**"),
        event("reasoning_summary_part.added", item_id="rs_1", output_index=0, summary_index=1),
        event("reasoning_summary_text.delta", item_id="rs_1", output_index=0, summary_index=1, delta="**B**"),
        item_done(THOUGHT),
        item_added({**MESSAGE, "content": []}, 1),
        text("Hello", index=1),
        item_done(TEXT_ITEM, 1),
        END,
    )
    end = [PartEnded("reasoning", Opaque("openai-responses", "m", THOUGHT)), TextDelta("Hello")]
    end += [PartEnded("text", Opaque("openai-responses", "m", {"id": "msg_1"})), TURN_END]
    assert stream == [*map(ReasoningDelta, ["**A**", "\n\n", "**B**"]), *end]
    assert whole(THOUGHT, TEXT_ITEM) == [ReasoningDelta("**A**\n\n**B**"), *end]


def test_reasoning_that_is_shown_and_reasoning_that_says_nothing():
    reasoning_item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    delta = event("reasoning_text.delta", item_id="rs_1", output_index=0, content_index=0, delta="hm")
    end = [PartEnded("reasoning", Opaque("openai-responses", "m-2026", reasoning_item)), TURN_END]
    created_event = event("created", response=answer(status="in_progress"))
    assert decode(created_event, item_added(reasoning_item), delta, item_done(reasoning_item), END, model=None) == [
        ReasoningDelta("hm"),
        *end,
    ]
    thought_item = {**THOUGHT, "summary": []}
    assert whole(thought_item) == [PartEnded("reasoning", Opaque("openai-responses", "m", thought_item)), TURN_END]


def test_the_phase_of_a_message_is_kept():
    commentary_item = {**TEXT_ITEM, "phase": "commentary"}
    opaque = Opaque("openai-responses", "m", {"id": "msg_1", "phase": "commentary"})
    assert whole(commentary_item) == [TextDelta("Hello"), PartEnded("text", opaque), TURN_END]


def test_a_refusal_is_text_and_a_finish_reason():
    refusal = {**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}
    delta = event("refusal.delta", item_id="msg_1", output_index=0, content_index=0, delta="No.")
    expected = [TextDelta("No."), PartEnded("text"), TurnEnded("refusal", TURN_END.usage, "m-2026", "resp_1")]
    assert decode(item_added(MESSAGE), delta, item_done(refusal), END) == expected
    assert whole(refusal) == expected


def test_a_whole_response_with_a_call():
    assert whole(TEXT_ITEM, WHOLE_CALL) == [TextDelta("Hello"), PartEnded("text"), *READ_CALL]


@pytest.mark.parametrize(
    ("status", "reason", "finish"),
    [
        ("incomplete", "max_output_tokens", "length"),
        ("incomplete", "content_filter", "content_filter"),
        ("incomplete", "steered", "error"),
        ("incomplete", None, "error"),
        ("completed", None, "stop"),
        ("cancelled", None, "cancelled"),
    ],
)
def test_finish_reasons(status: str, reason: str | None, finish: FinishReason):
    details = {"incomplete_details": None if reason is None else {"reason": reason}}
    assert whole(status=status, **details)[-1] == TurnEnded(finish, TURN_END.usage, "m-2026", "resp_1")
    assert decode(event(status, response=answer(status=status, **details)))[-1] == whole(status=status, **details)[-1]


@pytest.mark.parametrize("output", [[], [{**MESSAGE, "content": []}]])
def test_a_turn_that_says_nothing(output: list[Any]):
    assert whole(*output) == [TURN_END]
    assert decode(END) == [TURN_END]


@pytest.mark.parametrize("usage", [None, 5, [], {"input_tokens": "7", "output_tokens": True}, {"input_tokens": -1}])
def test_usage_that_makes_no_sense_is_unknown(usage: Any):
    assert whole(usage=usage) == [TurnEnded("stop", Usage(), "m-2026", "resp_1")]


FAILURE = answer(status="failed", error={"code": "server_error", "message": "boom"}, output=[])
ERRORS = {
    "flat": ({"type": "error", "code": "server_error", "message": "boom", "sequence_number": 3}, None, True),
    "nested": ({"type": "error", "error": {"type": "invalid_request_error", "message": "boom"}}, None, False),
    "with a status": ({"type": "error", "status": 503, "error": {"message": "boom"}}, 503, True),
    "without a type": ({"error": {"message": "boom", "code": 429}}, 429, True),
    "text": ({"error": "boom"}, None, False),
    "failed": (event("failed", response=FAILURE), None, True),
}


@pytest.mark.parametrize(("failing", "status", "retryable"), ERRORS.values(), ids=ERRORS)
def test_an_error_inside_the_stream(failing: Any, status: int | None, retryable: bool):
    with pytest.raises(ProviderError, match="the server reported an error: boom") as raised_error:
        decode(item_added(MESSAGE), text("Hel"), failing)
    assert (raised_error.value.status, raised_error.value.retryable) == (status, retryable)


ILL_FORMED: list[tuple[Any, str]] = [
    (None, "an event of the stream should be an object, found nothing"),
    ("x", "an event of the stream should be an object, found 'x'"),
    ({"type": 5}, "'type' of an event should be a string, found a number"),
    (text(5), "'delta' should be a string, found a number"),  # type: ignore[arg-type]
    (event("output_item.added", output_index=0), "'item' should be an object, found nothing"),
    (item_added({**CALL, "name": 5}), "'name' of a function call should be a string"),
    (item_done({**MESSAGE, "content": "x"}), "'content' of a message should be a list"),
    (item_done({**MESSAGE, "content": ["x"]}), "a part of 'content' should be an object"),
    (item_done({**CALL, "arguments": {}}), "'arguments' should be a string, found an object"),
    (item_done({"type": "reasoning", "summary": [{"text": 5}]}), "the text of a part of 'summary' should be a string"),
    (event("completed"), "'response' should be an object, found nothing"),
    (event("completed", response=answer(output={})), "'output' should be a list"),
]


@pytest.mark.parametrize(("piece", "problem"), ILL_FORMED, ids=[problem for _, problem in ILL_FORMED])
def test_an_ill_formed_event_is_a_provider_error(piece: Any, problem: str):
    with pytest.raises(ProviderError) as raised_error:
        decode(piece)
    assert problem in str(raised_error.value)
    assert not raised_error.value.retryable


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("hello", "the response should be an object"),
        ({}, "the response has no output"),
        ({"choices": []}, "the response has no output"),
        ({"output": "x"}, "the response has no output"),
        ({"error": {"message": "no such model"}}, "no such model"),
        (FAILURE, "boom"),
        (answer(status="queued"), "omit the option 'background'"),
        (answer(status="failed", output=[TEXT_ITEM]), "the response failed, without a reason"),
    ],
)
def test_an_ill_formed_response_is_a_provider_error(body: Any, problem: str):
    with pytest.raises(ProviderError, match=problem):
        OPENAI_RESPONSES.decode_response(body)


KINDS = [
    kind for each in (*CALL_STREAMS.values(), [text("x"), item_done(TEXT_ITEM), item_added(THOUGHT)]) for kind in each
]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*TEXT_ITEM, *CALL]), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = sorted({field for kind in KINDS for field in kind})


@PATIENT
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, max_size=2)), max_size=5
    )
)
def test_no_json_raises_anything_but_provider_error(pieces: list[tuple[Any, Any]]):
    decoder = OPENAI_RESPONSES.decoder()
    for kind, changes in pieces:
        for read in (decoder.feed, OPENAI_RESPONSES.decode_response):
            try:
                read({**kind, **changes})
            except ProviderError:
                continue
    assert isinstance(decoder.close()[-1], TurnEnded)
