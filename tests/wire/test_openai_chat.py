from __future__ import annotations

import json
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
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import FinishReason, TextMessage, Usage
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT

MESSAGES = [TextMessage("system", "Be brief."), TextMessage("user", "Hi"), TextMessage("assistant", "Hello.")]


def chunk(delta: Any, finish: Any = None, **fields: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}


def decode(*chunks: Any) -> list[Delta]:
    decoder = OPENAI_CHAT.decoder()
    return [delta for piece in chunks for delta in decoder.feed(piece)] + decoder.close()


def test_a_streamed_request_asks_for_usage():
    assert OPENAI_CHAT.encode_request(ModelRequest(MESSAGES, options={"temperature": 0.5}), model="m", stream=True) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
    }


def test_a_request_that_is_not_streamed_has_no_stream_options():
    body = OPENAI_CHAT.encode_request(ModelRequest([], options={}), model="m", stream=False)
    assert body == {"model": "m", "messages": [], "stream": False}


def test_an_option_of_none_removes_the_field():
    body = OPENAI_CHAT.encode_request(
        ModelRequest([], options={"stream_options": None, "seed": None}), model="m", stream=True
    )
    assert body == {"model": "m", "messages": [], "stream": True}


@pytest.mark.parametrize("name", ["model", "messages"])
def test_an_option_cannot_replace_the_request_itself(name: str):
    with pytest.raises(ConfigurationError, match=f"the option '{name}' cannot be set"):
        OPENAI_CHAT.encode_request(ModelRequest([], options={name: "x"}), model="m", stream=True)


def test_the_role_tool_is_sent_without_an_id():
    body = OPENAI_CHAT.encode_request(ModelRequest([TextMessage("tool", "[]")], options={}), model="m", stream=True)
    assert body["messages"] == [{"role": "tool", "content": "[]"}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udfff", "\ufffd"),
        ("x\ud800", "x\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("é\x00😀", "é\x00😀"),
    ],
)
def test_lone_surrogates_are_replaced_before_utf8(text: str, expected: str):
    options = {"stop": [text], "metadata": {text: (text,)}}
    body = OPENAI_CHAT.encode_request(
        ModelRequest([TextMessage("user", text)], options=options), model="m", stream=True
    )
    assert body["messages"][0]["content"] == expected
    assert body["stop"] == [expected]
    assert body["metadata"] == {expected: [expected]}
    json.dumps(body, ensure_ascii=False).encode()


def test_a_whole_stream():
    assert decode(
        chunk({"role": "assistant", "content": ""}, model="m-1"),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}},
    ) == [TextDelta("Hel"), TextDelta("lo"), TurnEnded("stop", Usage(7, 2), "m-1")]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("eos", "stop"),
        ("", "stop"),
    ],
)
def test_finish_reasons(reason: str, finish: FinishReason):
    assert decode(chunk({}, reason)) == [TurnEnded(finish)]


def test_a_finish_reason_is_noticed():
    decoder = OPENAI_CHAT.decoder()
    decoder.feed(chunk({"content": "x"}))
    decoder.feed(chunk({"content": "y"}, ""))
    assert not decoder.finished
    decoder.feed(chunk({}, "length"))
    assert decoder.finished


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"reasoning": "hm", "reasoning_content": None},
        {"reasoning": "hm", "reasoning_content": ""},
    ],
)
def test_reasoning_comes_before_the_text_of_its_chunk(delta: dict[str, Any]):
    assert decode(chunk({"content": "so", **delta}))[:-1] == [ReasoningDelta("hm"), TextDelta("so")]


def test_cached_and_reasoning_tokens():
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert decode({"choices": [], "usage": usage}) == [TurnEnded("stop", Usage(10, 5, 8, 3))]


def test_openrouter_tells_what_was_written_to_a_cache():
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cache_write_tokens": 4}}
    assert decode({"choices": [], "usage": usage}) == [TurnEnded("stop", Usage(10, 5, cache_write=4))]


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
def test_a_turn_that_its_server_broke_off_is_an_error(reason: str):
    with pytest.raises(ProviderError, match=f"finish reason '{reason}'") as raised_error:
        decode(chunk({"content": "Half of"}), chunk({}, reason))
    assert (raised_error.value.code, raised_error.value.retryable) == ("overloaded", True)


