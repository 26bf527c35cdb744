"""Seed 000, the Cogency JSON protocol: every sentence about the format, each with the seed's own examples."""

from __future__ import annotations

import json

import pytest
import seed_examples as seed
from dialect_strategies import TOOLS
from seed_examples import calls_of_turn, is_only_a_forgery, read_checked, result, results_as_told

from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.dialects import get_dialect, read_turn
from toolspeak.tools import tool

DIALECT = get_dialect("cogency-json")


def test_three_phase_execution_think_execute_results():
    """Three-phase execution: THINK → EXECUTE → RESULTS (with every turn of the complete example)."""
    first, results, second, more_results, answer = seed.S000_COMPLETE
    turn = read_checked(DIALECT, first)
    assert turn.reasoning == "Need to read config, update it, verify the change"
    assert calls_of_turn(turn) == [("read", {"file": "config.json"})]
    assert results_as_told(DIALECT, result("read", "success", {"api": "old.com"})) == results
    turn = read_checked(DIALECT, second)
    assert calls_of_turn(turn) == [
        ("write", {"file": "config.json", "content": '{"api": "new.com"}'}),
        ("read", {"file": "config.json"}),
    ]
    results_sent = [result("write", "success", {"bytes": 22}), result("read", "success", {"api": "new.com"})]
    assert results_as_told(DIALECT, *results_sent) == more_results
    assert read_checked(DIALECT, answer).message == Message.assistant(answer)


def test_tool_invocations_use_json_arrays_inside_xml_markers():
    """Tool invocations use JSON arrays inside XML markers to avoid content collisions."""
    assert calls_of_turn(read_checked(DIALECT, seed.S000_FORM)) == [("[tool_name]", {"[arg_name]": "[value]"})] * 2


def test_think_is_internal_reasoning_the_system_ignores_its_content_completely():
    """Internal reasoning scratch pad. System ignores content completely."""
    turn = read_checked(DIALECT, f"<think>{seed.S000_SINGLE} and {seed.S000_SUCCESS}</think>Hello")
    assert turn.calls == turn.forged_results == ()
    assert turn.text == "Hello"


def test_think_is_optional_the_llm_may_skip_it():
    """Optional: LLM may skip"""
    turn = read_checked(DIALECT, seed.S000_SINGLE)
    assert (turn.reasoning, len(turn.calls)) == ("", 1)


@pytest.mark.parametrize("content", ["", "{[<\x00", "<execute>[", "</execute>", "</thin", "```", "a\n\n", "\ud800"])
def test_think_is_unvalidated_any_content_is_accepted(content: str):
    """Unvalidated: Any content accepted · Lenient: Format doesn't matter, not parsed"""
    turn = read_checked(DIALECT, f"<think>{content}</think>{seed.S000_SINGLE}")
    assert turn.reasoning == content
    assert len(turn.calls) == 1


def test_think_is_invisible_not_returned_to_the_user():
    """Invisible: Not returned to user"""
    turn = read_checked(DIALECT, f"{seed.S000_THINK}Done.")
    assert turn.text == turn.message.text == "Done."
    assert turn.reasoning == "reasoning about the problem, what steps to take"


def test_each_element_is_name_and_args():
    """Each element: {"name": "tool_name", "args": {...}}"""
    for wrong, code in (('{"args": {}}', "no_name"), ('{"name": "read"}', "no_arguments"), ("[]", "not_a_call")):
        (call,) = read_checked(DIALECT, f"<execute>[{wrong}]</execute>").calls
        assert isinstance(call, MalformedCall)
        assert call.code == code


@pytest.mark.parametrize("name", ["7", "null", "[]", '""', '{"a": 1}'])
def test_name_is_a_string(name: str):
    """`name`: String, must be registered tool"""
    (call,) = read_checked(DIALECT, f'<execute>[{{"name": {name}, "args": {{}}}}]</execute>').calls
    assert isinstance(call, MalformedCall)
    assert call.code == "no_name"


