"""A run is recorded before a process drives it, once however often it is asked for, and a worker drives it."""

import asyncio
import time
from contextlib import aclosing

import pytest
from shop import agent, new_id, task, until, working

from toolspeak import Limits, tool
from toolspeak.agent import RunInterceptor, RunStart, Session
from toolspeak.data.events import Record, RunConfigured, RunPaused, RunResumed, RunStarted, ToolStarted
from toolspeak.data.messages import Message
from toolspeak.data.prices import Price
from toolspeak.engines import RunClient, Worker, WorkLimits, open_engine
from toolspeak.errors import ConfigurationError, RunConflict, RunError
from toolspeak.journal.leases import new_owner
from toolspeak.journal.memory_journal import MemoryJournal


@tool(read_only=True)
def look(name: str) -> str:
    "Looks."
    return f"saw {name}"


LOOK = task([("look", {"name": "a"})])


def test_a_submitted_run_waits_for_a_worker_and_is_the_same_run_when_it_is_asked_for_again(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [look])
        assert (await shop.submit(LOOK, run_id=run_id)).status == "queued"
        again = await agent(open_store(), [look]).submit(LOOK, run_id=run_id)
        assert (again.run_id, again.status, again.answer) == (run_id, "queued", "")
        info = await journal.run(run_id)
        assert (info.status, info.records, info.owner) == ("queued", 1, None)
        async with working(shop):
            result = await RunClient(journal).result(run_id, 60)
        assert (result.status, result.answer) == ("answered", "saw a")
        assert (await shop.submit(LOOK, run_id=run_id)).answer == "saw a"
        assert (await shop.run(LOOK, run_id=run_id)).answer == "saw a"
        assert len(await journal.read(run_id)) == len(result.run_records.records), "asking again records nothing"
        with pytest.raises(RunConflict, match="another task"):
            await shop.submit(task(), run_id=run_id)
        with pytest.raises(RunConflict, match="another task"):
            await shop.run(task(), run_id=run_id)
        with pytest.raises(RunConflict, match="another agent and another principal"):
            await agent(journal, [look], name="other").submit(LOOK, run_id=run_id, principal="eve")

    open_store.run(main)


def test_two_who_submit_at_once_get_one_run(open_store):
    async def main():
        first, second, run_id = agent(open_store(), [look]), agent(open_store(), [look]), new_id()
        rivals = [each.submit(LOOK, run_id=run_id) for each in (first, second, first, second)]
        assert [each.run_id for each in await asyncio.gather(*rivals)] == [run_id] * 4
        other = new_id()
        outcomes = await asyncio.gather(
            first.submit(LOOK, run_id=other), second.submit(task(), run_id=other), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in outcomes) == ["RunConflict", "RunResult"]

    open_store.run(main)


def test_every_way_to_start_takes_the_id(open_store):
    async def main():
        journal = open_store()
        shop = agent(journal, [look])
        ids = [new_id() for _ in range(4)]
        assert (await shop.run(LOOK, run_id=ids[0])).run_id == ids[0]
        assert [state.run_id async for state in shop.iterate(LOOK, run_id=ids[1])][-1] == ids[1]
        assert [each async for each in shop.stream(LOOK, run_id=ids[2])]
        assert shop.start(LOOK, run_id=ids[3]).run_id == ids[3]
        assert [(await journal.run(each)) is not None for each in ids] == [True, True, True, False]
        run_id = new_id()
        async with aclosing(shop.iterate(LOOK, run_id=run_id)) as states:
            await anext(states)
        assert (await shop.run(LOOK, run_id=run_id)).answer == "saw a", "an unfinished run goes on"

    open_store.run(main)


@pytest.mark.parametrize("run_id", ["", "a b", "-a", "ä", "a" * 129, "a/b", "a\0b", 7])
def test_an_id_that_is_none_is_refused(run_id):
    async def main():
        journal_free = agent(None)
        with pytest.raises(ConfigurationError, match="run_id must be"):
            await journal_free.run(task(), run_id=run_id)

    asyncio.run(main())


