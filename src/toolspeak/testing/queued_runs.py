"""The contract of a journal, second part: which runs a worker should drive, what comes for a run from outside, and who
follows one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from toolspeak.data.events import ModelAsked, Record, RunConfigured, RunFinished, RunPaused, RunResumed
from toolspeak.errors import LeaseLost, RunBusy, RunError
from toolspeak.journal.base import Journal, RunInput
from toolspeak.testing.journal import RECORD_CHECKS, Check, OpenStore, a_run, error_of, new_id, write

_AT = 1_000.0


async def _due(journal: Journal, *agents: str, now: float = _AT, **options: object) -> list[str]:
    limits: dict[str, int] = {"limit": 100} | {key: value for key, value in options.items() if isinstance(value, int)}
    without = [str(each) for each in [options.get("without")] if each is not None]
    infos = await journal.due_runs(now, agents=agents, without=without, limit=limits["limit"])
    return [info.run_id for info in infos]


async def _submit(journal: Journal, agent: str, due: float, principal: str | None = None) -> str:
    run_id = new_id()
    (record,) = a_run(run_id, due=due, principal=principal)
    await journal.append(Record(record.event, run_id, 0, 0, 1.0, agent, principal=principal))
    return run_id


def _input(run_id: str, key: str, data: object = None, **fields: str) -> RunInput:
    return RunInput(run_id, "event", "paid", key, data, fields.get("principal"), _AT)


async def check_submitted_runs_are_due(open_store: OpenStore) -> None:
    """A submitted run is due from its time on, for workers of its agent, the longest due first."""
    journal, other, agent = open_store(), open_store(), new_id()
    later, first = await _submit(journal, agent, 900.0), await _submit(journal, agent, 800.0, "ann")
    future, alien = await _submit(journal, agent, 2_000.0), await _submit(journal, new_id(), 800.0)
    assert await _due(other, agent) == [first, later]
    assert await _due(other, agent, limit=1) == [first]
    assert await _due(other, agent, without="ann") == [later], "the runs of a principal are left out"
    assert await _due(other, agent, now=3_000.0) == [first, later, future]
    assert await _due(other) == []
    assert alien not in await _due(other, agent, now=3_000.0)
    info = await other.run(future)
    assert info is not None
    assert (info.status, info.due) == ("queued", 2_000.0)
    lease = await journal.acquire(first, "me", 60)
    assert await _due(other, agent) == [later], "a run that a process holds is not due"
    await journal.append(Record(RunResumed(), first, 1, 0, 2.0, agent), lease)
    await journal.append(Record(RunConfigured(model="small"), first, 2, 0, 2.0, agent), lease)
    info = await other.run(first)
    assert info is not None
    assert (info.status, info.model) == ("running", "small")
    await journal.append(Record(RunFinished("answered", "x", "answer"), first, 3, 0, 2.0, agent), lease)
    await journal.release(lease)
    assert await _due(other, agent) == [later], "a run that has ended is not due"


async def check_a_paused_run_is_due_again(open_store: OpenStore) -> None:
    journal, agent = open_store(), new_id()
    pauses = (
        (RunPaused("queued"), 10.0),
        (RunPaused("queued", until=500.0), 500.0),
        (RunPaused("waiting", ("call_1_0",), 700.0), 700.0),
        (RunPaused("waiting", ("call_1_0",)), None),
        (RunPaused("awaiting_approval", ("call_1_0",)), None),
        (RunPaused("suspended"), None),
    )
    for pause, due in pauses:
        run_id = await _submit(journal, agent, 1.0)
        await write(journal, [Record(RunResumed(), run_id, 1, 0, 2.0, agent), Record(pause, run_id, 2, 0, 10.0, agent)])
        info = await journal.run(run_id)
        assert info is not None
        assert (info.status, info.due) == (pause.reason, due)
        assert await _due(journal, agent) == ([] if due is None else [run_id])
        await write(
            journal, [Record(RunResumed(), run_id, 3, 0, 2.0), Record(RunFinished("failed", "", ""), run_id, 4, 0, 2)]
        )


async def check_an_interrupted_run_is_due(open_store: OpenStore) -> None:
    """A run whose holder is gone is due, also if nobody submitted it, and before those that nobody has begun; one that
    was left on purpose is not."""
    journal, agent, lost_run, stopped_run = open_store(), new_id(), new_id(), new_id()
    for run_id in (lost_run, stopped_run):
        lease = await journal.acquire(run_id, "gone", 0.0 if run_id == lost_run else 60.0)
        await journal.append(Record(a_run(run_id)[0].event, run_id, 0, 0, 1.0, agent), lease)
    await journal.release(lease)
    queued_run = await _submit(journal, agent, 800.0)
    assert await _due(open_store(), agent) == [lost_run, queued_run]
    assert await _due(open_store(), agent, limit=1) == [lost_run], "a long queue must not hide it"


async def check_inputs_count_once(open_store: OpenStore) -> None:
    journal, other, agent = open_store(), open_store(), new_id()
    run_id = await _submit(journal, agent, 2_000.0)
    first = await journal.add_input(_input(run_id, "1", {"amount": [1, None, "\0"]}, principal="ann"))
    assert first == _input(run_id, "1", {"amount": [1, None, "\0"]}, principal="ann")
    assert await other.add_input(_input(run_id, "1", "another")) == first
    second = await other.add_input(_input(run_id, "2"))
    assert list(await journal.inputs(run_id)) == [first, second]
    assert await journal.take_input(first, run_id)
    assert await other.take_input(first, run_id), "taking it again changes nothing"
    assert not await other.take_input(first, new_id()), "another run has it"
    assert [each.taken_by for each in await other.inputs(run_id)] == [run_id, None]
    await error_of(RunError, journal.add_input(_input(new_id(), "1")))
    assert list(await journal.inputs(new_id())) == []
    rivals = [journal.add_input(_input(run_id, "3", "a")), other.add_input(_input(run_id, "3", "b"))]
    one, two = await asyncio.gather(*rivals)
    assert one == two


async def check_what_comes_makes_a_run_due(open_store: OpenStore) -> None:
    """Also what comes just before the run pauses; what its driver has seen does not."""
    journal, agent = open_store(), new_id()
    run_id = await _submit(journal, agent, 1.0)
    seq = 1

    async def record(*events: RunResumed | RunPaused) -> None:
        nonlocal seq
        for event in events:
            await journal.append(Record(event, run_id, seq, 0, 20.0, agent))
            seq += 1

    await record(RunResumed(), RunPaused("awaiting_approval", ("call_1_0",)))
    assert await _due(journal, agent) == []
    await journal.add_input(_input(run_id, "1"))
    assert await _due(journal, agent) == [run_id]
    await journal.inputs(run_id, driver=True)
    await record(RunResumed(), RunPaused("waiting", ("call_1_0",)))
    assert await _due(journal, agent) == []
    await record(RunResumed())
    await journal.add_input(_input(run_id, "2"))
    await record(RunPaused("waiting", ("call_1_0",)))
    assert await _due(journal, agent) == [run_id], "it came before the run paused, and nobody has seen it"
    await record(RunResumed(), RunPaused("suspended"))
    await journal.add_input(_input(run_id, "3"))
    assert await _due(journal, agent) == [], "a suspended run waits for a person"
    await journal.add_input(RunInput(run_id, "resume", "", "r1", time=_AT))
    assert await _due(journal, agent) == [run_id]
    await record(RunResumed())
    await journal.append(Record(RunFinished("answered", "x", "answer"), run_id, seq, 0, 2.0, agent))
    await journal.add_input(_input(run_id, "4"))
    assert await _due(journal, agent) == [], "a run that has ended takes nothing more"


async def check_an_engine_takes_over_its_own_leases(open_store: OpenStore) -> None:
    mine, theirs, run_id = open_store(), open_store(), new_id()
    records = a_run(run_id, ModelAsked("model", "", ""), RunResumed())
    dead = await mine.acquire(run_id, "host 1 1 abc queue:7", 60)
    await mine.append(records[0], dead)
    await error_of(RunBusy, theirs.acquire(run_id, "other", 60))
    await error_of(RunBusy, theirs.acquire(run_id, "other", 60, takes_over="queue:8"))
    takeover = await theirs.acquire(run_id, "host 2 2 def queue:7", 60, takes_over="queue:7")
    assert takeover.epoch > dead.epoch
    await error_of(LeaseLost, mine.append(records[1], dead))
    await error_of(LeaseLost, mine.renew(dead, 60))
    await theirs.append(records[1], takeover)
    await theirs.release(takeover)
    await mine.acquire(run_id, "host 3 3 abc", 60)  # a person's process
    await error_of(RunBusy, theirs.acquire(run_id, "host 2 2 def queue:7", 60, takes_over="queue:7"))


async def check_a_run_is_followed(open_store: OpenStore) -> None:
    """What is published reaches who follows, and the holder knows that somebody does."""
    mine, theirs, run_id = open_store(), open_store(), new_id()
    lease = await mine.acquire(run_id, "me", 60)
    await mine.append(a_run(run_id)[0], lease)
    assert not (await mine.renew(lease, 60)).follow
    texts: list[str] = []
    async with aclosing(theirs.follow(run_id)) as stream:
        async for text in stream:
            if text:
                texts.append(text)
            elif (await mine.renew(lease, 60)).follow and not texts:
                await mine.publish(new_id(), "of another run")
                await mine.publish(run_id, "one")
                await mine.publish(run_id, "two é 😀")
            if len(texts) == 2:
                break
    assert texts == ["one", "two é 😀"]


async def check_the_holder_learns_of_messages(open_store: OpenStore) -> None:
    """Until it has taken them."""
    mine, theirs, run_id = open_store(), open_store(), new_id()
    lease = await mine.acquire(run_id, "me", 60)
    await mine.append(a_run(run_id)[0], lease)
    await theirs.add_input(_input(run_id, "1"))
    assert not (await mine.renew(lease, 60)).read, "it was an event"
    entry = await theirs.add_input(RunInput(run_id, "message", "", "m1", "hello", time=_AT))
    assert (await mine.renew(lease, 60)).read
    assert await mine.take_input(entry, run_id)
    assert not (await mine.renew(lease, 60)).read


JOURNAL_CHECKS: tuple[Check, ...] = (
    *RECORD_CHECKS,
    check_submitted_runs_are_due,
    check_a_paused_run_is_due_again,
    check_an_interrupted_run_is_due,
    check_inputs_count_once,
    check_what_comes_makes_a_run_due,
    check_an_engine_takes_over_its_own_leases,
    check_a_run_is_followed,
    check_the_holder_learns_of_messages,
)
"""The checks of the contract. All of them hold for every store."""