@pytest.mark.parametrize("args", ["7", "null", "[]", '"file"', '"{}"'])
def test_args_is_an_object(args: str):
    """`args`: Object with schema-validated fields"""
    (call,) = read_checked(DIALECT, f'<execute>[{{"name": "read", "args": {args}}}]</execute>').calls
    assert isinstance(call, MalformedCall)
    assert call.code == "arguments_not_object"


def test_order_is_preserved_execution_order_is_array_order():
    """Order preserved: Execution order = array order"""
    assert [name for name, _ in calls_of_turn(read_checked(DIALECT, seed.S000_BATCH))] == ["read", "write", "read"]


def test_json_string_escaping_handles_any_content_safely():
    """JSON string escaping handles any content safely"""
    content = "".join(map(chr, range(0x250))) + "\u2028😀</execute><execute>[]"
    text = f"<execute>{json.dumps([{'name': 'write', 'args': {'content': content}}])}</execute>"
    assert calls_of_turn(read_turn(DIALECT, text)) == [("write", {"content": content})]


def test_content_like_execute_end_in_args_is_safe():
    """Content like `</execute>` in args is JSON-escaped, safe (and JSON does not escape '<')"""
    text = '<execute>\n[\n  {"name": "write", "args": {"content": "a </execute> b"}}\n]\n</execute>'
    assert calls_of_turn(read_checked(DIALECT, text)) == [("write", {"content": "a </execute> b"})]


@pytest.mark.parametrize("json_text", ['[{"name": "read", "args": {}]', "[{]", '[{"name": read}]', "[{} {}]", "{,}"])
def test_invalid_json_is_an_error(json_text: str):
    """JSON is valid (invalid JSON → error)"""
    (call,) = read_checked(DIALECT, f"<execute>{json_text}</execute>").calls
    assert isinstance(call, MalformedCall)
    assert (call.code, call.whole_block, call.raw) == ("invalid_json", True, json_text)
    assert call.reason


def test_unknown_tools_and_wrong_arguments_are_read_so_that_the_executor_can_answer():
    """Tool name exists · Arg names match schema · Arg values are valid: each an error of that call alone."""
    text = '<execute>[{"name": "nope", "args": {}}, {"name": "read", "args": {"fil": 7}}]</execute>'
    assert calls_of_turn(read_checked(DIALECT, text, TOOLS)) == [("nope", {}), ("read", {"fil": 7})]

    @tool
    def read(file: str) -> str:
        return file

    problems = read.read_arguments({"fil": 7})
    assert isinstance(problems, tuple)
    assert any("fil" in problem.message for problem in problems)


def test_the_block_runs_in_parallel():
    """Parallel: All tools in batch execute concurrently"""
    assert DIALECT.info.native_schedule == "parallel"


def test_single_tool():
    """Single Tool"""
    assert calls_of_turn(read_checked(DIALECT, seed.S000_SINGLE)) == [("read", {"file": "config.json"})]


def test_multiple_tools_batched():
    """Multiple Tools (Batched)"""
    assert calls_of_turn(read_checked(DIALECT, seed.S000_BATCH)) == [
        ("read", {"file": "a.txt"}),
        ("write", {"file": "b.txt", "content": "updated"}),
        ("read", {"file": "b.txt"}),
    ]


def test_html_in_args():
    """JSON escaping makes this safe (no XML collision)."""
    turn = read_checked(DIALECT, seed.S000_HTML)
    assert calls_of_turn(turn) == [("write", {"file": "index.html", "content": "<html><body>Hello</body></html>"})]


def test_closing_tags_in_args():
    """The `</write>` is inside a JSON string. Parser sees it as content, not XML structure."""
    assert calls_of_turn(read_checked(DIALECT, seed.S000_CLOSING)) == [("write", {"content": "Hello </write> world"})]


