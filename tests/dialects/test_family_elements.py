"""The promises of design 4.1 for the dialects whose calls are elements with the name in the tag."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from dialect_strategies import FINISHES, NASTY_VALUES, STRINGS, TOOLS, cuts, joined_surrogates
from hypothesis import given, settings
from hypothesis import strategies as st

from growth import LINEAR, growth
from sweeps import fewer
from toolspeak.data.deltas import ArgumentsDelta, BatchEnded, CallCompleted, CallMalformed, TextDelta
from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, get_dialect
from toolspeak.dialects.parser.parsed_turn import read_turn
from toolspeak.testing import (
    check_round_trip,
    check_splits,
    join_deltas,
    parse_pieces,
)

NAMES = (
    *("qwen3-coder", "step3p5", "mimo", "seed-oss"),
    *("minimax-m2", "minimax-m3", "step3", "minicpm5", "muse"),
    *("deepseek-v32", "deepseek-v4", "deepseek-v41"),
)
DIALECTS = [get_dialect(name) for name in NAMES]
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=NAMES)
# One for each way of the family to read a value.
REPRESENTATIVES = [get_dialect(name) for name in ("qwen3-coder", "minicpm5", "minimax-m3", "deepseek-v32")]
quick = settings(max_examples=fewer(60), deadline=None)

TAGS = [
    *("<tool_call>", "</tool_call>", "<function=write>", "<function=ping>", "</function>", "<parameter=content>"),
    *("<parameter=file>", "<parameter=n>", "</parameter>", "\n</parameter>\n", "<parameter=x", "</function", "<func"),
    *("<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>", "<think>", "</think>"),
    *("<minimax:tool_call>", "</minimax:tool_call>", '<invoke name="write">', "</invoke>", '<invoke name="ping"/>'),
    *('<parameter name="content">', '<parameter name="file">', '<parameter name="n">', '<invoke name="'),
    *('<function name="write">', '<function name="ping">', '<param name="content">', '<param name="file">', "</param>"),
    *("<｜tool_calls_begin｜>", "<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_end｜>"),
    *("<｜tool_calls_end｜>", '<steptml:invoke name="write">', "</steptml:invoke>", '<steptml:parameter name="file">'),
    *('<steptml:parameter name="content">', "</steptml:parameter>"),
    *("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    *('<｜DSML｜invoke name="write">', "</｜DSML｜invoke>", '<｜DSML｜invoke name="ping"/>', "</｜DSML｜parameter>"),
    *('<｜DSML｜parameter name="content" string="true">', '<｜DSML｜parameter name="n" string="false">', "<｜DSML｜"),
    *('<｜DSML｜parameter name="arguments" string="false">{"content": "x"}', "<｜DSML｜ calls>", "</｜DSML｜ calls>"),
    *('<｜DSML｜ invoke name="write">', "</｜DSML｜ invoke>", '<｜DSML｜ parameter name="content" string="true">'),
    *("</｜DSML｜ parameter>", "<tool_response>\n", "</tool_response>", "<response>\n", "</response>"),
    *("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>", ']<]minimax[>[<invoke name="write">', "]<]minimax[>["),
    *("]<]minimax[>[</invoke>", "]<]minimax[>[<content>", "]<]minimax[>[</content>", "]<]minimax[>[<file>", "]<]mini"),
    *("]<]minimax[>[<a>", "]<]minimax[>[</a>", '<n type="json">', "<mm:think>", "</mm:think>", "</file>", "<tags>"),
    *(
        "<![CDATA[",
        "]]>",
        "]]",
        "]]]]><![CDATA[>",
        "\n",
        " ",
        "\n\n",
        "```",
        "`",
        "<",
        "</",
        ">",
        "prose ",
        "1",
        "null",
    ),
    *('{"content": "a"}', '{"content": ', "[1]", "{", "tru", "-1e3", "é😀", "\ud800", "\x00", "x" * 40, " " * 260),
]
PIECES = st.one_of(st.sampled_from(TAGS), st.text(max_size=3))
NASTY = st.one_of(
    STRINGS,
    st.lists(st.one_of(st.sampled_from([*TAGS, *NASTY_VALUES]), st.text(max_size=3)), max_size=5)
    .map("".join)
    .map(joined_surrogates),
)


@st.composite
def replies(draw: st.DrawFn, dialect: Dialect) -> str:
    """A soup of the family's tags, or rendered calls with damage."""
    soup = st.lists(PIECES, max_size=14).map("".join)
    text = draw(soup)
    if draw(st.booleans()):
        calls = [ToolCall("c", "write", {"file": draw(NASTY), "content": draw(NASTY)}), ToolCall("d", "ping", {})]
        text += render_calls(dialect, calls) + draw(soup)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.one_of(st.just(""), PIECES)) + text[at + draw(st.integers(0, 5)) :]
    return text


