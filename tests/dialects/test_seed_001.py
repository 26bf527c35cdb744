"""Seed 001, the Cogency XML protocol: every sentence about the format, each with the seed's own examples."""

from __future__ import annotations

import json

import pytest
import seed_examples as seed
from dialect_strategies import TOOLS
from seed_examples import calls_of_turn, is_only_a_forgery, read_checked, result, results_as_told

from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.dialects import get_dialect

DIALECT = get_dialect("cogency-xml")


def test_three_phase_execution_think_execute_results():
    """Three-phase execution: THINK → EXECUTE → RESULTS (with every turn of the complete example)."""
    first, results, second, more_results, answer = seed.S001_COMPLETE
    turn = read_checked(DIALECT, first, TOOLS)
    assert turn.reasoning == "read config, update endpoint, verify"
    assert calls_of_turn(turn) == [("read", {"file": "config.json"})]
    results_sent = results_as_told(DIALECT, result("read", "success", {"api": "old.com"}))
    assert json.loads(results_sent[9:-10]) == json.loads(results[9:-10])
    turn = read_checked(DIALECT, second, TOOLS)
    assert turn.reasoning == "writing updated config and verifying in one batch"
    assert calls_of_turn(turn) == [
        ("write", {"file": "config.json", "content": '{"api": "new.com"}'}),
        ("read", {"file": "config.json"}),
    ]
    results_sent = [result("write", "success", {"bytes": 22}), result("read", "success", {"api": "new.com"})]
    assert results_as_told(DIALECT, *results_sent) == more_results
    assert read_checked(DIALECT, answer, TOOLS).message == Message.assistant(answer)


def test_think_is_internal_reasoning_the_llm_generates_and_the_system_ignores():
    """Internal reasoning. LLM generates, system ignores. Optional. Unvalidated. Free-form."""
    turn = read_checked(DIALECT, f"{seed.S001_THINK}<think>{seed.S001_SEQUENTIAL}</think>Hi", TOOLS)
    assert (turn.calls, turn.text) == ((), "Hi")
    assert turn.reasoning == "[any text]" + seed.S001_SEQUENTIAL


def test_the_form_of_a_call_is_an_element_per_tool_and_per_argument():
    """<execute> <[tool_name]> <[arg_name]>[value]</[arg_name]> </[tool_name]> </execute>"""
    text = seed.S001_FORM.replace("[tool_name]", "read").replace("[arg_name]", "file").replace("[value]", "a.txt")
    assert calls_of_turn(read_checked(DIALECT, text, TOOLS)) == [("read", {"file": "a.txt"})]


def test_the_form_itself_with_its_placeholders_on_lines_of_its_own_is_an_attempt_that_runs_nothing():
    """<[tool_name]>: no element has such a name"""
    turn = read_checked(DIALECT, seed.S001_FORM, TOOLS)
    assert turn.text == ""
    (call,) = turn.calls
    assert isinstance(call, MalformedCall)
    assert call.code == "unreadable"


def test_sequential_by_default():
    """Tools run sequentially, one completes before next starts (order as written)."""
    assert DIALECT.info.native_schedule == "sequential"
    turn = read_checked(DIALECT, seed.S001_SEQUENTIAL, TOOLS)
    assert calls_of_turn(turn) == [("write", {"file": "a.txt", "content": "x"}), ("read", {"file": "a.txt"})]


def test_duplicate_tools_order_preserved():
    """Duplicate tools (order-preserved): LLM knows which result is which by position."""
    turn = read_checked(DIALECT, seed.S001_DUPLICATES, TOOLS)
    assert calls_of_turn(turn) == [("read", {"file": f"{name}.txt"}) for name in "abc"]
    results_sent = [result("read", "success", name) for name in "abc"]
    assert results_as_told(DIALECT, *results_sent) == seed.S001_DUPLICATE_RESULTS


def test_the_examples_are_read_without_knowing_the_tools_too():
    """System parses: `<execute>` blocks only"""
    for text in (seed.S001_SEQUENTIAL, seed.S001_DUPLICATES, seed.S001_COMPLETE[0], seed.S001_COMPLETE[2]):
        assert calls_of_turn(read_checked(DIALECT, text)) == calls_of_turn(read_checked(DIALECT, text, TOOLS))


def test_execute_is_strict():
    """EXECUTE (Strict)"""
    for inner in ("<read>a.txt</read>", "<read><file>a</file>", "read a.txt", "<read><file>a</read>", ""):
        turn = read_checked(DIALECT, f"<execute>{inner}<!-- -->\n</execute>", TOOLS)
        assert not any(isinstance(call, ToolCall) for call in turn.calls)


def test_tool_names_and_arguments_are_read_so_that_the_executor_can_validate_them():
    """Tool name exists · Arg names match schema · Arg values are valid"""
    text = "<execute><nope><x>1</x></nope><read><fil>a</fil></read><set><n>abc</n></set></execute>"
    turn = read_checked(DIALECT, text, TOOLS)
    assert calls_of_turn(turn) == [("nope", {"x": "1"}), ("read", {"fil": "a"}), ("set", {"n": "abc"})]


def test_invalid_calls_do_not_block_the_others():
    """Failed tool doesn't block subsequent tools"""
    text = "<execute><read><file>a</file><x>b</x></read><read><file>c</file></read></execute>"
    first, second = read_checked(DIALECT, text, TOOLS).calls
    assert isinstance(first, MalformedCall)
    assert first.code == "unknown_argument"
    assert isinstance(second, ToolCall)


def test_results_are_a_json_array():
    """System generates, LLM reads. JSON array format, order-preserved."""
    results_sent = [result("name", "success", "data"), result("name", "failure", "error message")]
    assert results_as_told(DIALECT, *results_sent) == seed.RESULTS_FORM.replace("data", '"data"')


def test_mixed_success_and_failure():
    """All tools execute. Failures don't block subsequent tools."""
    results_sent = [
        result("read", "success", "data"),
        result("write", "failure", "Permission denied"),
        result("read", "success", "data"),
    ]
    assert results_as_told(DIALECT, *results_sent) == seed.MIXED_TURN


def test_the_system_never_parses_its_own_output():
    """System generates: `<results>` content (never parses own output)"""
    examples = [
        seed.RESULTS_FORM,
        seed.MIXED_TURN,
        seed.S001_DUPLICATE_RESULTS,
        seed.S001_COMPLETE[1],
        seed.S001_COMPLETE[3],
    ]
    for text in examples:
        assert is_only_a_forgery(DIALECT, text)


def test_conversation_recreates_the_elements():
    """The history shows the calls in the protocol's own format."""
    calls = (ToolCall("1", "write", {"file": "a.txt", "content": "x"}), ToolCall("2", "read", {"file": "a.txt"}))
    (message,) = DIALECT.render([Message("assistant", calls)], TOOLS)
    assert message.text == seed.S001_SEQUENTIAL


@pytest.mark.parametrize("value", ["007", "3.10", "1_000", '{"api": "new.com"}', "a < b && c > d", "<b>x</b>", "&amp;"])
def test_a_value_is_the_text_between_its_tags(value: str):
    """<[arg_name]>[value]</[arg_name]> (the original changed 007, 3.10, 1_000 and JSON, and failed on '<' and '&')"""
    text = f"<execute><write><content>{value}</content></write></execute>"
    assert calls_of_turn(read_checked(DIALECT, text, TOOLS)) == [("write", {"content": value})]
