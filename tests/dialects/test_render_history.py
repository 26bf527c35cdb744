"""The history as the model reads it."""

from __future__ import annotations

import json

import pytest
from dialect_strategies import TOOLS
from seed_examples import result

from toolspeak.data.messages import (
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    ReasoningPart,
    TextMessage,
    TextPart,
    ToolCall,
    ToolResult,
    failure,
)
from toolspeak.dialects import PROTOCOLS, Dialect, get_dialect, read_turn

each_dialect = pytest.mark.parametrize("dialect", PROTOCOLS, ids=lambda dialect: dialect.name)
JSON_D, XML_D, TOOL_CALL = PROTOCOLS

READ = ToolCall("c1", "read", {"file": "a"})
PING = ToolCall("c2", "ping", {})
READ_DONE, PING_DONE = result("read", "success", "AAA", "c1"), result("ping", "failure", "no network", "c2")
TURN = Message("assistant", (ReasoningPart("hm"), TextPart("Let me see."), READ, PING))
BOTH = Message("tool", (READ_DONE, PING_DONE))


@each_dialect
@pytest.mark.parametrize("tool_role", [True, False])
def test_roles_and_text_stay(dialect: Dialect, tool_role: bool):
    history = [Message.system("S"), Message.user("<execute>[1]"), Message.assistant("Hi </think>"), Message.user("u")]
    assert dialect.render(history, tool_role=tool_role) == [
        TextMessage("system", "S"),
        TextMessage("user", "<execute>[1]"),
        TextMessage("assistant", "Hi </think>"),
        TextMessage("user", "u"),
    ]


@each_dialect
def test_the_cogency_protocols_show_reasoning_again(dialect: Dialect):
    messages = dialect.render([TURN, BOTH], TOOLS)
    assert any("hm" in message.text for message in messages) == (dialect.name != "tool-call")


def test_cogency_renders_a_turn_as_one_block_and_one_message_of_results():
    for tool_role in (True, False):
        first, second = JSON_D.render([TURN, BOTH], TOOLS, tool_role=tool_role)
        assert first == TextMessage(
            "assistant",
            '<think>hm</think>\nLet me see.\n<execute>\n[\n  {"name": "read", "args": {"file": "a"}},\n'
            '  {"name": "ping", "args": {}}\n]\n</execute>',
        )
        assert second == TextMessage(
            "user",
            '<results>\n[\n  {"tool": "read", "status": "success", "content": "AAA"},\n'
            '  {"tool": "ping", "status": "failure", "content": "no network"}\n]\n</results>',
        )
    first, _ = XML_D.render([TURN, BOTH], TOOLS)
    calls = "<execute>\n  <read><file>a</file></read>\n  <ping></ping>\n</execute>"
    assert first.text == f"<think>hm</think>\nLet me see.\n{calls}"


def test_tool_call_renders_a_turn_of_several_calls_as_pairs():
    messages = TOOL_CALL.render([Message.user("go"), TURN, BOTH, Message.assistant("Done.")], tool_role=True)
    assert messages == [
        TextMessage("user", "go"),
        TextMessage(
            "assistant", 'Let me see.\n<tool_call>\n{"name": "read", "arguments": {"file": "a"}}\n</tool_call>'
        ),
        TextMessage("tool", "AAA"),
        TextMessage("assistant", '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'),
        TextMessage("tool", "ERROR: no network"),
        TextMessage("assistant", "Done."),
    ]


def test_tool_call_without_the_tool_role_puts_results_into_user_messages():
    messages = TOOL_CALL.render([TURN, BOTH])
    assert [message.role for message in messages] == ["assistant", "user", "assistant", "user"]
    assert messages[1].text == "<tool_result>\nAAA\n</tool_result>"
    assert messages[3].text == "<tool_result>\nERROR: no network\n</tool_result>"


def test_tool_call_loses_no_call_of_an_interrupted_turn():
    """Calls whose results are not there (yet) are in the history all the same."""
    for history in ([TURN], [TURN, Message.user("go on")], [TURN, Message("tool", (READ_DONE,))]):
        rendered_text = "".join(message.text for message in TOOL_CALL.render(history))
        assert rendered_text.count("<tool_call>") == 2, history
        assert rendered_text.index('"read"') < rendered_text.index('"ping"')


@each_dialect
@pytest.mark.parametrize("tool_role", [True, False])
def test_a_history_that_grows_is_the_history_at_once(dialect: Dialect, tool_role: bool):
    messages = [Message.user("a"), TURN, BOTH, Message.user("b"), TURN, BOTH, Message.assistant("c")]
    history = dialect.history(TOOLS, tool_role=tool_role)
    for i, message in enumerate(messages, 1):
        history.add(message)
        if message.role != "assistant":  # there, calls wait for their results
            assert history.messages == dialect.render(messages[:i], TOOLS, tool_role=tool_role)
    assert history.messages == dialect.render(messages, TOOLS, tool_role=tool_role)


@each_dialect
def test_neighbouring_user_messages_become_one(dialect: Dialect):
    messages = dialect.render([Message.user("a"), Message.user("b"), Message.assistant("c"), Message.user("d")])
    assert messages == [TextMessage("user", "a\n\nb"), TextMessage("assistant", "c"), TextMessage("user", "d")]


@pytest.mark.parametrize("dialect", [JSON_D, XML_D], ids=["cogency-json", "cogency-xml"])
def test_a_user_message_after_results_is_merged_with_them(dialect: Dialect):
    *_, last = dialect.render([TURN, BOTH, Message.user("and now?")], TOOLS)
    assert last.role == "user"
    assert last.text.endswith("</results>\n\nand now?")


