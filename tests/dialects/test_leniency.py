"""Deviations that are accepted, each with its note; and what is never guessed."""

from __future__ import annotations

import pytest
from dialect_strategies import TOOLS
from seed_examples import calls_of_turn, read_checked

from toolspeak.data.deltas import ReasoningDelta, TextDelta
from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.dialects import PROTOCOLS, get_dialect, read_turn

READ = {"file": "a"}
J, X, T = "cogency-json", "cogency-xml", "tool-call"
CALL = '{"name": "read", "args": {"file": "a"}}'
TCALL = '{"name": "read", "arguments": {"file": "a"}}'
XCALL = "<read><file>a</file></read>"

# dialect, text, notes of the call, notes of the batch
LENIENT = [
    (J, '<execute>[{"name": "read", "arguments": {"file": "a"}}]</execute>', ("arguments_key:arguments",), ()),
    (J, '<execute>[{"name": "read", "parameters": {"file": "a"}}]</execute>', ("arguments_key:parameters",), ()),
    (T, '<tool_call>{"name": "read", "args": {"file": "a"}}</tool_call>', ("arguments_key:args",), ()),
    (T, '<tool_call>{"name": "read", "parameters": {"file": "a"}}</tool_call>', ("arguments_key:parameters",), ()),
    (J, f'<execute>[{CALL[:-1]}, "why": "x"}}]</execute>', ("extra_key:why",), ()),
    (J, f'<execute>[{CALL[:-1]}, "id": "c9"}}]</execute>', (), ()),
    (J, f"```json\n<execute>[{CALL}]</execute>\n```", (), ("code_fence",)),
    (J, f"```\n<execute>\n[{CALL}]\n</execute>\n```\n", (), ("code_fence",)),
    (J, f"<execute>\n```json\n[{CALL}]\n```\n</execute>", (), ("code_fence",)),
    (J, f"<execute>```[{CALL}]```</execute>", (), ("code_fence",)),
    (T, f"```xml\n<tool_call>\n{TCALL}\n</tool_call>\n```", (), ("code_fence",)),
    (T, f"<tool_call>\n```json\n{TCALL}\n```\n</tool_call>", (), ("code_fence",)),
    (X, f"```xml\n<execute>{XCALL}</execute>\n```", (), ("code_fence",)),
    (X, f"<execute>\n```xml\n{XCALL}</execute>", (), ("code_fence",)),
    (J, f'<execute id="1">[{CALL}]</execute>', (), ("marker_attributes",)),
    (X, f"<execute parallel>{XCALL}</execute>", (), ("marker_attributes",)),
    (T, f"<tool_call id='x'>{TCALL}</tool_call>", (), ("marker_attributes",)),
    (J, f"<EXECUTE>[{CALL}]</Execute>", (), ("marker_case",)),
    (X, f"<Execute>{XCALL}</execute>", (), ("marker_case",)),
    (T, f"<Tool_Call>{TCALL}</tool_call>", (), ("marker_case",)),
    (J, f"<execute >[{CALL}]</ execute >", (), ()),
    (X, f"```xml\n<execute id='1'>{XCALL}</execute>\n```", (), ("marker_attributes", "code_fence")),
    (J, f"<execute>{CALL}</execute>", (), ("single_object",)),
    (T, f"<tool_call>[{TCALL}]</tool_call>", (), ("array",)),
    (J, f"<execute>[{CALL}]", (), ("missing_closer",)),
    (J, f"<execute>[{CALL}]\n</exec", (), ("missing_closer",)),
    (T, f"<tool_call>{TCALL}\n", (), ("missing_closer",)),
    (X, f"<execute>{XCALL}\n", (), ("missing_closer",)),
    (X, "<execute><read><file>a</file></execute>", ("missing_closer",), ()),
    (X, '<execute><read id="7"><file lang="en">a</file></read></execute>', ("attributes",), ()),
    (X, "<execute><read ><file >a</file ></read ></execute>", (), ()),
    (X, '<execute><call name="read"><argument name="file">a</argument></call></execute>', (), ()),
]


@pytest.mark.parametrize(("name", "text", "call_notes", "batch_notes"), LENIENT)
def test_a_lenient_form_is_read_and_noted(name: str, text: str, call_notes, batch_notes):
    turn = read_checked(get_dialect(name), text, TOOLS)
    (call,) = turn.calls
    assert isinstance(call, ToolCall), call
    assert (call.name, call.arguments) == ("read", READ)
    assert call.notes == call_notes
    assert turn.notes == batch_notes
    assert turn.text.strip() == ""


