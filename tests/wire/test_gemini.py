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
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import (
    FilePart,
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
from toolspeak.wire.gemini import GEMINI
from toolspeak.wire.gemini.request_reader import decode_request_at
from toolspeak.wire.gemini.request_writer import NO_SIGNATURE

OLD, NEW = "gemini-2.5-flash", "gemini-3-pro"
SIGNATURE = {"thoughtSignature": "c2lnbmF0dXJl"}
READ = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LIST = ToolSpec("list", "", {"type": "object", "properties": {}})
MESSAGES = [Message.user("Hi")]


def body_of(request: ModelRequest | list[Message], model: str = OLD) -> dict[str, Any]:
    request = request if isinstance(request, ModelRequest) else ModelRequest(request)
    return GEMINI.encode_request(request, model=model, stream=True)


def contents(*messages: Message | TextMessage, model: str = OLD) -> list[Any]:
    return GEMINI.encode_request(ModelRequest(messages), model=model, stream=False)["contents"]


def read(*items: Any, **fields: Any) -> ModelRequest:
    return GEMINI.decode_request({"model": "m", "contents": [*items], **fields}).request


def asked_back(request: ModelRequest, model: str) -> ModelRequest:
    body = json.loads(json.dumps(body_of(request, model)))
    wire_request = decode_request_at(f"/v1beta/models/{model}:streamGenerateContent", body)
    assert (wire_request.model, wire_request.stream) == (model, True)
    return wire_request.request


def chunk(*parts: Any, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [*parts]}, "index": 0}
    return {"candidates": [{**candidate, "finishReason": finish} if finish else candidate], **fields}


def decode_chunks(*chunks: Any, model: str | None = NEW) -> list[Delta]:
    decoder = GEMINI.decoder(model=model)
    deltas = [delta for each in chunks for delta in decoder.feed(each)]
    assert decoder.finished
    return deltas + decoder.close()


def frames_of(deltas: list[Delta]) -> list[dict[str, Any]]:
    request = WireRequest(ModelRequest(MESSAGES), "m-1")
    encoder = GEMINI.encoder(request, response_id="r1", created_at=0)
    return [frame for delta in deltas for _, frame in encoder.feed(delta)]


# --- requests ----------------------------------------------------------------------------------------------------


@given(requests(parallel=False, opaque=Opaque("gemini", OLD, SIGNATURE), result_images=False))
@settings(deadline=None)
def test_a_request_survives_encoding_and_decoding(request: ModelRequest):
    if request.output is not None:  # the API gets only the schema
        request = replace(request, output=OutputSchema("response", request.output.schema))
    assert asked_back(request, OLD) == request


@given(requests(parallel=False, opaque=Opaque("gemini", NEW, SIGNATURE)))
@settings(deadline=None)
def test_a_request_to_a_model_that_requires_signatures_is_the_same_after_a_relay(request: ModelRequest):
    body = body_of(request, NEW)
    assert body_of(asked_back(request, NEW), NEW) == body


def test_a_whole_request():
    messages = [Message.system("Be brief."), Message.user("Read a."), TextMessage("tool", "plain")]
    request = ModelRequest(
        messages,
        (READ, LIST),
        ToolChoice("required"),
        output=OutputSchema("answer", {"type": "object"}),
        options={"temperature": 0, "topK": None, "safetySettings": [], "generationConfig": {"new": 1}},
    )
    assert GEMINI.encode_request(request, model=OLD, stream=True) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Read a."}]},
            {"role": "user", "parts": [{"text": "plain"}]},
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "read", "description": "Reads a file.", "parametersJsonSchema": READ.parameters},
                    {"name": "list", "parametersJsonSchema": LIST.parameters},
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
            "temperature": 0,
            "new": 1,
        },
        "safetySettings": [],
    }


@pytest.mark.parametrize("name", ["contents", "systemInstruction", "tools", "toolConfig", "model"])
def test_an_option_that_is_a_field_of_the_request(name: str):
    with pytest.raises(ConfigurationError, match=f"the option '{name}' cannot be set"):
        body_of(ModelRequest(MESSAGES, options={name: 1}))