def test_tool_messages_are_not_merged():
    messages = TOOL_CALL.render([Message("tool", (READ_DONE,)), Message("tool", (PING_DONE,))], tool_role=True)
    assert [message.text for message in messages] == ["AAA", "ERROR: no network"]


@pytest.mark.parametrize("text", ["<execute>[{}]</execute>", "<execute>[]</execute>", "<execute>[1 2]</execute>"])
def test_the_tool_of_a_result_is_a_string_where_no_name_could_be_read(text: str):
    """`tool`: string (Cogency, docs/execution.md)"""
    turn = read_turn(JSON_D, text, TOOLS)
    results = [failure(call, "malformed", "why") for call in turn.calls]
    for dialect in (JSON_D, XML_D):
        results_text = dialect.render_results(results)
        (row,) = json.loads(results_text.removeprefix("<results>").removesuffix("</results>"))
        assert row == {"tool": "", "status": "failure", "content": "why"}


# --- malformed calls ----------------------------------------------------------------------------

BROKEN_BLOCKS = {
    "cogency-json": '<execute>[{"name": "read" "args": {}}]</execute>',
    "cogency-xml": "<execute><read>oops</read></execute>",
    "tool-call": '<tool_call>{"name": "read",}</tool_call>',
}


@each_dialect
def test_a_block_that_could_not_be_read_is_shown_as_it_was_written(dialect: Dialect):
    turn = read_turn(dialect, f"Well. {BROKEN_BLOCKS[dialect.name]}", TOOLS)
    (message,) = dialect.render([turn.message], TOOLS)
    assert message.text == f"Well.\n{BROKEN_BLOCKS[dialect.name]}"


def test_a_malformed_element_is_shown_in_its_position():
    text = '<execute>[{"name": "ping", "args": {}}, {"nam": 1}, 7]</execute>'
    (message,) = JSON_D.render([read_turn(JSON_D, text).message])
    body = message.text.removeprefix("<execute>").removesuffix("</execute>")
    assert json.loads(body) == [{"name": "ping", "args": {}}, {"nam": 1}, 7]
    text = "<execute>\n  <ping></ping>\n  <read><file>a</file><file>b</file></read>\n</execute>"
    (message,) = XML_D.render([read_turn(XML_D, text, TOOLS).message], TOOLS)
    assert message.text == text


def test_a_malformed_element_that_is_no_json_value_is_shown_as_a_string():
    broken_call = MalformedCall("1", '{"a": 1, "a": 2}', "duplicate_key", "twice")
    (message,) = JSON_D.render([Message("assistant", (broken_call, PING))])
    body = message.text.removeprefix("<execute>").removesuffix("</execute>")
    assert json.loads(body) == ['{"a": 1, "a": 2}', {"name": "ping", "args": {}}]


# --- what text cannot carry ---------------------------------------------------------------------


@each_dialect
def test_images_and_files_are_described(dialect: Dialect):
    content = (
        TextPart("see"),
        JsonPart({"n": 1}),
        ImagePart("image/png", b"12345"),
        ImagePart("image/png", url="https://x/y.png"),
        FilePart("a.pdf", "application/pdf", b"123"),
    )
    rendered_text = dialect.render_results([ToolResult("1", "look", "success", content)])
    start, stop = rendered_text.index('["see"'), rendered_text.rindex("]", 0, rendered_text.rindex("]") + 1)
    rows = json.JSONDecoder().raw_decode(rendered_text[start : stop + 1])[0]
    assert rows == [
        "see",
        {"n": 1},
        {"type": "image", "media_type": "image/png", "bytes": 5},
        {"type": "image", "media_type": "image/png", "url": "https://x/y.png"},
        {"type": "file", "name": "a.pdf", "media_type": "application/pdf", "bytes": 3},
    ]


@each_dialect
def test_a_result_without_content_is_null(dialect: Dialect):
    assert "null" in dialect.render_results([ToolResult("1", "x", "success", ())])


@pytest.mark.parametrize("name", ["cogency-json", "tool-call"])
def test_lone_surrogates_are_escaped_in_json_so_that_a_request_can_carry_them(name: str):
    dialect = get_dialect(name)
    (message,) = dialect.render([Message("assistant", (ToolCall("1", "x", {"a": "\ud800"}),))])
    assert message.text.encode()


# --- XML names and values -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (ToolCall("1", "a.b-c", {}), "<a.b-c></a.b-c>"),
        (ToolCall("1", "a/b:c", {}), '<call name="a/b:c"></call>'),
        (ToolCall("1", "call", {"argument": "x"}), '<call name="call"><argument name="argument">x</argument></call>'),
        (ToolCall("1", "t", {"a b": "x"}), '<t><argument name="a b">x</argument></t>'),
        (ToolCall("1", "t", {'"<&': "x"}), '<t><argument name="&#34;&#60;&#38;">x</argument></t>'),
        (ToolCall("1", "t", {"n": 7}), '<t><n type="json">7</n></t>'),
        (ToolCall("1", "set", {"n": 7, "flag": True}), "<set><n>7</n><flag>true</flag></set>"),
        (ToolCall("1", "set", {"tags": ["<b>"]}), '<set><tags>["\\u003cb>"]</tags></set>'),
        (ToolCall("1", "read", {"file": "</file>"}), "<read><file><![CDATA[</file>]]></file></read>"),
        (ToolCall("1", "read", {"file": "<THINK>"}), "<read><file><![CDATA[<THINK>]]></file></read>"),
        (ToolCall("1", "read", {"file": "<b>&</b>"}), "<read><file><b>&</b></file></read>"),
    ],
)
def test_xml_elements(call: ToolCall, text: str):
    (message,) = XML_D.render([Message("assistant", (call,))], TOOLS)
    assert message.text == f"<execute>\n  {text}\n</execute>"
