"""Requests of Anthropic's Messages API: what is sent, and what a server reads of it."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wire_strategies import requests

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
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ConfigurationError, FormatError
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.anthropic.request_writer import MAX_TOKENS
from toolspeak.wire.base import Earlier, ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.json_conversion import MAX_DEPTH

MODEL = "claude-opus-5-5"
SIGNATURE = Opaque("anthropic", MODEL, {"signature": "c2ln"})
REDACTION = Opaque("anthropic", MODEL, {"redacted": "eHh4"})
PIXEL = b"\x89PNG"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = ToolSpec("read", "Reads a file.", SCHEMA)
MARK = {"type": "ephemeral"}
USER = Message.user("Hi")
CLOSED_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


def encode(request: ModelRequest, *, model: str = MODEL, stream: bool = True) -> dict[str, Any]:
    return ANTHROPIC.encode_request(request, model=model, stream=stream)


def messages_of(*messages: Message | TextMessage) -> list[Any]:
    return encode(ModelRequest(messages))["messages"]


def message_of(role: str, *content: Any) -> dict[str, Any]:
    return {
        "role": role,
        "content": [{"type": "text", "text": each} if isinstance(each, str) else each for each in content],
    }


def call(call_id: str, name: str = "read", provider_id: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, arguments, provider_id or call_id)


def result(call_id: str, text: str = "ok", name: str = "read") -> ToolResult:
    return ToolResult(call_id, name, "success", (TextPart(text),))


# --- both directions ---------------------------------------------------------------------------------------------

PNG = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
CASES: list[tuple[str, ModelRequest, dict[str, Any]]] = [
    (
        "system and text",
        ModelRequest([Message.system("Be brief."), Message.system("Be kind."), USER]),
        {
            "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
            "messages": [message_of("user", "Hi")],
        },
    ),
    (
        "thought, calls and results",
        ModelRequest(
            [
                USER,
                Message(
                    "assistant",
                    (
                        ReasoningPart("hm", SIGNATURE),
                        ReasoningPart("", REDACTION),
                        TextPart("Let me see."),
                        call("toolu_1", path="a"),
                        call("toolu_2", path="b"),
                    ),
                ),
                Message(
                    "tool",
                    (
                        ToolResult("toolu_1", "read", "success", (TextPart("1"), ImagePart("image/png", PIXEL))),
                        ToolResult("toolu_2", "read", "failure", (TextPart("no such file"),)),
                    ),
                ),
                Message.user("And?"),
            ],
            [READ],
        ),
        {
            "tools": [{"name": "read", "description": "Reads a file.", "input_schema": SCHEMA}],
            "messages": [
                message_of("user", "Hi"),
                message_of(
                    "assistant",
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "eHh4"},
                    "Let me see.",
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {"path": "b"}},
                ),
                message_of(
                    "user",
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "text", "text": "1"}, {"type": "image", "source": PNG}],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_2",
                        "content": [{"type": "text", "text": "no such file"}],
                        "is_error": True,
                    },
                    "And?",
                ),
            ],
        },
    ),
    (
        "images and files",
        ModelRequest(
            [
                Message(
                    "user",
                    (
                        ImagePart("image/*", url="https://example.org/a.png"),
                        FilePart("a.pdf", "application/pdf", b"%PDF"),
                        FilePart("a.txt", "text/plain", "é".encode()),
                    ),
                )
            ]
        ),
        {
            "messages": [
                message_of(
                    "user",
                    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
                        "title": "a.pdf",
                    },
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "é"},
                        "title": "a.txt",
                    },
                )
            ]
        },
    ),
    (
        "any tool, one at most",
        ModelRequest([USER], [READ], ToolChoice("required"), parallel=False),
        {
            "messages": [message_of("user", "Hi")],
            "tools": [{"name": "read", "description": "Reads a file.", "input_schema": SCHEMA}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
    ),
    (
        "one tool by name, with what only this API has",
        ModelRequest([USER], [ToolSpec("read", "", SCHEMA, extra={"strict": True})], ToolChoice("specific", "read")),
        {
            "messages": [message_of("user", "Hi")],
            "tools": [{"name": "read", "input_schema": SCHEMA, "strict": True}],
            "tool_choice": {"type": "tool", "name": "read"},
        },
    ),
    (
        "no tool",
        ModelRequest([USER], [READ], ToolChoice("none")),
        {
            "messages": [message_of("user", "Hi")],
            "tools": [{"name": "read", "description": "Reads a file.", "input_schema": SCHEMA}],
            "tool_choice": {"type": "none"},
        },
    ),
    (
        "an output schema beside another setting of the output",
        ModelRequest(
            [USER], output=OutputSchema("output", CLOSED_SCHEMA), options={"output_config": {"effort": "low"}}
        ),
        {
            "messages": [message_of("user", "Hi")],
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": CLOSED_SCHEMA}},
        },
    ),
    (
        "options",
        ModelRequest(
            [USER],
            options={"max_tokens": 9, "stop_sequences": ["END"], "thinking": {"type": "adaptive"}, "metadata": {}},
        ),
        {
            "messages": [message_of("user", "Hi")],
            "max_tokens": 9,
            "stop_sequences": ["END"],
            "thinking": {"type": "adaptive"},
            "metadata": {},
        },
    ),
    (
        "cache markers",
        ModelRequest(
            [Message.system("s"), USER, Message.assistant("Hello."), Message.user("And?")], [READ], cache=True
        ),
        {
            "system": [{"type": "text", "text": "s", "cache_control": MARK}],
            "messages": [
                message_of("user", {"type": "text", "text": "Hi", "cache_control": MARK}),
                message_of("assistant", "Hello."),
                message_of("user", {"type": "text", "text": "And?", "cache_control": MARK}),
            ],
            "tools": [{"name": "read", "description": "Reads a file.", "input_schema": SCHEMA, "cache_control": MARK}],
        },
    ),
]


def with_default(request: ModelRequest) -> ModelRequest:
    return replace(request, options={"max_tokens": MAX_TOKENS, **request.options})


@pytest.mark.parametrize(("request_", "body"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("stream", [True, False])
def test_a_request_is_written_and_read(request_: ModelRequest, body: dict[str, Any], stream: bool):
    whole = {"model": MODEL, "max_tokens": MAX_TOKENS, "stream": stream, **body}
    assert encode(request_, stream=stream) == whole
    assert ANTHROPIC.decode_request(whole) == WireRequest(as_lists(with_default(request_)), MODEL, stream)


def as_lists(request: ModelRequest) -> ModelRequest:
    return replace(request, messages=[*request.messages], tools=[*request.tools], options=dict(request.options))


def sayable(request: ModelRequest) -> ModelRequest:
    """The request as the API can express it: without text of white space alone and without the output schema's name."""
    output = request.output and replace(request.output, name="output", strict=True, schema=CLOSED_SCHEMA)
    parallel = None if request.choice.mode == "none" else request.parallel
    return as_lists(with_default(replace(request, output=output, parallel=parallel)))


