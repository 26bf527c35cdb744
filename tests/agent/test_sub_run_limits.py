"""A parent's limits of tokens and cost hold for a run that its tool starts while that run goes on."""

import asyncio

import pytest

from toolspeak import Agent, Limits, MemoryJournal, tool
from toolspeak.data.events import LimitReached, RunStarted
from toolspeak.data.messages import Usage
from toolspeak.data.prices import Price
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn

PRICES = {"scripted": Price(100, 1000)}  # USD per million tokens: a TURN is 0.20
TURN = Usage(1000, 100)


@tool(read_only=True)
def look(place: str) -> str:
    """Looks somewhere."""
    return f"nothing in {place}"


def searching(turns):
    """A model that looks in one place after the other, then says so."""
    calls = [ScriptedTurn("", calls=[ScriptedCall("look", {"place": f"{at}"})], usage=TURN) for at in range(turns)]
    return ScriptedProvider([*calls, ScriptedTurn("It is not there.", usage=TURN)])


def play(limits, *, own=None, prices=PRICES, of_scout=PRICES, turns=9, journal=None):
    """A parent whose tool starts a scout. Returns its result, the scout's model, and the scout's records."""
    journal = MemoryJournal() if journal is None else journal
    model = searching(turns)
    scout = Agent(model, [look], name="scout", description="Searches.", limits=own or Limits(), prices=of_scout)
    boss_turns = [
        ScriptedTurn("", calls=[ScriptedCall("scout", {"task": "Find it."})], usage=TURN),
        ScriptedTurn("Gone.", usage=TURN),
    ]
    boss = Agent(ScriptedProvider(boss_turns), [scout.as_tool()], limits=limits, prices=prices, journal=journal)

    async def main():
        result = await boss.run("Find it.")
        runs = [await journal.read(run.run_id) for run in await journal.runs() if run.run_id != result.run_id]
        return result, [record.event for record in (runs[0] if runs else [])]

    result, events = asyncio.run(main())
    return result, model, events


def limit_of(events):
    return next((event for event in events if isinstance(event, LimitReached)), None)


def test_a_sub_run_ends_at_what_its_parent_has_left_of_its_tokens():
    # The boss's first turn takes 1,100 of 5,000 tokens; four turns of the scout take the rest, the fifth wraps up.
    _, model, events = play(Limits(tokens=5000), turns=4)
    assert len(model.requests) == 5
    limit_event = limit_of(events)
    assert (limit_event.limit, limit_event.used, limit_event.allowed) == ("tokens", 4400, 3900)
    start = events[0]
    assert isinstance(start, RunStarted)
    assert start.limits == Limits(tokens=3900)


def test_a_sub_run_ends_at_what_its_parent_has_left_of_its_money():
    _, model, events = play(Limits(cost=0.5), turns=2)
    assert len(model.requests) == 3
    limit_event = limit_of(events)
    assert (limit_event.limit, limit_event.used, limit_event.allowed) == (
        "cost",
        pytest.approx(0.4),
        pytest.approx(0.3),
    )


def test_the_lower_limit_counts():
    _, _, events = play(Limits(tokens=50_000), own=Limits(tokens=1500), turns=2)
    assert limit_of(events).allowed == 1500
    _, _, events = play(Limits(tokens=3000), own=Limits(tokens=50_000), turns=2)
    assert limit_of(events).allowed == 1900


def test_a_parent_that_has_nothing_left_gives_its_sub_run_one_turn():
    _, model, events = play(Limits(tokens=1000), turns=0)
    assert len(model.requests) == 1
    assert (limit_of(events).used, limit_of(events).allowed) == (0, 0)


def test_steps_and_calls_are_each_runs_own():
    result, _, events = play(Limits(steps=2, calls=1), turns=3)
    assert limit_of(events) is None
    assert events[0].limits == Limits()
    assert (result.answer, result.status) == ("Gone.", "answered")


def test_a_sub_run_whose_cost_is_unknown_starts_all_the_same():
    result, _, events = play(Limits(cost=0.5), of_scout={}, turns=3)
    assert events[0].limits == Limits()
    assert result.answer == "Gone."