def render_calls(dialect: Dialect, calls: list[ToolCall], tools: Any = TOOLS) -> str:
    return "".join(entry.text for entry in dialect.render([Message("assistant", tuple(calls))], tools))


@each_dialect
@quick
@given(data=st.data())
def test_the_cut_changes_nothing_and_nothing_raises(dialect: Dialect, data: st.DataObject) -> None:
    text = data.draw(replies(dialect))
    pieces = [data.draw(cuts(text)), list(text), [text[i : i + 4] for i in range(0, len(text), 4)]]
    finish: Any = data.draw(FINISHES)
    starts_in: Any = data.draw(st.sampled_from(["text", "reasoning"]))
    check_splits(dialect, text, TOOLS, finish, starts_in=starts_in, splits=pieces)


@each_dialect
def test_text_leaves_as_it_comes(dialect: Dialect) -> None:
    parser = dialect.parser(TOOLS)
    for char in "Some words, a < b, <b>bold</b>":
        list(parser.feed(char))
    assert list(parser.feed("!")) == [TextDelta("!")]


@each_dialect
def test_a_text_argument_leaves_as_it_comes(dialect: Dialect) -> None:
    text = render_calls(dialect, [ToolCall("c", "write", {"content": "0123456789" * 40})])
    parser = dialect.parser(TOOLS)
    at = text.index("0123456789") + 200
    fragments = [delta for delta in parser.feed(text[:at]) if isinstance(delta, ArgumentsDelta)]
    assert "".join(delta.text for delta in fragments) == '{"content": "' + "0123456789" * 20
    assert list(parser.feed(text[at : at + 4])) == [ArgumentsDelta(0, "0123")]


@each_dialect
def test_a_marker_in_inline_code_is_a_mention(dialect: Dialect) -> None:
    text = f"Write `{render_calls(dialect, [ToolCall('c', 'ping', {})]).splitlines()[0]}` to call."
    assert parse_pieces(dialect, [text], TOOLS) == [TextDelta(text)]


@pytest.mark.parametrize("dialect", REPRESENTATIVES, ids=lambda dialect: dialect.name)
def test_time_grows_linearly(dialect: Dialect) -> None:
    def prepare(size: int) -> Callable[[], object]:
        content = 'if a < b: print("</p>")\n' * (size // 24)
        text = render_calls(dialect, [ToolCall("c", "write", {"content": content})])
        pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
        return lambda: parse_pieces(dialect, pieces, TOOLS)

    assert growth(prepare, 20_000) < LINEAR


@each_dialect
def test_every_error_reaches_the_model_with_a_reason(dialect: Dialect) -> None:
    text = render_calls(dialect, [ToolCall("c", "write", {"content": "zz"})])
    turn = read_turn(dialect, text[: text.rindex("z")], TOOLS)
    assert [type(call) for call in turn.calls] == [MalformedCall]
    malformed_call = turn.calls[0]
    assert isinstance(malformed_call, MalformedCall)
    assert malformed_call.code == "unclosed"


def arguments_of(name: str, text: str, tools: Any = TOOLS) -> list[Any]:
    check_splits(get_dialect(name), text, tools)
    calls = read_turn(get_dialect(name), text, tools).calls
    return [dict(call.arguments) if isinstance(call, ToolCall) else call.code for call in calls]


def tools_with_schema(schema: Any) -> list[ToolSpec]:
    return [ToolSpec("f", "", {"type": "object", "properties": {"k": schema, "other": {"type": "string"}}})]


VALUES: list[tuple[Any, str, Any]] = [
    ({"type": "string"}, "5", "5"),
    ({"type": "string"}, "null", "null"),
    ({"type": ["string", "null"]}, "null", None),
    ({"type": ["string", "null"]}, "nullable", "nullable"),
    ({"type": ["string", "null"]}, "<![CDATA[null]]>", "null"),
    ({"type": ["string", "integer"]}, "5", 5),
    ({"type": ["string", "integer"]}, "5 apples", "5 apples"),
    ({"type": ["string", "integer"]}, "007", "007"),
    ({"anyOf": [{"type": "string"}, {"type": "array"}]}, '["a"]', ["a"]),
    ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "[a]", "[a]"),
    ({"type": "boolean"}, "True", True),
    ({"type": "float"}, "3.14", 3.14),
    ({"type": "integer"}, "many", "many"),
    ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
    ({}, "5", "5"),
]


