"""Calls written as Python: what counts as a literal, as a string's end and as a call; and every promise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_strategies import FINISHES, NASTY_VALUES, TOOLS, cuts
from family_checks import (
    call_text,
    check_any_text,
    check_cut_off,
    check_leaves_as_it_comes,
    check_never_completed,
    examples,
    parse_growth,
    soup,
)
from hypothesis import given
from hypothesis import strategies as st

from growth import LINEAR
from toolspeak.data.messages import MalformedCall, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, get_dialect, read_turn
from toolspeak.testing import check_round_trip, check_splits

DIALECTS = [get_dialect(name) for name in ("pythonic", "llama4-pythonic", "lfm2", "lfm25", "olmo3")]
PYTHONIC, LFM2, OLMO3 = DIALECTS[0], DIALECTS[2], DIALECTS[4]
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
OPEN = {
    "pythonic": "[write(content=",
    "llama4-pythonic": "<|python_start|>[write(content=",
    "lfm2": "<|tool_call_start|>[write(content=",
    "lfm25": "<|tool_call_start|>[write(content=",
    "olmo3": "<function_calls>write(content=",
}
CLOSE = {
    "pythonic": ")]",
    "llama4-pythonic": ")]<|python_end|>",
    "lfm2": ")]<|tool_call_end|>",
    "lfm25": ")]<|tool_call_end|>",
    "olmo3": ")</function_calls>",
}
FRAGMENTS = [
    *("[", "]", "(", ")", "{", "}", ",", ":", "=", "**", "*", "'", '"', "'''", '"""', "\\", "\\'", "\\x4", "\\u00e9"),
    *("read(", "write(content=", "ping()", "[ping()]", "[read(file='a'", "set(n=-1, tags=[1, 'a', (2,)])", "r'a'"),
    *("True", "None", "-1.5e3", "1_0", "0x1f", "file=", "{'a': {1, 2}}", "**{'a': 1}", "f'x'", "\n", " ", "\\N{DASH}"),
    *("<|python_start|>", "<|python_end|>", "<|tool_call_start|>", "<|tool_call_end|>", "<function_calls>"),
    *("</function_calls>", "<think>", "</think>", "<|tool_response_start|>", "<|tool_response_end|>", "```", "`"),
]
MARKERS = [each for each in FRAGMENTS if each.startswith("<")]


def arguments(dialect: Dialect, value: str) -> Any:
    """The argument written like this, or the reason that there is none."""
    text = OPEN[dialect.name] + value + CLOSE[dialect.name]
    check_splits(dialect, text, TOOLS)
    (call,) = read_turn(dialect, text, TOOLS).calls
    return call.arguments["content"] if isinstance(call, ToolCall) else call.code


LITERALS: list[tuple[str, Any]] = [
    ("'a'", "a"),
    ('"it\'s"', "it's"),
    ("'it\\'s'", "it's"),
    ("''", ""),
    ("'''a'b\"c'''", "a'b\"c"),
    ('"""two\nlines"""', "two\nlines"),
    ("'a\nb'", "a\nb"),
    ("r'\\d\\''", "\\d\\'"),
    ("'\\d+'", "\\d+"),
    ("'\\x41\\101\\u00e9\\U0001f600\\N{BULLET}\\a\\v\\0'", "AA\u00e9\U0001f600\u2022\a\v\0"),
    ("'a\\\nb'", "ab"),
    ("'a' 'b'", "ab"),
    ("'a'\n \"b\"", "ab"),
    ("'sed -n '1,5p' x'", "sed -n '1,5p' x"),
    ("'print('a')'", "print('a')"),
    ("'a]'", "a]"),
    ("-5", -5),
    ("+5", 5),
    ("1_000", 1000),
    ("0x1F", 31),
    (".5", 0.5),
    ("5.", 5.0),
    ("-1e3", -1000.0),
    ("True", True),
    ("null", None),
    ("[]", []),
    ("[1, 'a', [None],]", [1, "a", [None]]),
    ("()", []),
    ("(1)", 1),
    ("('a')", "a"),
    ("(1,)", [1]),
    ("((1, 2), 3)", [[1, 2], 3]),
    ("{}", {}),
    ("{'a': {'b': (1,)}, 2: 3, True: None,}", {"a": {"b": [1]}, "2": 3, "true": None}),
    ("{'a', 'b'}", ["a", "b"]),
    ("{1}", [1]),
]


@each_dialect
@pytest.mark.parametrize(("text", "value"), LITERALS, ids=lambda value: repr(value)[:20])
def test_a_literal_is_read(dialect: Dialect, text: str, value: Any):
    if dialect is OLMO3 and text == "'print('a')'":
        value = "invalid_call"  # only in a list must a comma or the list's end follow the call
    assert json.dumps(arguments(dialect, text)) == json.dumps(value)


