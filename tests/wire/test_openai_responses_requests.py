"""OpenAI Responses: requests, as a client writes them and as a server reads them."""

from __future__ import annotations

import json
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
from toolspeak.wire.base import Earlier, ModelRequest, OutputSchema
from toolspeak.wire.openai_responses import OPENAI_RESPONSES
from toolspeak.wire.strict_schema import openai_form

READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
SECRET = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def item_data(data: Any, model: str = "m", provider: str = "openai-responses") -> Opaque:
    return Opaque(provider, model, data)


def encode(*messages: Message | TextMessage, stream: bool = True, **fields: Any) -> dict[str, Any]:
    return OPENAI_RESPONSES.encode_request(ModelRequest(messages, **fields), model="m", stream=stream)


def input_items(*messages: Message | TextMessage, **fields: Any) -> list[Any]:
    return encode(*messages, **fields)["input"]


def message_item(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def step(*parts: Any) -> list[Message]:
    """A turn of the model and a result `ok` for each of its calls."""
    message = Message("assistant", parts)
    return [
        message,
        Message("tool", tuple(ToolResult(c.id, c.name, "success", (TextPart("ok"),)) for c in message.calls)),
    ]


def test_a_whole_request():
    call = ToolCall("c1", "read", {"path": "é"}, "call_1", opaque=item_data({"id": "fc_1"}))
    assert encode(
        Message.system("Be brief."),
        Message.user("Read it."),
        *step(TextPart("Yes."), call),
        tools=(READ,),
        choice=ToolChoice("required"),
        parallel=False,
        output=OutputSchema("answer", {"type": "object"}, description="the answer"),
        options={"max_output_tokens": 9, "text": {"verbosity": "low"}},
    ) == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            message_item("user", "Read it."),
            message_item("assistant", "Yes."),
            {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"path": "é"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        ],
        "tools": [
            {
                "type": "function",
                "name": "read",
                "description": "Reads.",
                "parameters": READ.parameters,
                "strict": False,
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "text": {
            "format": {
                "type": "json_schema",
                "name": "answer",
                "description": "the answer",
                "schema": {"type": "object"},
                "strict": False,
            },
            "verbosity": "low",
        },
        "store": False,
        "stream": True,
        "max_output_tokens": 9,
    }


@pytest.mark.parametrize(
    ("choice", "value"),
    [
        (ToolChoice("auto"), None),
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("specific", "read"), {"type": "function", "name": "read"}),
    ],
)
def test_tool_choices_in_both_directions(choice: ToolChoice, value: Any):
    body = encode(tools=(READ,), choice=choice)
    assert body.get("tool_choice") == value
    assert OPENAI_RESPONSES.decode_request(body).request.choice == choice


def test_a_text_dialects_messages_are_plain_ones_and_role_tool_is_the_user():
    body = encode(*(TextMessage(role, role) for role in ("system", "user", "assistant", "tool", "system")))
    assert body["instructions"] == "system"
    assert body["input"] == [
        message_item("user", "user"),
        message_item("assistant", "assistant"),
        message_item("user", "tool"),
        message_item("system", "system"),
    ]


def test_images_files_and_json_in_messages_and_results():
    content = (
        TextPart("look"),
        ImagePart("image/png", b"\x00"),
        ImagePart("image/*", url="https://x/a.png", extra={"detail": "low"}),
        FilePart("a.pdf", "application/pdf", b"pdf"),
    )
    parts = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
        {"type": "input_image", "image_url": "https://x/a.png", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"},
    ]
    messages = [Message.system("."), Message("user", content), Message("assistant", (ToolCall("c", "read", {}, "c"),))]
    messages.append(Message("tool", (ToolResult("c", "read", "success", content),)))
    body = encode(*messages)
    assert body["input"][0]["content"] == body["input"][2]["output"] == parts
    assert OPENAI_RESPONSES.decode_request(body).request.messages == messages
    assert input_items(Message("user", (JsonPart({"a": "é"}),))) == [message_item("user", '{"a": "é"}')]
    assert input_items(Message("assistant", (JsonPart([1]), ImagePart("image/png", b"x")))) == [
        message_item("assistant", "[1]"),
        message_item("assistant", "[image: image/png]"),
    ]


def test_reasoning_goes_back_verbatim_with_the_ids_of_what_it_led_to():
    call = ToolCall("c1", "read", {}, "call_1", opaque=item_data({"id": "fc_1"}))
    text = TextPart("So.", item_data({"id": "msg_1", "phase": "commentary"}))
    assert input_items(*step(ReasoningPart("hm", item_data(SECRET)), text, call))[:3] == [
        SECRET,
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "So.", "annotations": []}],
            "phase": "commentary",
        },
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{}"},
    ]


