"""Where a finished reply begins if its prompt is lost."""

from __future__ import annotations

import pytest

from toolspeak.data.deltas import TextDelta, TextWasReasoning
from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn, section_of_reply, with_repair
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.testing import check_splits

TOOLS = [ToolSpec("say", "", {"type": "object", "properties": {"text": {"type": "string"}}})]


def ends_of(dialect: Dialect) -> list[str]:
    parser = dialect.parser(TOOLS)
    return [end.text for end in parser.format.table.markup.thought_ends] if isinstance(parser, BlockParser) else []


THINKING = [(dialect, end) for dialect in DIALECTS for end in ends_of(dialect)]
CASES = pytest.mark.parametrize(("dialect", "end"), THINKING, ids=[f"{each.name} {end}" for each, end in THINKING])


def call_text(dialect: Dialect, text: str) -> str:
    message = Message("assistant", (ToolCall("call_0", "say", {"text": text}),))
    return dialect.render([message], TOOLS)[0].text


@CASES
def test_an_end_without_a_start_says_that_it_began_inside_reasoning(dialect: Dialect, end: str):
    reply = f"plan{end}answer\n{call_text(dialect, 'x')}"
    assert section_of_reply(dialect, reply, TOOLS) == "reasoning"
    turn = read_turn(dialect, reply, TOOLS, starts_in="reasoning")
    assert (turn.reasoning, turn.text.strip(), len(turn.calls)) == ("plan", "answer", 1)


@CASES
def test_a_mention_and_what_stands_in_or_after_a_call_or_reasoning_say_nothing(dialect: Dialect, end: str):
    call, parser = call_text(dialect, f"a{end}b"), dialect.parser(TOOLS)
    assert isinstance(parser, BlockParser)
    opening = next(marker.text for marker in parser.format.table.markers if end in (marker.end, *marker.also_ends))
    for reply in ("", "plan", f"`{end}` ends it", call, f"{call}\nplan{end}answer", f"{opening}plan{end}and{end}on"):
        assert section_of_reply(dialect, reply, TOOLS) == "text", reply


@CASES
def test_a_stream_says_so_once_the_end_comes(dialect: Dialect, end: str):
    """What was shown stays shown; the marker is not, and the turn that is kept has the text as reasoning."""
    for reply, answer, thought in (
        (f"plan{end}answer", "answer", "plan"),
        (f"{end}Hello", "Hello", ""),
        (f"\n{end}\n\n{end}\nHello", "Hello", ""),
    ):
        turn = read_turn(dialect, reply, TOOLS)
        assert (turn.message.text, turn.reasoning, end in turn.text) == (answer, thought, False)
        deltas = check_splits(dialect, reply, TOOLS, "stop")
        assert (TextWasReasoning() in deltas) == bool(thought)
    call = call_text(dialect, "x")
    turn = read_turn(dialect, f"plan{end}{call}", TOOLS)
    assert (turn.reasoning, turn.message.text, len(turn.calls)) == ("plan", "", 1)


@CASES
def test_a_stream_leaves_mentions_and_what_follows_reasoning_or_calls(dialect: Dialect, end: str):
    opening, call = opener(dialect, end), call_text(dialect, "x")
    text_with_fence = f"So:\n```\n{end}\n```\nis it."
    for reply in (f"`{end}` ends it", text_with_fence, f"{opening}plan{end}So it ends.", f"{call}\nplan"):
        deltas = check_splits(dialect, reply, TOOLS, "stop")
        assert TextWasReasoning() not in deltas, reply
    parser = dialect.parser(TOOLS)
    assert isinstance(parser, BlockParser)
    is_dropped = any(each.kind == "noise" and each.text == end for each in parser.format.table.markers)
    assert read_turn(dialect, text_with_fence, TOOLS).text == (
        text_with_fence.replace(end, "") if is_dropped else text_with_fence
    )
    parser = dialect.parser(TOOLS)
    parser.keep_reasoning()
    deltas = [*parser.feed(f"plan{end}answer"), *parser.close("stop")]
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)).startswith("plan")
    assert TextWasReasoning() not in deltas


@CASES
def test_a_marker_in_the_middle_of_a_sentence_is_a_mention(dialect: Dialect, end: str):
    """An answer about the format must not lose the text before the marker that it names."""
    parser = dialect.parser(TOOLS)
    assert isinstance(parser, BlockParser)
    if any(each.kind == "noise" and each.text == end for each in parser.format.table.markers):
        return  # a special token of the model is dropped wherever it stands
    reply = f"The {end} tag ends reasoning."
    assert TextWasReasoning() not in check_splits(dialect, reply, TOOLS, "stop")
    turn = read_turn(dialect, reply, TOOLS)
    assert (turn.text, turn.reasoning) == (reply, "")


def opener(dialect: Dialect, end: str) -> str:
    parser = dialect.parser(TOOLS)
    assert isinstance(parser, BlockParser)
    return next(marker.text for marker in parser.format.table.markers if end in (marker.end, *marker.also_ends))


def test_most_dialects_have_reasoning():
    assert len({dialect.name for dialect, _ in THINKING}) > len(DIALECTS) / 2


@pytest.mark.parametrize("name", ["auto", "cogency-json"])
def test_auto_and_the_published_protocols_too(name: str):
    assert section_of_reply(get_dialect(name), "plan</think>answer", TOOLS) == "reasoning"
    assert section_of_reply(get_dialect(name), "answer", TOOLS) == "text"


def test_a_repairing_dialect_as_the_one_it_repairs():
    assert section_of_reply(with_repair(get_dialect("hermes")), "plan</think>answer") == "reasoning"


def test_the_headers_of_messages_say_it_themselves():
    assert section_of_reply(get_dialect("harmony"), "plan</think>answer") == "text"
