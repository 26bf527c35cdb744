"""Where a finished reply begins, when nobody kept the prompt."""

from __future__ import annotations

import pytest

from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn, repaired, section_of_reply
from toolspeak.dialects.blocks import BlockParser

TOOLS = [ToolSpec("say", "", {"type": "object", "properties": {"text": {"type": "string"}}})]


def ends_of(dialect: Dialect) -> list[str]:
    parser = dialect.parser(TOOLS)
    return [end.text for end in parser.thought_ends] if isinstance(parser, BlockParser) else []


THINKING = [(dialect, end) for dialect in DIALECTS for end in ends_of(dialect)]
CASES = pytest.mark.parametrize(("dialect", "end"), THINKING, ids=[f"{each.name} {end}" for each, end in THINKING])


def written(dialect: Dialect, text: str) -> str:
    message = Message("assistant", (ToolCall("call_0", "say", {"text": text}),))
    return dialect.render([message], TOOLS)[0].text


@CASES
def test_an_end_without_a_start_says_that_it_began_inside_reasoning(dialect: Dialect, end: str):
    reply = f"plan{end}answer\n{written(dialect, 'x')}"
    assert section_of_reply(dialect, reply, TOOLS) == "reasoning"
    turn = read_turn(dialect, reply, TOOLS, starts_in="reasoning")
    assert (turn.reasoning, turn.text.strip(), len(turn.calls)) == ("plan", "answer", 1)


@CASES
def test_a_mention_and_what_stands_in_or_behind_a_call_or_reasoning_say_nothing(dialect: Dialect, end: str):
    call, parser = written(dialect, f"a{end}b"), dialect.parser(TOOLS)
    assert isinstance(parser, BlockParser)
    opened = next(marker.text for marker in parser.format.table.markers if end in (marker.end, *marker.also_ends))
    for reply in ("", "plan", f"`{end}` ends it", call, f"{call}\nplan{end}answer", f"{opened}plan{end}and{end}on"):
        assert section_of_reply(dialect, reply, TOOLS) == "text", reply


def test_most_dialects_have_reasoning():
    assert len({dialect.name for dialect, _ in THINKING}) > len(DIALECTS) / 2


@pytest.mark.parametrize("name", ["auto", "cogency-json"])
def test_auto_and_the_published_protocols_too(name: str):
    assert section_of_reply(get_dialect(name), "plan</think>answer", TOOLS) == "reasoning"
    assert section_of_reply(get_dialect(name), "answer", TOOLS) == "text"


def test_a_repairing_dialect_as_the_one_it_repairs():
    assert section_of_reply(repaired(get_dialect("hermes")), "plan</think>answer") == "reasoning"


def test_the_headers_of_messages_say_it_themselves():
    assert section_of_reply(get_dialect("harmony"), "plan</think>answer") == "text"
