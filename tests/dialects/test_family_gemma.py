"""Gemma's notation: what a value is, where a string ends, the thought channel; and every promise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_strategies import FINISHES, NASTY_VALUES, TOOLS, cuts, spec
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
from toolspeak.data.messages import JsonPart, MalformedCall, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, get_dialect, read_turn
from toolspeak.testing import check_round_trip, check_splits

GEMMA4, FUNCTIONGEMMA = DIALECTS = [get_dialect(name) for name in ("gemma4", "functiongemma")]
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
QUOTE = {"gemma4": '<|"|>', "functiongemma": "<escape>"}
START = {"gemma4": "<|tool_call>", "functiongemma": "<start_function_call>"}
END = {"gemma4": "<tool_call|>", "functiongemma": "<end_function_call>"}
FRAGMENTS = [
    *('<|"|>', "<escape>", "<|tool_call>", "<tool_call|>", "<start_function_call>", "<end_function_call>"),
    *("<|channel>", "<channel|>", "thought\n", "thought", "<|tool_response>", "<tool_response|>", "<|", "|>", "<esc"),
    *("call:", "call:write{", "call:ping{}", ":set{", "content:", "n:1", "n:-1.5e3", "tags:[1, 2]", "map:{a:{b:null}}"),
    *("{", "}", "[", "]", ",", ":", '"', '"a\\n"', "true", "x y", "\n", " ", "<start_function_response>", "```", "`"),
]
MARKERS = [each for each in FRAGMENTS if each.startswith("<")]


def text_of(dialect: Dialect, body: str) -> str:
    body = body.replace('<|"|>', QUOTE[dialect.name])
    return f"{START[dialect.name]}{body}{END[dialect.name]}"


def read(dialect: Dialect, body: str, tools: tuple[ToolSpec, ...] = TOOLS) -> Any:
    """The arguments of a call written like this, or the reason that it has none."""
    text = text_of(dialect, body)
    check_splits(dialect, text, tools)
    (call,) = read_turn(dialect, text, tools).calls
    return dict(call.arguments) if isinstance(call, ToolCall) else call.code


@each_dialect
@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("call:ping{}", {}),
        (":ping{ }", {}),
        ("call: ping {}", {}),
        ('call:write{content:<|"|>a<|"|>}', {"content": "a"}),
        ('call:write{ content : <|"|> a\n<|"|> , file:<|"|><|"|>}', {"content": " a\n", "file": ""}),
        ('call:write{content:<|"|>}}<|"|>,<|"|>a b<|"|>:<|"|>x<|"|>}', {"content": "}}", "a b": "x"}),
        ('call:write{content:"a\\n\\u003c","k:":1}', {"content": "a\n<", "k:": 1}),
        ("call:write{content:42}", {"content": "42"}),
        ("call:write{content:null,file:New York}", {"content": "null", "file": "New York"}),
        ("call:set{n:42,flag:true,tags:[1, null, [2.5]],map:{a:{b:x}}}", "map"),
        ("call:set{n:x}", {"n": "x"}),
        ("call:set{flag:True}", {"flag": True}),
        ('call:set{tags:[<|"|>a<|"|>,<|"|>b, c<|"|>],n:1}', {"tags": ["a", "b, c"], "n": 1}),
        ("call:unknown{n:42,l:[1]}", {"n": "42", "l": ["1"]}),
        ("call:set{n:1,n:2}", "duplicate_key"),
        ("call:set{n:}", "invalid_call"),
        ("call:set{n}", "invalid_call"),
        ("call:set{n:1 tags:2}", {"n": "1 tags:2"}),
        ("call:set{tags:[1}", "invalid_call"),
        ("call:set{n:1]", "invalid_call"),
        ("call:set(n=1)", "invalid_call"),
        ("call:set{n:1}x", "trailing_text"),
        ("call:set{tags:" + "[" * 200, "too_deep"),
        ("call:set{n:" + "1" * 5000 + "}", "too_large"),
        ("call:set{" + "n" * 300 + ":1}", "too_large"),
        ("call:set{n:1e999}", "too_large"),
        ('call:write{content:<|"|>a', "unclosed"),
        ("", "empty_batch"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_body_is_read(dialect: Dialect, body: str, value: Any):
    if value == "map":
        value = {"n": 42, "flag": True, "tags": [1, None, [2.5]], "map": {"a": {"b": "x"}}}
    expected = json.loads(json.dumps(value).replace(json.dumps('<|"|>')[1:-1], json.dumps(QUOTE[dialect.name])[1:-1]))
    if len(body) > 1000:
        text = text_of(dialect, body)
        check_splits(dialect, text, TOOLS, splits=[list(text)])
        (call,) = read_turn(dialect, text, TOOLS).calls
        assert isinstance(call, MalformedCall)
        assert call.code == value
    else:
        assert read(dialect, body) == expected


@each_dialect
def test_a_delimiter_in_a_string_is_gemma_4s_quote(dialect: Dialect):
    """FunctionGemma's is no quote, and stays as it stands."""
    quote = QUOTE[dialect.name]
    written_quote = '"' if dialect.name == "gemma4" else quote
    body = 'call:write{content:<|"|>say <|"|>hi<|"|> to, all<|"|>}'
    assert read(dialect, body) == {"content": f"say {written_quote}hi{written_quote} to, all"}