def test_results_are_in_one_content_in_the_order_of_their_calls():
    calls = (ToolCall("a", "read", {"path": "x"}, "f1"), ToolCall("b", "list", {}, None))
    results = (
        Message("tool", (ToolResult("b", "list", "failure", (TextPart("no"),), "exception"),)),
        Message("tool", (ToolResult("a", "read", "success", (TextPart("text"),)),)),
    )
    assert contents(Message("assistant", calls), *results, Message.user("go on")) == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"id": "f1", "name": "read", "args": {"path": "x"}}},
                {"functionCall": {"id": "b", "name": "list", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "f1", "name": "read", "response": {"result": "text"}}},
                {"functionResponse": {"id": "b", "name": "list", "response": {"error": "no"}}},
            ],
        },
        {"role": "user", "parts": [{"text": "go on"}]},
    ]


# The text of a result and the object of a function's response, in both directions.
RESPONSES = [
    (TextPart("text"), {"result": "text"}),
    (TextPart(""), {"result": ""}),
    (JsonPart({"a": 1}), {"a": 1}),
    (JsonPart({}), {}),
    (JsonPart([1, None]), {"result": [1, None]}),
    (JsonPart(None), {"result": None}),
    (JsonPart({"error": "told"}), {"result": {"error": "told"}}),
    (JsonPart({"result": 1, "b": 2}), {"result": {"result": 1, "b": 2}}),
]


@pytest.mark.parametrize(("part", "response"), RESPONSES)
def test_a_response_is_an_object(part: TextPart | JsonPart, response: dict[str, Any]):
    messages = (
        Message("assistant", (ToolCall("a", "read", {}, "a"),)),
        Message("tool", (ToolResult("a", "read", "success", (part,)),)),
    )
    contents_json = contents(*messages)
    assert contents_json[1]["parts"][0]["functionResponse"]["response"] == response
    assert read(*contents_json).messages == list(messages)


def test_a_malformed_call_and_its_result_go_back_as_text():
    reply = Message("assistant", (MalformedCall("a", "print(", "invalid_arguments", "why"), ToolCall("b", "list", {})))
    results = Message(
        "tool",
        (
            ToolResult("a", "", "failure", (TextPart("write JSON"),), "malformed"),
            ToolResult("b", "list", "success", (TextPart("x"),)),
        ),
    )
    call, response, text = contents(reply, results)
    assert call["parts"][0] == {"text": "print("}
    assert [*response["parts"][0]] == ["functionResponse"]
    assert text == {"role": "user", "parts": [{"text": "write JSON"}]}


def test_an_empty_answer_has_no_content():
    assert contents(Message.user("a"), Message("assistant", ()), Message.user("b")) == [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "user", "parts": [{"text": "b"}]},
    ]


def signature(kind: str, model: str) -> Any:
    opaque = Opaque("gemini", model, SIGNATURE)
    parts = {
        "text": TextPart("t", opaque),
        "empty": TextPart("", opaque),
        "reasoning": ReasoningPart("r", opaque),
        "call": ToolCall("c", "list", {}, "c", opaque=opaque),
    }
    return contents(Message("assistant", (parts[kind],)), model=NEW)


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("text", {"text": "t"}),
        ("empty", {"text": ""}),
        ("reasoning", {"text": "r", "thought": True}),
        ("call", {"functionCall": {"id": "c", "name": "list", "args": {}}}),
    ],
)
def test_a_signature_goes_back_on_its_part_to_its_own_model(kind: str, part: dict[str, Any]):
    assert signature(kind, NEW) == [{"role": "model", "parts": [{**part, **SIGNATURE}]}]


def test_a_signature_of_another_model_does_not_go_back():
    assert signature("text", OLD) == [{"role": "model", "parts": [{"text": "t"}]}]
    assert signature("empty", OLD) == signature("reasoning", OLD) == []
    assert signature("call", OLD)[0]["parts"][0]["thoughtSignature"] == NO_SIGNATURE