@pytest.mark.parametrize(("schema", "text", "value"), VALUES)
def test_the_schema_types_a_value(schema: Any, text: str, value: Any) -> None:
    qwen = f"<tool_call>\n<function=f>\n<parameter=k>\n{text}\n</parameter>\n</function>\n</tool_call>"
    minimax = f'<minimax:tool_call><invoke name="f"><parameter name="k">{text}</parameter></invoke></minimax:tool_call>'
    assert json.dumps(arguments_of("qwen3-coder", qwen, tools_with_schema(schema))) == json.dumps([{"k": value}])
    assert json.dumps(arguments_of("minimax-m2", minimax, tools_with_schema(schema))) == json.dumps([{"k": value}])


DSML_VALUES: list[tuple[Any, str, str, Any]] = [
    ({"type": "string"}, "true", "5", "5"),
    ({"type": "string"}, "false", "null", "null"),
    ({"type": "string"}, "false", '"5"', "5"),
    ({"type": "object"}, "true", '{"a": 1}', {"a": 1}),
    ({"type": "integer"}, "false", "5", 5),
    ({"type": ["string", "integer"]}, "true", "5", "5"),
    ({"type": ["string", "integer"]}, "false", "5", 5),
    ({}, "false", "[1]", [1]),
]


@pytest.mark.parametrize(("schema", "flag", "text", "value"), DSML_VALUES)
def test_dsml_says_what_a_value_is_and_the_schema_has_the_last_word(
    schema: Any, flag: str, text: str, value: Any
) -> None:
    reply = (
        '<｜DSML｜tool_calls><｜DSML｜invoke name="f">'
        f'<｜DSML｜parameter name="k" string="{flag}">{text}</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>'
    )
    assert json.dumps(arguments_of("deepseek-v4", reply, tools_with_schema(schema))) == json.dumps([{"k": value}])


QWEN: list[tuple[str, list[Any]]] = [
    # an end tag in the value: nothing known follows it
    ("<parameter=k>\na</parameter>b\n</parameter>\n</function>\n</tool_call>", [{"k": "a</parameter>b"}]),
    ("<parameter=k>\n</function>\n\n</parameter>\n</function>\n</tool_call>", [{"k": "</function>\n"}]),
    ("<parameter=k>\n\n\n\n</parameter>\n</function>\n</tool_call>", [{"k": "\n\n"}]),
    ("<parameter=k>a\nb</parameter></function></tool_call>", [{"k": "a\nb"}]),
    # an argument that the tool does not have is one, and no part of the value before it
    ("<parameter=k>a</parameter><parameter=new>b</parameter></function></tool_call>", [{"k": "a", "new": "b"}]),
    # lines that end in CRLF frame a value as others do; one at its end alone is a part of it
    ("<parameter=k>\r\na\r\nb\r\n</parameter>\r\n</function>\r\n</tool_call>", [{"k": "a\r\nb"}]),
    ("<parameter=k>\r\n\r\n</parameter>\r\n</function></tool_call>", [{"k": ""}]),
    ("<parameter=k>\n\r\na\r\n</parameter></function></tool_call>", [{"k": "\r\na\r"}]),
    ("<parameter=k>\r\na\r</parameter></function></tool_call>", [{"k": "a\r"}]),
    # left open: the sibling's start, or the call's and the block's end, close it
    ("<parameter=k>\na\n<parameter=other>\nb\n</parameter>\n</function></tool_call>", [{"k": "a", "other": "b"}]),
    ("<parameter=k>\na\n</function>\n</tool_call>", [{"k": "a"}]),
    ("<parameter=k>\na <parameter=other> b\n</parameter>\n</function></tool_call>", [{"k": "a <parameter=other> b"}]),
    ("<parameter=k>\na\n<parameter=new>\nb\n</parameter></function></tool_call>", [{"k": "a\n<parameter=new>\nb"}]),
    ("<parameter=k>\na\n</parameter>\n</tool_call>", [{"k": "a"}]),
    # twice the same argument: which one was meant?
    ("<parameter=k>a</parameter><parameter=k>b</parameter></function></tool_call>", ["duplicate_argument"]),
    ("nonsense</function></tool_call>", ["invalid_xml"]),
    ('{"k": "a"}</function></tool_call>', [{"k": "a"}]),
    ("</function></tool_call>", [{}]),
]


