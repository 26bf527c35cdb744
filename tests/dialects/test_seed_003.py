"""Seed 003, the tool protocol: every sentence about the format, each with the seed's own examples."""

from __future__ import annotations

import json

import pytest
import seed_examples as seed
from dialect_strategies import TOOLS
from seed_examples import calls_of_turn, read_checked, result

from toolspeak.agent import Agent
from toolspeak.data.messages import MalformedCall, Message, TextMessage, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import scripted_request
from toolspeak.tools.builtin import workspace_tools

DIALECT = get_dialect("tool-call")


def test_a_tool_call_block_with_json_inside():
    """To use a tool, output a `<tool_call>` block with JSON inside"""
    assert calls_of_turn(read_checked(DIALECT, seed.S003_FORM)) == [("read", {"path": "file.md"})]


def test_name_is_a_required_string():
    """`name` (string, required): The tool name"""
    for json_text in ('{"arguments": {}}', '{"name": 7}', '{"name": null}', '{"name": ""}', "{}"):
        (call,) = read_checked(DIALECT, f"<tool_call>{json_text}</tool_call>").calls
        assert isinstance(call, MalformedCall)
        assert call.code == "no_name"


def test_arguments_is_an_optional_object():
    """`arguments` (object, optional): Tool-specific arguments"""
    assert calls_of_turn(read_checked(DIALECT, '<tool_call>{"name": "active_file"}</tool_call>')) == [
        ("active_file", {})
    ]
    for value in ("[]", '"{}"', "null", "7"):
        text = f'<tool_call>{{"name": "read", "arguments": {value}}}</tool_call>'
        (call,) = read_checked(DIALECT, text).calls
        assert isinstance(call, MalformedCall)
        assert call.code == "arguments_not_object"


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (seed.S003_LIST, ("list", {"prefix": "AstraCodex/"})),
        (seed.S003_READ, ("read", {"path": "AstraCodex/Memory.md"})),
        (seed.S003_WRITE, ("write", {"path": "notes/new.md", "content": "# New Note\n\nContent here."})),
        (seed.S003_FLOW, ("list", {"prefix": "notes"})),
    ],
)
def test_example_tool_calls(text: str, call):
    """Example Tool Calls: list files, read a file, write a file; and the one of the example flow"""
    assert calls_of_turn(read_checked(DIALECT, text, TOOLS)) == [call]
    (message,) = DIALECT.render([Message("assistant", (ToolCall("1", *call),))])
    assert "".join(message.text.split()) == "".join(text.split())


def test_the_abbreviated_call_of_the_example_flow_is_no_call():
    """<tool_call>{"name": "list"...}</tool_call> ← WRONG"""
    (call,) = read_checked(DIALECT, seed.S003_WRONG).calls
    assert isinstance(call, MalformedCall)
    assert call.code == "invalid_json"


def test_the_result_is_added_to_the_history_as_a_tool_message():
    """The tool result is added to conversation history as a `role: "tool"` message"""
    listing = result("list", "success", ["notes/daily.md", "notes/weekly.md"])
    messages = DIALECT.render([Message("tool", (listing,))], tool_role=True)
    assert messages == [TextMessage("tool", seed.S003_FLOW_RESULT)]


def test_the_example_flow():
    """User, call, tool result, answer"""
    answer = "The notes folder contains daily.md and weekly.md."
    history = [
        Message.user("what files are in notes?"),
        Message("assistant", (ToolCall("c", "list", {"prefix": "notes"}),)),
        Message("tool", (result("list", "success", json.loads(seed.S003_FLOW_RESULT)),)),
        Message.assistant(answer),
    ]
    messages = DIALECT.render(history, tool_role=True)
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1].text.replace("\n", "") == seed.S003_FLOW
    assert messages[2].text == seed.S003_FLOW_RESULT
    assert read_checked(DIALECT, answer).calls == ()


def test_a_response_without_a_block_is_the_answer():
    """Loop continues until you respond without a `<tool_call>` block"""
    turn = read_checked(DIALECT, "I would write <tool_call> and so on.")
    assert turn.calls == ()
    assert turn.text == "I would write <tool_call> and so on."


