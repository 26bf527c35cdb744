from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_calls import joined_deltas
from wire_strategies import requests, turns

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    Delta,
    ForgedResults,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import (
    FilePart,
    FinishReason,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    Opaque,
    ReasoningPart,
    TextMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ConfigurationError, FormatError, ProviderError
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.ollama import OLLAMA

READ = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LIST = ToolSpec("list", "", {"type": "object", "properties": {}})
MESSAGES = [Message.user("Hi")]
CREATED_AT = 1_790_000_000


def body_of(request: ModelRequest, *, stream: bool = True) -> dict[str, Any]:
    return OLLAMA.encode_request(request, model="m", stream=stream)


def messages_of(*messages: Message | TextMessage) -> list[Any]:
    return body_of(ModelRequest(messages))["messages"]


def read(*messages: Any, **fields: Any) -> ModelRequest:
    return OLLAMA.decode_request({"model": "m", "messages": [*messages], **fields}).request


def line(content: str = "", **fields: Any) -> dict[str, Any]:
    return {"model": "m-1", "message": {"role": "assistant", "content": content, **fields}, "done": False}


def last(reason: str | None = "stop", **fields: Any) -> dict[str, Any]:
    ending = {} if reason is None else {"done_reason": reason}
    return {"model": "m-1", "message": {"role": "assistant", "content": ""}, "done": True, **ending, **fields}


def decode_lines(*lines: Any) -> list[Delta]:
    decoder = OLLAMA.decoder()
    deltas = [delta for each in lines for delta in decoder.feed(each)]
    assert decoder.finished
    return deltas + decoder.close()


def lines_of(deltas: list[Delta]) -> list[dict[str, Any]]:
    request = WireRequest(ModelRequest(MESSAGES), "m-1")
    encoder = OLLAMA.encoder(request, response_id="r1", created_at=CREATED_AT)
    return [frame for delta in deltas for _, frame in encoder.feed(delta)]


# --- requests ----------------------------------------------------------------------------------------------------


def tellable(message: Message | TextMessage) -> Message:
    """The message as the API can express it: one text, then the bytes of the images without their types."""
    assert isinstance(message, Message)
    if message.role == "tool":
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        return Message("tool", tuple(replace(result, content=join_texts(result.content)) for result in results))
    return Message(message.role, join_texts(message.parts)) if message.role != "assistant" else message


def join_texts(parts: Any) -> Any:
    texts = [
        part.text if isinstance(part, TextPart) else f"[image: {part.url}]" for part in parts if not has_data(part)
    ]
    images = tuple(ImagePart("image/*", part.data) for part in parts if has_data(part))
    return (TextPart("\n".join(texts)), *images) if texts else images


def has_data(part: Any) -> bool:
    return isinstance(part, ImagePart) and part.data is not None


@given(requests(parallel=False, failures=False), st.booleans())
@settings(deadline=None)
def test_a_request_survives_encoding_and_decoding(request: ModelRequest, stream: bool):
    if request.choice.mode != "auto":
        request = replace(request, choice=ToolChoice())
    if request.output is not None:  # the API gets only the schema
        request = replace(request, output=OutputSchema("response", request.output.schema))
    request = replace(request, messages=[tellable(message) for message in request.messages])
    body = json.loads(json.dumps(body_of(request, stream=stream)))
    assert OLLAMA.decode_request(body) == WireRequest(request, "m", stream)


def test_a_whole_request():
    picture = ImagePart("image/png", b"\x89P")
    request = ModelRequest(
        [
            Message.system("Be brief."),
            Message("user", (TextPart("What is it?"), picture, ImagePart("image/*", url="https://x/a.png"))),
            TextMessage("tool", "plain"),
        ],
        (READ,),
        output=OutputSchema("answer", {"type": "object"}),
        options={"num_ctx": 8192, "seed": None, "think": "high", "options": {"new": 1}, "keep_alive": None},
    )
    assert body_of(request) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": "What is it?\n[image: https://x/a.png]",
                "images": [base64.b64encode(b"\x89P").decode()],
            },
            {"role": "tool", "content": "plain"},
        ],
        "stream": True,
        "tools": [
            {
                "type": "function",
                "function": {"name": "read", "description": "Reads a file.", "parameters": READ.parameters},
            }
        ],
        "format": {"type": "object"},
        "think": "high",
        "options": {"num_ctx": 8192, "new": 1},
    }