@each_dialect
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[x", "invalid_call"),
        ("[1 + 2", "invalid_call"),
        ("[f'a'", "invalid_call"),
        ("[b'a'", "invalid_call"),
        ("[nan", "invalid_call"),
        ("[007", "invalid_call"),
        ("[1e999", "too_large"),
        ("['\\xzz'", "invalid_escape"),
        ("['\\N{NO SUCH}'", "invalid_escape"),
        ("{'a': 1, 'a': 2}", "duplicate_key"),
        ("{[1]: 2}", "invalid_call"),
        ("[" * 200, "too_deep"),
        ("[" + "1" * 5000, "too_large"),
        ("1, 'x'", "invalid_call"),
        ("1)(", "invalid_call"),
    ],
    ids=lambda value: value[:12],
)
def test_what_is_no_literal_is_malformed(dialect: Dialect, text: str, code: str):
    text += "]" if text.startswith("[") else ""
    text = OPEN[dialect.name] + text + CLOSE[dialect.name]
    check_splits(dialect, text, TOOLS, splits=[list(text)])
    calls = read_turn(dialect, text, TOOLS).calls
    assert [call.code for call in calls if isinstance(call, MalformedCall)] == [code]
    assert not [call for call in calls if isinstance(call, ToolCall)]


@each_dialect
def test_an_argument_named_twice_fails_its_call_alone(dialect: Dialect):
    calls = call_text(dialect, ToolCall("1", "read", {"file": "a", "path": "b"}), ToolCall("2", "ping", {}))
    first, second = read_turn(dialect, calls.replace("path=", "file="), TOOLS).calls
    assert isinstance(first, MalformedCall)
    assert (first.code, first.name, first.whole_block) == ("duplicate_key", "read", False)
    assert isinstance(second, ToolCall)


@each_dialect
@given(data=st.data())
@examples(60)
def test_1_4_splits_do_not_matter_and_nothing_raises(dialect: Dialect, data: st.DataObject):
    text = data.draw(soup(FRAGMENTS))
    if data.draw(st.booleans()):
        text = data.draw(st.sampled_from(["", OPEN[dialect.name]])) + text + CLOSE[dialect.name]
    cut = data.draw(cuts(text))
    check_any_text(dialect, text, data.draw(FINISHES), data.draw(st.sampled_from(["text", "reasoning"])), cut)


@each_dialect
@pytest.mark.parametrize("value", [*NASTY_VALUES, *MARKERS, "')]<|tool_call_end|>", "'), ping()", "\\", "'", '"""'])
def test_5_markers_inside_strings_are_content(dialect: Dialect, value: str):
    check_round_trip(dialect, [ToolCall("1", "write", {"content": value})], TOOLS)
    if value.isprintable() and "\\" not in value and '"' not in value:
        assert arguments(dialect, f'"{value}"') == value


@each_dialect
@pytest.mark.parametrize("text", ['"me', '"me and you", n=2)', "'it', r'b\\c')", 'x, "y z")'])
def test_what_follows_a_fault_leaves_as_no_argument(dialect: Dialect, text: str):
    """In characters it did: a string without its argument's name was written after the arguments before it."""
    reply = call_text(dialect, ToolCall("1", "f", {"a": "x"})).partition(")")[0] + ", " + text
    check_splits(dialect, reply, TOOLS, splits=[list(reply)])


@each_dialect
def test_8_a_call_that_is_cut_off_is_not_completed(dialect: Dialect):
    text = call_text(dialect, ToolCall("1", "write", {"content": "a'b\n", "file": "x"}), ToolCall("2", "ping", {}))
    check_cut_off(dialect, text)
    cut = text[: text.index("content=") + 12]
    check_never_completed(dialect, cut)
    turn = read_turn(dialect, cut, TOOLS)  # nor at a normal end
    assert [call.code for call in turn.calls if isinstance(call, MalformedCall)] == ["unclosed"]


@each_dialect
@pytest.mark.parametrize(
    ("opened", "unit"),
    [
        (True, "'"),
        (True, "'a\\n\\d "),
        (True, "'a'x"),
        (True, "'a' "),
        (True, "("),
        (True, "[{1,"),
        (True, " "),
        (True, "1"),
        (True, "'\\"),
        (False, "["),
        (False, "[read("),
        (False, "<|tool_call_start|"),
        (False, "[ping()]"),
        (False, "<function_calls> read "),
    ],
)
@pytest.mark.parametrize("size", [4, 1_000_000])
def test_2_no_input_takes_quadratic_time(dialect: Dialect, opened: bool, unit: str, size: int):
    assert parse_growth(dialect, OPEN[dialect.name] if opened else "", unit, size) < LINEAR