@each_dialect
def test_the_schema_says_what_a_bare_value_is_at_every_depth(dialect: Dialect):
    inner = {"type": "object", "properties": {"zip": {"type": "string"}, "n": {"type": "integer"}}}
    tool = ToolSpec(
        "f",
        "",
        {
            "type": "object",
            "properties": {
                "a": {"$ref": "#/$defs/inner"},
                "l": {"type": "array", "items": {"type": "string"}},
                "any": {},
                "x": {"type": ["string", "null"]},
            },
            "$defs": {"inner": inner},
        },
    )
    arguments_read = read(dialect, "call:f{a:{zip:01,n:2},l:[1,2],any:3,x:null}", (tool,))
    assert arguments_read == {"a": {"zip": "01", "n": 2}, "l": ["1", "2"], "any": 3, "x": None}
    assert read(dialect, "call:f{any:3}", ()) == {"any": "3"}


@each_dialect
@given(data=st.data())
@examples(120)
def test_1_4_splits_do_not_matter_and_nothing_raises(dialect: Dialect, data: st.DataObject):
    text = data.draw(soup(FRAGMENTS))
    if data.draw(st.booleans()):
        text = data.draw(st.sampled_from(["", START[dialect.name] + "call:write{content:"])) + text
    cut = data.draw(cuts(text))
    check_any_text(dialect, text, data.draw(FINISHES), data.draw(st.sampled_from(["text", "reasoning"])), cut)


@each_dialect
@pytest.mark.parametrize("value", [*NASTY_VALUES, *MARKERS, '<|"', "<escape", "x<|", '<|"|>}<tool_call|>'])
def test_5_markers_inside_strings_are_content(dialect: Dialect, value: str):
    check_round_trip(dialect, [ToolCall("1", "write", {"content": value, "file": "x"})], TOOLS)
    if '<|"|>' not in value and QUOTE[dialect.name] not in value:
        assert read(dialect, f'call:write{{content:<|"|>{value}<|"|>}}') == {"content": value}


@each_dialect
def test_8_a_call_that_is_cut_off_is_not_completed(dialect: Dialect):
    text = call_text(dialect, ToolCall("1", "write", {"content": "a,b", "file": "x"}))
    check_cut_off(dialect, text)
    cut = text[: text.index("a,b") + 2]
    check_never_completed(dialect, cut)