@pytest.mark.parametrize(
    "opaque",
    [
        None,
        item_data(SECRET, model="other"),
        item_data(SECRET, provider="anthropic"),
        item_data("text"),
        item_data({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}),
    ],
    ids=["unsigned", "of another model", "of another API", "no object", "only its server can read it"],
)
def test_reasoning_that_cannot_go_back_stays_here_and_so_do_the_ids_of_its_turn(opaque: Opaque | None):
    call = ToolCall("c1", "read", {}, "call_1", opaque=item_data({"id": "fc_1"}))
    text = TextPart("So.", item_data({"id": "msg_1", "phase": "commentary"}))
    assert input_items(*step(ReasoningPart("hm", opaque), text, call))[:2] == [
        {**message_item("assistant", "So."), "phase": "commentary"},
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
    ]


def test_a_malformed_call_goes_back_as_text_behind_the_outputs_of_its_batch():
    good, bad = ToolCall("c1", "read", {}, "call_1"), MalformedCall("c2", '{"pa', "invalid_arguments", "cut", "read")
    results = (failure(bad, "malformed", "cut"), ToolResult("c1", "read", "success", (TextPart("ok"),)))
    assert input_items(Message("assistant", (bad, good)), Message("tool", results)) == [
        message_item("assistant", '{"pa'),
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        message_item("user", "cut"),
    ]


# --- earlier -----------------------------------------------------------------------------------------------------

SO_FAR = [Message.system("Be brief."), Message.user("Read it.")]
CALL_STEP = step(TextPart("Yes."), ToolCall("c1", "read", {}, "call_1"))


def test_only_what_the_server_does_not_have_is_sent_and_the_instructions():
    body = encode(*SO_FAR, *CALL_STEP, Message.user("And?"), earlier=Earlier("resp_1", 2), keep=True)
    assert body["previous_response_id"] == "resp_1"
    assert body["instructions"] == "Be brief."
    assert body["store"] is True
    assert body["input"] == [
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        message_item("user", "And?"),
    ]


def test_an_answer_that_was_not_taken_into_the_conversation_is_not_missed():
    assert input_items(*SO_FAR, Message.user("Again."), earlier=Earlier("resp_1", 2)) == [
        message_item("user", "Again.")
    ]
    assert input_items(*SO_FAR, earlier=Earlier("resp_1", 2)) == []


@pytest.mark.parametrize(
    "call",
    [MalformedCall("c1", "{", "invalid_arguments", "cut", "read"), ToolCall("c1", "read", {}, None)],
    ids=["malformed", "without the server's id"],
)
def test_a_kept_turn_whose_calls_cannot_be_answered_is_sent_anew_with_all_before(call: Any):
    body = encode(*SO_FAR, *step(call), earlier=Earlier("resp_1", 2))
    assert "previous_response_id" not in body
    assert body["input"][0] == message_item("user", "Read it.")


def test_more_earlier_messages_than_there_are():
    with pytest.raises(ConfigurationError, match="earlier has 3 messages, and the request only 2"):
        encode(*SO_FAR, earlier=Earlier("resp_1", 3))


# --- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["model", "input", "instructions", "stream", "previous_response_id", "parallel_tool_calls"]
)
def test_an_option_cannot_replace_the_request_itself(name: str):
    with pytest.raises(ConfigurationError, match=f"the option '{name}' cannot be set"):
        encode(options={name: "x"})


def test_an_option_of_none_removes_the_field_and_store_can_be_set():
    body = encode(options={"store": None, "temperature": None, "text": None}, output=OutputSchema("a", {}))
    assert set(body) == {"model", "input", "stream"}
    assert encode(options={"store": True})["store"] is True