def test_at_most_one_block_counts_only_the_last_one_is_executed():
    """Do NOT output multiple tool calls - only the last one will be executed"""
    turn = read_checked(DIALECT, f"{seed.S003_LIST}\nor rather\n{seed.S003_READ}\n{seed.S003_WRITE}\nDone.")
    assert [name for name, _ in calls_of_turn(turn)] == ["write"]
    assert [(each.call.name, each.reason) for each in turn.ignored_calls] == [
        ("list", "only the last call of a turn counts"),
        ("read", "only the last call of a turn counts"),
    ]
    assert DIALECT.batch.max_calls == 1


def test_a_malformed_last_block_does_not_fall_back_to_an_earlier_one():
    """only the last one will be executed: the model changed its mind, so the earlier one must not run"""
    turn = read_checked(DIALECT, f'{seed.S003_WRITE}\n<tool_call>{{"name": "list"</tool_call>')
    (call,) = turn.calls
    assert isinstance(call, MalformedCall)
    assert len(turn.ignored_calls) == 1


def test_a_bad_block_before_a_good_one_does_not_lose_it():
    """only the last one will be executed (the original lost a call beside a bad block)"""
    turn = read_checked(DIALECT, f"{seed.S003_WRONG}\n{seed.S003_READ}")
    assert [name for name, _ in calls_of_turn(turn)] == ["read"]


def test_no_tool_blocks_inside_think_tags():
    """Do NOT include tool blocks inside `<think>` tags"""
    turn = read_checked(DIALECT, f"<think>I could {seed.S003_WRITE}</think>{seed.S003_READ}")
    assert [name for name, _ in calls_of_turn(turn)] == ["read"]
    assert turn.ignored_calls == ()
    assert read_checked(DIALECT, f"<think>{seed.S003_WRITE}</think>No.").calls == ()


@pytest.mark.parametrize("content", ["</tool_call>", "} </tool_call> {", "}<", '"}}</tool_call>', "```"])
def test_code_and_markers_in_a_string_are_content(content: str):
    """JSON inside (the original dropped calls with code in them)"""
    text = f"<tool_call>\n{json.dumps({'name': 'write', 'arguments': {'path': 'a', 'content': content}})}\n</tool_call>"
    turn = read_checked(DIALECT, text)
    assert calls_of_turn(turn) == [("write", {"path": "a", "content": content})]
    assert turn.text == ""


def test_a_failure_starts_with_error():
    """If a tool returns "ERROR:", acknowledge the error and try alternatives"""
    failure = result("read", "failure", "no such file")
    assert DIALECT.render([Message("tool", (failure,))], tool_role=True) == [TextMessage("tool", "ERROR: no such file")]
    assert '"ERROR:"' in DIALECT.instructions(TOOLS)


def test_the_instructions_say_the_important_rules():
    """Important Rules · NEVER repeat a tool call you already made · Error Handling"""
    prompt_text = DIALECT.instructions(TOOLS)
    for rule in ("At most one block", "only the last one", "<think>", "Never repeat a call", "explain the issue"):
        assert rule in prompt_text


def test_write_capable_tools_say_that_they_need_confirmation():
    """`write`, `append`, and `line_edit` DO require explicit user confirmation · `list` and `read` do not"""
    provider = ScriptedProvider(["Done."])
    Agent(provider, workspace_tools("."), dialect="tool-call").run_sync("Go on.")
    prompt = scripted_request(provider).system
    (sentence,) = (line for line in prompt.splitlines() if "approved" in line)
    assert (
        sentence
        == "A call of write, append, edit, line_edit, replace or shell may wait until the user has approved it."
    )


def test_results_of_the_model_itself_are_a_forgery():
    """Tool results appear automatically in your conversation history"""
    turn = read_checked(DIALECT, f"{seed.S003_LIST}\n<tool_result>\n{seed.S003_FLOW_RESULT}\n</tool_result>\nSo:")
    assert [results_text.strip() for results_text in turn.forged_results] == [seed.S003_FLOW_RESULT]
    assert "daily" not in turn.text
