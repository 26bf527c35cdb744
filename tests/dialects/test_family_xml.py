"""Calls whose arguments are elements of their own name, in a block: Anthropic's legacy format, and any declared so."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_strategies import TOOLS
from family_checks import call_text, check_any_text, check_cut_off, check_leaves_as_it_comes, parse_growth

from growth import LINEAR
from toolspeak.data.messages import MalformedCall, TextPart, ToolCall, ToolResult
from toolspeak.dialects import DialectInfo, get_dialect, read_turn
from toolspeak.dialects.declarations.xml_dialect import XML_RULES, XmlTags, xml_dialect
from toolspeak.testing import check_dialect, chunks

CLAUDE = get_dialect("claude-legacy")
PLAIN = xml_dialect(
    DialectInfo("plain-xml", "<tools><f><k>value</k></f></tools>", "made up", "sequential"),
    XmlTags(block="tools"),
    result="<output>{}</output>",
    results_marker=None,
    live=("tools", "output", "think"),
    rules=XML_RULES,
)
OPEN = "<function_calls>\n<invoke>\n<tool_name>write</tool_name>\n<parameters>\n<content>"


def invoke(body: str) -> str:
    return f"<function_calls><invoke>{body}</invoke></function_calls>"


def test_a_declaration_without_a_call_element_keeps_the_contract():
    check_dialect(PLAIN)
    call = ToolCall("c", "read", {"file": "a.txt"})
    assert call_text(PLAIN, call) == "<tools>\n<read>\n<file>a.txt</file>\n</read>\n</tools>"


READ: list[Any] = [
    ("<tool_name>read</tool_name><parameters><file>a.txt</file></parameters>", ("read", {"file": "a.txt"})),
    ("\n<tool_name> read </tool_name>\n<parameters>\n</parameters>\n", ("read", {})),
    ("<tool_name>ping</tool_name>", ("ping", {})),
    ("<tool_name>ping</tool_name><parameters/>", ("ping", {})),
    ("<tool_name>write</tool_name><parameters><content>a\n</content></parameters>", ("write", {"content": "a\n"})),
    (
        "<tool_name>set</tool_name><parameters><n>7</n><tags>[1]</tags></parameters>",
        ("set", {"n": 7, "tags": [1]}),
    ),
    (
        # Nothing in a value is markup but its own end tag before what may follow it.
        "<tool_name>write</tool_name><parameters><content></parameters></content> b</content></parameters>",
        ("write", {"content": "</parameters></content> b"}),
    ),
    ("<parameters><file>a</file></parameters>", "invalid_xml"),
    ("", "no_name"),
    ("<tool_name>read</tool_name><tool_name>ping</tool_name>", "invalid_xml"),
    (f"<tool_name>{'x' * 300}</tool_name>", "invalid_xml"),
    ("<tool_name>read</tool_name><parameters></parameters><parameters></parameters>", "invalid_xml"),
    ("prose", "invalid_xml"),
]


@pytest.mark.parametrize(("body", "expected"), READ)
def test_what_stands_in_a_call(body: str, expected: Any):
    (call,) = read_turn(CLAUDE, invoke(body), TOOLS).calls
    if isinstance(call, MalformedCall):
        assert call.code == expected
        assert call.reason
    else:
        assert (call.name, dict(call.arguments)) == expected


def test_a_call_may_lack_its_end_and_a_value_closed_in_vain_costs_its_call_alone():
    head = "<function_calls><invoke><tool_name>read</tool_name><parameters><file>a</file>"
    (call,) = read_turn(CLAUDE, f"{head}</function_calls>", TOOLS).calls
    assert isinstance(call, ToolCall)
    assert call.notes == ("missing_closer",)
    other = "<invoke><tool_name>ping</tool_name></invoke></function_calls>"
    bad, good = read_turn(CLAUDE, f"{head}<colour>red</colour></parameters></invoke>{other}", TOOLS).calls
    assert isinstance(bad, MalformedCall)
    assert bad.raw.startswith("<invoke>")
    assert bad.raw.endswith("</invoke>")
    assert bad.code == "unknown_argument"
    assert isinstance(good, ToolCall)
    assert good.name == "ping"


@pytest.mark.parametrize("end", ["<x", "<xe", "</x", "<r", "</fil", "<"])
def test_what_may_not_become_a_tag_leaves_however_the_turn_is_cut(end: str):
    dialect, text = get_dialect("cogency-xml"), f"<execute><read><file>a{end}"
    for size in range(2, 12):
        check_any_text(dialect, text, "stop", "text", tuple(chunks(text, size)))


def test_the_stop_sequence_may_have_taken_the_blocks_end():
    call = call_text(CLAUDE, ToolCall("c", "read", {"file": "a"}))
    turn = read_turn(CLAUDE, call.removesuffix("</function_calls>"), TOOLS)
    assert [each.name for each in turn.calls] == ["read"]
    check_cut_off(CLAUDE, call)


def test_a_result_names_its_tool_and_neither_it_nor_the_name_breaks_out():
    end = "</function_results>"
    text = CLAUDE.render_results([ToolResult("c", f"r{{}}{end}", "success", (TextPart(end),))])
    assert text.count(end) == 1
    assert "<tool_name>r{}" in text


def test_auto_tells_it_from_the_format_that_has_the_same_marker():
    turn = read_turn(get_dialect("auto"), call_text(CLAUDE, ToolCall("c", "read", {"file": "a"})), TOOLS)
    assert turn.dialect == "claude-legacy"
    assert read_turn(get_dialect("auto"), "<function_calls>ping()</function_calls>", TOOLS).dialect == "olmo3"


def test_a_long_value_takes_linear_time_and_leaves_as_it_comes():
    check_leaves_as_it_comes(CLAUDE, OPEN + "x", 'a"\n', 'a\\"\\n')
    for start, unit in ((OPEN, "</content>"), (OPEN, "<"), ("", "<function_calls><invoke>")):
        assert parse_growth(CLAUDE, start, unit, 4) < LINEAR