@pytest.mark.parametrize("name", ["model", "messages", "stream", "tools"])
def test_an_option_that_is_a_field_of_the_request(name: str):
    with pytest.raises(ConfigurationError, match=f"the option '{name}' cannot be set"):
        body_of(ModelRequest(MESSAGES, options={name: 1}))


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("none"), ToolChoice("specific", "list")])
def test_a_tool_choice_leaves_the_tools_unchanged(choice: ToolChoice):
    """The API has no tool choice, and unchanged tools need not be read again."""
    assert body_of(ModelRequest(MESSAGES, (READ, LIST), choice)) == body_of(ModelRequest(MESSAGES, (READ, LIST)))


def test_results_follow_their_calls_in_the_order_of_the_calls():
    calls = (ReasoningPart("Hm."), ToolCall("a", "read", {"path": "x"}, "f1"), ToolCall("b", "list", {}))
    results = (
        Message("tool", (ToolResult("b", "list", "failure", (TextPart("no"),), "exception"),)),
        Message("tool", (ToolResult("a", "read", "success", (JsonPart({"n": 1}), FilePart("f", "a/b", b"xy"))),)),
    )
    assert messages_of(Message("assistant", calls), *results, Message.user("go on")) == [
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm.",
            "tool_calls": [
                {"id": "f1", "function": {"index": 0, "name": "read", "arguments": {"path": "x"}}},
                {"id": "b", "function": {"index": 1, "name": "list", "arguments": {}}},
            ],
        },
        {
            "role": "tool",
            "content": '{"n": 1}\n[file f: a/b, 2 bytes]',
            "tool_name": "read",
            "tool_call_id": "f1",
        },
        {"role": "tool", "content": "ERROR: no", "tool_name": "list", "tool_call_id": "b"},
        {"role": "user", "content": "go on"},
    ]


def test_a_malformed_call_and_its_result_go_back_as_text():
    reply = Message("assistant", (TextPart("So:"), MalformedCall("a", '{"pa', "truncated", "why")))
    result = Message("tool", (ToolResult("a", "", "failure", (TextPart("write JSON"),), "malformed"),))
    assert messages_of(reply, result) == [
        {"role": "assistant", "content": 'So:\n{"pa'},
        {"role": "user", "content": "write JSON"},
    ]


def test_thoughts_that_another_api_signed_are_not_the_models_own():
    foreign = ReasoningPart("r", Opaque("anthropic", "m", {"signature": "s"}))
    assert messages_of(Message("assistant", (foreign, TextPart("t")))) == [{"role": "assistant", "content": "t"}]


# --- requests as a server reads them -----------------------------------------------------------------------------


def test_calls_and_results_without_ids_find_each_other():
    call = {"function": {"name": "read", "arguments": {"path": "a"}}}
    other = {"function": {"name": "list", "arguments": None}}
    request = read(
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call, other, call]},
        {"role": "tool", "content": "1", "tool_name": "list"},
        {"role": "tool", "content": "2", "tool_name": "read"},
        {"role": "tool", "content": "3"},
    )
    reply, results = request.messages[1:]
    assert isinstance(reply, Message)
    assert isinstance(results, Message)
    assert [call.id for call in reply.calls] == ["call-1", "call-2", "call-3"]
    assert [(result.call_id, result.text) for result in results.results] == [
        ("call-2", "1"),
        ("call-1", "2"),
        ("call-3", "3"),
    ]


def test_what_a_client_leaves_out_and_adds():
    request = OLLAMA.decode_request(
        {
            "model": "qwen3:8b",
            "messages": [{"role": "user", "content": None, "images": ["/w=="]}],
            "format": "json",
            "think": True,
            "options": {"temperature": 0, "new": 1},
            "keep_alive": -1,
        }
    )
    assert (request.model, request.stream) == ("qwen3:8b", True)
    assert request.request.messages == [Message("user", (ImagePart("image/*", b"\xff"),))]
    options = {"temperature": 0, "format": "json", "think": True, "keep_alive": -1, "options": {"new": 1}}
    assert request.request.options == options
    assert body_of(request.request)["options"] == {"temperature": 0, "new": 1}