def test_a_submission_needs_a_journal_and_takes_no_deps(open_store):
    async def main():
        with pytest.raises(ConfigurationError, match="journal"):
            await agent(None).submit(task())
        with pytest.raises(ConfigurationError, match="deps"):
            await agent(open_store()).submit(task(), deps=1)
        with pytest.raises(RunError, match="the journal has no run"):
            await RunClient(open_store()).result("order-none")

    open_store.run(main)


def test_a_run_that_is_submitted_by_name_gets_what_its_agent_says(open_store):
    class Louder(RunInterceptor):
        async def before(self, start, context):
            (message,) = start.messages
            return RunStart((Message.user(message.text.replace("ask", "SHOUT")),))

    async def main():
        journal, run_id = open_store(), new_id()
        client = RunClient(journal)
        words = task([("look", {"name": "ask pw-123"})])
        queued_run = await client.submit("shop", words, run_id=run_id)
        assert (queued_run.status, queued_run.state.model) == ("queued", "")
        shop = agent(journal, [look], limits=Limits(steps=7), secrets={"PW": "pw-123"}, interceptors=[Louder()])
        async with working(shop):
            result = await client.result(run_id, 60)
        configuration = next(each.event for each in result.run_records.records if isinstance(each.event, RunConfigured))
        assert (configuration.model, configuration.limits.steps, configuration.replaced) == ("scripted", 7, 1)
        assert result.state.limits.steps == 7
        assert "SHOUT" in result.answer
        assert "pw-123" not in repr(result.messages)
        assert (await journal.run(run_id)).model == "scripted"

    open_store.run(main)


def test_a_limit_in_dollars_that_its_agent_cannot_enforce_fails_the_run_at_once(open_store):
    """Also if only the agent that the run may be handed to has no price."""

    async def main():
        journal = open_store()
        client = RunClient(journal)
        price_options = {"prices": {"scripted": Price(1, 1)}}
        other = agent(journal, [look], name="other")
        for number, shop in enumerate(
            (agent(journal, [look]), agent(journal, [look], handoffs=[other], **price_options))
        ):
            queued_run = await client.submit("shop", LOOK, run_id=new_id(), limits=Limits(cost=1))
            async with working(shop):
                result = await client.result(queued_run.run_id, 60)
            assert (number, result.status) == (number, "failed")
            assert "a limit of 1 US dollars cannot be enforced: the price of 'scripted' is not known" in result.error
            assert not result.state.started_calls
        queued_run = await client.submit("shop", LOOK, run_id=new_id(), limits=Limits(cost=1))
        async with working(agent(journal, [look], **price_options)):
            assert (await client.result(queued_run.run_id, 60)).answer == "saw a"

    open_store.run(main)


@pytest.mark.over_a_second
def test_a_call_does_not_begin_if_its_record_took_so_long_that_another_worker_has_the_run():
    """As when the network between a worker and its database holds an answer back: the other worker has found that the
    call did not happen, and runs it."""
    calls, takeover = [], asyncio.Event()

    @tool
    def charge(amount: int) -> str:
        "Charges a card."
        calls.append(amount)
        return "charged"

    class LateJournal(MemoryJournal):
        async def append(self, record, lease=None):
            await super().append(record, lease)
            if isinstance(record.event, ToolStarted):
                await self.acquire(record.run_id, new_owner(), 3600, takes_over="embedded")
                takeover.set()
                await asyncio.sleep(1.1)  # longer than a call begins without a look at its lease

    async def main():
        journal = LateJournal()
        shop = agent(journal, [charge], approve="all")
        queued_run = await shop.submit(task([("charge", {"amount": 5})]))
        async with working(shop):
            async with asyncio.timeout(60):
                await takeover.wait()
        assert calls == []
        assert (await journal.run(queued_run.run_id)).status == "running"

    asyncio.run(main())


@pytest.mark.over_a_second
def test_a_run_begins_at_its_time_and_its_queue_time_is_not_its_own(open_store):
    async def main():
        journal = open_store()
        for seconds in (0.9, 10, 30):  # a machine may stand still while the run takes its own time
            run_id, shop = new_id(), agent(journal, [look], limits=Limits(seconds=seconds))
            at = time.time() + seconds + 0.1
            await shop.submit(LOOK, run_id=run_id, at=at)
            async with working(shop):
                result = await RunClient(journal).result(run_id, 120)
            assert result.run_records.records[1].time >= at
            if result.reason == "answer":
                return
        raise AssertionError("the time in the queue counts for a limit")

    open_store.run(main)