@pytest.mark.parametrize(
    ("model", "unsigned"),
    [
        ("gemini-3-pro", True),
        ("models/gemini-3.5-flash", True),
        ("gemini-flash-latest", True),
        ("gemini-4-pro", True),
        ("gemini-2.5-pro", False),
        ("gemini-1.5-flash", False),
        ("gemma-3-27b-it", False),
    ],
)
def test_calls_of_another_model_are_marked_as_unsigned_if_signatures_are_required(model: str, unsigned: bool):
    calls = (TextPart("I read."), ToolCall("a", "read", {}), ToolCall("b", "list", {}))
    [content] = contents(Message("assistant", calls), model=model)
    assert [part.get("thoughtSignature") for part in content["parts"]] == [
        None,
        NO_SIGNATURE if unsigned else None,
        None,
    ]


def test_images_and_files_of_a_result():
    picture, picture_link = ImagePart("image/png", b"\x89P"), ImagePart("image/*", url="https://x/a.png")
    result = ToolResult("a", "read", "success", (TextPart("see"), picture, picture_link, FilePart("a", "text/x", b"f")))
    messages = (Message("assistant", (ToolCall("a", "read", {}, "a"),)), Message("tool", (result,)))
    media = [
        {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(b"\x89P").decode()}},
        {"fileData": {"fileUri": "https://x/a.png"}},
        {"inlineData": {"mimeType": "text/x", "data": base64.b64encode(b"f").decode()}},
    ]
    response = {"id": "a", "name": "read", "response": {"result": "see"}}
    assert contents(*messages, model=NEW)[1]["parts"] == [{"functionResponse": {**response, "parts": media}}]
    assert contents(*messages, model=OLD)[1]["parts"] == [{"functionResponse": response}, *media]
    only = (messages[0], Message("tool", (replace(result, content=(picture,)),)))
    assert contents(*only)[1]["parts"][0]["functionResponse"]["response"] == {"result": "[image: image/png]"}


def test_a_lone_surrogate_is_replaced():
    assert contents(Message.user("a\ud800")) == [{"role": "user", "parts": [{"text": "a\ufffd"}]}]


# --- requests as a server reads them -----------------------------------------------------------------------------


def test_calls_and_results_without_ids_find_each_other():
    call = {"functionCall": {"name": "read", "args": {"path": "a"}}}
    other = {"functionCall": {"name": "list"}}
    answers = [{"functionResponse": {"name": name, "response": {"result": name}}} for name in ("list", "read", "read")]
    request = read(
        {"parts": [{"text": "go"}]},
        {"role": "model", "parts": [call, other, call]},
        {"role": "function", "parts": answers},
    )
    reply, results = request.messages[1], request.messages[2]
    assert isinstance(reply, Message)
    assert isinstance(results, Message)
    assert [call.id for call in reply.calls] == ["call-1", "call-2", "call-3"]
    assert [result.call_id for result in results.results] == ["call-2", "call-1", "call-3"]
    assert results.role == "tool"


def test_repeated_ids_become_unique():
    call = {"functionCall": {"id": "x", "name": "read"}}
    result = {"functionResponse": {"id": "x", "name": "read", "response": {}}}
    turn = [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
    messages = read(*turn, *turn).messages
    calls = [call for message in messages if isinstance(message, Message) for call in message.calls]
    results = [result for message in messages if isinstance(message, Message) for result in message.results]
    assert [call.id for call in calls] == [result.call_id for result in results] == ["x", "x-1"]


def test_both_spellings_of_a_field_are_read():
    request = read(
        {"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "-_8="}}]},
        system_instruction={"parts": [{"text": "Be brief."}]},
        tools=[{"function_declarations": [{"name": "a"}]}],
        tool_config={"function_calling_config": {"mode": "any", "allowed_function_names": ["a"]}},
        generation_config={"max_output_tokens": 5, "response_mime_type": "application/json", "response_schema": {}},
        safety_settings=[],
    )
    assert request.messages == [Message.system("Be brief."), Message("user", (ImagePart("image/png", b"\xfb\xff"),))]
    assert request.choice == ToolChoice("specific", "a")
    assert request.options == {"maxOutputTokens": 5, "safetySettings": []}
    assert request.output == OutputSchema("response", {})


def test_a_schema_of_the_api_is_read_as_json_schema():
    schema = {
        "type": "OBJECT",
        "properties": {
            "mode": {"type": "STRING", "enum": ["a", "b"], "nullable": True, "description": "how"},
            "any_of_it": {"anyOf": [{"type": "NUMBER"}, {"type": "BOOLEAN"}]},
            "many": {"type": "ARRAY", "items": {"type": "INTEGER", "minimum": 1}, "minItems": "2"},
        },
        "required": ["mode"],
        "propertyOrdering": ["mode", "many"],
    }
    request = read({"parts": [{"text": "a"}]}, tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}])
    assert request.tools[0].parameters == {
        "type": "object",
        "properties": {
            "mode": {"type": ["string", "null"], "enum": ["a", "b", None], "description": "how"},
            "any_of_it": {"anyOf": [{"type": "number"}, {"type": "boolean"}]},
            "many": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2},
        },
        "required": ["mode"],
    }


