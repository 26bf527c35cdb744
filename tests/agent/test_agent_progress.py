"""A run that gets nowhere is told so, and then ended with an answer and the reason."""

import itertools

import pytest
from agent_helpers import calling, play

from toolspeak import Effects, Limits, tool
from toolspeak.agent import fold
from toolspeak.data.events import LimitReached
from toolspeak.tools import Toolset

_count = itertools.count()


@tool(effects=Effects(writes={"file:log"}))
def log(line: str) -> str:
    "Writes a line."
    return "written"


@tool(effects=Effects(reads={"file:log"}))
def tail(lines: int) -> str:
    "Reads the end."
    return "line\n" * lines


@tool(read_only=True, polls=True)
def poll() -> str:
    "Asks whether it is done."
    return "not yet"


@tool(effects=Effects(writes={"file:count"}))
def fresh() -> int:
    "A new number each time."
    return next(_count)


TOOLS = Toolset([log, tail, poll, fresh])
HINT = "Your last calls were the same as before"


def one(name, **arguments):
    return calling("cogency-json", (name, arguments), tools=TOOLS)


def run(turns, **limits):
    result, journal, provider = play([*turns, "The end."], TOOLS, run={"limits": Limits(**limits)})
    hints = [number for number, message in enumerate(result.messages) if HINT in message.text]
    return result, journal, provider, hints


@pytest.mark.parametrize(
    "turns",
    [[one("log", line="x")] * 9, [one("log", line="x"), one("tail", lines=2)] * 5],
    ids=["the same call", "two calls alternating"],
)
def test_calls_that_repeat_themselves_end_the_run_after_a_word(turns):
    result, journal, _, hints = run(turns)
    (limit_event,) = journal.all(LimitReached)
    assert (limit_event.limit, limit_event.used, limit_event.allowed) == ("repeats", 4, 4)
    assert (result.status, result.reason) == ("answered" if result.answer else "no_answer", "repeats")
    assert len(hints) == 1
    steps = len([message for message in result.messages[: hints[0]] if message.calls])
    repetitions = len(turns) - len([turn for turn in turns if turn != turns[0]])
    assert steps == (3 if repetitions == len(turns) else 4)


def test_the_run_ends_with_an_answer_and_the_reason():
    turns = [one("log", line="x")] * 5
    result, _, provider, _ = run(turns)
    assert (result.answer, result.reason) == ("The end.", "repeats")
    assert "there is no progress" in provider.requests[-1].messages[-1].text


def test_the_first_that_brings_something_else_starts_anew():
    turns = [one("log", line="x")] * 4 + [one("log", line="y")] + [one("log", line="x")] * 3
    result, _, _, _ = run(turns)
    assert (result.answer, result.reason) == ("The end.", "answer")


def test_another_result_is_progress():
    result, _, _, hints = run([one("fresh")] * 12)
    assert (result.answer, hints) == ("The end.", [])


def test_a_poll_may_be_repeated():
    result, _, _, hints = run([one("poll")] * 12)
    assert (result.answer, hints) == ("The end.", [])


def test_an_answer_from_memory_is_the_same_result():
    result, _, _, hints = run([one("tail", lines=1)] * 9)
    assert result.reason == "repeats"
    assert len(hints) == 1


def test_steps_of_failures_alone_end_the_run_after_a_word():
    turns = [calling("cogency-json", ("no_such_tool", {"n": number}), tools=TOOLS) for number in range(8)]
    result, journal, provider, _ = run(turns)
    assert (result.answer, result.reason) == ("The end.", "failures")
    assert journal.all(LimitReached)[0].used == 8
    hints = [message.text for message in result.messages if "Every call of your last 4 steps failed" in message.text]
    assert len(hints) == 1
    assert len(provider.requests) == 9


def test_one_success_among_failures_is_no_failure():
    both = calling("cogency-json", ("no_such_tool", {}), ("fresh", {}), tools=TOOLS)
    result, _, _, _ = run([both] * 12)
    assert result.reason == "answer"


def test_both_rules_can_be_switched_off():
    result, _, _, hints = run([one("log", line="x")] * 12, repeats=None, failures=None)
    assert (result.reason, hints) == ("answer", [])


def test_the_run_goes_on_where_the_word_helped():
    result, _, _, hints = run([one("log", line="x")] * 3 + [one("log", line="y")])
    assert (result.reason, len(hints)) == ("answer", 1)


def test_a_resumed_fold_comes_to_the_same_progress():
    result, journal, _, _ = run([one("log", line="x")] * 3)
    assert fold(journal.records).progress == result.state.progress