def test_the_model_s_own_id_is_kept():
    text = '<execute>[{"id": "c9", "name": "read", "args": {}}, {"id": 7, "name": "read", "args": {}}]</execute>'
    calls = read_checked(get_dialect(J), text).calls
    assert [call.provider_id for call in calls if isinstance(call, ToolCall)] == ["c9", "7"]


def test_an_id_of_null_is_no_id():
    text = '<execute>[{"id": null, "name": "read", "args": {}}]</execute>'
    (call,) = read_checked(get_dialect(J), text).calls
    assert isinstance(call, ToolCall)
    assert call.provider_id is None


NEVER = {
    "cut arguments": '{"name": "read", "args": {"file": "a"',
    "cut in a string": '{"name": "read", "args": {"file": "a',
    "cut after the arguments": '{"name": "read", "args": {"file": "a"}',
    "unclosed string": '{"name": "read", "args": {"file": "a}}',
    "trailing comma in arguments": '{"name": "read", "args": {"file": "a",}}',
    "trailing comma in the call": '{"name": "read", "args": {"file": "a"},}',
    "comment": '{"name": "read", /* why */ "args": {"file": "a"}}',
    "line comment": '{"name": "read", "args": {"file": "a"}} // done\n',
    "single quotes": "{'name': 'read', 'args': {'file': 'a'}}",
    "unquoted key": '{name: "read", "args": {"file": "a"}}',
    "unquoted value": '{"name": "read", "args": {"file": a}}',
    "Python literals": '{"name": "read", "args": {"file": None}}',
    "line break in a string": '{"name": "read", "args": {"file": "a\nb"}}',
    "bad escape": '{"name": "read", "args": {"file": "a\\qb"}}',
    "missing colon": '{"name" "read", "args": {"file": "a"}}',
    "missing comma": '{"name": "read" "args": {"file": "a"}}',
    "one brace too many": '{"name": "read", "args": {"file": "a"}}}',
    "leading zero": '{"name": "read", "args": {"n": 01}}',
    "hexadecimal": '{"name": "read", "args": {"n": 0x1}}',
    "plus": '{"name": "read", "args": {"n": +1}}',
    "NaN": '{"name": "read", "args": {"n": NaN}}',
    "text in front": 'call {"name": "read", "args": {"file": "a"}}',
    "text after": '{"name": "read", "args": {"file": "a"}} please',
    "duplicate key": '{"name": "read", "args": {"file": "a", "file": "b"}}',
    "two argument keys": '{"name": "read", "args": {"file": "a"}, "arguments": {"file": "a"}}',
    "two names": '{"name": "read", "name": "write", "args": {}}',
    "arguments as text": '{"name": "read", "args": "{\\"file\\": \\"a\\"}"}',
    "no name": '{"tool": "read", "args": {"file": "a"}}',
}


@pytest.mark.parametrize("what", NEVER)
@pytest.mark.parametrize("name", [J, T])
def test_json_is_never_guessed(name: str, what: str):
    """The model gets the error. Nothing of it runs, and nothing of it is shown to the user."""
    body = f"[{NEVER[what]}]" if name == J else NEVER[what]
    marker = "execute" if name == J else "tool_call"
    if what == "text in front":
        body = body.replace("call {", "{call ")
    turn = read_checked(get_dialect(name), f"<{marker}>{body}</{marker}>")
    (call,) = turn.calls
    assert isinstance(call, MalformedCall)
    assert call.reason
    assert turn.text == ""


XML_NEVER = [
    "<read><file>a",
    "<read><file>a</file>",
    "<read><file>a</read>",
    "<read>a</read>",
    "read: a",
    "<read file=a></read>",
    "</read>",
    "<read><file>a</file></read> done",
    "<![CDATA[<read/>]]>",
    "<read><file><![CDATA[a</file></read>",
]


@pytest.mark.parametrize("inner", XML_NEVER)
def test_xml_is_never_guessed(inner: str):
    text = f"<execute><ping/>{inner}"
    for end in ("", "</execute", "</execute>"):
        if inner in ("<read><file>a</file>", "<read><file>a</read>") and end == "</execute>":
            continue  # lenient, or the other call runs: see below
        turn = read_checked(get_dialect(X), text + end, TOOLS)
        (call,) = turn.calls
        assert isinstance(call, MalformedCall), text + end
        assert call.whole_block
        assert turn.text == ""


def test_a_value_without_its_end_fails_its_call_alone():
    first, second = read_checked(get_dialect(X), "<execute><ping/><read><file>a</read></execute>", TOOLS).calls
    assert isinstance(first, ToolCall)
    assert isinstance(second, MalformedCall)
    assert "no end" in second.reason


