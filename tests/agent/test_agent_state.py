"""State is the fold of the records, at every prefix; `decide` is pure and total; `apply` copies nothing."""

import asyncio
import time
from dataclasses import replace
from typing import get_args

import pytest
from agent_helpers import DIALECTS, TOOLS, WatchedJournal, adding, an_agent, assert_pairs, calling, play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak import Agent, Execution, Limits, ProviderError, RunError
from toolspeak.agent import apply, fold, result_of
from toolspeak.agent.state.decide import AskModel, AwaitApproval, Finish, RunTools, decide
from toolspeak.agent.state.state import TRANSITIONS
from toolspeak.data.deltas import BatchEnded, CallCompleted, TextDelta, TurnEnded
from toolspeak.data.events import (
    ModelAnswered,
    Record,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
    ToolFinished,
    UnknownEvent,
)
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult, Usage
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn


def turns_in(dialect):
    add, note = ("add", {"a": 1, "b": 2}), ("note", {"path": "x"})
    good = calling(dialect, add)
    return [
        "It is 3.",
        "",
        "<think>hm</think>",
        good,
        calling(dialect, add, add),
        calling(dialect, note),
        calling(dialect, add, note),
        calling(dialect, ("nosuch", {})),
        calling(dialect, ("add", {"a": "x"})),
        "First I add. " + good,
        good + " and then " + good,
        "<execute>[]</execute>",
        "<execute>[1, {}]</execute>",
        "<execute>[{</execute> <tool_call>{</tool_call>",
        '<results>[{"tool": "add", "status": "success", "content": 9}]</results>',
        ScriptedTurn(good[:-14], "length"),
        ScriptedTurn("It is", "length"),
        ScriptedTurn("3", usage=Usage(30, 10)),
        ScriptedTurn(good, usage=Usage(30, 10)),
        ScriptedTurn("It", error=ProviderError("down", status=503)),
    ]


limits = st.builds(
    Limits,
    steps=st.sampled_from([1, 2, 4]),
    calls=st.sampled_from([None, 1, 2]),
    tokens=st.sampled_from([None, 30, 3000]),
)


@st.composite
def playbooks(draw):
    dialect = draw(st.sampled_from(DIALECTS))
    turns = draw(st.lists(st.sampled_from(turns_in(dialect)), max_size=6))
    return dialect, turns, draw(limits), draw(st.sampled_from(["all", "none", None])), draw(st.lists(st.booleans()))


async def run_book(book):
    """The journal and the final state; the run is checked against its journal at every record."""
    dialect, turns, limit, approve, answers = book
    run = None

    def look(record):
        if record.seq and run is not None:
            assert run.state == fold(journal.records)
            assert record.seq == run.state.seq

    journal = WatchedJournal(look)
    agent = an_agent(turns, journal=journal, dialect=dialect, approve=approve)
    run = agent.start("do it", limits=limit)
    try:
        state = await run.finish()
        while state.status == "awaiting_approval":
            from_here = result_of(run)
            decisions = dict.fromkeys(from_here.waiting[: 1 if answers else None], answers.pop() if answers else True)
            run = agent.reopen(from_here, decisions)
            state = await run.finish()
    except ProviderError:
        state = run.state
    return journal.records, state