@each_dialect
def test_2_a_long_string_leaves_as_it_comes(dialect: Dialect):
    for piece, fragment in (("word\\n", "word\\n"), ('a"\n', 'a\\"\\n')):
        check_leaves_as_it_comes(dialect, OPEN[dialect.name] + "'", piece, fragment)


@pytest.mark.parametrize(
    "text",
    [
        "See [1] and [link](https://x.y) or [f(x)] and [f(a)(b=1)].",
        "`[ping()]` does it.",
        "points = [Point(x=1), Point(x=2)]",
        "[" + " " * 300 + "pong()]",
        "hello world[A(A=\t)A(A=,\t\t)A(A=,\t",
        "[read(file",
    ],
)
def test_3_brackets_in_prose_stay_text(text: str):
    for finish in ("stop", "length"):
        check_splits(PYTHONIC, text, TOOLS, finish, splits=[list(text)])
        turn = read_turn(PYTHONIC, text, TOOLS, finish=finish)
        assert (turn.text, turn.calls) == (text, ())


def test_text_stands_around_bare_calls():
    turn = read_turn(PYTHONIC, "Now:\n[ping()]\nand\n[read(file='a'), ping()]\nDone.", TOOLS)
    assert turn.text == "Now:\n\nand\n\nDone."
    assert [call.name for call in turn.calls] == ["ping", "read", "ping"]


def test_bare_calls_within_a_sentence_are_its_text():
    text = "Now [ping()] and [read(file='a'), ping()], done."
    turn = read_turn(PYTHONIC, text, TOOLS)
    assert (turn.text, turn.calls) == (text, ())


def test_a_block_without_calls_is_malformed():
    for dialect, text in (
        (LFM2, "<|tool_call_start|>[]<|tool_call_end|>x"),
        (OLMO3, "<function_calls></function_calls>x"),
    ):
        turn = read_turn(dialect, text, TOOLS)
        assert [call.code for call in turn.calls if isinstance(call, MalformedCall)] == ["empty_batch"]
        assert turn.text == "x"


def test_lfm2_reads_json_too():
    for calls in ('{"name": "ping", "arguments": {}}', '[ {"name": "ping"}, {"name": "read", "parameters": {}}]'):
        text = f"<|tool_call_start|>{calls}<|tool_call_end|>"
        check_splits(LFM2, text, TOOLS)
        assert read_turn(LFM2, text, TOOLS).calls[0].name == "ping"


def test_olmo_takes_a_call_a_line_and_brackets_leniently():
    text = "<think>a</think><function_calls>\nping()\nread(file='a')\n</function_calls>"
    check_splits(OLMO3, text, TOOLS)
    assert [call.name for call in read_turn(OLMO3, text, TOOLS).calls] == ["ping", "read"]
    lenient = read_turn(OLMO3, "<function_calls>[ping()]</function_calls>", TOOLS)
    assert (len(lenient.calls), lenient.notes) == (1, ("array",))


def test_results_are_written_as_the_templates_do():
    results = [
        ToolResult("1", "f", "success", (TextPart("sunny"),)),
        ToolResult("2", "g", "failure", (TextPart("no"),)),
    ]
    assert PYTHONIC.render_results(results) == '"sunny"\n"ERROR: no"'
    start, end = "<|tool_response_start|>", "<|tool_response_end|>"
    assert LFM2.render_results(results) == f"{start}sunny{end}\n{start}ERROR: no{end}"
    assert OLMO3.render_results(results) == "sunny\nERROR: no"


def test_calls_are_written_as_the_models_do():
    calls = [ToolCall("1", "f", {"a": "it's", "b": [True, None, {"k": -1.5}]}), ToolCall("2", "g", {"a b": 1})]
    line = """f(a='it\\'s', b=[True, None, {'k': -1.5}]), g(**{'a b': 1})"""
    assert call_text(PYTHONIC, *calls) == f"[{line}]"
    assert call_text(DIALECTS[1], *calls) == f"<|python_start|>[{line}]<|python_end|>"
    line = """f(a="it's", b=[True, None, {"k": -1.5}])"""
    assert call_text(LFM2, calls[0]) == f"<|tool_call_start|>[{line}]<|tool_call_end|>"
    assert call_text(OLMO3, *calls) == f'<function_calls>{line}\ng(**{{"a b": 1}})</function_calls>'


@pytest.mark.parametrize(
    "text", ['<|damaged|>[set_config(a="x")]', 'see [set_config(a="x"), set(a="y")]', "a set [set_of] and [set_config"]
)
def test_a_tool_whose_name_begins_another_ones_is_found_in_every_cut(text: str):
    """`[set_` was text, because `set` is a tool and `set_` is not."""
    tools = [ToolSpec(name, "", {"type": "object"}) for name in ("set", "set_config", "setter", "get")]
    for dialect in DIALECTS:
        check_splits(dialect, text, tools, splits=[list(text), *([text[:at], text[at:]] for at in range(len(text)))])