def test_a_running_usage_count_is_not_added_up_and_null_does_not_erase_it():
    running = [chunk({"content": "x"}, usage={"prompt_tokens": 1, "completion_tokens": n}) for n in (1, 2)]
    assert decode(*running, chunk({}, "stop", usage=None))[-1] == TurnEnded("stop", Usage(1, 2))


@pytest.mark.parametrize(
    "usage", [5, "x", [], {"prompt_tokens": "7", "completion_tokens": True}, {"prompt_tokens": -1}]
)
def test_usage_that_makes_no_sense_is_unknown(usage: Any):
    assert decode(chunk({}, "stop", usage=usage)) == [TurnEnded("stop", Usage())]


def test_content_may_be_a_list_of_text_parts():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert decode(chunk({"content": parts}))[0] == TextDelta("ab")


def test_only_the_first_of_several_answers_is_read():
    several = {"choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]}
    assert decode(several)[:-1] == [TextDelta("yes")]


def test_a_refusal_is_text_and_a_finish_reason():
    assert decode(chunk({"refusal": "I will not."}), chunk({}, "stop")) == [
        TextDelta("I will not."),
        TurnEnded("refusal"),
    ]


@pytest.mark.parametrize(
    "idle",
    [
        {},
        {"choices": None},
        {"choices": []},
        chunk(None),
        chunk({"content": None, "tool_calls": []}),
        chunk({"tool_calls": None}),
    ],
)
def test_chunks_without_content_say_nothing(idle: dict[str, Any]):
    assert decode(idle) == [TurnEnded("stop")]


ILL_FORMED: list[tuple[Any, str]] = [
    (None, "a chunk of the stream should be an object, found nothing"),
    ([], "a chunk of the stream should be an object, found a list"),
    ({"choices": {"0": {}}}, "'choices' should be a list, found an object"),
    ({"choices": ["x"]}, "a choice should be an object, found 'x'"),
    ({"choices": [{"delta": "x"}]}, "'delta' should be an object, found 'x'"),
    (chunk({"content": 5}), "'content' should be a string, found a number"),
    (chunk({"content": {"text": "x"}}), "'content' should be a string, found an object"),
    (chunk({"content": ["x"]}), "a part of 'content' should be an object, found 'x'"),
    (chunk({"content": [{"type": "image_url"}]}), "'text' of a part of 'content' should be a string, found nothing"),
    (chunk({"reasoning": True}), "'reasoning' should be a string, found true"),
    (chunk({}, 5), "'finish_reason' should be a string, found a number"),
    (chunk({"content": 10**5000}), "found a number"),
]


@pytest.mark.parametrize(("piece", "problem"), ILL_FORMED, ids=[problem for _, problem in ILL_FORMED])
def test_an_ill_formed_chunk_is_a_provider_error(piece: Any, problem: str):
    with pytest.raises(ProviderError) as raised_error:
        decode(piece)
    assert problem in str(raised_error.value)
    assert not raised_error.value.retryable


@pytest.mark.parametrize(
    ("error", "message", "status", "retryable"),
    [
        ({"message": "boom", "type": "server_error", "code": None}, "boom", None, True),
        ({"message": "boom", "code": 502}, "boom", 502, True),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "slow down", None, True),
        ({"message": "too long", "type": "invalid_request_error", "code": 400}, "too long", 400, False),
        ({"message": {"x": 1}}, "an object", None, False),
        ("plain words", "plain words", None, False),
        (["x"], "x", None, False),
        ({"message": "a\n\x1b[31mb" + "x" * 1000}, "a [31mbx", None, False),
    ],
)
def test_an_error_inside_the_stream(error: Any, message: str, status: int | None, retryable: bool):
    with pytest.raises(ProviderError) as raised_error:
        decode(chunk({"content": "so far"}), {"error": error})
    assert f"the server reported an error: {message}" in str(raised_error.value)
    assert len(str(raised_error.value)) < 400
    assert (raised_error.value.status, raised_error.value.retryable) == (status, retryable)


def test_a_whole_response():
    message = {"role": "assistant", "content": "Hi.", "reasoning_content": "greet", "tool_calls": None}
    body = {
        "model": "m-1",
        "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    assert OPENAI_CHAT.decode_response(body) == [
        ReasoningDelta("greet"),
        TextDelta("Hi."),
        TurnEnded("length", Usage(1, 2), "m-1"),
    ]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("hello", "the response should be an object, found 'hello'"),
        ({}, "no choices"),
        ({"choices": []}, "no choices"),
        ({"choices": "x"}, "'choices' should be a list"),
        ({"choices": [5]}, "a choice should be an object"),
        ({"choices": [{"message": {"content": 5}}]}, "'content' should be a string"),
        ({"error": {"message": "no such model"}}, "no such model"),
    ],
)
def test_an_ill_formed_response_is_a_provider_error(body: Any, problem: str):
    with pytest.raises(ProviderError, match=problem):
        OPENAI_CHAT.decode_response(body)