def test_only_the_allowed_tools_are_offered():
    tools = [{"functionDeclarations": [{"name": name} for name in "abc"]}]
    config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a", "c"]}}
    request = read({"parts": [{"text": "x"}]}, tools=tools, toolConfig=config)
    assert ([tool.name for tool in request.tools], request.choice) == (["a", "c"], ToolChoice("required"))


def test_other_parts_of_a_models_turn_are_kept_for_the_model():
    part = {"executableCode": {"language": "PYTHON", "code": "1"}}
    assert read({"role": "model", "parts": [part]}).messages == [
        Message("assistant", (TextPart("", Opaque("gemini", "m", part)),))
    ]


TEXT = {"parts": [{"text": "a"}]}
REFUSALS = [
    ([], "the request: expected an object, found a list"),
    ({}, "contents: at least one content is needed"),
    ({"contents": "hi"}, "contents: expected a list, found 'hi'"),
    ({"contents": ["hi"]}, r"contents\[0\]: expected an object"),
    ({"contents": [{"role": "system", "parts": []}]}, r"contents\[0\].role: expected 'user' or 'model'"),
    ({"contents": [{"parts": [{"text": 1}]}]}, r"contents\[0\].parts\[0\].text: expected a string, found a number"),
    ({"contents": [{"parts": [{}]}]}, r"contents\[0\].parts\[0\]: expected text, inlineData"),
    ({"contents": [{"parts": [{"inlineData": {"data": "AA"}}]}]}, r"inlineData.mimeType: expected a name"),
    ({"contents": [{"parts": [{"inlineData": {"mimeType": "a/b", "data": "?"}}]}]}, "expected base64"),
    ({"contents": [{"parts": [{"fileData": {"mimeType": "video/mp4", "fileUri": "x"}}]}]}, "send video/mp4 as inline"),
    ({"contents": [{"role": "model", "parts": [{"functionCall": {}}]}]}, "functionCall.name: expected a name"),
    ({"contents": [{"role": "model", "parts": [{"functionCall": {"name": "a", "args": []}}]}, TEXT]}, None),
    (
        {"contents": [{"role": "model", "parts": [{"functionCall": {"name": "a", "args": [1]}}]}]},
        "args: expected an obj",
    ),
    ({"contents": [{"parts": [{"functionResponse": {"name": "a", "response": {}}}]}]}, "no call of 'a' waits"),
    ({"contents": [TEXT], "tools": [{"googleSearch": {}}]}, r"tools\[0\].googleSearch: not supported here"),
    ({"contents": [TEXT], "tools": [{"functionDeclarations": [{}]}]}, r"functionDeclarations\[0\].name: expected a"),
    ({"contents": [TEXT], "toolConfig": {"functionCallingConfig": {"mode": "SOME"}}}, "expected AUTO, ANY, NONE"),
]


