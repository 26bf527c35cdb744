"""What `check_deltas` refuses: streams that are broken in one way. And cutting and joining."""

from __future__ import annotations

import pytest

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    ForgedResults,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.testing import check_deltas, chunks, every_split, join_deltas

START, ARGUMENTS = CallStarted(0, "read"), ArgumentsDelta(0, '{"path": "a"}')
COMPLETE_CALL, END = CallCompleted(0, "read", {"path": "a"}), BatchEnded((0,), True)
MALFORMED_CALL = CallMalformed(0, "{", "invalid_json", "it ends early", 3)
GOOD = [START, ARGUMENTS, COMPLETE_CALL, END]
SECOND = [
    CallStarted(1, "ping"),
    ArgumentsDelta(1, "{}"),
    CallCompleted(1, "ping", {}),
]


def with_arguments(text, arguments):
    return [START, ArgumentsDelta(0, text), CallCompleted(0, "read", arguments), END]


SOUND = {
    "nothing": [],
    "text": [TextDelta("a"), ReasoningDelta("b"), TurnEnded("stop")],
    "a call": GOOD,
    "a call and the end of the turn": [*GOOD, TurnEnded("tool_calls")],
    "arguments in pieces": [START, ArgumentsDelta(0, '{"path"'), ArgumentsDelta(0, ': "a"}'), COMPLETE_CALL, END],
    "two calls": [*GOOD[:3], *SECOND, BatchEnded((0, 1), True)],
    "two calls at once": [START, SECOND[0], ARGUMENTS, *SECOND[1:], COMPLETE_CALL, BatchEnded((0, 1), True)],
    "one ignored": [*GOOD[:3], *SECOND, CallIgnored(0, "only the last"), BatchEnded((1,), True)],
    "ignored after the batch": [*GOOD, *SECOND, CallIgnored(1, "too late")],
    "malformed": [MALFORMED_CALL, BatchEnded((), False)],
    "malformed after its start": [START, ArgumentsDelta(0, "{"), MALFORMED_CALL, BatchEnded((), False)],
    "malformed and ignored": [MALFORMED_CALL, CallIgnored(0, "too late"), BatchEnded((), True)],
    "an empty batch": [BatchEnded((), True)],
    "forged results": [ForgedResults("[]")],
    "an id known at the end": [START, ARGUMENTS, CallCompleted(0, "read", {"path": "a"}, "x"), END],
    "keys in another order": with_arguments('{"b": 1, "a": 2}', {"a": 2, "b": 1}),
}

VIOLATIONS = {
    "empty text": ([TextDelta("")], "an empty TextDelta"),
    "empty reasoning": ([ReasoningDelta("")], "an empty ReasoningDelta"),
    "a first call 1": (SECOND, "call 1 starts, 0 is next"),
    "started twice": ([START, START], "call 0 starts, 1 is next"),
    "arguments before the start": ([ARGUMENTS], "comes before the call started"),
    "completed before the start": ([COMPLETE_CALL], "comes before the call started"),
    "arguments of a call that only failed": ([MALFORMED_CALL, ARGUMENTS], "comes before the call started"),
    "arguments after the end": ([*GOOD[:3], ArgumentsDelta(0, " ")], "comes after the call ended"),
    "completed twice": ([*GOOD[:3], COMPLETE_CALL], "comes after the call ended"),
    "completed after malformed": ([START, ARGUMENTS, MALFORMED_CALL, COMPLETE_CALL], "comes after the call ended"),
    "malformed after completed": ([*GOOD[:3], MALFORMED_CALL], "call 0 is malformed after it ended"),
    "malformed twice": ([MALFORMED_CALL, MALFORMED_CALL], "call 0 is malformed after it ended"),
    "a first malformed call 1": ([CallMalformed(1, "", "code", "why", 0)], "call 1 is malformed, 0 is next"),
    "malformed without a code": ([CallMalformed(0, "", "", "why", 0)], "without a code or reason"),
    "malformed without a reason": ([CallMalformed(0, "", "code", "", 0)], "without a code or reason"),
    "malformed nowhere": ([CallMalformed(0, "", "code", "why", -1)], "call 0 is malformed at -1"),
    "another name": ([START, ARGUMENTS, CallCompleted(0, "write", {"path": "a"})], "completed as 'write'"),
    "another id": (
        [CallStarted(0, "read", "x"), ARGUMENTS, CallCompleted(0, "read", {"path": "a"}, "y")],
        "started as id 'x', completed as 'y'",
    ),
    "no argument fragments": ([START, COMPLETE_CALL], "are no JSON"),
    "fragments that are no JSON": (with_arguments('{"path": ', {}), "are no JSON"),
    "other arguments": (with_arguments('{"path": "b"}', {"path": "a"}), "its arguments {'path': 'a'}"),
    "1 is not true": (with_arguments('{"a": 1}', {"a": True}), "its arguments"),
    "1 is not 1.0": (with_arguments('{"a": 1}', {"a": 1.0}), "its arguments"),
    "ignored before it is there": ([CallIgnored(0, "why")], "ignored before it ended"),
    "ignored before its end": ([START, CallIgnored(0, "why")], "ignored before it ended"),
    "ignored twice": ([MALFORMED_CALL, CallIgnored(0, "why"), CallIgnored(0, "why")], "ignored twice"),
    "two batches": ([*GOOD, END], "the batch ends twice"),
    "selected out of order": ([*GOOD[:3], *SECOND, BatchEnded((1, 0), True)], "selected out of order"),
    "selected twice": ([*GOOD[:3], BatchEnded((0, 0), True)], "selected out of order"),
    "selected and unknown": ([BatchEnded((0,), True)], "call 0 is selected and was not completed"),
    "selected and open": ([START, BatchEnded((0,), True)], "call 0 is selected and was not completed"),
    "selected and malformed": ([MALFORMED_CALL, BatchEnded((0,), False)], "call 0 is selected and was not completed"),
    "selected and ignored": ([*GOOD[:3], CallIgnored(0, "why"), END], "selected and ignored"),
    "selected, ignored later": ([*GOOD, CallIgnored(0, "why")], "selected and ignored"),
    "more after the end": ([TurnEnded("stop"), TextDelta("a")], "comes after the turn ended"),
    "ended twice": ([TurnEnded("stop"), TurnEnded("stop")], "comes after the turn ended"),
}