def visible(message: Message) -> Message:
    """The API takes no text of white space alone, and no white space at the end of a conversation."""

    def visible_part(part: Any) -> Any:
        if isinstance(part, TextPart) and not part.text.strip():
            return TextPart(f"{part.text}.")
        return replace(part, content=tuple(map(visible_part, part.content))) if isinstance(part, ToolResult) else part

    return replace(message, parts=tuple(map(visible_part, message.parts)))


@settings(deadline=None)
@given(requests(opaque=SIGNATURE), st.booleans(), st.booleans())
def test_every_request_is_read_as_it_was_written(request: ModelRequest, cache: bool, stream: bool):
    messages = [visible(message) for message in request.messages if isinstance(message, Message)]
    # Of a failed call, the API says only that it failed.
    plain = [
        replace(message, parts=tuple(replace(p, code=None) if isinstance(p, ToolResult) else p for p in message.parts))
        for message in messages
    ]
    plain_request = sayable(replace(request, messages=plain, cache=cache))
    assert ANTHROPIC.decode_request(encode(plain_request, stream=stream)) == WireRequest(plain_request, MODEL, stream)


# --- what is sent ------------------------------------------------------------------------------------------------


def test_neighbouring_messages_of_one_role_are_joined_with_results_first():
    messages = messages_of(
        Message.user("a"),
        TextMessage("user", "b"),
        Message("assistant", (call("t1"),)),
        Message.user("meanwhile"),
        Message("tool", (result("t1"),)),
        Message.user("c"),
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0] == message_of("user", "a", "b")
    assert [block["type"] for block in messages[2]["content"]] == ["tool_result", "text", "text"]


def test_a_system_message_inside_the_conversation_becomes_a_user_message():
    body = encode(ModelRequest([Message.system("s"), USER, Message.system("now in French")]))
    assert body["system"] == [{"type": "text", "text": "s"}]
    assert body["messages"] == [message_of("user", "Hi", "now in French")]