@pytest.mark.parametrize(("body", "problem"), REFUSALS)
def test_a_request_that_cannot_be_read(body: Any, problem: str | None):
    if problem is None:
        assert GEMINI.decode_request(body).request.messages
        return
    with pytest.raises(FormatError, match=problem):
        GEMINI.decode_request(body)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1beta/models/gemini-3-pro:generateContent", ("gemini-3-pro", False)),
        ("/v1beta/models/qwen3:8b:streamGenerateContent?alt=sse", ("qwen3:8b", True)),
    ],
)
def test_the_path_names_the_model(path: str, expected: tuple[str, bool]):
    request = decode_request_at(path, {"contents": [TEXT]})
    assert (request.model, request.stream) == expected


def test_a_path_of_another_method():
    with pytest.raises(FormatError, match=r"POST to /v1beta/models/<model>:generateContent"):
        decode_request_at("/v1beta/models/a:embedContent", {"contents": [TEXT]})


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["contents", "parts", "role", "text", "functionCall", "functionResponse", "name", "args", "tools",
             "functionDeclarations", "parameters", "type", "inlineData", "data", "mimeType", "generationConfig",
             "toolConfig", "functionCallingConfig", "mode", "systemInstruction", "response", "candidates", "content",
             "finishReason", "usageMetadata", "error", "promptFeedback", "blockReason", "index"]
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
        GEMINI.decode_request({"contents": [TEXT], **junk} if isinstance(junk, dict) else junk)
    decoder = GEMINI.decoder()
    decoder.feed(chunk({"text": "a"}))
    for read_it in (GEMINI.decode_response, GEMINI.decoder().feed, decoder.feed):
        with contextlib.suppress(ProviderError):
            read_it(junk)


# --- answers -----------------------------------------------------------------------------------------------------


@given(turns(opaque=Opaque("gemini", "m-1", SIGNATURE), response_id="r1"))
@settings(deadline=None)
def test_a_turn_survives_a_stream(turn: list[Delta]):
    frames = json.loads(json.dumps(frames_of(turn)))
    assert joined_deltas(decode_chunks(*frames, model="m-1")) == joined_deltas(turn)


@given(turns(opaque=Opaque("gemini", "m-1", SIGNATURE), response_id="r1"))
@settings(deadline=None)
def test_a_turn_survives_a_whole_answer(turn: list[Delta]):
    body = json.loads(json.dumps(GEMINI.encode_response(turn, model="m-1", response_id="r1", created_at=0)))
    assert joined_deltas(GEMINI.decode_response(body, model="m-1")) == joined_deltas(turn)


def test_parallel_calls_without_ids():
    call = {"functionCall": {"name": "read", "args": {"path": "ü"}}}
    deltas = decode_chunks(
        chunk({"text": "I read. "}, modelVersion="gemini-3-pro-001", responseId="r"),
        chunk(
            {**call, **SIGNATURE}, call, finish="STOP", usageMetadata={"promptTokenCount": 5, "candidatesTokenCount": 2}
        ),
    )
    opaque = Opaque("gemini", NEW, SIGNATURE)
    assert deltas == [
        TextDelta("I read. "),
        CallStarted(0, "read"),
        ArgumentsDelta(0, '{"path": "ü"}'),
        CallCompleted(0, "read", {"path": "ü"}, opaque=opaque),
        CallStarted(1, "read"),
        ArgumentsDelta(1, '{"path": "ü"}'),
        CallCompleted(1, "read", {"path": "ü"}),
        BatchEnded((0, 1), True),
        TurnEnded("tool_calls", Usage(5, 2), "gemini-3-pro-001", "r"),
    ]


def test_a_call_without_arguments():
    deltas = decode_chunks(chunk({"functionCall": {"name": "list", "id": "i"}}, finish="STOP"))
    assert CallCompleted(0, "list", {}, "i") in deltas