@pytest.mark.parametrize(("body", "calls"), QWEN)
def test_where_a_value_ends(body: str, calls: list[Any]) -> None:
    tools = [ToolSpec("f", "", {**tools_with_schema({"type": "string"})[0].parameters, "additionalProperties": False})]
    assert arguments_of("qwen3-coder", f"<tool_call>\n<function=f>\n{body}", tools) == calls


def test_a_call_without_its_wrapper_is_a_call_and_the_stray_end_is_dropped() -> None:
    text = "Look:\n<function=ping>\n</function>\n</tool_call> after"
    deltas = check_splits(get_dialect("qwen3-coder"), text, TOOLS)
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["Look:\n", " after"]
    assert any(isinstance(delta, CallCompleted) for delta in deltas)


def test_what_means_nothing_between_calls_may_be_cut_after_a_value_without_its_end() -> None:
    value = '<steptml:invoke name="read"><steptml:parameter name="path">a</steptml:invoke>'
    for after in ("", "<｜tool_call_end｜>", '<｜tool_call_end｜><steptml:invoke name="read"></steptml:invoke>'):
        check_splits(get_dialect("step3"), value + after, TOOLS)


def test_prose_about_the_format_stays_prose() -> None:
    for text in (
        "Use <function=name> to call.",
        "The <tool_call> tag",
        '<invoke name="x"> is wrong',
        "In <tool_call><b>",
    ):
        for dialect in DIALECTS:
            assert join_deltas(parse_pieces(dialect, [text], TOOLS)) == [TextDelta(text)]


def test_all_arguments_in_one_are_taken_apart_only_when_they_are_the_tools() -> None:
    reply = (
        '<｜DSML｜tool_calls><｜DSML｜invoke name="write">'
        '<｜DSML｜parameter name="arguments" string="false">{}</｜DSML｜parameter></｜DSML｜invoke>'
        "</｜DSML｜tool_calls>"
    )
    fits, other_reply = reply.replace("{}", '{"content": "x"}'), reply.replace("{}", '{"nope": 1}')
    assert arguments_of("deepseek-v4", fits) == [{"content": "x"}]
    assert arguments_of("deepseek-v4", other_reply) == [{"arguments": {"nope": 1}}]


def test_one_bad_call_leaves_the_others() -> None:
    text = (
        '<minimax:tool_call><invoke name="write"><parameter name="content">a</parameter>'
        '<parameter name="content">b</parameter></invoke><invoke name="ping"></invoke></minimax:tool_call>'
    )
    deltas = check_splits(get_dialect("minimax-m2"), text, TOOLS)
    assert [delta.code for delta in deltas if isinstance(delta, CallMalformed)] == ["duplicate_argument"]
    assert [delta.selected for delta in deltas if isinstance(delta, BatchEnded)] == [(1,)]


@each_dialect
def test_an_argument_without_a_name_or_type_survives(dialect: Dialect) -> None:
    tools = [ToolSpec("f", "", {"type": "object", "properties": {"": {}, "/a": {}, " b ": {}}})]
    check_round_trip(dialect, [ToolCall("c", "f", {"": None, "/a": [1], " b ": "5"})], tools)


@pytest.mark.parametrize("name", ["minimax-m2", "deepseek-v4"])
@pytest.mark.parametrize("damage", ['name=ping"more', 'name="ping"more'])
def test_a_name_that_runs_into_other_text_is_no_name(name: str, damage: str) -> None:
    dialect = get_dialect(name)
    (message,) = dialect.render([Message("assistant", (ToolCall("1", "ping", {}),))], TOOLS)
    damaged_text = message.text.replace('name="ping"', damage)
    assert damaged_text != message.text
    (call,) = read_turn(dialect, damaged_text, TOOLS).calls
    assert isinstance(call, MalformedCall)
    assert "more" in call.raw


def test_a_tool_may_be_called_by_its_name_in_a_name_space_of_that_name() -> None:
    dialect = get_dialect("muse")
    text = render_calls(dialect, [ToolCall("1", "write", {"content": "a"})]).replace(
        'name="write"', 'name="write.write"'
    )
    check_splits(dialect, text, TOOLS)
    assert [call.name for call in read_turn(dialect, text, TOOLS).calls] == ["write"]