def test_text_of_white_space_alone_is_left_out():
    messages = messages_of(
        Message.system(" "), Message.user(""), USER, Message("assistant", (TextPart("\n"), call("t1")))
    )
    assert messages == [
        message_of("user", "Hi"),
        message_of("assistant", {"type": "tool_use", "id": "t1", "name": "read", "input": {}}),
    ]
    assert "system" not in encode(ModelRequest([Message.system(" "), USER]))
    (_, _, answer) = messages_of(USER, Message("assistant", (call("t1"),)), Message("tool", (result("t1", ""),)))
    assert answer["content"] == [{"type": "tool_result", "tool_use_id": "t1"}]


def test_an_answer_to_be_continued_does_not_end_in_white_space():
    assert messages_of(USER, Message.assistant("It is \n"))[-1] == message_of("assistant", "It is")
    assert messages_of(USER, Message.assistant("It is \n"), USER)[1] == message_of("assistant", "It is \n")


@pytest.mark.parametrize(
    "opaque",
    [None, Opaque("openai-responses", MODEL, {"id": "rs_1"}), Opaque("anthropic", "claude-haiku-5-5", SIGNATURE.data)],
    ids=["unsigned", "another provider's", "another model's"],
)
def test_reasoning_of_another_model_is_not_sent(opaque: Opaque | None):
    assert messages_of(USER, Message("assistant", (ReasoningPart("hm", opaque), TextPart("Hello.")))) == [
        message_of("user", "Hi"),
        message_of("assistant", "Hello."),
    ]


def test_a_malformed_call_and_its_result_go_back_as_text():
    malformed_call = MalformedCall("c2", '{"path": ', "invalid_arguments", "cut off", "read")
    answers = (result("c1"), ToolResult("c2", "read", "failure", (TextPart("cut off"),), "malformed"))
    messages = messages_of(USER, Message("assistant", (call("c1"), malformed_call)), Message("tool", answers))
    assert messages[1]["content"][1] == {"type": "text", "text": '{"path": '}
    assert [block["type"] for block in messages[2]["content"]] == ["tool_result", "text"]


def test_an_image_or_a_file_that_the_api_does_not_take_becomes_text():
    parts = (
        ImagePart("image/tiff", b"II"),
        FilePart("a.zip", "application/zip", b"PK"),
        FilePart("bad.txt", "text/plain", b"\xff"),
        JsonPart({"a": 1}),
    )
    texts = [block["text"] for block in messages_of(Message("user", parts))[0]["content"]]
    assert texts == [
        "[image: image/tiff]",
        "[file a.zip: application/zip, 2 bytes]",
        "[file bad.txt: text/plain, 1 bytes]",
        '{"a": 1}',
    ]
    picture_message = Message("assistant", (ImagePart("image/png", PIXEL),))
    assert messages_of(USER, picture_message)[1] == message_of("assistant", "[image: image/png]")


@given(
    st.lists(
        st.tuples(st.text(max_size=4), st.none() | st.text(max_size=4)), max_size=5, unique_by=lambda each: each[0]
    )
)
@settings(deadline=None)
def test_ids_are_valid_distinct_and_stable(ids: list[tuple[str, str | None]]):
    calls = tuple(ToolCall(own, "read", {}, provider_id) for own, provider_id in ids)
    history = (
        [USER, Message("assistant", calls), Message("tool", tuple(result(own) for own, _ in ids))] if ids else [USER]
    )
    messages = messages_of(*history)
    blocks = [block for message in messages[1:] for block in message["content"]]
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", each) for each in uses)
    assert len(set(uses)) == len(ids)
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == uses
    later = messages_of(*history, Message("assistant", (ToolCall("later", "read", {}, "toolu_9"),)))
    assert later[: len(messages)] == messages


def test_an_id_that_looks_like_a_changed_id_stays_distinct():
    (wire_id,) = [block["id"] for block in messages_of(USER, Message("assistant", (call("a.b"),)))[1]["content"]]
    blocks = messages_of(USER, Message("assistant", (call("a.b"), call("x", provider_id=wire_id))))[1]["content"]
    assert blocks[0]["id"] == wire_id
    assert len({block["id"] for block in blocks}) == 2


def test_an_invented_tool_name_is_sent_in_valid_characters():
    assert messages_of(USER, Message("assistant", (call("c1", "a.b/c"),)))[1]["content"][0]["name"] == "a_b_c"


