"""The catalogue: what it says of each dialect, and that every dialect keeps the contract on plain input."""

from __future__ import annotations

import pytest
from catalogue_page import GRAMMARS, PAGE, grammars_page, page
from dialect_strategies import TOOLS

from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult
from toolspeak.dialects import DIALECTS, get_dialect, read_turn
from toolspeak.testing import check_splits

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


def test_names_and_aliases_are_each_ones_own():
    names = [name for dialect in DIALECTS for name in (dialect.name, *dialect.info.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.over_a_second
def test_the_page_is_current():
    """Update it with `python tests/dialects/catalogue_page.py`."""
    assert PAGE.read_text("utf-8") == page()
    grammars_text = GRAMMARS.read_text("utf-8")
    assert grammars_text == grammars_page(grammars_text)


@each_dialect
def test_it_is_found_by_every_name_and_says_where_its_format_comes_from(dialect):
    assert all(get_dialect(name) is dialect for name in (dialect.name, *dialect.info.aliases))
    assert dialect.info.summary
    assert dialect.info.source


@each_dialect
def test_a_turn_it_writes_is_read_back_whatever_the_chunks(dialect):
    call = ToolCall("c1", "read", {"file": "notes/a <b> & 'c'.txt"}, provider_id="callid001")
    results = (ToolResult("c1", "read", "success", (TextPart("text"),)),)
    history = [Message.user("go"), Message("assistant", (call,)), Message("tool", results)]
    messages = dialect.render(history, TOOLS)
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert "text" in messages[2].text
    (read,) = read_turn(dialect, messages[1].text, TOOLS).calls
    assert (read.name, read.arguments) == (call.name, call.arguments)
    check_splits(dialect, messages[1].text, TOOLS, "stop")


@each_dialect
def test_the_instructions_name_every_tool(dialect):
    instructions = dialect.instructions(TOOLS, listing="prose")
    assert all(f"### {spec.name}(" in instructions for spec in TOOLS)
    assert all(spec.name in dialect.instructions(TOOLS) for spec in TOOLS)


@each_dialect
@pytest.mark.parametrize("text", ["", "Plain prose, with a < b & c.", "```python\nprint([1, 2])\n```\n", "\ud800\0"])
def test_text_without_calls_stays_text(dialect, text):
    turn = read_turn(dialect, text, TOOLS)
    assert (turn.text, turn.calls, turn.reasoning) == (text, (), "")
