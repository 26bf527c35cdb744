"""Requests of OpenAI Chat Completions: as a client writes them, and as a server reads them."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from wire_strategies import PATIENT, requests

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
    failure,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ConfigurationError, FormatError
from toolspeak.wire.base import ModelRequest, OutputSchema, WireFormat, WireRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT, openai_chat
from toolspeak.wire.strict_schema import openai_form

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "Reads a file.", SCHEMA)
PING = ToolSpec("ping", "", {"type": "object", "properties": {}}, extra={"strict": True})
READ_TOLD = {"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": SCHEMA}}
PNG = ImagePart("image/png", b"\x89PNG")
PNG_URL = "data:image/png;base64,iVBORw=="


def call(id_: str, provider_id: str | None = None, name: str = "read", **fields: Any) -> ToolCall:
    return ToolCall(id_, name, {"path": "a"}, provider_id, **fields)


def call_object(id_: str, name: str = "read", arguments: str = '{"path": "a"}', **fields: Any) -> dict[str, Any]:
    return {**fields, "id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(of: ToolCall, *content: Any) -> ToolResult:
    return ToolResult(of.id, of.name, "success", tuple(TextPart(c) if isinstance(c, str) else c for c in content))


def encode(*messages: Message | TextMessage, chat: WireFormat = OPENAI_CHAT, model: str = "m") -> list[Any]:
    return chat.encode_request(ModelRequest(messages), model=model, stream=False)["messages"]


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages) or [{"role": "user", "content": "Hi"}], **fields}


def decode(*messages: Any) -> list[Any]:
    return list(OPENAI_CHAT.decode_request(body(*messages)).request.messages)


# --- the two are inverse -----------------------------------------------------------------------------------------

SIGNATURE = Opaque("openai-chat", "m", {"field": "reasoning_content"})


@PATIENT
@given(requests(opaque=SIGNATURE, failures=False, result_images=False))
def test_a_request_survives_encoding_and_decoding(request: ModelRequest):
    for stream in (False, True):
        request_body = OPENAI_CHAT.encode_request(request, model="m", stream=stream)
        read = OPENAI_CHAT.decode_request(request_body)
        output = None if request.output is None else openai_form(request.output)
        assert read == WireRequest(replace(request, messages=list(request.messages), output=output), "m", stream)


@PATIENT
@given(requests(opaque=SIGNATURE, provider_ids=False))
def test_a_decoded_request_is_encoded_as_it_was(request: ModelRequest):
    request_body = OPENAI_CHAT.encode_request(request, model="m", stream=True)
    read = OPENAI_CHAT.decode_request(request_body)
    assert OPENAI_CHAT.encode_request(read.request, model="m", stream=True) == request_body


# --- conversations -----------------------------------------------------------------------------------------------

A, B = call("c1", "given"), call("c2", name="ping")
DETAILS = [{"type": "reasoning.encrypted", "data": "x"}]

BOTH_WAYS: list[tuple[str, Message, dict[str, Any]]] = [
    ("system", Message.system("Be brief."), {"role": "system", "content": "Be brief."}),
    ("nothing said", Message("assistant", ()), {"role": "assistant", "content": ""}),
    (
        "calls alone, for llama-cpp-python answers null with an error",
        Message("assistant", (call("c1", "c1"),)),
        {"role": "assistant", "content": "", "tool_calls": [call_object("c1")]},
    ),
    (
        "text and two calls",
        Message("assistant", (TextPart("I look."), call("c1", "c1"), call("c2", "c2", "ping"))),
        {"role": "assistant", "content": "I look.", "tool_calls": [call_object("c1"), call_object("c2", "ping")]},
    ),
    (
        "an image",
        Message("user", (TextPart("See:"), PNG)),
        {
            "role": "user",
            "content": [{"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {"url": PNG_URL}}],
        },
    ),
    (
        "an image's address, and how closely to look",
        Message("user", (ImagePart("image/*", url="https://x/a.png", extra={"openai-chat": {"detail": "low"}}),)),
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}}]},
    ),
    (
        "a file",
        Message("user", (FilePart("a.pdf", "application/pdf", b"%PDF"),)),
        {
            "role": "user",
            "content": [
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}}
            ],
        },
    ),
    (
        "a cache marker of a part, and a name",
        Message(
            "user",
            (TextPart("Hi", extra={"openai-chat": {"cache_control": {"type": "ephemeral"}}}),),
            {"openai-chat": {"name": "Ann"}},
        ),
        {
            "role": "user",
            "name": "Ann",
            "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
        },
    ),
    (
        "OpenRouter's reasoning",
        Message(
            "assistant",
            (ReasoningPart("", Opaque("openai-chat", "m", {"reasoning_details": DETAILS})), TextPart("so")),
        ),
        {"role": "assistant", "content": "so", "reasoning_details": DETAILS},
    ),
    (
        "a thought signature",
        Message("assistant", (call("c1", "c1", opaque=Opaque("openai-chat", "m", {"extra_content": {"g": 1}})),)),
        {"role": "assistant", "content": "", "tool_calls": [call_object("c1", extra_content={"g": 1})]},
    ),
]


@pytest.mark.parametrize(
    ("message", "chat_message"), [case[1:] for case in BOTH_WAYS], ids=[case[0] for case in BOTH_WAYS]
)
def test_messages_both_ways(message: Message, chat_message: dict[str, Any]):
    assert encode(message) == [chat_message]
    assert decode(chat_message) == [message]


def test_results_follow_their_calls():
    reply = Message("assistant", (A, B))
    assert encode(reply, Message("tool", (result(B, "pong"), result(A, "text", JsonPart({"n": 1})))))[1:] == [
        {"role": "tool", "tool_call_id": "c2", "content": "pong"},
        {"role": "tool", "tool_call_id": "given", "content": 'text\n{"n": 1}'},
    ]


@pytest.mark.parametrize(("message", "content"), [("no such file", "ERROR: no such file"), ("Error: x", "Error: x")])
def test_a_failure_says_that_it_is_one(message: str, content: str):
    messages = encode(Message("assistant", (A,)), Message("tool", (failure(A, "exception", message),)))
    assert messages[1]["content"] == content


def test_images_of_results_follow_in_a_message_of_the_user():
    """Most servers take only text in the role `tool`, and require all results before any other message."""
    results = Message("tool", (result(A, "here", PNG), result(B, "pong")))
    assert encode(Message("assistant", (A, B)), results, Message.user("And?"))[1:] == [
        {"role": "tool", "tool_call_id": "given", "content": "here\n[image: image/png]"},
        {"role": "tool", "tool_call_id": "c2", "content": "pong"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Images from the result of read (given):"},
                {"type": "image_url", "image_url": {"url": PNG_URL}},
            ],
        },
        {"role": "user", "content": "And?"},
    ]


def test_a_malformed_call_goes_back_as_text():
    malformed_call = MalformedCall("c2", '{"path": ', "invalid_arguments", "cut off", "read")
    results = Message("tool", (failure(malformed_call, "malformed", "cut off"), result(A, "ok")))
    assert encode(Message("assistant", (TextPart("I look."), A, malformed_call)), results) == [
        {"role": "assistant", "content": 'I look.\n{"path": ', "tool_calls": [call_object("given")]},
        {"role": "tool", "tool_call_id": "given", "content": "ok"},
        {"role": "user", "content": "ERROR: cut off"},
    ]


def test_a_repeated_id_is_not_sent_twice():
    first, second = call("c1", "same"), call("c2", "same")
    messages = encode(Message("assistant", (first, second)), Message("tool", (result(first, "1"), result(second, "2"))))
    assert [each["id"] for each in messages[0]["tool_calls"]] == ["same", "c2"]
    assert [each["tool_call_id"] for each in messages[1:]] == ["same", "c2"]


def test_mistrals_ids_are_short():
    chat = openai_chat(short_ids=True)
    fine = call("c2", "AbCd12345")
    messages = encode(Message("assistant", (A, fine)), Message("tool", (result(A, "1"), result(fine, "2"))), chat=chat)
    ids = [each["id"] for each in messages[0]["tool_calls"]]
    assert ids == [each["tool_call_id"] for each in messages[1:]]
    assert ids[1] == "AbCd12345"
    assert len(ids[0]) == 9
    assert ids[0].isalnum()


def test_reasoning_goes_back_only_to_its_own_model():
    def message_for(provider: str, model: str) -> dict[str, Any]:
        return encode(Message("assistant", (ReasoningPart("hm", Opaque(provider, model, SIGNATURE.data)), A)))[0]

    assert message_for("openai-chat", "m")["reasoning_content"] == "hm"
    assert "reasoning_content" not in message_for("openai-chat", "other")
    assert "reasoning_content" not in message_for("anthropic", "m")
    assert "reasoning_content" not in encode(Message("assistant", (ReasoningPart("hm"), A)))[0]


def test_a_call_of_another_model_has_empty_reasoning_if_the_api_requires_reasoning():
    chat = openai_chat(keep_reasoning=True)
    messages = encode(
        Message("assistant", (A,)), Message("tool", (result(A, "x"),)), Message.assistant("so"), chat=chat
    )
    assert messages[0]["reasoning_content"] == ""
    assert "reasoning_content" not in messages[2]


def test_text_messages_are_sent_unchanged():
    assert encode(TextMessage("tool", "[]"), TextMessage("assistant", "ok")) == [
        {"role": "tool", "content": "[]"},
        {"role": "assistant", "content": "ok"},
    ]


# --- tools and choices -------------------------------------------------------------------------------------------

CHOICES: list[tuple[ToolChoice, Any]] = [
    (ToolChoice(), None),
    (ToolChoice("none"), "none"),
    (ToolChoice("required"), "required"),
    (ToolChoice("specific", "read"), {"type": "function", "function": {"name": "read"}}),
]


@pytest.mark.parametrize(("choice", "expected"), CHOICES)
def test_tool_choices_both_ways(choice: ToolChoice, expected: Any):
    request = ModelRequest([Message.user("Hi")], (READ, PING), choice, parallel=False)
    request_body = OPENAI_CHAT.encode_request(request, model="m", stream=False)
    assert request_body.get("tool_choice") == expected
    assert request_body["parallel_tool_calls"] is False
    strict = {"name": "ping", "parameters": PING.parameters, "strict": True}
    assert request_body["tools"] == [READ_TOLD, {"type": "function", "function": strict}]
    assert OPENAI_CHAT.decode_request(request_body).request == request


def test_a_request_without_tools_has_no_fields_about_tools():
    request = ModelRequest([Message.user("Hi")], choice=ToolChoice("none"), parallel=True)
    assert set(OPENAI_CHAT.encode_request(request, model="m", stream=False)) == {"model", "messages", "stream"}
    read = OPENAI_CHAT.decode_request(body(tool_choice="none", tools=[], parallel_tool_calls=True)).request
    assert (read.choice, read.parallel, read.tools) == (ToolChoice(), None, ())


def test_allowed_tools_leave_the_others_out():
    allowed_tools = {"mode": "required", "tools": [{"type": "function", "function": {"name": "read"}}]}
    tools = [READ_TOLD, {"type": "function", "function": {"name": "ping"}}]
    request_body = body(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed_tools})
    request = OPENAI_CHAT.decode_request(request_body).request
    assert (request.choice, request.tools) == (ToolChoice("required"), (READ,))


def test_a_schema_for_the_answer():
    output = OutputSchema("answer", SCHEMA, strict=False, description="what was found")
    request_body = OPENAI_CHAT.encode_request(
        ModelRequest([Message.user("Hi")], output=output), model="m", stream=False
    )
    schema = {"name": "answer", "description": "what was found", "schema": SCHEMA, "strict": False}
    assert request_body["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert OPENAI_CHAT.decode_request(request_body).request.output == output


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"tools": []}, {}),
        ({"tool_choice": "auto"}, {}),
        ({"parallel_tool_calls": True}, {}),
        ({"response_format": {"type": "json_object"}}, {"output": OutputSchema("a", {})}),
    ],
)
def test_an_option_cannot_replace_a_field_of_the_request(options: dict[str, Any], fields: dict[str, Any]):
    with pytest.raises(ConfigurationError, match=f"the option '{next(iter(options))}' cannot be set"):
        OPENAI_CHAT.encode_request(ModelRequest([], options=options, **fields), model="m", stream=True)


# --- what other clients send -------------------------------------------------------------------------------------


def test_all_other_fields_pass_as_options():
    options = {
        "temperature": 0.5,
        "stop": ["x"],
        "max_completion_tokens": 9,
        "response_format": {"type": "json_object"},
        "chat_template_kwargs": {"thinking": True},
        "n": 1,
    }
    read = OPENAI_CHAT.decode_request(body(**options, seed=None, functions=None))
    assert read.request.options == options
    assert (read.stream, read.usage_wanted) == (False, True)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, False),
        ({"stream_options": None}, False),
        ({"stream_options": {"include_usage": False}}, False),
        ({"stream_options": {"include_usage": True, "include_obfuscation": False}}, True),
    ],
)
def test_a_streamed_request_asks_for_usage(fields: dict[str, Any], wanted: bool):
    assert OPENAI_CHAT.decode_request(body(stream=True, **fields)).usage_wanted is wanted


def test_other_ways_to_write_a_message():
    messages = decode(
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": PNG_URL}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "audio": None, "function_call": None},
        {"role": "assistant", "content": None, "refusal": "Never.", "tool_calls": None},
        {"role": "assistant", "tool_calls": [call_object("c1", arguments=""), {**call_object("c2"), "index": 1}]},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "x"}], "name": "read"},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
    )
    empty = ToolCall("c1", "read", {}, "c1")
    assert messages == [
        Message("system", (TextPart("a"), TextPart("b"))),
        Message("user", (PNG,)),
        Message.assistant("No."),
        Message.assistant("Never."),
        Message("assistant", (empty, call("c2", "c2"))),
        Message("tool", (result(call("c2"), "x"), result(empty))),
    ]


def test_repeated_ids_become_unique():
    """Some clients number the calls of each turn from the beginning."""
    step = [
        {"role": "assistant", "tool_calls": [call_object("call_0")]},
        {"role": "tool", "tool_call_id": "call_0", "content": "x"},
    ]
    messages = decode(*step, *step)
    ids = [message.calls[0].id for message in messages[::2]]
    assert len(set(ids)) == 2
    assert [message.results[0].call_id for message in messages[1::2]] == ids
    assert {message.calls[0].provider_id for message in messages[::2]} == {"call_0"}


def test_calls_of_one_turn_with_one_id_have_a_result_each():
    reply, results_message = decode(
        {"role": "assistant", "tool_calls": [call_object("c"), call_object("c")]},
        {"role": "tool", "tool_call_id": "c", "content": "one"},
        {"role": "tool", "tool_call_id": "c", "content": "two"},
    )
    assert [part.call_id for part in results_message.results] == [part.id for part in reply.calls]
    assert [part.text for part in results_message.results] == ["one", "two"]


def test_ids_that_look_generated_stay_distinct():
    """An earlier reader searched for a free id forever."""
    messages = decode(
        *({"role": "assistant", "tool_calls": [call_object(each)]} for each in ("a", "a-2", "a", "a-1", "a"))
    )
    assert len({message.calls[0].id for message in messages}) == 5


def test_a_result_without_a_call_keeps_its_id_and_its_name():
    messages = decode(
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "tool", "content": "y", "name": "read"},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [call_object("c")]},
    )
    assert [(part.call_id, part.name) for part in messages[0].results] == [("c", ""), ("", "read")]
    assert [message.role for message in messages] == ["tool", "user", "assistant"]


def test_calls_of_the_old_form_are_read():
    reply, results_message = decode(
        {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": '{"path": "a"}'}},
        {"role": "function", "name": "read", "content": "x"},
    )
    (new_call,) = reply.calls
    assert new_call == ToolCall(new_call.id, "read", {"path": "a"})
    assert results_message.results == (ToolResult("", "read", "success", (TextPart("x"),)),)


def test_a_call_with_broken_arguments_in_the_history_is_malformed():
    reply, results_message = decode(
        {"role": "assistant", "tool_calls": [call_object("c1", arguments='{"path": ')]},
        {"role": "tool", "tool_call_id": "c1", "content": "no JSON"},
    )
    (malformed_call,) = reply.calls
    assert (type(malformed_call), malformed_call.raw, malformed_call.name) == (MalformedCall, '{"path": ', "read")
    assert results_message.results[0].call_id == malformed_call.id


USER = {"role": "user", "content": "Hi"}
REFUSALS: list[tuple[Any, str]] = [
    ([], "the request: expected an object, found a list"),
    ({"messages": [USER]}, "model: expected a name, found nothing"),
    ({"model": "m"}, "messages: at least one message is needed"),
    ({"model": "m", "messages": {}}, "messages: expected a list, found an object"),
    (body("x"), "messages[0]: expected an object, found 'x'"),
    (body({"content": "x"}), "messages[0].role: expected a string, found nothing"),
    (body({"role": "robot"}), "messages[0].role: unknown value 'robot'; write system, developer, user"),
    (body({"role": "user", "content": 5}), "messages[0].content: expected a string or a list of parts, found a number"),
    (body({"role": "user", "content": ["x"]}), "messages[0].content[0]: expected an object, found 'x'"),
    (
        body({"role": "user", "content": [{"type": "input_audio"}]}),
        "messages[0].content[0].type: 'input_audio' is not allowed here; write text, image_url or file",
    ),
    (
        body({"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
        "'image_url' is not allowed here; write text",
    ),
    (
        body({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png,x"}}]}),
        "messages[0].content[0].image_url.url: write a data URL as data:TYPE;base64,…",
    ),
    (
        body({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,é"}}]}),
        "the data is not base64",
    ),
    (
        body({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}),
        "messages[0].content[0].file: send the file itself, as file_data",
    ),
    (
        body({"role": "assistant", "function_call": {"arguments": "{}"}}),
        "messages[0].function_call.name: expected a name",
    ),
    (body({"role": "function", "name": 5}), "messages[0].name: expected a string, found a number"),
    (
        body({"role": "assistant", "tool_calls": [{"id": "c"}]}),
        "messages[0].tool_calls[0].function: expected an object",
    ),
    (body({"role": "assistant", "tool_calls": [{"id": 5}]}), "messages[0].tool_calls[0].id: expected a string"),
    (
        body({"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]}),
        "messages[0].tool_calls[0].type: only 'function' is supported, found 'custom'",
    ),
    (
        body({"role": "tool", "tool_call_id": 5, "content": "x"}),
        "messages[0].tool_call_id: expected a string, found a number",
    ),
    (body(tools=5), "tools: expected a list, found a number"),
    (body(tools=[{"type": "web_search"}]), "tools[0].type: only 'function' is supported, found 'web_search'"),
    (body(tools=[{"type": "function", "function": {}}]), "tools[0].function.name: expected a name, found nothing"),
    (
        body(tools=[{"type": "function", "function": {"name": "f", "parameters": []}}]),
        "tools[0].function.parameters: expected an object, found a list",
    ),
    (body(tools=[READ_TOLD], tool_choice="any"), "tool_choice: unknown value 'any'; write auto, none, required"),
    (
        body(tools=[READ_TOLD], tool_choice={"type": "function", "function": {"name": "rd"}}),
        "tool_choice.function.name: no tool is called 'rd'; name one of tools",
    ),
    (body(tool_choice="required"), "tool_choice: 'required' needs tools"),
    (body(tools=[READ_TOLD], tool_choice={"type": "custom"}), "tool_choice.type: unknown value 'custom'"),
    (body(functions=[{}]), "functions: the API no longer has this field; send tools"),
    (body(function_call="auto"), "function_call: the API no longer has this field; send tool_choice"),
    (body(n=2), "n: expected 1, found a number"),
    (body(stream="yes"), "stream: expected true or false, found 'yes'"),
    (body(stream=True, stream_options=[]), "stream_options: expected an object, found a list"),
    (body(response_format={"type": "json_schema"}), "response_format.json_schema: expected an object, found nothing"),
]


@pytest.mark.parametrize(("request_body", "problem"), REFUSALS, ids=[problem for _, problem in REFUSALS])
def test_a_request_that_cannot_be_read_names_the_place(request_body: Any, problem: str):
    with pytest.raises(FormatError) as raised_error:
        OPENAI_CHAT.decode_request(request_body)
    assert problem in str(raised_error.value)


def test_a_data_url_may_have_parameters():
    data = base64.b64encode(b"x").decode()
    (message,) = decode(
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": f"data:image/svg+xml;charset=utf-8;base64,{data}"}}],
        }
    )
    assert message.parts == (ImagePart("image/svg+xml", b"x"),)
