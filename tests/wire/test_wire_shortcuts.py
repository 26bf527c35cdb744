"""Each shortcut of the wire formats says what the plain way says.

Decoders read an ordinary chunk of a stream by its shape alone, Anthropic's encoder continues the open block at once.
They look at exact classes: the same values of subclasses take the plain way.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_strategies import turns

from toolspeak.data.deltas import ArgumentsDelta, Delta, TextDelta
from toolspeak.errors import ProviderError
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest, WireFormat, WireRequest
from toolspeak.wire.gemini import GEMINI
from toolspeak.wire.ollama import OLLAMA
from toolspeak.wire.openai_chat import OPENAI_CHAT

Chunks: TypeAlias = st.SearchStrategy[Any]
TEXTS: Chunks = st.sampled_from(["", "a", "é", "two words", "\n", '{"k":', " 1}", 5, None, ["a"]])
INDEXES: Chunks = st.sampled_from([0, 0, 0, 1, None])


def objects(required_fields: dict[str, Any], optional: dict[str, Any]) -> Chunks:
    """Objects as the API writes them, mostly without the fields that are rare."""
    usual: Chunks = st.fixed_dictionaries(required_fields)
    return st.one_of(usual, usual, st.fixed_dictionaries(required_fields, optional=optional))


NOTHING: Chunks = st.sampled_from([None, False, 0, "", {}, []])
ERRORS: Chunks = st.sampled_from([None, {}, {"message": "broken"}, "broken"])
TOKENS = st.integers(0, 9)

CHAT_CALL: Chunks = objects(
    {"index": st.sampled_from([0, 0, 1]), "function": objects({"arguments": TEXTS}, {"name": st.just("f")})},
    {"id": st.sampled_from(["c1", "c2"]), "type": st.just("function")},
)
CHAT_DELTA: Chunks = st.one_of(
    objects({"content": TEXTS}, {"role": st.just("assistant"), "reasoning_content": TEXTS, "refusal": TEXTS}),
    objects({"tool_calls": st.lists(CHAT_CALL, max_size=2)}, {"content": TEXTS}),
    st.just({}),
)
CHAT_CHUNK: Chunks = objects(
    {
        "model": st.sampled_from(["m", "m", "m", "n", None]),
        "choices": st.lists(
            objects(
                {"delta": CHAT_DELTA}, {"index": INDEXES, "finish_reason": st.sampled_from([None, "stop", "length"])}
            ),
            min_size=1,
            max_size=1,
        ),
    },
    {"usage": st.one_of(NOTHING, st.fixed_dictionaries({"prompt_tokens": TOKENS})), "error": ERRORS},
)

GEMINI_PART: Chunks = st.one_of(
    objects({"text": TEXTS}, {"thought": st.booleans(), "thoughtSignature": st.just("s")}),
    st.just({"functionCall": {"name": "f", "args": {"a": 1}}}),
)
GEMINI_CHUNK: Chunks = objects(
    {
        "candidates": st.lists(
            objects(
                {"content": st.fixed_dictionaries({"parts": st.lists(GEMINI_PART, min_size=1, max_size=2)})},
                {"index": INDEXES, "finishReason": st.sampled_from([None, "", "STOP", "MAX_TOKENS"])},
            ),
            min_size=1,
            max_size=1,
        )
    },
    {
        "usageMetadata": st.one_of(NOTHING, st.fixed_dictionaries({"promptTokenCount": TOKENS})),
        "modelVersion": st.sampled_from(["v", "w"]),
        "responseId": st.sampled_from(["r", "s"]),
        "promptFeedback": st.sampled_from([{}, {"blockReason": "SAFETY"}]),
        "error": ERRORS,
    },
)

OLLAMA_LINE: Chunks = objects(
    {
        "message": objects(
            {"role": st.just("assistant"), "content": TEXTS},
            {"thinking": TEXTS, "tool_calls": st.just([{"function": {"name": "f", "arguments": {"a": 1}}}])},
        ),
        "done": st.sampled_from([False, False, False, True, None]),
    },
    {
        "model": st.sampled_from(["m", "n"]),
        "prompt_eval_count": TOKENS,
        "done_reason": st.just("stop"),
        "error": ERRORS,
    },
)

ANTHROPIC_BLOCK: Chunks = st.sampled_from(
    [
        {"type": "text", "text": ""},
        {"type": "thinking", "thinking": ""},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
    ]
)
ANTHROPIC_DELTA: Chunks = st.one_of(
    objects({"type": st.just("text_delta"), "text": TEXTS}, {"more": NOTHING}),
    objects({"type": st.just("input_json_delta"), "partial_json": TEXTS}, {"more": NOTHING}),
    objects({"type": st.just("thinking_delta"), "thinking": TEXTS}, {}),
)
PLACES: Chunks = st.sampled_from([0, 0, 0, 1])
ANTHROPIC_EVENT: Chunks = st.one_of(
    st.fixed_dictionaries({"type": st.just("content_block_start"), "index": PLACES, "content_block": ANTHROPIC_BLOCK}),
    objects({"type": st.just("content_block_delta"), "index": PLACES, "delta": ANTHROPIC_DELTA}, {"error": ERRORS}),
    objects({"type": st.just("content_block_delta"), "index": PLACES, "delta": ANTHROPIC_DELTA}, {"error": ERRORS}),
    st.fixed_dictionaries({"type": st.just("content_block_stop"), "index": PLACES}),
)

STREAMS: list[tuple[WireFormat, Chunks]] = [
    (OPENAI_CHAT, CHAT_CHUNK),
    (GEMINI, GEMINI_CHUNK),
    (OLLAMA, OLLAMA_LINE),
    (ANTHROPIC, ANTHROPIC_EVENT),
]


class Plain(dict[str, Any]):
    """An object as JSON has it, but of another class."""


class PlainString(str):
    """A string as JSON has it, but of another class."""

    __slots__ = ()


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return Plain({key: plain(each) for key, each in cast("dict[str, Any]", value).items()})
    if isinstance(value, list):
        return [plain(each) for each in cast("list[Any]", value)]
    return PlainString(value) if isinstance(value, str) else value


def read(wire: WireFormat, stream: list[Any]) -> list[Any]:
    """The deltas of each chunk, up to the error that ends the stream."""
    decoder, steps = wire.decoder(), list[Any]()
    try:
        for chunk in stream:
            steps.append(decoder.feed(chunk))
        steps.append(decoder.close())
    except ProviderError as error:
        steps.append(str(error))
    return steps


@pytest.mark.parametrize(("wire", "chunks"), STREAMS, ids=[wire.name for wire, _ in STREAMS])
@given(data=st.data())
@settings(max_examples=200)
def test_an_ordinary_chunk_is_read_as_any_other(wire: WireFormat, chunks: Chunks, data: st.DataObject):
    stream = data.draw(st.lists(chunks, max_size=8))
    assert read(wire, stream) == read(wire, plain(stream))


class PlainText(TextDelta):
    """A text delta of another class."""


class PlainArguments(ArgumentsDelta):
    """A fragment of arguments of another class."""


def plain_delta(delta: Delta) -> Delta:
    if type(delta) is TextDelta:
        return PlainText(delta.text)
    return PlainArguments(delta.index, delta.text) if type(delta) is ArgumentsDelta else delta


@given(stream=turns(interleaved=True))
@settings(max_examples=200)
def test_a_delta_that_continues_a_block_is_written_as_any_other(stream: list[Delta]):
    request = WireRequest(ModelRequest([]), "m", True)
    one, other = (ANTHROPIC.encoder(request, response_id="r1", created_at=1) for _ in range(2))
    assert [one.feed(delta) for delta in stream] == [other.feed(plain_delta(delta)) for delta in stream]
