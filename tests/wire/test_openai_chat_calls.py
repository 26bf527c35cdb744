"""Native calls and reasoning in the answers of OpenAI-compatible servers, each with its own habits."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
from toolspeak.testing.splits import join_deltas
from toolspeak.wire.base import WireFormat
from toolspeak.wire.openai_chat import OPENAI_CHAT, openai_chat


def chunk(delta: Any, finish: Any = None, **fields: Any) -> dict[str, Any]:
    return {"id": "x", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}


def fragment(arguments: Any = None, *, index: Any = None, id: Any = None, name: Any = None) -> dict[str, Any]:  # noqa: A002
    """One entry of `tool_calls`; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    entry = {"index": index, "id": id, "function": {k: v for k, v in function.items() if v is not None}}
    return {k: v for k, v in entry.items() if v is not None}


def calls(*fragments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return chunk({"tool_calls": list(fragments), **more})


END = chunk({}, "tool_calls")


def decode(*chunks: Any, chat: WireFormat = OPENAI_CHAT) -> list[Delta]:
    decoder = chat.decoder(model="m")
    return [delta for piece in chunks for delta in decoder.feed(piece)] + decoder.close()


def calls_of(deltas: list[Delta]) -> list[tuple[str, Any, str | None]]:
    return [(d.name, d.arguments, d.id) for d in deltas if isinstance(d, CallCompleted)]


def test_a_streamed_call():
    assert decode(
        chunk({"role": "assistant", "content": None}),
        chunk({"content": "Let me look."}),
        calls({**fragment("", index=0, id="call_1", name="read"), "type": "function"}),
        calls(fragment('{"path"', index=0)),
        calls(fragment(': "a"}', index=0)),
        END,
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}},
    ) == [
        TextDelta("Let me look."),
        CallStarted(0, "read", "call_1"),
        ArgumentsDelta(0, '{"path"'),
        ArgumentsDelta(0, ': "a"}'),
        CallCompleted(0, "read", {"path": "a"}, "call_1"),
        BatchEnded((0,), True),
        TurnEnded("tool_calls", Usage(5, 9), "m-1"),
    ]


TWO = [("read", {"path": "a"}, "c0"), ("write", {"n": 1}, "c1")]
ANONYMOUS = [("read", {"path": "a"}, None), ("write", {"n": 1}, None)]
TWICE = [("read", {"path": "a"}, None), ("read", {"path": "b"}, None)]

