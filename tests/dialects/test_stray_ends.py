"""An end marker of calls that nothing opened is never shown to the user, in any dialect; a mentioned one is."""

from __future__ import annotations

import pytest

from toolspeak import Agent, tool
from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import check_splits, chunks

READ = ToolSpec("read", "", {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]})
TOOLS = [READ]
MESSAGES = ("muse",)  # whose ends stand in messages of their own


def ends_of(dialect: Dialect) -> list[str]:
    parser = dialect.parser(TOOLS)
    return sorted(parser.format.table.markup.call_ends)[:4] if isinstance(parser, BlockParser) else []


def call_text(dialect: Dialect) -> str:
    call = ToolCall("callid000", "read", {"file": "a.txt"})
    return dialect.render([Message("assistant", (call,))], TOOLS)[0].text


STRAYS = [
    "{0}\n{1}",
    "I look.\n{0}\n{1}",
    "I look.{0}\n{1}",
    "{1}\n{0}",
    "{1}\n{0}\nSo.",
    "{1}\nSo.\n{0}",
    "{1}\n{0}\n{1}",
]
ENDS = [
    pytest.param(dialect, end, id=f"{dialect.name}-{end}")
    for dialect in [*DIALECTS, get_dialect("auto", model="qwen3")]
    if dialect.name not in MESSAGES
    for end in ends_of(dialect)
]


@pytest.mark.parametrize(("dialect", "end"), ENDS)
def test_an_end_marker_beside_a_call_is_dropped(dialect: Dialect, end: str):
    for stray in STRAYS:
        text = stray.format(end, call_text(dialect))
        turn = read_turn(dialect, text, TOOLS)
        assert end not in turn.text, text
        assert any(isinstance(call, ToolCall) and call.arguments == {"file": "a.txt"} for call in turn.calls), text
        check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 7))])


def test_every_cut_of_a_turn_with_a_stray_end_marker():
    dialect = get_dialect("hermes")
    text = f"I look.\n</tool_call >\n{call_text(dialect)}\n</tool_call>\nSo.</tool_call>"
    check_splits(dialect, text, TOOLS)
    assert read_turn(dialect, text, TOOLS).text.split() == ["I", "look.", "So."]


MENTIONS = [
    "The end tag </tool_call> ends it, as `</tool_call>` does.\n{0}",
    "It ends so:\n```\n</tool_call>\n```\n{0}",
    "- </tool_call>\n\n{0}",
    'A block of ours begins with "<tool_call>" and ends with\n</tool_call>\n{0}',
]


@pytest.mark.parametrize("text", MENTIONS)
def test_what_is_said_about_an_end_marker_is_text(text: str):
    dialect = get_dialect("hermes")
    text = text.format(call_text(dialect))
    assert read_turn(dialect, text, TOOLS).text.count("</tool_call>") == text.count("</tool_call>") - 1
    check_splits(dialect, text, TOOLS)


def test_an_element_of_a_text_keeps_its_end():
    """`</function>` ends calls in several dialects, and is XML."""
    text = "The file has <function>read</function>\nand <function>\nlist\n</function>\nin it.\n"
    assert read_turn(get_dialect("auto"), text, TOOLS).text == text
    check_splits(get_dialect("auto"), text, TOOLS)


def test_a_call_without_its_start_is_told_where_text_follows_its_end():
    text = '{"name": "read", "arguments": {"file": "a.txt"}}\n</tool_call>\nNow I wait.'
    turn = read_turn(get_dialect("hermes"), f"So.\n{text}", TOOLS)
    (call,) = turn.calls
    assert isinstance(call, MalformedCall)
    assert call.code == "no_start"
    assert "</tool_call>" not in turn.text
    check_splits(get_dialect("hermes"), f"So.\n{text}", TOOLS)


@pytest.mark.over_a_second
def test_many_stray_end_markers_take_no_longer_each():
    text = "<function>\n" + "</function>\n" * 20_000
    assert len(read_turn(get_dialect("qwen3-coder"), text, TOOLS).text) < len(text)


def test_an_answer_holds_no_stray_end_marker():
    @tool(read_only=True)
    def read(file: str) -> str:
        """Reads a file."""
        return file

    call = '<tool_call>\n{"name": "read", "arguments": {"file": "a.txt"}}\n</tool_call>'
    provider = ScriptedProvider([f"I look.\n</tool_call>\n{call}\n", "Done."])
    result = Agent(provider, [read], dialect="hermes").run_sync("go")
    assert (result.status, result.answer) == ("answered", "Done.")
    assert "</tool_call>\n<tool_call>" not in "".join(str(message) for message in provider.requests[1].messages)