def test_tools_that_the_api_runs_itself_come_behind_the_functions():
    body = encode(tools=(READ,), options={"tools": [{"type": "web_search"}]})
    assert [tool["type"] for tool in body["tools"]] == ["function", "web_search"]
    request = OPENAI_RESPONSES.decode_request({**body, "tool_choice": {"type": "web_search"}}).request
    assert (request.tools, request.choice) == ([READ], ToolChoice())
    assert request.options == {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}


@pytest.mark.parametrize("tools", ["web_search", [{"type": "function", "name": "x"}], [{}], ["web_search"], {}])
def test_functions_are_no_option(tools: Any):
    with pytest.raises(ConfigurationError, match="the option 'tools' must be a list of tools that the API runs itself"):
        encode(options={"tools": tools})


@pytest.mark.parametrize("text", [{"format": {"type": "text"}}, "plain"])
def test_an_option_cannot_replace_the_outputs_format(text: Any):
    with pytest.raises(ConfigurationError, match="'text' cannot set a format"):
        encode(output=OutputSchema("a", {}), options={"text": text})


def test_lone_surrogates_are_replaced_before_utf8():
    body = encode(Message.system("\ud800"), *step(ToolCall("c", "read", {"\udfff": "\ud800x"}, "c")))
    json.dumps(body, ensure_ascii=False).encode()
    assert body["instructions"] == "\ufffd"


# --- the server role ---------------------------------------------------------------------------------------------


@PATIENT
@given(requests(opaque=item_data(SECRET), failures=False))
def test_a_server_reads_what_a_client_writes(request: ModelRequest):
    body = json.loads(json.dumps(encode_again := OPENAI_RESPONSES.encode_request(request, model="m", stream=True)))
    assert body == encode_again
    wire_request = OPENAI_RESPONSES.decode_request(body)
    assert (wire_request.model, wire_request.stream) == ("m", True)
    assert OPENAI_RESPONSES.encode_request(wire_request.request, model="m", stream=True) == body
    read_request = wire_request.request
    assert (list(read_request.tools), read_request.choice, read_request.parallel) == (
        list(request.tools),
        request.choice,
        request.parallel,
    )
    output = None if request.output is None else openai_form(request.output)
    assert (read_request.output, read_request.options) == (output, request.options)
    assert [_plain(message) for message in read_request.messages] == [_plain(message) for message in request.messages]


def _plain(message: Message) -> Any:
    """Without the text of reasoning: the item that goes back says it in its own way, here not at all."""
    return message.role, [part.opaque if isinstance(part, ReasoningPart) else part for part in message.parts]


def ask(**fields: Any) -> Any:
    return OPENAI_RESPONSES.decode_request({"model": "m", "input": "Hi", **fields})


def test_input_may_be_a_text_and_roles_may_be_developer():
    request = ask(input="Hi", instructions="Be brief.").request
    assert request.messages == [Message.system("Be brief."), Message.user("Hi")]
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        message_item("user", "Hi"),
    ]
    assert ask(input=items).request.messages == request.messages


def test_what_the_assistant_wrote_side_by_side_is_one_message():
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "a"}],
        "content": [{"type": "reasoning_text", "text": "b"}],
    }
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "So.", "annotations": []}, {"type": "refusal", "refusal": "No."}],
    }
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "read", "arguments": '{"path": 1}'}
    wire_request = ask(input=[thought, message, call, {"type": "function_call_output", "call_id": "c", "output": "ok"}])
    opaque = item_data({"id": "msg_1"})
    assert wire_request.request.messages == [
        Message(
            "assistant",
            (
                ReasoningPart("a\n\nb", item_data(thought)),
                TextPart("So.", opaque),
                TextPart("No.", opaque),
                ToolCall("c", "read", {"path": 1}, "c", opaque=item_data({"id": "fc_1"})),
            ),
        ),
        Message("tool", (ToolResult("c", "read", "success", (TextPart("ok"),)),)),
    ]