def test_a_tool_whose_name_the_api_refuses():
    with pytest.raises(ConfigurationError, match=r"the tool 'a\.b' cannot be sent.*rename it"):
        encode(ModelRequest([USER], [ToolSpec("a.b", "", SCHEMA)]))


def test_a_tool_without_parameters_has_an_object_schema():
    (tool,) = encode(ModelRequest([USER], [ToolSpec("now", "", {})]))["tools"]
    assert tool == {"name": "now", "input_schema": {"type": "object"}}


def test_a_choice_without_tools_is_not_sent():
    assert "tool_choice" not in encode(ModelRequest([USER], (), ToolChoice("none"), parallel=False))


def marks(body: dict[str, Any]) -> int:
    messages = [block for message in body["messages"] for block in message["content"]]
    return sum("cache_control" in block for block in [*body.get("system", []), *body.get("tools", []), *messages])


@given(requests(opaque=SIGNATURE))
@example(ModelRequest([Message.user("\r")]))
@settings(deadline=None)
def test_a_request_has_at_most_four_cache_markers_and_none_on_a_thought(request: ModelRequest):
    body = encode(replace(request, cache=True))
    contents = [body.get("system"), body.get("tools"), *(message["content"] for message in body["messages"])]
    assert bool(any(contents)) <= marks(body) <= 4  # white space alone is not sent, so there may be nothing to mark
    thoughts = [b for m in body["messages"] for b in m["content"] if b["type"] in ("thinking", "redacted_thinking")]
    assert not any("cache_control" in block for block in thoughts)


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_marks(inner) for key, inner in value.items() if key != "cache_control"}
    return [without_marks(inner) for inner in value] if isinstance(value, list) else value


def test_the_cached_prefix_stays_the_same_in_the_next_turn():
    history = [Message.system("s"), USER, Message("assistant", (call("t1"),)), Message("tool", (result("t1"),))]
    first = encode(ModelRequest(history[:2], [READ], cache=True))
    second = encode(ModelRequest(history, [READ], cache=True))
    assert without_marks(second["messages"])[:1] == without_marks(first["messages"])
    # The second request has a marker where the first one's cache ends. The API looks back over few blocks only.
    assert second["messages"][0]["content"][-1]["cache_control"] == MARK


def test_without_cache_nothing_is_marked():
    assert marks(encode(ModelRequest([Message.system("s"), USER], [READ]))) == 0


def test_objects_of_an_output_schema_are_closed():
    schema = {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {}}},
            "any": {"anyOf": [{"type": "object"}, {"type": "null"}]},
            "open": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "$defs": {"x": {"type": "object"}},
        "enum": [{"type": "object"}],
    }
    config = encode(ModelRequest([USER], output=OutputSchema("x", schema, description="An answer.")))["output_config"]
    closed_schema = config["format"]["schema"]
    assert closed_schema["additionalProperties"] is False
    assert closed_schema["properties"]["list"]["items"]["additionalProperties"] is False
    assert closed_schema["properties"]["any"]["anyOf"][0] == {"type": "object", "additionalProperties": False}
    assert closed_schema["properties"]["open"]["additionalProperties"] == {"type": "string"}
    assert closed_schema["properties"]["type"] == {"type": "string"}
    assert closed_schema["$defs"]["x"]["additionalProperties"] is False
    assert closed_schema["enum"] == [{"type": "object"}]
    assert closed_schema["description"] == "An answer."


def test_a_schema_that_is_not_strict_is_sent_if_the_api_takes_it():
    """The API refuses every open object."""
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "integer"}}}}}
    config = encode(ModelRequest([USER], output=OutputSchema("x", schema, strict=False)))["output_config"]
    assert config["format"]["schema"]["properties"]["a"]["additionalProperties"] is False
    for loose in ({"type": "object"}, {**schema, "additionalProperties": True}, {**schema, "properties": {"a": {}}}):
        assert "output_config" not in encode(ModelRequest([USER], output=OutputSchema("x", loose, strict=False)))


def test_options_are_sent_unchanged_and_a_none_removes_a_field():
    body = encode(ModelRequest([USER], options={"service_tier": "auto", "max_tokens": None}))
    assert body["service_tier"] == "auto"
    assert "max_tokens" not in body


@pytest.mark.parametrize("name", ["model", "messages", "system", "tool_choice", "stream"])
def test_an_option_cannot_replace_the_request_itself(name: str):
    with pytest.raises(ConfigurationError, match=f"the option '{name}' cannot be set"):
        encode(ModelRequest([USER], options={name: "x"}))