@each_dialect
@pytest.mark.parametrize(
    ("opened", "unit"),
    [
        (True, "<"),
        (True, '<|"|>x'),
        (True, '<|"|>, x '),
        (True, "<escape>x"),
        (True, "word "),
        (False, "<|channel>thought"),
        (False, "<|tool_call>call"),
        (False, "<channel|>"),
        (False, "<|tool_call>call:ping{}<tool_call|>"),
    ],
)
@pytest.mark.parametrize("size", [4, 1_000_000])
def test_2_no_input_takes_quadratic_time(dialect: Dialect, opened: bool, unit: str, size: int):
    start = f"{START[dialect.name]}call:write{{content:{QUOTE[dialect.name]}" if opened else ""
    assert parse_growth(dialect, start, unit, size) < LINEAR


@each_dialect
def test_2_a_long_string_leaves_as_it_comes(dialect: Dialect):
    start = f"{START[dialect.name]}call:write{{content:{QUOTE[dialect.name]}"
    check_leaves_as_it_comes(dialect, start, 'word"', 'word\\"')


@each_dialect
@pytest.mark.parametrize("text", ["The marker {start} opens it.", "{start} x", "`{start}call:f{{}}`"])
def test_3_a_marker_in_prose_stays_text(dialect: Dialect, text: str):
    text = text.format(start=START[dialect.name])
    check_splits(dialect, text, TOOLS)
    turn = read_turn(dialect, text, TOOLS)
    assert (turn.text, turn.calls) == (text, ())


@each_dialect
def test_a_marker_with_what_is_no_call_after_it_is_an_unreadable_attempt(dialect: Dialect):
    text = f"{START[dialect.name]}call me"
    check_splits(dialect, text, TOOLS)
    turn = read_turn(dialect, text, TOOLS)
    assert turn.text == ""
    assert [(call.raw, call.code) for call in turn.calls if isinstance(call, MalformedCall)] == [
        ("call me", "unreadable")
    ]


@pytest.mark.parametrize(
    ("text", "starts_in", "reasoning", "answer"),
    [
        ("<|channel>thought\na<channel|>b", "text", "a", "b"),
        ("thought\na<channel|>b", "reasoning", "a", "b"),
        ("<|channel>thought\na<channel|>b", "reasoning", "a", "b"),
        ("<|channel><|channel>thought\n<channel|>b", "text", "", "b"),
        ("<|channel>thought", "text", "", ""),
        ("<|channel>though", "text", "though", ""),
        ("<|channel>thousand<channel|>b<channel|>", "text", "thousand", "b"),
        ("<|channel>thought\na <|channel> b<channel|>c", "text", "a <|channel> b", "c"),
        ("a `<channel|>` b", "text", "", "a `<channel|>` b"),
    ],
)
def test_the_thought_channel(text: str, starts_in: Any, reasoning: str, answer: str):
    check_splits(GEMMA4, text, TOOLS, starts_in=starts_in)
    turn = read_turn(GEMMA4, text, TOOLS, starts_in=starts_in)
    assert (turn.reasoning, turn.text) == (reasoning, answer)


def test_a_call_ends_the_thought():
    turn = read_turn(GEMMA4, "<|channel>thought\na<|tool_call>call:ping{}<tool_call|>", TOOLS)
    assert (turn.reasoning, len(turn.calls)) == ("a", 1)


def test_history_is_written_as_the_template_does():
    tools = (spec("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}),)
    call = ToolCall("1", "get_weather", {"city": "Paris", "days": 2})
    assert call_text(GEMMA4, call) == '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>'
    result = ToolResult("1", "get_weather", "success", (TextPart("sunny"),))
    frame = '<|tool_response>response:get_weather{value:<|"|>sunny<|"|>}<tool_response|>'
    assert GEMMA4.render_results([result]) == frame
    mapping_result = ToolResult("1", "f", "success", (JsonPart({"a": [1, "x"]}),))
    assert GEMMA4.render_results([mapping_result]) == '<|tool_response>response:f{a:[1,<|"|>x<|"|>]}<tool_response|>'
    assert '<|tool_call>call:get_weather{city:<|"|>' in GEMMA4.instructions(tools, listing="prose")
