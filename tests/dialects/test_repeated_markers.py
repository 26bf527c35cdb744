"""A repeated start marker begins one call, in every dialect with a start marker."""

from __future__ import annotations

import pytest

from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.text.block_delimiters import Signature
from toolspeak.testing import CheckedParser, check_splits, chunks

READ = ToolSpec("read", "", {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]})
TOOLS = [READ]
ONCE = ("muse", "plamo3", "pythonic")  # a header begins a message; the first call is reported; a bracket is text


def call_text(dialect: Dialect) -> str:
    call = ToolCall("callid000", "read", {"file": "a.txt"})
    return dialect.render([Message("assistant", (call,))], TOOLS)[0].text.lstrip()


def start_of(dialect: Dialect) -> str:
    """The start marker as it is written, to the end of the tag that it begins."""
    parser, text = dialect.parser(TOOLS), call_text(dialect)
    for marker in parser.format.table.markers if isinstance(parser, BlockParser) else ():
        if marker.kind == "calls" and text.startswith(marker.text) and not isinstance(marker.opening, Signature):
            return text[: text.find(">") + 1] if marker.begins_tag else marker.text
    return ""


STARTS = [
    pytest.param(dialect, start, id=f"{dialect.name}-{start}")
    for dialect in [*DIALECTS, get_dialect("auto", model="qwen3")]
    if dialect.name not in ONCE and (start := start_of(dialect))
]


@pytest.mark.parametrize(("dialect", "start"), STARTS)
def test_a_start_marker_that_stands_twice_begins_one_call(dialect: Dialect, start: str):
    for between in ("", "\n", " "):
        for lead in ("", "I look.\n"):
            text = f"{lead}{start}{between}{call_text(dialect)}"
            turn = read_turn(dialect, text, TOOLS)
            (call,) = turn.calls
            assert isinstance(call, ToolCall), text
            assert (call.name, call.arguments) == ("read", {"file": "a.txt"})
            assert turn.text.strip() == lead.strip()
            assert "marker_twice" in turn.notes
            check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 7))])


@pytest.mark.parametrize(("dialect", "start"), STARTS)
def test_what_cannot_be_read_after_it_is_told(dialect: Dialect, start: str):
    text = f"{start}\n{start}\nread a.txt\n"
    turn = read_turn(dialect, text, TOOLS)
    assert turn.calls, text
    assert all(isinstance(call, MalformedCall) for call in turn.calls), text
    check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 7))])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call> <tool_call> are two start tags.",
        "In `<tool_call> <tool_call>\n<function=read>\n</function>\n</tool_call>` there are two.",
        "<tool_call> <tool_c",
    ],
)
def test_what_is_said_about_two_is_text(text: str):
    dialect = get_dialect("qwen3-coder")
    turn = read_turn(dialect, text, TOOLS)
    assert (turn.calls, turn.text) == ((), text)
    check_splits(dialect, text, TOOLS)


def test_every_cut_of_a_start_marker_that_stands_three_times():
    for name in ("hermes", "mistral-args", "gemma4", "kimi-k2"):
        dialect = get_dialect(name)
        start = start_of(dialect)
        check_splits(dialect, f"So.\n{start}\n{start} {call_text(dialect)}", TOOLS)


@pytest.mark.parametrize("name", ["hermes", "minimax-m3", "deepseek-v3", "mistral-v3", "gemma4", "jamba", "auto"])
def test_many_start_markers_are_held_no_longer_than_one(name: str):
    dialect = get_dialect(name)
    start = start_of(get_dialect("hermes") if name == "auto" else dialect)
    for count in range(256 // len(start) - 1, 256 // len(start) + 3):
        for after in ("", "`", "x", "\n", start[:3]):
            for size in (1, 7):
                parser = CheckedParser(dialect.parser(TOOLS))
                for piece in chunks(start * count + after, size):
                    parser.feed(piece)
                parser.close("stop")
