"""White space that a template puts between thoughts, calls and text is no text of the answer's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspeak.data.deltas import (
    BatchEnded,
    CallCompleted,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.dialects import get_dialect
from toolspeak.gateway.turns.turn_gate import LONGEST_BLANK, ReleaseRules, TurnGate

END = TurnEnded("stop")


def release(deltas: list[Delta], rules: ReleaseRules) -> list[Delta]:
    gate = TurnGate(rules)
    return [leaving for delta in deltas for leaving in gate.feed(delta)]


def text(deltas: list[Delta]) -> list[str]:
    """The runs of text between everything else."""
    runs = [""]
    for delta in deltas:
        if isinstance(delta, TextDelta):
            runs[-1] += delta.text
        elif runs[-1]:
            runs.append("")
    return [run for run in runs if run]


def call(index: int) -> list[Delta]:
    return [CallStarted(index, "f", f"c{index}"), CallCompleted(index, "f", {}, f"c{index}")]


THOUGHT = ReasoningDelta("Hm.")
TURNS: list[tuple[list[Delta], list[str]]] = [
    ([TextDelta("\n"), *call(0), TextDelta("\n"), *call(1), BatchEnded((0, 1), True), END], []),
    ([THOUGHT, TextDelta("\n"), TextDelta("\n"), TextDelta("Yes. "), TextDelta("\n"), END], ["Yes. \n"]),
    ([THOUGHT, TextDelta("\r\n  1. a"), END], ["  1. a"]),
    ([TextDelta("\n  as I said"), END], ["\n  as I said"]),
    ([TextDelta("Look.\n"), *call(0), TextDelta("\n\n"), BatchEnded((0,), True), END], ["Look.\n"]),
    ([TextDelta(" "), TextDelta("\n"), END], [" \n"]),
    ([THOUGHT, TextDelta("\n\n"), END], []),
    ([TextDelta(" " * (LONGEST_BLANK + 1)), *call(0), END], [" " * (LONGEST_BLANK + 1)]),
]


@pytest.mark.parametrize("held", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize(("turn", "expected"), TURNS)
def test_what_is_left_of_the_text(turn: list[Delta], expected: list[str], held: bool):
    assert text(release(turn, ReleaseRules(in_text=True, hold_text=held, hold_calls=held))) == expected


@pytest.mark.parametrize("turn", [turn for turn, _ in TURNS])
def test_what_a_server_with_calls_of_its_own_says_stays_as_it_is(turn: list[Delta]):
    content = "".join(delta.text for delta in turn if isinstance(delta, TextDelta))
    assert "".join(text(release(turn, ReleaseRules()))) == content


@given(st.lists(st.integers(1, 9), min_size=1), st.sampled_from(["hermes", "qwen3-coder", "cogency-json"]))
def test_splits_do_not_matter(sizes: list[int], name: str):
    content = "<think>\nHm.\n</think>\n\n Yes,\n\nI do.\n"
    rules, parser = ReleaseRules(in_text=True), get_dialect(name).parser()
    deltas: list[Delta] = []
    at = turn = 0
    while at < len(content):
        size = sizes[turn % len(sizes)]
        deltas += parser.feed(content[at : at + size])
        at, turn = at + size, turn + 1
    deltas += [*parser.close("stop"), END]
    assert text(release(deltas, rules)) == [" Yes,\n\nI do.\n"]