def test_two_output_formats_are_an_error():
    options = {"output_config": {"format": {"type": "json_schema", "schema": {}}}}
    with pytest.raises(ConfigurationError, match="cannot set a format"):
        encode(ModelRequest([USER], output=OutputSchema("x", SCHEMA), options=options))


def test_the_whole_conversation_is_sent_whatever_the_server_stores():
    history = [USER, Message.assistant("Hello."), Message.user("And?")]
    assert encode(ModelRequest(history, earlier=Earlier("msg_1", 1)))["messages"] == messages_of(*history)


def test_lone_surrogates_are_replaced():
    body = encode(ModelRequest([Message.user("a\ud800b")], options={"metadata": {"user_id": "\udfff"}}))
    assert body["messages"] == [message_of("user", "a\ufffdb")]
    assert body["metadata"] == {"user_id": "\ufffd"}


# --- what a server reads -----------------------------------------------------------------------------------------


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [*messages], **fields}


def decode(*messages: Any, **fields: Any) -> ModelRequest:
    return ANTHROPIC.decode_request(body(*messages, **fields)).request


def test_a_text_may_replace_a_list_of_blocks():
    use = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
    request = decode(
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
        {"role": "system", "content": "now in French"},
        system="Be brief.",
    )
    assert request.messages == [
        Message.system("Be brief."),
        USER,
        Message("assistant", (call("t1"),)),
        Message("tool", (result("t1"),)),
        Message.system("now in French"),
    ]


def test_a_request_may_ask_for_a_stream():
    assert ANTHROPIC.decode_request(body()).stream is False
    assert ANTHROPIC.decode_request(body(stream=True)).stream is True


def test_automatic_caching_is_a_field_of_the_request():
    request = decode(cache_control=MARK)
    assert request.cache is True
    assert "cache_control" not in request.options


def test_unsigned_thinking_is_read():
    thinking = {"type": "thinking", "thinking": "hm", "signature": ""}
    assert decode(message_of("assistant", thinking)).messages == [Message("assistant", (ReasoningPart("hm"),))]


USE = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}


def test_results_are_one_message_wherever_the_user_puts_them():
    def result(call_id: str) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call_id, "content": call_id}

    read = decode(
        message_of("assistant", USE, {**USE, "id": "t2"}, {**USE, "id": "t1"}),
        message_of("user", result("t1")),
        message_of("user", result("t2"), result("t1"), result("t9"), "Hm.", result("")),
    ).messages
    assistant, results_message, *rest = read
    ids = [part.id for part in assistant.calls]
    assert len({*ids}) == 3
    assert [part.call_id for part in results_message.results] == [ids[0], ids[1], ids[2], "t9"]
    assert [message.role for message in rest] == ["user", "tool"]
    assert rest[1].results[0].call_id == ""


REFUSALS: list[tuple[Any, str]] = [
    ([], "the request: expected an object, found a list"),
    ({}, "model: expected a name, found nothing"),
    (body(5), "messages[0]: expected an object, found a number"),
    ({"model": "m", "messages": "Hi"}, "messages: expected a list, found 'Hi'"),
    ({"model": "m"}, "messages: expected a list, found nothing"),
    (body({"role": "tool", "content": "x"}), "messages[0].role: expected 'user', 'assistant' or 'system'"),
    (body({"role": "user"}), "messages[0].content: expected a string or a list of blocks, found nothing"),
    (
        body({"role": "user", "content": [{"type": "text"}]}),
        "messages[0].content[0].text: expected a string, found nothing",
    ),
    (body(message_of("user", {"type": "tool_use"})), "messages[0].content[0].type: blocks of the type 'tool_use'"),
    (body(message_of("user", {"type": "search_result"})), "omit the block, or send its content as text"),
    (body(message_of("assistant", {"type": "server_tool_use"})), "does not have Anthropic's own"),
    (
        body(message_of("user", {"type": "tool_result", "tool_use_id": 9})),
        "messages[0].content[0].tool_use_id: expected a string",
    ),
    (
        body(message_of("assistant", {**USE, "input": "{}"})),
        "messages[0].content[0].input: expected an object, found '{}'",
    ),
    (body(message_of("user", {"type": "image", "source": {"type": "file", "file_id": "f"}})), "send the image itself"),
    (body(message_of("user", {"type": "image", "source": {**PNG, "data": "?"}})), "source.data: expected base64"),
    (body(message_of("user", {"type": "document", "source": {"type": "url"}})), "send the document itself"),
    (body(system=[{"type": "image"}]), "system[0].type: blocks of the type 'image'"),
    (body(system=5), "system: expected a list, found a number"),
    (
        body(tools=[{"type": "web_search_20250305", "name": "web_search"}]),
        "tools[0].type: 'web_search_20250305' is one of",
    ),
    (body(tools=[{"name": "read"}]), "tools[0].input_schema: expected an object, found nothing"),
    (body(tool_choice={"type": "some"}), "tool_choice.type: expected one of: auto, any, tool, none"),
    (body(tool_choice={"type": "tool", "name": "x"}), "tool_choice.name: no tool is called 'x'"),
    (body(output_config={"format": {"type": "xml"}}), "output_config.format.type: expected 'json_schema'"),
    (body(stream="yes"), "stream: expected true or false, found 'yes'"),
    (body(thread={"type": "create"}), "thread: conversations are not stored here: send the whole one in 'messages'"),
]