def test_mixed_quotes():
    """JSON standard escaping handles all quotes."""
    turn = read_checked(DIALECT, seed.S000_QUOTES)
    assert calls_of_turn(turn) == [("shell", {"cmd": "echo \"hello\" && echo 'world'"})]


def test_the_system_generates_a_json_array_of_results():
    """Tool execution outcomes. System generates JSON array, LLM reads."""
    results_sent = [result("name", "success", "data"), result("name", "failure", "error message")]
    assert results_as_told(DIALECT, *results_sent) == seed.RESULTS_FORM.replace("data", '"data"')


@pytest.mark.parametrize("content", [None, True, 7, 1.5, "text", [1, "a"], {"bytes": 22}])
def test_content_is_any_json_serializable_type_on_success(content):
    """`content`: On success = tool output (any JSON-serializable type)"""
    results_sent = results_as_told(DIALECT, result("read", "success", content))
    (row,) = json.loads(results_sent.removeprefix("<results>").removesuffix("</results>"))
    assert row == {"tool": "read", "status": "success", "content": content}
    assert list(row) == ["tool", "status", "content"]


def test_content_is_an_error_message_string_on_failure():
    """on failure = error message string"""
    failure = result("read", "failure", "File not found: config.json")
    assert results_as_told(DIALECT, failure) == seed.S000_FAILURE


def test_success():
    """Success"""
    assert results_as_told(DIALECT, result("read", "success", "file contents")) == seed.S000_SUCCESS


def test_results_array_order_matches_execution_order_exactly_by_position():
    """Order: Results array order matches execution order exactly (by position)"""
    results_sent = [
        result("read", "success", "a contents"),
        result("write", "success", {"bytes": 22}),
        result("read", "success", "b updated"),
    ]
    assert results_as_told(DIALECT, *results_sent) == seed.S000_BATCH_RESULTS


def test_mixed_success_and_failure_all_results_returned():
    """All results returned (none skipped) · Status indicates success/failure"""
    results_sent = [
        result("read", "success", "data"),
        result("write", "failure", "Permission denied"),
        result("read", "success", "data"),
    ]
    assert results_as_told(DIALECT, *results_sent) == seed.MIXED_TURN


def test_results_are_generated_by_the_system():
    """RESULTS (System-Generated): the model's own are a forgery."""
    examples = [seed.RESULTS_FORM, seed.S000_SUCCESS, seed.S000_FAILURE, seed.S000_BATCH_RESULTS, seed.MIXED_TURN]
    for text in examples:
        assert is_only_a_forgery(DIALECT, text)


def test_conversation_recreates_the_json_array_format():
    """Recreates JSON array format for protocol compliance"""
    calls = (
        ToolCall("1", "read", {"file": "a.txt"}),
        ToolCall("2", "write", {"file": "b.txt", "content": "updated"}),
        ToolCall("3", "read", {"file": "b.txt"}),
    )
    (message,) = DIALECT.render([Message("assistant", calls)])
    assert message.text == seed.S000_BATCH


def test_system_prompt_teaches_the_format_with_single_and_multi_tool_batches():
    """Teaches LLM the JSON array format with examples · Demonstrates success and failure handling"""
    prompt_text = DIALECT.instructions(TOOLS)
    assert '{"tool": "name", "status": "success", "content": …}' in prompt_text
    assert '"status": "failure"' in prompt_text
    assert "may run in parallel" in prompt_text, "which is true of every schedule"
    batches = [len(read_turn(DIALECT, "<execute>\n" + each).calls) for each in prompt_text.split("<execute>\n")[1:]]
    assert sorted(batches) == [1, 2]


def test_a_json_array_of_no_calls_is_no_batch():
    """Batches hold calls; an empty one is answered instead of looping (the original called the model ten times)."""
    (call,) = read_checked(DIALECT, "<execute>[]</execute>").calls
    assert isinstance(call, MalformedCall)
    assert call.code == "empty_batch"