def test_calls_that_count_anew_in_each_turn_are_told_apart():
    call = {"type": "function_call", "call_id": "0", "name": "read", "arguments": "{}"}
    outputs = [{"type": "function_call_output", "call_id": "0", "output": text} for text in ("one", "two")]
    messages = ask(input=[call, outputs[0], call, outputs[1]]).request.messages
    assert [part.id for message in messages for part in message.calls] == ["0", "0-1"]
    assert [(part.call_id, part.text) for message in messages for part in message.results] == [
        ("0", "one"),
        ("0-1", "two"),
    ]


def test_a_call_with_arguments_that_are_none_is_malformed_and_its_output_is_read():
    call = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{"}
    messages = ask(input=[call, {"type": "function_call_output", "call_id": "c", "output": []}]).request.messages
    assert isinstance(messages[0].calls[0], MalformedCall)
    assert messages[1].results == (ToolResult("c", "read", "success", ()),)


def test_store_and_stream_and_a_format_of_plain_text():
    wire_request = ask(store=True, stream=None, text={"format": {"type": "text"}, "verbosity": "low"}, tools=None)
    assert (wire_request.stream, wire_request.request.keep, wire_request.request.output) == (False, True, None)
    assert wire_request.request.options == {"text": {"verbosity": "low"}}
    assert ask(text={"format": {"type": "json_object"}}).request.options == {
        "text": {"format": {"type": "json_object"}}
    }


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
REFUSALS: list[tuple[Any, str]] = [
    ([], "the request: expected an object, found a list"),
    ({"input": "x"}, "model: expected a name, found nothing"),
    ({"model": "m"}, "input: expected a string or a list of items, found nothing"),
    ({"previous_response_id": "resp_1"}, "previous_response_id: responses are not stored here: send the whole"),
    ({"conversation": "conv_1"}, "conversation: conversations are not stored here"),
    ({"background": True}, "background: responses are not stored here"),
    ({"prompt": {"id": "p"}}, "prompt: prompt templates are not stored here"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]: items are not stored here: send the item itself"),
    ({"input": [{"type": "computer_call"}]}, "input[0].type: 'computer_call' is not supported here"),
    ({"input": ["x"]}, "input[0]: expected an object, found 'x'"),
    ({"input": [{"role": "critic", "content": ""}]}, "input[0].role: expected user, assistant, system or developer"),
    ({"input": [{"role": "user"}]}, "input[0].content: expected a string or a list of parts, found nothing"),
    ({"input": [{"role": "user", "content": [{"type": "video"}]}]}, "input[0].content[0].type: unknown value 'video'"),
    ({"input": [{"role": "user", "content": [{"type": []}]}]}, "input[0].content[0].type: unknown value []"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text: expected a string"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        "input[0].content[0].image_url: files are not stored here: send a URL",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png,x"}]}]},
        "input[0].content[0].image_url: write a data URL as",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x"}]}]},
        "input[0].content[0].file_data: files are neither stored nor fetched here",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": "é"}]}]},
        "input[0].content[0].file_data: the data is not base64",
    ),
    ({"input": [{**CALL, "call_id": 5}]}, "input[0].call_id: expected a string, found a number"),
    ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments: expected a string, found an object"),
    (
        {"input": [{"type": "function_call_output", "call_id": [], "output": ""}]},
        "input[0].call_id: expected a string, found a list",
    ),
    ({"input": [{"type": "reasoning", "summary": [{}]}]}, "input[0].summary[0].text: expected a string, found nothing"),
    ({"tools": {}}, "tools: expected a list"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name: missing; unlike in Chat"),
    ({"tools": [{"type": "function", "name": "f", "parameters": 1}]}, "tools[0].parameters: expected an object"),
    ({"tool_choice": "any"}, "tool_choice: expected auto, none, required or an object, found 'any'"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.name: expected a name"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls: expected true or false"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema: expected an object"),
]


@pytest.mark.parametrize(("body", "problem"), REFUSALS, ids=[problem for _, problem in REFUSALS])
def test_a_request_that_cannot_be_read_names_the_place(body: Any, problem: str):
    if isinstance(body, dict) and "model" not in body and not problem.startswith("model"):
        body = {"model": "m", "input": "Hi", **body}
    with pytest.raises(FormatError) as raised_error:
        OPENAI_RESPONSES.decode_request(body)
    assert problem in str(raised_error.value)