def test_thoughts_are_reasoning_and_their_tokens_count_once():
    counts = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 4,
        "cachedContentTokenCount": 8,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 7,
        "totalTokenCount": 24,
    }
    deltas = decode_chunks(
        chunk({"text": "Hm.", "thought": True}, usageMetadata={"promptTokenCount": 10}),
        chunk({"text": "Yes."}),
        chunk({"text": "", **SIGNATURE}, finish="STOP", usageMetadata=counts),
    )
    usage = Usage(input=14, output=10, cached=8, reasoning=7)
    assert usage.total == counts["totalTokenCount"]
    assert deltas == [
        ReasoningDelta("Hm."),
        TextDelta("Yes."),
        PartEnded("text", Opaque("gemini", NEW, SIGNATURE)),
        TurnEnded("stop", usage),
    ]


def test_the_parts_of_a_whole_answer_stay_separate_if_one_is_signed():
    body = chunk({"text": "a"}, {"text": "b", **SIGNATURE}, {"text": "c"}, {"text": "d"}, finish="STOP")
    opaque = Opaque("gemini", "v", SIGNATURE)
    assert GEMINI.decode_response({**body, "modelVersion": "v"}) == [
        TextDelta("a"),
        PartEnded("text"),
        TextDelta("b"),
        PartEnded("text", opaque),
        TextDelta("c"),
        PartEnded("text"),
        TextDelta("d"),
        TurnEnded("stop", Usage(), "v"),
    ]


# Chunks that look almost like the ordinary one.
ODD = [
    ({"candidates": []}, []),
    (chunk({"text": ""}), []),
    (chunk({"text": "a", "thought": True}), [ReasoningDelta("a")]),
    (chunk({"text": "a"}, {"text": "b"}), [TextDelta("a"), TextDelta("b")]),
    ({"candidates": [{"index": 1, "content": {"parts": [{"text": "no"}]}}]}, []),
    ({**chunk({"text": "a"}), "promptFeedback": {}}, [TextDelta("a")]),
    ({**chunk({"text": "a"}), "error": None}, [TextDelta("a")]),
]


@pytest.mark.parametrize(("odd", "deltas"), ODD)
def test_a_chunk_is_read_the_same_in_every_position(odd: Any, deltas: list[Delta]):
    decoder = GEMINI.decoder()
    assert decoder.feed(odd) == deltas
    assert decoder.feed(odd) == deltas
    with pytest.raises(ProviderError, match="'text' should be a string"):
        decoder.feed(chunk({"text": ["a"]}))


FINISHES = [
    ("STOP", "stop"),
    ("MAX_TOKENS", "length"),
    ("SAFETY", "content_filter"),
    ("RECITATION", "content_filter"),
    ("PROHIBITED_CONTENT", "content_filter"),
    ("LANGUAGE", "content_filter"),
    ("OTHER", "error"),
    ("TOO_MANY_TOOL_CALLS", "error"),
    ("NEXT_YEARS_REASON", "error"),
]


@pytest.mark.parametrize(("reason", "finish"), FINISHES)
def test_finish_reasons(reason: str, finish: Any):
    assert decode_chunks(chunk({"text": "a"}, finish=reason))[-1] == TurnEnded(finish)
    assert decode_chunks({"candidates": [{"finishReason": reason, "index": 0}]})[-1] == TurnEnded(finish)


@pytest.mark.parametrize(
    ("reason", "code"), [("MALFORMED_FUNCTION_CALL", "invalid_arguments"), ("UNEXPECTED_TOOL_CALL", "unknown_tool")]
)
def test_a_call_that_the_api_could_not_read_is_reported_and_does_not_run(reason: str, code: str):
    candidate = {"finishReason": reason, "finishMessage": "Malformed function call: print(default_api.read("}
    before = chunk({"functionCall": {"name": "list", "args": {}}})
    malformed_call, batch, end = decode_chunks(before, {"candidates": [candidate]})[-3:]
    assert isinstance(malformed_call, CallMalformed)
    assert (malformed_call.index, malformed_call.raw, malformed_call.code) == (1, candidate["finishMessage"], code)
    assert malformed_call.whole_block
    assert "none of the turn's calls ran" in malformed_call.reason
    assert (batch, end) == (BatchEnded((), False), TurnEnded("tool_calls"))