def test_text_between_arguments_fails_its_call_alone():
    text = "<execute><read><file>a</file>, <path>b</path></read><ping/></execute>"
    first, second = read_checked(get_dialect(X), text, TOOLS).calls
    assert isinstance(first, MalformedCall)
    assert "text follows" in first.reason
    assert isinstance(second, ToolCall)


@pytest.mark.parametrize("name", [J, X, T])
@pytest.mark.parametrize("finish", ["length", "error", "cancelled", "content_filter"])
def test_a_missing_end_marker_is_lenient_only_at_a_normal_end(name: str, finish: str):
    text = {J: f"<execute>[{CALL}]\n", X: f"<execute>{XCALL}\n", T: f"<tool_call>{TCALL}\n"}[name]
    (call,) = read_turn(get_dialect(name), text, TOOLS, finish=finish).calls
    assert isinstance(call, MalformedCall)
    assert call.code == "truncated"
    assert calls_of_turn(read_turn(get_dialect(name), text, TOOLS, finish="stop")) == [("read", READ)]


PROSE = [
    "To call a tool write `<execute>[…]</execute>` or `<tool_call>{…}</tool_call>`.",
    "The <execute> element and the <tool_call> element hold calls.",
    "<executed>[1]</executed> <tool_calls>{}</tool_calls> <thinking>",
    "<execute/> <tool_call/> </execute> </tool_call>",
    "a < b and <execute",
    "```\nprint('<')\n```\n``` `x` ```",
]


@pytest.mark.parametrize("name", [J, X, T])
@pytest.mark.parametrize("text", PROSE)
def test_prose_that_mentions_markers_is_text(name: str, text: str):
    turn = read_checked(get_dialect(name), text, TOOLS)
    assert turn.calls == ()
    assert turn.text == text


@pytest.mark.parametrize("name", [J, X, T])
def test_text_around_a_block_is_kept(name: str):
    text = {J: f"<execute>[{CALL}]</execute>", X: f"<execute>{XCALL}</execute>", T: f"<tool_call>{TCALL}</tool_call>"}
    turn = read_checked(get_dialect(name), f"Before.\n{text[name]}\nAfter.", TOOLS)
    assert turn.text == "Before.\n\nAfter."
    assert calls_of_turn(turn) == [("read", READ)]


@pytest.mark.parametrize("name", [J, X])
def test_only_the_first_block_counts(name: str):
    block = f"<execute>[{CALL}]</execute>" if name == J else f"<execute>{XCALL}</execute>"
    turn = read_checked(get_dialect(name), f"{block}\nand\n{block}", TOOLS)
    assert calls_of_turn(turn) == [("read", READ)]
    assert [each.reason for each in turn.ignored_calls] == ["the turn's batch had ended already"]


@pytest.mark.parametrize("dialect", PROTOCOLS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("text", "starts_in", "reasoning", "content"),
    [
        ("a<think>b</think>c</think>d", "reasoning", "a<think>b</think>c", "d"),
        ("<think>a</think>b", "reasoning", "a", "b"),
        (" \n<think>a<think>b</think>c</think>d", "reasoning", " \na<think>b</think>c", "d"),
        ("<think>I write `<think>` first</think>Hi", "text", "I write `<think>` first", "Hi"),
        ("<think>so `x`</think>Hi", "text", "so `x`", "Hi"),
    ],
)
def test_nested_reasoning_is_counted_and_a_mention_is_not(dialect, text, starts_in, reasoning, content):
    for size in range(1, len(text) + 1):
        parser = dialect.parser(starts_in=starts_in)
        deltas = [delta for at in range(0, len(text), size) for delta in parser.feed(text[at : at + size])]
        deltas += parser.close("stop")
        assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == reasoning
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == content


@pytest.mark.parametrize(
    ("dialect", "text", "reason_part"),
    [
        (T, '<tool_call>{"name": "read", "params": {"file": "a"}}</tool_call>', '"params" is not known'),
        (T, '<tool_call>{"name": "read", "file": "a"}</tool_call>', '"file" is not known'),
        (X, '<execute><read file="a"/></execute>', "arguments are elements, not attributes"),
        (X, '<execute><read file="a"></read></execute>', "arguments are elements, not attributes"),
    ],
)
def test_arguments_in_the_wrong_place_are_never_an_executable_empty_object(dialect, text, reason_part):
    (call,) = read_turn(get_dialect(dialect), text, TOOLS).calls
    assert isinstance(call, MalformedCall)
    assert reason_part in call.reason


def test_a_call_without_arguments_may_say_its_type():
    (call,) = read_turn(get_dialect(T), '<tool_call>{"type": "function", "name": "read"}</tool_call>', TOOLS).calls
    assert (call.name, call.arguments) == ("read", {})