HABITS: dict[str, tuple[list[Any], list[Any]]] = {
    "by index": (
        [
            calls(fragment("", index=0, id="c0", name="read")),
            calls(fragment('{"path": "a"}', index=0)),
            calls(fragment("", index=1, id="c1", name="write")),
            calls(fragment('{"n": 1}', index=1)),
        ],
        TWO,
    ),
    "in turns": (
        [
            calls(fragment("", index=0, id="c0", name="read"), fragment("", index=1, id="c1", name="write")),
            calls(fragment('{"path"', index=0), fragment('{"n"', index=1)),
            calls(fragment(": 1}", index=1), fragment(': "a"}', index=0)),
        ],
        TWO,
    ),
    "by id alone": (
        [
            calls(fragment("", id="c0", name="read")),
            calls(fragment('{"path": "a"}', id="c0")),
            calls(fragment("", id="c1", name="write")),
            calls(fragment('{"n": 1}', id="c1")),
        ],
        TWO,
    ),
    "an index first, then the id alone": (
        [
            calls(fragment("", index=0, id="c0", name="read"), fragment("", index=1, id="c1", name="write")),
            calls(fragment('{"path": "a"}', id="c0")),
            calls(fragment('{"n": 1}', id="c1")),
        ],
        TWO,
    ),
    "neither id nor index": (
        [
            calls(fragment("", name="read")),
            calls(fragment('{"path": ')),
            calls(fragment('"a"}')),
            calls(fragment('{"n": 1}', name="write")),
        ],
        ANONYMOUS,
    ),
    "neither, and the same tool twice": (
        [calls(fragment('{"path": "a"}', name="read")), calls(fragment('{"path": "b"}', name="read"))],
        TWICE,
    ),
    "neither, and the name in every chunk": (
        [
            calls(fragment('{"path": ', name="read")),
            calls(fragment('"a"}', name="read")),
            calls(fragment('{"n"', name="write")),
            calls(fragment(": 1}", name="write")),
        ],
        ANONYMOUS,
    ),
    "id and name in every chunk, beside a null role and a legacy function_call (llama-cpp-python)": (
        [
            calls(
                fragment(text, index=i, id=f"c{i}", name=name),
                role=None,
                content=None,
                function_call={"name": name, "arguments": text},
            )
            for i, name, text in [
                (0, "read", '{"path'),
                (0, "read", '": "a"}'),
                (1, "write", '{"n": '),
                (1, "write", "1}"),
            ]
        ],
        TWO,
    ),
    "a new id in every chunk (older vLLM)": (
        [
            calls(fragment("", index=0, id="c0", name="read")),
            calls(fragment('{"path": "a"}', index=0, id="zz")),
            calls(fragment("", index=1, id="c1", name="write")),
            calls(fragment('{"n": 1}', index=1, id="yy")),
        ],
        TWO,
    ),
    "whole calls, index 0 for all (Gemini)": (
        [
            calls(fragment('{"path": "a"}', index=0, id="c0", name="read")),
            calls(fragment('{"n": 1}', index=0, id="c1", name="write")),
        ],
        TWO,
    ),
    "whole calls, index 0 for all, empty ids": (
        [calls(fragment(json.dumps({"path": path}), index=0, id="", name="read")) for path in "ab"],
        TWICE,
    ),
    "all in one chunk": (
        [calls(fragment('{"path": "a"}', id="c0", name="read"), fragment('{"n": 1}', id="c1", name="write"))],
        TWO,
    ),
    "arguments as an object": (
        [
            calls(
                fragment({"path": "a"}, index=0, id="c0", name="read"),
                fragment({"n": 1}, index=1, id="c1", name="write"),
            )
        ],
        TWO,
    ),
    "the name behind the id": (
        [
            calls(fragment(index=0, id="c0")),
            calls(fragment('{"path"', index=0)),
            calls(fragment(': "a"}', index=0, name="read")),
            calls(fragment('{"n": 1}', index=1, id="c1", name="write")),
        ],
        TWO,
    ),
    "a number as id": ([calls(fragment("{}", index=0, id=7, name="read"))], [("read", {}, "7")]),
    "no arguments at all": ([calls(fragment(index=0, id="c0", name="read"))], [("read", {}, "c0")]),
    "arguments of null": ([calls(fragment("null", index=0, id="c0", name="read"))], [("read", {}, "c0")]),
    "the legacy function_call": (
        [
            chunk({"function_call": {"name": "read", "arguments": ""}}),
            chunk({"function_call": {"arguments": '{"path": '}}),
            chunk({"function_call": {"arguments": '"a"}'}}),
        ],
        ANONYMOUS[:1],
    ),
}


@pytest.mark.parametrize(("chunks", "expected"), HABITS.values(), ids=HABITS)
def test_how_servers_stream_calls(chunks: list[Any], expected: list[Any]):
    deltas = decode(*chunks, END)
    assert calls_of(deltas) == expected
    assert deltas[-2] == BatchEnded(tuple(range(len(expected))), True)
    starts = [d for d in deltas if isinstance(d, CallStarted)]
    assert [(d.index, d.name, d.id) for d in starts] == [(i, name, id_) for i, (name, _, id_) in enumerate(expected)]
    for i, (_, arguments, _) in enumerate(expected):
        text = "".join(d.text for d in deltas if isinstance(d, ArgumentsDelta) and d.index == i)
        assert text == "null" or json.loads(text) == arguments