@pytest.mark.parametrize(("request_body", "problem"), REFUSALS, ids=[problem for _, problem in REFUSALS])
def test_a_request_that_cannot_be_read_names_the_field(request_body: Any, problem: str):
    with pytest.raises(FormatError) as raised_error:
        ANTHROPIC.decode_request(request_body)
    assert problem in str(raised_error.value)


def test_a_stored_conversation_is_refused_with_an_error_that_anthropics_package_reads():
    """`thread_unsupported_request` has its tool runner send the whole conversation instead (anthropic 2.12)."""
    with pytest.raises(FormatError) as raised_error:
        ANTHROPIC.decode_request(body(thread={"type": "continue", "previous_message_id": "msg_1"}))
    assert raised_error.value.details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "text", "user", "tool_use", "image", "t1"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "source", "id", "input", "tool_use_id", "name"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries(
        {"model": st.just("m")},
        optional=dict.fromkeys(
            ["messages", "system", "tools", "tool_choice", "stream", "output_config", "cache_control"], JSON_LIKE
        ),
    )
)
@settings(deadline=None)
def test_no_request_breaks_the_reader(request_body: Any):
    try:
        request = ANTHROPIC.decode_request(request_body)
    except FormatError:
        return
    assert request.model == "m"


def test_arguments_of_any_depth_are_sent():
    deep: Any = {}
    for _ in range(MAX_DEPTH - 1):
        deep = {"a": deep}
    assert messages_of(USER, Message("assistant", (ToolCall("c1", "read", deep),)))[1]["content"][0]["input"] == deep


# --- tools that a search found ---------------------------------------------------------------------------------------

FIND = ToolSpec("find_tools", "Finds tools.", SCHEMA)
SEARCH_RESULT = ToolResult(
    "a", "find_tools", "success", (TextPart("Added."),), extra={"found_tools": ["read", "write"]}
)
WRITE = ToolSpec("write", "Writes a file.", SCHEMA)


def search_body(search_result: ToolResult, *tools: ToolSpec, references: bool = True) -> dict[str, Any]:
    calls = Message("assistant", (call("a", search_result.name),))
    messages = [USER, calls, Message("tool", (search_result,))]
    return encode(ModelRequest(messages, tools, cache=True, references=references))


def test_the_result_of_a_search_refers_to_definitions_that_are_not_in_the_prompt():
    body = search_body(SEARCH_RESULT, FIND, READ, WRITE)
    (block,) = body["messages"][-1]["content"]
    assert block["content"] == [
        {"type": "tool_reference", "tool_name": "read"},
        {"type": "tool_reference", "tool_name": "write"},
    ]
    assert [tool.get("defer_loading") for tool in body["tools"]] == [None, True, True]
    assert ["cache_control" in tool for tool in body["tools"]] == [True, False, False]


def test_definitions_are_in_the_prompt_where_no_result_refers_to_them():
    own = ToolResult("a", "read", "success", (TextPart("The file."),), extra={"found_tools": ["read"]})
    for case, tools, references in (
        (SEARCH_RESULT, (FIND, READ, WRITE), False),  # another API's server
        (SEARCH_RESULT, (FIND, READ), True),  # `write` has left the list
        (own, (FIND, READ), True),  # called without a search: the result is the tool's own
    ):
        body = search_body(case, *tools, references=references)
        (block,) = body["messages"][-1]["content"]
        assert block["content"][0]["text"] == case.text
        assert not any("defer_loading" in tool for tool in body["tools"])