MESSAGE = {"role": "user", "content": "a"}
REFUSALS = [
    ([], "the request: expected an object, found a list"),
    ({"messages": [MESSAGE]}, "model: expected a name, found nothing"),
    ({"model": "m"}, "messages: at least one message is needed"),
    ({"model": "m", "messages": [{"role": "developer"}]}, r"messages\[0\].role: expected 'system', 'user'"),
    ({"model": "m", "messages": [{"role": "user", "content": []}]}, r"messages\[0\].content: expected a string"),
    ({"model": "m", "messages": [{"role": "user", "images": ["?"]}]}, r"messages\[0\].images\[0\]: expected base64"),
    (
        {
            "model": "m",
            "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "{}"}}]}],
        },
        r"tool_calls\[0\].function.arguments: expected an object",
    ),
    ({"model": "m", "messages": [{"role": "tool", "tool_name": "a", "content": "x"}]}, "no call of 'a' waits"),
    ({"model": "m", "messages": [MESSAGE], "stream": "no"}, "stream: expected true or false"),
    ({"model": "m", "messages": [MESSAGE], "format": "xml"}, "format: expected 'json' or a JSON Schema"),
    ({"model": "m", "messages": [MESSAGE], "tools": [{}]}, r"tools\[0\].function: expected an object"),
]


@pytest.mark.parametrize(("body", "problem"), REFUSALS)
def test_a_request_that_cannot_be_read(body: Any, problem: str):
    with pytest.raises(FormatError, match=problem):
        OLLAMA.decode_request(body)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["model", "messages", "role", "content", "thinking", "tool_calls", "function", "name", "arguments", "id",
             "tools", "parameters", "images", "options", "format", "message", "done", "done_reason", "error",
             "tool_name", "prompt_eval_count"]
        ),
        inner,
        max_size=3,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JUNK)
@settings(deadline=None)
def test_no_input_raises_any_other_error(junk: Any):
    with contextlib.suppress(FormatError):
        OLLAMA.decode_request({"model": "m", "messages": [MESSAGE], **junk} if isinstance(junk, dict) else junk)
    for read_it in (OLLAMA.decode_response, OLLAMA.decoder().feed):
        with contextlib.suppress(ProviderError):
            read_it(junk)


# --- answers -----------------------------------------------------------------------------------------------------

USAGES = st.just(Usage()) | st.builds(Usage, st.integers(0, 99), st.integers(0, 99))


def as_told(turn: list[Delta]) -> list[Delta]:
    """The API has no finish reason for a filter. A reader takes our own reason for `error`."""
    end = turn[-1]
    assert isinstance(end, TurnEnded)
    return [*turn[:-1], replace(end, finish="error")] if end.finish == "content_filter" else turn


@given(turns(usage=USAGES))
@settings(deadline=None)
def test_a_turn_survives_a_stream(turn: list[Delta]):
    lines = json.loads(json.dumps(lines_of(turn)))
    assert joined_deltas(decode_lines(*lines)) == joined_deltas(as_told(turn))


@given(turns(usage=USAGES))
@settings(deadline=None)
def test_a_turn_survives_a_whole_answer(turn: list[Delta]):
    body = json.loads(json.dumps(OLLAMA.encode_response(turn, model="m-1", response_id="r1", created_at=CREATED_AT)))
    assert joined_deltas(OLLAMA.decode_response(body)) == joined_deltas(as_told(turn))


def test_thoughts_text_and_calls_in_several_lines():
    call = {"function": {"name": "read", "arguments": {"path": "ü"}}}
    deltas = decode_lines(
        line(thinking="Hm."),
        line("I read. ", thinking="So."),
        line(tool_calls=[{**call, "id": "i1"}, call]),
        line(tool_calls=[{"function": {"name": "list"}}]),
        last(prompt_eval_count=5, eval_count=2, total_duration=1),
    )
    assert deltas == [
        ReasoningDelta("Hm."),
        ReasoningDelta("So."),
        TextDelta("I read. "),
        CallStarted(0, "read", "i1"),
        ArgumentsDelta(0, '{"path": "ü"}'),
        CallCompleted(0, "read", {"path": "ü"}, "i1"),
        CallStarted(1, "read"),
        ArgumentsDelta(1, '{"path": "ü"}'),
        CallCompleted(1, "read", {"path": "ü"}),
        CallStarted(2, "list"),
        ArgumentsDelta(2, "{}"),
        CallCompleted(2, "list", {}),
        BatchEnded((0, 1, 2), True),
        TurnEnded("tool_calls", Usage(5, 2), "m-1"),
    ]


def test_arguments_as_text_are_read_and_invalid_ones_are_malformed():
    good, bad = ({"function": {"name": "read", "arguments": text}} for text in ('{"a":1}', "{oops"))
    deltas = decode_lines(line(tool_calls=[good, bad]), last())
    assert CallCompleted(0, "read", {"a": 1}) in deltas
    assert [(delta.index, delta.raw) for delta in deltas if isinstance(delta, CallMalformed)] == [(1, "{oops")]
    assert BatchEnded((0,), False) in deltas