def test_a_session_takes_a_submitted_run(open_store):
    async def main():
        journal = open_store()
        shop = agent(journal, [look])
        session = Session(shop)
        await session.run(task())
        run_id = new_id()
        await session.submit(LOOK, run_id=run_id)
        assert (await session.submit(LOOK, run_id=run_id)).status == "queued"
        with pytest.raises(RunError, match="waits for a worker"):
            await session.run(task())
        async with working(shop):
            await RunClient(journal).result(run_id, 60)
        assert (await session.messages())[-1].text == "saw a"
        assert (await session.submit(LOOK, run_id=run_id)).answer == "saw a"

    open_store.run(main)


@pytest.mark.over_a_second
def test_limits_of_agents_and_principals_hold(open_store):
    at_once, most = {}, {}

    @tool(read_only=True)
    async def hold(key: str) -> str:
        "Holds a place for a moment."
        at_once[key] = at_once.get(key, 0) + 1
        most[key] = max(most.get(key, 0), at_once[key])
        for _ in range(20):
            await asyncio.sleep(0)
        at_once[key] -= 1
        return key

    async def main():
        journal = open_store()
        names = [f"a-{new_id()}", f"b-{new_id()}"]
        agents = [agent(journal, [hold], name=name) for name in names]
        ids = []
        for one, name in zip(agents, names, strict=True):
            for number in range(6):
                principal = f"p{number % 2}"
                words = task([("hold", {"key": name}), ("hold", {"key": principal})])
                ids.append((await one.submit(words, principal=principal)).run_id)
        limits = WorkLimits(5, {names[0]: 1}, 2)
        async with working(*agents, limits=limits):
            for run_id in ids:
                assert (await RunClient(journal).result(run_id, 60)).status == "answered"
        assert most[names[0]] == 1
        assert most["p0"] <= 2
        assert most["p1"] <= 2

    open_store.run(main)


def test_a_worker_that_drains_leaves_its_run_to_another(open_store):
    entry, release = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def hold() -> str:
        "Waits until the test goes on."
        entry.set()
        await release.wait()
        return "held"

    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [hold, look])
        await shop.submit(task([("hold", {})], [("look", {"name": "b"})]), run_id=run_id)
        async with working(shop) as worker:
            await entry.wait()
            worker.stop()
            release.set()
        records = await journal.read(run_id)
        assert isinstance(records[-1].event, RunPaused)
        assert (await journal.run(run_id)).status == "queued"
        async with working(agent(open_store(), [hold, look])):
            assert (await RunClient(journal).result(run_id, 60)).answer == "held; saw b"
        assert sum(isinstance(each.event, RunStarted) for each in await journal.read(run_id)) == 1

    open_store.run(main)


def test_a_run_that_gets_no_further_is_suspended(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [look])
        await shop.submit(LOOK, run_id=run_id)
        for seq in range(1, 6):  # as processes that die right after they have begun
            await journal.append(Record(RunResumed(), run_id, seq, 0, time.time(), "shop"))
        async with working(shop):
            result = await until(journal, run_id, "suspended")
        assert result.state.step == 0
        await RunClient(journal).resume(run_id)
        async with working(shop):
            assert (await RunClient(journal).result(run_id, 60)).answer == "saw a"

    open_store.run(main)


def test_what_a_worker_cannot_use_is_refused(open_store):
    journal = open_store()
    with pytest.raises(ConfigurationError, match="needs an agent"):
        Worker([], journal)
    with pytest.raises(ConfigurationError, match="two agents have the name"):
        Worker([agent(journal), agent(journal)], journal)
    with pytest.raises(ConfigurationError, match="has not the worker's journal"):
        Worker([agent(None)], journal)
    with pytest.raises(ConfigurationError, match="no engine is known"):
        open_engine("nowhere://x", journal)
    with pytest.raises(ConfigurationError, match="no settings"):
        open_engine("embedded:x", journal)