WHOLE = [
    ([fragment('{"path": "a"}', id="c0", name="read"), fragment('{"n": 1}', id="c1", name="write")], TWO),
    ([fragment({"path": "a"}, name="read"), fragment({"n": 1}, name="write")], ANONYMOUS),
    ([fragment('{"path": "a"}', name="read"), fragment('{"path": "b"}', name="read")], TWICE),
    ([fragment("{}", id="c", name="read")] * 2, [("read", {}, "c")] * 2),
    (
        [fragment("", index=0, id=each, name="read") for each in "cd"],
        [("read", {}, "c"), ("read", {}, "d")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("tool_calls", "expected"), WHOLE)
def test_calls_of_a_whole_answer(tool_calls: list[Any], expected: list[Any]):
    message = {"role": "assistant", "content": None, "tool_calls": tool_calls}
    deltas = OPENAI_CHAT.decode_response({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert calls_of(deltas) == expected
    assert deltas[-2:] == [BatchEnded(tuple(range(len(expected))), True), TurnEnded("tool_calls")]


def test_a_whole_answer_with_the_legacy_function_call():
    message = {"content": None, "function_call": {"name": "read", "arguments": '{"path": "a"}'}}
    deltas = OPENAI_CHAT.decode_response({"choices": [{"message": message, "finish_reason": "function_call"}]})
    assert calls_of(deltas) == ANONYMOUS[:1]


def kinds(deltas: list[Delta]) -> list[tuple[str, int]]:
    return [(type(d).__name__, d.index) for d in deltas if isinstance(d, CallStarted | CallCompleted | CallMalformed)]


EARLY = [("CallStarted", 0), ("CallCompleted", 0), ("CallStarted", 1), ("CallCompleted", 1)]


@pytest.mark.parametrize("habit", [name for name, (_, expected) in HABITS.items() if len(expected) == 2])
def test_a_call_is_complete_when_the_next_one_begins(habit: str):
    chunks, _ = HABITS[habit]
    is_interleaved = habit in ("in turns", "an index first, then the id alone")
    at_once = [("CallStarted", 0), ("CallStarted", 1), ("CallCompleted", 0), ("CallCompleted", 1)]
    assert kinds(decode(*chunks, END)) == (at_once if is_interleaved else EARLY)


def test_the_last_call_is_complete_with_the_finish_reason():
    decoder = OPENAI_CHAT.decoder()
    decoder.feed(calls(fragment('{"path": "a"}', index=0, id="c0", name="read")))
    assert kinds(decoder.feed(END)) == [("CallCompleted", 0)]
    assert [type(d).__name__ for d in decoder.close()] == ["BatchEnded", "TurnEnded"]


@pytest.mark.parametrize("finish", ["length", "content_filter", "unheard_of"])
def test_a_call_before_another_call_is_not_cut_off(finish: str):
    deltas = decode(
        calls(fragment('{"path": "a"}', index=0, id="c0", name="read")),
        calls(fragment('{"n": ', index=1, id="c1", name="write")),
        chunk({}, finish),
    )
    assert kinds(deltas) == [*EARLY[:3], ("CallMalformed", 1)]
    assert deltas[-2] == BatchEnded((0,), False)


@pytest.mark.parametrize("behind", ["", " ", "\n", "\r\n\t "])
@pytest.mark.parametrize("more", [{}, {"id": "c0", "name": "read"}, {"name": "read"}], ids=str)
def test_white_space_after_a_complete_call_is_ignored(behind: str, more: dict[str, Any]):
    deltas = decode(
        calls(fragment('{"path": "a"}', index=0, id="c0", name="read")),
        calls(fragment('{"n": 1}', index=1, id="c1", name="write")),
        calls(fragment(behind, index=0, **more)),
        END,
    )
    assert (calls_of(deltas), deltas[-2]) == (TWO, BatchEnded((0, 1), True))


def test_text_after_a_complete_call_is_reported_and_revokes_nothing():
    deltas = decode(
        calls(fragment('{"path": "a"}', index=0, id="c0", name="read")),
        calls(fragment('{"n": 1}', index=1, id="c1", name="write")),
        calls(fragment("}", index=0)),
        calls(fragment(" oops", index=0, id="c0", name="read")),
        END,
    )
    assert calls_of(deltas) == TWO
    (extra,) = (d for d in deltas if isinstance(d, CallMalformed))
    assert (extra.index, extra.raw, extra.code) == (2, "} oops", "extra_text")
    assert deltas[-2] == BatchEnded((0, 1), False)


def test_text_after_the_arguments_of_the_open_call_makes_them_malformed():
    deltas = decode(calls(fragment('{"path": "a"}', index=0, id="c0", name="read")), calls(fragment("}", index=0)), END)
    assert kinds(deltas) == [("CallStarted", 0), ("CallMalformed", 0)]


def test_a_repeated_index_is_another_call():
    deltas = decode(
        *(calls(fragment(json.dumps({"path": path}), index=at, id=f"c{path}", name="read")) for at, path in
          [(0, "a"), (1, "b"), (0, "c"), (1, "d")]),
        *(calls(fragment(json.dumps({"path": path}), index=at, name="read")) for at, path in [(0, "e"), (0, "f")]),
        END,
    )  # fmt: skip
    assert [arguments["path"] for _, arguments, _ in calls_of(deltas)] == ["a", "b", "c", "d", "e", "f"]


# --- calls that are none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['{"path": "a', '{"path": a}', "[1]", '"x"', '{"a": NaN}', "{" * 5])
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_arguments_that_are_not_an_object_make_no_call(text: str, finish: FinishReason):
    """vLLM streams broken JSON as a call with finish `tool_calls`."""
    deltas = decode(calls(fragment(text, index=0, id="c", name="read")), chunk({}, finish))
    (malformed_call,) = (d for d in deltas if isinstance(d, CallMalformed))
    assert (malformed_call.raw, malformed_call.code, malformed_call.name) == (text, "invalid_arguments", "read")
    assert deltas[-2:] == [BatchEnded((), False), TurnEnded(finish, model="m-1")]


def test_a_call_cut_off_by_the_token_limit_does_not_run():
    """llama-server leaves half an object, or nothing if the limit came right after the name."""
    deltas = decode(
        calls(fragment('{"path": "a"}', index=0, id="c0", name="read")),
        calls(fragment("", index=1, id="c1", name="ping")),
        chunk({}, "length"),
    )
    assert calls_of(deltas) == TWO[:1]
    (malformed_call,) = (d for d in deltas if isinstance(d, CallMalformed))
    assert malformed_call.index == 1
    assert "the turn ended in the middle of its arguments" in malformed_call.reason
    assert deltas[-2:] == [BatchEnded((0,), False), TurnEnded("length", model="m-1")]


def test_a_call_without_a_name_is_malformed():
    deltas = decode(calls(fragment('{"path": "a"}', index=0, id="c0")), END)
    (malformed_call,) = (d for d in deltas if isinstance(d, CallMalformed))
    assert (malformed_call.raw, malformed_call.code) == ('{"path": "a"}', "no_name")


@pytest.mark.parametrize("content", [None, ""])
def test_the_finish_reason_of_calls_without_a_call(content: str | None):
    """mlx-lm drops a call that it cannot read. vLLM may lose a call with `required` and a reasoning parser."""
    message = {"role": "assistant", "content": content, "tool_calls": []}
    answer = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    assert OPENAI_CHAT.decode_response(answer) == [TurnEnded("tool_calls")]


def test_a_named_call_may_end_with_stop():
    """vLLM does so for a named tool."""
    deltas = decode(calls(fragment("{}", index=0, id="c0", name="read")), chunk({}, "stop"))
    assert deltas[-2:] == [BatchEnded((0,), True), TurnEnded("stop", model="m-1")]


ILL_FORMED: list[tuple[Any, str]] = [
    (chunk({"tool_calls": {}}), "'tool_calls' should be a list, found an object"),
    (chunk({"tool_calls": ["x"]}), "a call should be an object, found 'x'"),
    (calls({"index": 0, "function": "x"}), "'function' of a call should be an object, found 'x'"),
    (calls(fragment("{}", index="0", name="f")), "'index' of a call should be a number, found '0'"),
    (calls(fragment([], index=0, name="f")), "'arguments' of a call should be a string, found a list"),
    (calls(fragment("{}", index=0, name=5)), "'name' of a call should be a string, found a number"),
    (chunk({"function_call": "x"}), "'function' of a call should be an object, found 'x'"),
    (chunk({"reasoning_details": [5]}), "a part of 'reasoning_details' should be an object, found a number"),
    ({"object": "error", "message": "boom", "code": 400}, "the server reported an error: boom"),
]


@pytest.mark.parametrize(("piece", "problem"), ILL_FORMED, ids=[problem for _, problem in ILL_FORMED])
def test_an_ill_formed_call_is_a_provider_error(piece: Any, problem: str):
    with pytest.raises(ProviderError) as raised_error:
        decode(piece)
    assert problem in str(raised_error.value)


def test_only_calls_of_the_first_answer_are_read():
    second = {"index": 1, "delta": {"tool_calls": [fragment("{}", index=0, name="read")]}}
    assert decode({"choices": [second]}, chunk({}, "stop")) == [TurnEnded("stop", model="m-1")]


# --- reasoning ---------------------------------------------------------------------------------------------------


def signature_of(data: Any) -> PartEnded:
    return PartEnded("reasoning", Opaque("openai-chat", "m", data))


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_that_the_api_requires_back(field: str):
    chat = openai_chat(keep_reasoning=True)
    chunks = [chunk({field: "h", "content": None}), chunk({field: "m"}), chunk({"content": "so"}), chunk({}, "stop")]
    assert join_deltas(decode(*chunks, chat=chat)) == [
        ReasoningDelta("hm"),
        signature_of({"field": field}),
        TextDelta("so"),
        TurnEnded("stop", model="m-1"),
    ]


def test_reasoning_ends_before_a_call_and_at_the_end_of_a_turn():
    chat = openai_chat(keep_reasoning=True)
    call = calls(fragment("{}", index=0, id="c0", name="read"))
    deltas = decode(
        chunk({"reasoning_content": "hm"}), call, chunk({"reasoning_content": "so"}, "tool_calls"), chat=chat
    )
    assert [type(d).__name__ for d in deltas] == [
        "ReasoningDelta", "PartEnded", "CallStarted", "ArgumentsDelta", "ReasoningDelta", "PartEnded", "CallCompleted",
        "BatchEnded", "TurnEnded",
    ]  # fmt: skip


def test_the_details_of_openrouters_reasoning_come_back_whole():
    def detail(**fields: Any) -> dict[str, Any]:
        return {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", **fields}

    encrypted_detail = {"type": "reasoning.encrypted", "index": 1, "data": "xyz", "id": "r1"}
    deltas = decode(
        chunk({"reasoning": "h", "reasoning_details": [detail(text="h")]}),
        chunk({"reasoning": "m", "reasoning_details": [detail(text="m")]}),
        chunk({"reasoning_details": [detail(signature="sig"), encrypted_detail]}),
        chunk({"content": "so"}, "stop"),
    )
    assert join_deltas(deltas)[:-1] == [
        ReasoningDelta("hm"),
        signature_of({"reasoning_details": [detail(text="hm", signature="sig"), encrypted_detail]}),
        TextDelta("so"),
    ]


def test_details_without_text_are_reported_too():
    details = [{"type": "reasoning.summary", "summary": "sum"}, {"type": "reasoning.encrypted", "data": "x"}]
    assert decode(chunk({"reasoning_details": details}, "stop"))[:-1] == [
        ReasoningDelta("sum"),
        signature_of({"reasoning_details": details}),
    ]


def test_mistrals_thoughts_are_parts_of_the_content():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thinking, {"type": "text", "text": "so"}]
    assert decode(chunk({"content": parts}, "stop"))[:-1] == [ReasoningDelta("hm"), TextDelta("so")]


def test_mistrals_references_are_not_text():
    references = [{"type": "reference", "reference_ids": [1]}, {"type": "tool_reference", "tool": "web_search"}]
    parts = [{"type": "text", "text": "so"}, *references, {"type": "thinking", "thinking": references}]
    assert decode(chunk({"content": parts}, "stop"))[:-1] == [TextDelta("so")]


def test_a_calls_thought_signature_goes_with_it():
    """Gemini's compatible endpoint sends one."""
    content = {"google": {"thought_signature": "sig"}}
    deltas = decode(calls({**fragment("{}", index=0, id="c0", name="read"), "extra_content": content}), END)
    assert [d.opaque for d in deltas if isinstance(d, CallCompleted)] == [
        Opaque("openai-chat", "m", {"extra_content": content})
    ]


# --- usage -------------------------------------------------------------------------------------------------------

COUNTS = {"prompt_tokens": 10, "completion_tokens": 5}


@pytest.mark.parametrize(
    ("last", "usage"),
    [
        (chunk({}, "stop", x_groq={"id": "r", "usage": COUNTS}), Usage(10, 5)),  # Groq
        (
            {"choices": [{"delta": {}, "finish_reason": "stop", "usage": {**COUNTS, "cached_tokens": 3}}]},
            Usage(10, 5, 3),
        ),
        (chunk({}, "stop", usage={**COUNTS, "prompt_cache_hit_tokens": 4}), Usage(10, 5, 4)),  # DeepSeek
        (
            chunk({}, "stop", usage={**COUNTS, "cached_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}),
            Usage(10, 5, 2),
        ),
    ],
)
def test_where_servers_put_the_usage(last: Any, usage: Usage):
    assert decode(chunk({"content": "x"}), last)[-1] == TurnEnded("stop", usage, "m-1")