@settings(max_examples=fewer(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(playbooks())
def test_the_state_is_the_fold_of_the_journal_whatever_the_model_does(book):
    records, state = asyncio.run(run_book(book))
    assert fold(records) == state
    assert state.status in ("answered", "no_answer", "failed")
    assert_pairs(state.messages)
    assert [record.seq for record in records] == list(range(len(records)))
    calls = [call for message in state.messages for call in message.calls]
    assert len({call.id for call in calls}) == len(calls)
    assert sum(isinstance(call, ToolCall) for call in calls) == state.totals.calls
    prefix = None
    for record in records:
        prefix = apply(prefix, record)
        action = decide(prefix)
        assert action == decide(prefix)
        assert isinstance(action, AskModel | RunTools | AwaitApproval | Finish)


def test_a_finished_run_asks_for_nothing_but_its_end():
    result, journal, _ = play(["3"])
    assert decide(result.state) == Finish("answered", "3", "answer")
    assert isinstance(journal.events[-1], RunFinished)


def test_an_event_this_version_does_not_know_changes_nothing_but_the_stamp():
    _, journal, _ = play([adding(1, 2), "3"])
    state = fold(journal.records[:3])
    strange = Record(UnknownEvent("Teleported", {}), state.run_id, state.seq, state.step, state.time)
    after = apply(state, strange)
    assert replace(after, seq=state.seq) == state


def test_applying_is_pure():
    _, journal, _ = play([adding(1, 2), "3"])
    for end in range(1, len(journal.records)):
        state = fold(journal.records[:end])
        before = list(state.messages), list(state.pending.results)
        once, twice = apply(state, journal.records[end]), apply(state, journal.records[end])
        assert once == twice
        assert (list(state.messages), list(state.pending.results)) == before


def test_nothing_and_a_journal_without_its_beginning_are_refused():
    _, journal, _ = play([adding(1, 2), "3"])
    with pytest.raises(RunError, match="without records"):
        fold([])
    with pytest.raises(RunError, match="does not begin with RunStarted"):
        fold(journal.records[1:])


def test_records_that_cannot_come_here_are_refused():
    _, journal, _ = play([calling("cogency-json", ("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), "3"])
    answer_index = next(i for i, event in enumerate(journal.events) if isinstance(event, ModelAnswered))
    state = fold(journal.records[: answer_index + 1])
    foreign = ToolResult("call_9_9", "add", "success", (TextPart("3"),))
    twice = journal.results()[0]

    def record(event):
        return Record(event, state.run_id, state.seq, state.step, state.time)

    with pytest.raises(RunError, match="have none"):
        apply(apply(state, record(ToolFinished(twice))), record(ToolFinished(twice)))
    with pytest.raises(RunError, match="call_1_0, call_1_1 have none"):
        apply(apply(state, record(ToolFinished(foreign))), record(ToolFinished(foreign)))
    with pytest.raises(RunError, match="no call that waits"):
        apply(fold(journal.records), record(ToolFinished(twice)))
    with pytest.raises(RunError, match="starts twice"):
        apply(state, record(RunStarted((Message.user("x"),), "m")))


LEADS_TO = {
    "running": RunResumed(),
    **{status: RunPaused(status) for status in ("queued", "waiting", "awaiting_approval", "suspended")},
    **{status: RunFinished(status, "", "") for status in ("answered", "no_answer", "failed")},
}


@pytest.mark.parametrize("following", get_args(RunStatus))
@pytest.mark.parametrize("status", get_args(RunStatus))
def test_a_status_follows_another_as_the_table_says(status, following):
    events = [RunStarted((Message.user("go"),), "m", Limits()), LEADS_TO[status], LEADS_TO[following]]
    records = [Record(event, "run", seq, 0, float(seq), "agent") for seq, event in enumerate(events)]
    if following in TRANSITIONS[status]:
        assert fold(records).status == following
    else:
        with pytest.raises(RunError, match=f"run run is {status}, and its journal says that it became {following}"):
            fold(records)


def test_what_a_limit_leaves_of_a_batch_does_not_grow_when_it_is_taken_up_again():
    """A crash in the middle of a batch: what ran before it counts towards the limit."""
    batch = calling("cogency-json", *[("add", {"a": n, "b": 0}) for n in range(4)])
    _, journal, _ = play([batch, "ok"], limits=Limits(calls=3), execution=Execution(schedule="sequential"))
    result_indices = [i for i, event in enumerate(journal.events) if isinstance(event, ToolFinished)]
    for ran, end in [(0, result_indices[0]), *((n + 1, at + 1) for n, at in enumerate(result_indices[:2]))]:
        action = decide(fold(journal.records[:end]))
        finishes = [event for event in journal.events[:end] if isinstance(event, ToolFinished)]
        assert isinstance(action, RunTools)
        assert action.max_calls == 3 - sum(e.result.status == "success" for e in finishes), (ran, end)


def test_appending_to_the_history_shares_it():
    _, journal, _ = play([adding(1, 2), adding(3, 4), "7"])
    state, items = None, None
    for record in journal.records:
        state = apply(state, record)
        items = state.history._items if items is None else items
        assert state.history._items is items


class ManySteps:
    """A driver that calls a tool a number of times and then answers, and keeps the time of each step."""

    name, starts_early = "many", True

    def __init__(self, steps):
        self.steps = steps
        self.times = []

    def prompt(self, request):
        return ""

    def open(self, run):
        return self

    async def turn(self, request):
        self.times.append(time.process_time())
        if len(self.times) <= self.steps:
            yield CallCompleted(0, "add", {"a": 1, "b": 2})
            yield BatchEnded((0,), True)
            yield TurnEnded("tool_calls", Usage(1, 1))
        else:
            yield TextDelta("done")
            yield TurnEnded("stop", Usage(1, 1))

    async def aclose(self):
        pass


@pytest.mark.over_a_second
def test_the_five_thousandth_step_costs_what_the_first_cost():
    driver = ManySteps(5000)
    result = asyncio.run(Agent(driver, TOOLS, limits=Limits(steps=None, repeats=None)).run("count"))
    assert result.answer == "done"
    assert len(result.messages) == 10_002
    # The least of several stretches: one of them may hold a full collection of all that the tests before have left.
    first, last = (
        min(driver.times[end] - driver.times[end - 250] for end in range(until - 750, until + 1, 250))
        for until in (1500, 5000)
    )
    assert last < 3 * first, f"{first:.3f} s for 250 early steps, {last:.3f} s for 250 of the last"


def test_estimating_tokens_does_not_read_the_history_again_and_again():
    reads = 0

    class CountingText(str):
        __slots__ = ()

        def __len__(self):
            nonlocal reads
            reads += 1
            return super().__len__()

    turns = [*(adding(n, 1) for n in range(50)), "ok"]
    agent = an_agent(ScriptedProvider(turns))
    result = asyncio.run(agent.run(Message("user", (TextPart(CountingText("hello")),))))
    assert result.state.totals.estimated
    early = reads
    asyncio.run(an_agent(["ok"]).run(Message("user", (TextPart(CountingText("hello")),))))
    assert early < 5 * max(1, reads - early) + 120


def test_a_turn_whose_tokens_are_unknown_adds_none():
    """Nor one of which only a part is known: a limit on tokens would count what nobody has said."""
    start = RunStarted((Message.user("go"),), "openai:model")
    turns = [Usage(10, 5), Usage(), Usage(None, 7), Usage(1, 1)]
    events = [start, *(ModelAnswered(Message("assistant", (TextPart("x"),)), "stop", usage) for usage in turns)]
    state = fold([Record(event, "r", seq, seq, 1.0) for seq, event in enumerate(events)])
    assert state.totals.tokens == 17