FINISHES: list[tuple[str | None, FinishReason]] = [
    ("stop", "stop"),
    ("length", "length"),
    (None, "stop"),
    ("load", "error"),
    ("unload", "error"),
    ("next_years_reason", "error"),
]


@pytest.mark.parametrize(("reason", "finish"), FINISHES)
def test_finish_reasons(reason: str | None, finish: FinishReason):
    assert decode_lines(line("a"), last(reason))[-1] == TurnEnded(finish, Usage(), "m-1")


def test_an_empty_line_and_unknown_fields_yield_nothing():
    assert decode_lines({}, {"news": 1}, {"message": None, "done": False}, line(news=1), last()) == [
        TurnEnded("stop", Usage(), "m-1")
    ]


def test_a_stream_without_its_last_line_is_not_finished():
    decoder = OLLAMA.decoder()
    assert decoder.feed(line("a")) == [TextDelta("a")]
    assert not decoder.finished


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "no message: is this Ollama's /api/chat"),
        ([], "the response should be an object, found a list"),
        ({"message": []}, None),
        ({"message": [1]}, "'message' should be an object"),
        (line(tool_calls={}), "'tool_calls' should be a list"),
        (line(tool_calls=[{"function": {"name": "a", "arguments": []}}]), "'arguments' of a call should be an object"),
        (line(thinking=1), "'thinking' should be a string, found a number"),
        ({"error": "an error was encountered while running the model"}, "the server reported an error: an error was"),
    ],
)
def test_an_answer_that_cannot_be_read(body: Any, problem: str | None):
    if problem is None:
        assert OLLAMA.decode_response(body) == [TurnEnded("stop")]
        return
    with pytest.raises(ProviderError, match=problem):
        OLLAMA.decode_response(body)


# --- answers as a server sends them ------------------------------------------------------------------------------


def test_a_turn_that_a_dialect_read_is_sent_once_and_whole():
    turn = [
        TextDelta("I read."),
        CallStarted(0, "read"),
        ArgumentsDelta(0, '{"path":'),
        CallMalformed(0, '{"path":', "truncated", "cut", 7, "read"),
        CallStarted(1, "list"),
        ArgumentsDelta(1, "{}"),
        CallCompleted(1, "list", {}),
        CallCompleted(2, "list", {}, "x"),
        CallCompleted(3, "list", {}, "x"),
        CallIgnored(4, "past the limit"),
        ForgedResults("<results>"),
        BatchEnded((1, 2, 3), False),
        TurnEnded("closed_by_us", Usage(10, 6)),
    ]
    lines = lines_of(turn)
    calls = [
        {"id": "r1-1", "function": {"index": 0, "name": "list", "arguments": {}}},
        {"id": "x", "function": {"index": 1, "name": "list", "arguments": {}}},
        {"id": "r1-3", "function": {"index": 2, "name": "list", "arguments": {}}},
    ]
    assert [each["message"]["content"] for each in lines] == ["I read.", '{"path":', "", "", "", ""]
    assert [call for each in lines for call in each["message"].get("tool_calls", [])] == calls
    assert lines[-1] == {
        "model": "m-1",
        "created_at": "2026-09-21T14:13:20Z",
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 10,
        "eval_count": 6,
    }
    whole: Any = OLLAMA.encode_response(turn, model="m-1", response_id="r1", created_at=CREATED_AT)
    assert whole["message"] == {"role": "assistant", "content": 'I read.{"path":', "tool_calls": calls}


@pytest.mark.parametrize("finish", ["cancelled", "error", "content_filter"])
def test_no_client_takes_a_broken_turn_for_a_whole_one(finish: FinishReason):
    lines = lines_of([TextDelta("a"), TurnEnded(finish)])
    assert lines[-1]["done_reason"] == finish
    assert decode_lines(*lines)[-1] == TurnEnded("error", Usage(), "m-1")


def test_an_error_has_the_form_of_the_api():
    assert OLLAMA.encode_error("why", 500) == {"error": "why"}
    encoder = OLLAMA.encoder(WireRequest(ModelRequest(MESSAGES), "m"), response_id="r", created_at=0)
    [(_, frame)] = encoder.fail("why")
    with pytest.raises(ProviderError, match="the server reported an error: why"):
        OLLAMA.decoder().feed(frame)