FIELDS = [
    "choices",
    "delta",
    "message",
    "content",
    "reasoning",
    "finish_reason",
    "usage",
    "error",
    "index",
    "text",
    "code",
    "tool_calls",
    "function",
    "function_call",
    "name",
    "arguments",
    "id",
    "reasoning_details",
    "extra_content",
]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["stop", "server_error"])
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner, max_size=4),
    max_leaves=12,
)
NEAR_CALLS = st.lists(
    st.fixed_dictionaries(
        {"function": st.fixed_dictionaries({}, optional={"name": LEAVES, "arguments": LEAVES | ANY_JSON})},
        optional={"index": st.integers(0, 1), "id": st.sampled_from(["a", "b", "", None])},
    ),
    max_size=3,
)
NEAR_DELTAS = st.fixed_dictionaries(
    {}, optional={"content": LEAVES, "reasoning": LEAVES, "tool_calls": NEAR_CALLS, "function_call": ANY_JSON}
)
NEAR_CHUNKS = st.builds(
    lambda choices, rest: {**rest, "choices": choices},
    st.lists(
        st.fixed_dictionaries(
            {"delta": NEAR_DELTAS | ANY_JSON}, optional={"finish_reason": ANY_JSON, "message": NEAR_DELTAS | ANY_JSON}
        )
    ),
    st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, max_size=2),
)


@PATIENT
@given(st.lists(ANY_JSON | NEAR_CHUNKS, max_size=4))
def test_no_json_raises_anything_but_provider_error(pieces: list[Any]):
    decoder = OPENAI_CHAT.decoder()
    stream_deltas: list[Delta] = []
    for piece in pieces:
        try:
            deltas = OPENAI_CHAT.decode_response(piece)
        except ProviderError:
            pass
        else:
            assert_a_turn(deltas)
        try:
            stream_deltas += decoder.feed(piece)
        except ProviderError:
            return
    assert_a_turn(stream_deltas + decoder.close())


def assert_a_turn(deltas: list[Delta]) -> None:
    """Calls start, go on and end in order; one batch counts those that are complete; the turn ends once."""
    indexes: list[int] = []
    ended_indexes: list[int] = []
    whole: list[int] = []
    for delta in deltas:
        match delta:
            case CallStarted(index):
                assert index == len(indexes)
                indexes.append(index)
            case ArgumentsDelta(index):
                assert index in indexes
                assert index not in ended_indexes
            case CallCompleted(index) | CallMalformed(index):
                assert index in indexes
                assert index not in ended_indexes
                ended_indexes.append(index)
                if isinstance(delta, CallCompleted):
                    whole.append(index)
            case BatchEnded(selected_indexes, ok):
                assert selected_indexes == tuple(sorted(whole))
                assert ok == (len(whole) == len(indexes))
            case _:
                pass
    assert sorted(ended_indexes) == indexes
    assert [type(delta) for delta in deltas].count(TurnEnded) == 1
    assert isinstance(deltas[-1], TurnEnded)
    assert any(isinstance(delta, BatchEnded) for delta in deltas) == bool(indexes)


OWN_FIELDS = ("model", "messages", "tools", "tool_choice", "parallel_tool_calls")


@PATIENT
@given(st.text(st.characters()), st.dictionaries(st.text(), ANY_JSON, max_size=3))
def test_every_request_can_be_sent_as_utf8(text: str, options: dict[str, Any]):
    options = {name: value for name, value in options.items() if name not in OWN_FIELDS}
    body = OPENAI_CHAT.encode_request(
        ModelRequest([TextMessage("user", text)], options=options), model=text, stream=True
    )
    json.dumps(body, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("reason", "read"),
    [("max_tokens", "length"), ("model_length", "length"), ("eos", "stop"), ("abort", "error"), ("whatever", "error")],
)
def test_other_servers_finish_reasons_never_pass_for_a_whole_turn(reason, read):
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": reason}]}
    assert [delta.finish for delta in OPENAI_CHAT.decode_response(body) if isinstance(delta, TurnEnded)] == [read]
