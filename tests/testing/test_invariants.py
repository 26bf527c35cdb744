"""What `CheckedParser` refuses at which step: toys that are broken in one way."""

from __future__ import annotations

import pytest

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallMalformed,
    CallStarted,
    ForgedResults,
    ReasoningDelta,
    TextDelta,
)
from toolspeak.testing import CheckedParser, check_nothing_lost


class Script:
    """A parser that tells these deltas: a list for every chunk, and one for the end."""

    def __init__(self, *steps):
        self.steps = iter(steps)

    def feed(self, chunk):
        return next(self.steps)

    def close(self, reason):
        return iter(next(self.steps))


def run(chunks, *steps, **options):
    parser = CheckedParser(Script(*steps), **options)
    deltas = [delta for chunk in chunks for delta in parser.feed(chunk)]
    return deltas + parser.close("stop")


CALL = [CallStarted(0, "f"), ArgumentsDelta(0, "{}"), CallCompleted(0, "f", {})]


def test_a_sound_turn_passes_as_it_is():
    steps = [
        [TextDelta("a"), *CALL[:1]],
        [],
        [*CALL[1:], ReasoningDelta("b")],
        [TextDelta("c"), BatchEnded((0,), True)],
    ]
    assert run(["a<f", "(", ")bc"], *steps) == [delta for step in steps for delta in step]


@pytest.mark.parametrize(
    ("chunks", "steps", "problem"),
    [
        (["x"], ([TextDelta("")], []), "an empty TextDelta"),
        (["x"], ([ArgumentsDelta(0, "{}")], []), "comes before the call started"),
        (["f", "x"], ([*CALL], [ArgumentsDelta(0, " ")], []), "comes after the call ended"),
        (["x"], (CALL, []), "the batch did not end"),
        (["x"], ([], [CallStarted(0, "f")]), "the batch did not end"),
        (["abc"], ([TextDelta("b"), TextDelta("a")], []), "did not arrive, or was told before"),
        (["abc"], ([TextDelta("abc")], [TextDelta("c")]), "did not arrive, or was told before"),
        (["a", "b"], ([ReasoningDelta("c")], [], []), "did not arrive"),
        (["a" * 300, "b"], ([], [TextDelta("a" * 300 + "b")], []), "300 characters of text were held back"),
        (["a" * 257], ([], [TextDelta("a" * 257)]), "257 characters of text were held back"),
    ],
)
def test_what_is_broken_is_refused(chunks, steps, problem):
    with pytest.raises(AssertionError, match=problem):
        run(chunks, *steps)


def test_a_fault_is_told_at_its_step():
    parser = CheckedParser(Script([], [CallCompleted(0, "f", {})]))
    assert parser.feed("a") == []
    with pytest.raises(AssertionError, match="before the call started"):
        parser.feed("b")


def test_a_marker_candidate_may_be_held_back_and_more_where_it_is_agreed():
    assert run(["a" * 256], [], [TextDelta("a" * 256)])
    assert run(["a" * 5000], [], [TextDelta("a" * 5000)], max_held=None)


@pytest.mark.parametrize(
    "delta",
    [
        TextDelta("a word b"),
        ReasoningDelta("word"),
        CallStarted(0, "word"),
        CallCompleted(0, "f", {"a": ["word"]}),
        CallCompleted(0, "f", {"word": 1}),
        CallCompleted(0, "f", {}, id="word:0"),
        CallMalformed(0, "{word", "invalid_json", "it ends early", 1),
        ForgedResults("[word]"),
    ],
)
def test_a_word_may_stand_anywhere_but_must_stand_somewhere(delta):
    check_nothing_lost(["word"], [delta])
    with pytest.raises(AssertionError, match="lost: \\['other'\\]"):
        check_nothing_lost(["word", "other"], [delta])
