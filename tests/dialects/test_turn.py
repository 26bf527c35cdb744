"""A turn assembled from deltas."""

from __future__ import annotations

import pytest
from dialect_strategies import TOOLS, block, replies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.data.deltas import (
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import MalformedCall, ReasoningPart, TextPart, ToolCall, Usage
from toolspeak.dialects import PROTOCOLS, Dialect, TurnCollector, get_dialect, read_turn
from toolspeak.errors import UnknownDialect
from toolspeak.testing import chunks

each_dialect = pytest.mark.parametrize("dialect", PROTOCOLS, ids=lambda dialect: dialect.name)


@each_dialect
def test_parts_stand_in_the_order_they_were_written_without_the_white_space_around_blocks(dialect: Dialect):
    call = block(dialect, ("ping", {}))
    turn = read_turn(dialect, f"<think>hm</think>\nFirst.\n\n{call}\n\nThen.\n", TOOLS)
    assert turn.message.role == "assistant"
    assert turn.message.parts == (
        ReasoningPart("hm"),
        TextPart("First."),
        ToolCall("call_0", "ping", {}),
        TextPart("Then."),
    )
    assert (turn.text, turn.reasoning) == ("\nFirst.\n\n\n\nThen.\n", "hm")


@each_dialect
def test_a_turn_that_starts_in_reasoning(dialect: Dialect):
    call = block(dialect, ("ping", {}))
    turn = read_turn(dialect, f"so {call} no</think>Yes.", TOOLS, starts_in="reasoning")
    assert (turn.reasoning, turn.text, turn.calls) == (f"so {call} no", "Yes.", ())


@each_dialect
def test_finish_usage_and_model_come_from_the_end_of_the_turn(dialect: Dialect):
    collector = TurnCollector(lambda index: f"r1:{index}")
    for delta in (TextDelta("Hi"), TurnEnded("length", Usage(1, 2), "m")):
        collector.add(delta)
    turn = collector.turn()
    assert (turn.finish, turn.usage, turn.model) == ("length", Usage(1, 2), "m")
    assert read_turn(dialect, "Hi", finish="refusal").finish == "refusal"


def test_ids_are_given_by_the_caller_and_the_model_s_own_are_kept():
    text = '<execute>[{"name": "a", "args": {}, "id": "x"}, {"name": 7, "args": {}}]</execute>'
    calls = read_turn(get_dialect("cogency-json"), text, call_id=lambda index: f"run-{index}").calls
    assert [call.id for call in calls] == ["run-0", "run-1"]
    assert [type(call) for call in calls] == [ToolCall, MalformedCall]
    assert isinstance(calls[0], ToolCall)
    assert calls[0].provider_id == "x"


def test_ignored_calls_are_told_apart_from_those_that_count():
    collector = TurnCollector(str)
    for delta in (
        CallStarted(0, "a"),
        CallCompleted(0, "a", {}),
        CallMalformed(1, "raw", "invalid_json", "why", 3, "b"),
        CallIgnored(0, "too many"),
        BatchEnded((), ok=False, notes=("array",)),
    ):
        assert not collector.batch_ended
        collector.add(delta)
    assert collector.batch_ended
    turn = collector.turn()
    assert turn.calls == turn.message.calls == (MalformedCall("1", "raw", "invalid_json", "why", "b"),)
    assert [(each.call, each.reason) for each in turn.ignored_calls] == [(ToolCall("0", "a", {}), "too many")]
    assert turn.notes == ("array",)


@each_dialect
@given(data=st.data())
@settings(deadline=None, max_examples=fewer(60), suppress_health_check=[HealthCheck.too_slow])
def test_a_turn_read_at_once_is_the_turn_collected_in_pieces(dialect: Dialect, data: st.DataObject):
    text, tools = data.draw(replies(dialect))
    parser, collector = dialect.parser(tools), TurnCollector(lambda index: f"call_{index}")
    for piece in chunks(text, data.draw(st.integers(1, 9))):
        for delta in parser.feed(piece):
            collector.add(delta)
    for delta in (*parser.close("stop"), TurnEnded("stop")):
        collector.add(delta)
    turn = collector.turn()
    assert turn == read_turn(dialect, text, tools)
    assert turn.message.calls == turn.calls
    assert turn.reasoning == "".join(part.text for part in turn.message.parts if isinstance(part, ReasoningPart))


def test_an_empty_turn():
    turn = TurnCollector(str).turn()
    assert (turn.text, turn.calls, turn.message.parts, turn.finish) == ("", (), (), "stop")
    collector = TurnCollector(str)
    collector.add(ReasoningDelta("a"))
    assert collector.turn().message.parts == (ReasoningPart("a"),)


def test_a_dialect_is_looked_up_by_name():
    for dialect in PROTOCOLS:
        assert get_dialect(dialect.name) is dialect
        assert dialect.info.name == dialect.name
    with pytest.raises(UnknownDialect, match="Did you mean 'tool-call'"):
        get_dialect("toolcal")