def test_a_blocked_prompt():
    deltas = GEMINI.decode_response(
        {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    )
    assert deltas == [TurnEnded("content_filter", Usage(input=3))]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "no candidates: is this the Gemini API"),
        ({"candidates": []}, "no candidates"),
        ([], "the response should be an object, found a list"),
        ({"candidates": {}}, "'candidates' should be a list"),
        ({"candidates": [{"content": {"parts": [1]}}]}, "a part should be an object"),
        ({"candidates": [{"content": {"parts": [{"text": 5}]}}]}, "'text' should be a string, found a number"),
        (chunk({"functionCall": {"name": "a", "args": "x"}}), "'args' of a function call should be an object"),
        (chunk(finish=7), "'finishReason' should be a string"),  # type: ignore[arg-type]
        ({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}, "the server reported an error: busy"),
    ],
)
def test_an_answer_that_cannot_be_read(body: Any, problem: str):
    with pytest.raises(ProviderError, match=problem):
        GEMINI.decode_response(body)


def test_an_error_in_the_stream_may_be_worth_a_retry():
    with pytest.raises(ProviderError) as raised_error:
        GEMINI.decoder().feed({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}})
    assert (raised_error.value.status, raised_error.value.retryable) == (503, True)


def test_an_empty_candidate_and_unknown_fields_yield_nothing():
    empty = [{"candidates": [{}]}, {"candidates": []}, {"usageMetadata": {}}, {"news": [1]}]
    second = {"candidates": [{"index": 1, "content": {"parts": [{"text": "no"}]}, "finishReason": "STOP"}]}
    last_chunk = chunk(finish="STOP", news=1)
    assert decode_chunks(*empty, second, last_chunk) == [TurnEnded("stop")]


def test_a_stream_without_a_finish_reason_is_not_finished():
    decoder = GEMINI.decoder()
    decoder.feed(chunk({"text": "a"}, finish="FINISH_REASON_UNSPECIFIED"))
    assert not decoder.finished


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
        TurnEnded("closed_by_us", Usage(10, 6, 4, 2)),
    ]
    frames = frames_of(turn)
    parts = [part for frame in frames for part in frame["candidates"][0]["content"]["parts"]]
    assert parts == [
        {"text": "I read."},
        {"text": '{"path":'},
        {"functionCall": {"id": "r1-1", "name": "list", "args": {}}},
        {"functionCall": {"id": "x", "name": "list", "args": {}}},
        {"functionCall": {"id": "r1-3", "name": "list", "args": {}}},
    ]
    assert frames[-1]["candidates"][0]["finishReason"] == "STOP"
    assert frames[-1]["usageMetadata"] == {
        "promptTokenCount": 10,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 2,
        "cachedContentTokenCount": 4,
        "totalTokenCount": 16,
    }
    whole: Any = GEMINI.encode_response(turn, model="m-1", response_id="r1", created_at=0)
    assert whole["candidates"][0]["content"]["parts"] == [{"text": 'I read.{"path":'}, *parts[2:]]


def test_a_signature_of_another_api_does_not_reach_the_client():
    turn = [
        ReasoningDelta("r"),
        PartEnded("reasoning", Opaque("anthropic", "m", {"signature": "s"})),
        TurnEnded("stop"),
    ]
    assert "s" not in json.dumps([frame["candidates"][0]["content"]["parts"] for frame in frames_of(turn)][1:])
    assert [part for frame in frames_of(turn) for part in frame["candidates"][0]["content"]["parts"]] == [
        {"text": "r", "thought": True}
    ]


@pytest.mark.parametrize(
    ("status", "name"), [(400, "INVALID_ARGUMENT"), (404, "NOT_FOUND"), (429, "RESOURCE_EXHAUSTED"), (502, "INTERNAL")]
)
def test_an_error_has_the_form_of_the_api(status: int, name: str):
    error = {"error": {"code": status, "message": "why", "status": name}}
    assert GEMINI.encode_error("why", status) == error
    encoder = GEMINI.encoder(WireRequest(ModelRequest(MESSAGES), "m"), response_id="r", created_at=0)
    [(_, frame)] = encoder.fail("why", status)
    with pytest.raises(ProviderError, match="why"):
        GEMINI.decoder().feed(frame)