OPEN_TURNS = {
    "calls and no batch": (GOOD[:3], "the batch did not end"),
    "a call that never ends": ([*GOOD, SECOND[0]], "call 1 never ended"),
    "neither selected nor ignored": ([*GOOD[:3], BatchEnded((), True)], "not selected and not ignored"),
    "ok with a malformed call": ([MALFORMED_CALL, BatchEnded((), True)], "ok=True"),
    "not ok without one": ([*GOOD[:3], BatchEnded((0,), False)], "ok=False"),
    "not ok for one that is ignored": ([MALFORMED_CALL, CallIgnored(0, "why"), BatchEnded((), False)], "ok=False"),
}


@pytest.mark.parametrize("case", SOUND)
def test_sound_deltas_pass(case):
    deltas = SOUND[case]
    check_deltas(deltas)
    for length in range(len(deltas)):
        check_deltas(deltas[:length], complete=False)


@pytest.mark.parametrize("case", VIOLATIONS)
def test_broken_deltas_are_refused(case):
    deltas, match = VIOLATIONS[case]
    for complete in (True, False):
        with pytest.raises(AssertionError, match=match):
            check_deltas(deltas, complete=complete)


@pytest.mark.parametrize("case", OPEN_TURNS)
def test_what_must_hold_at_the_end_is_asked_only_there(case):
    deltas, match = OPEN_TURNS[case]
    check_deltas(deltas, complete=False)
    with pytest.raises(AssertionError, match=match):
        check_deltas(deltas)


# --- cutting and joining ------------------------------------------------------------------------


def test_every_split_and_chunks():
    assert list(every_split("abc")) == [("abc",), ("a", "bc"), ("ab", "c")]
    assert list(every_split("abc", 3)) == [("abc",), ("a", "bc"), ("ab", "c"), ("a", "b", "c")]
    assert list(every_split("a", 3)) == [("a",)]
    assert list(every_split("")) == [("",)]
    assert list(chunks("abcde", 2)) == ["ab", "cd", "e"]
    assert list(chunks("", 2)) == []


def test_join_deltas_merges_neighbours_of_one_kind_only():
    pieces = [TextDelta("a"), TextDelta("b"), ReasoningDelta("c"), TextDelta("d"), *GOOD[:1], ArgumentsDelta(0, "{")]
    pieces += [ArgumentsDelta(0, "}"), ArgumentsDelta(1, "["), ArgumentsDelta(0, " "), ReasoningDelta("e")]
    pieces += [ReasoningDelta("f"), TurnEnded("stop")]
    assert join_deltas(pieces) == [
        TextDelta("ab"),
        ReasoningDelta("c"),
        TextDelta("d"),
        START,
        ArgumentsDelta(0, "{}"),
        ArgumentsDelta(1, "["),
        ArgumentsDelta(0, " "),
        ReasoningDelta("ef"),
        TurnEnded("stop"),
    ]
    assert join_deltas(join_deltas(pieces)) == join_deltas(pieces)
