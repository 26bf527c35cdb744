"""A call waits for a time or an outside event in no process's memory, and goes on in any process."""

import asyncio
import time

import pytest
from shop import agent, new_id, pay, task, until, working

from toolspeak import RunContext, tool
from toolspeak.data.events import CallSuspended, RunPaused, ToolStarted, WaitEnded
from toolspeak.engines import RunClient
from toolspeak.errors import ConfigurationError, RunError

PAY = task([("pay", {"order": "7"})])


def kinds(result, *event_types):
    return [type(each.event) for each in result.run_records.records if isinstance(each.event, event_types)]


def test_a_call_waits_for_an_event_and_another_process_goes_on_with_it(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        waiting = await agent(journal, [pay]).run(PAY, run_id=run_id)
        assert waiting.status == "waiting"
        info = await journal.run(run_id)
        assert (info.status, info.due, info.owner) == ("waiting", None, None)
        client = RunClient(open_store())
        assert await client.deliver(run_id, "payment:7", {"euro": [5]}, key="k1", principal="bank")
        assert not await client.deliver(run_id, "payment:7", "other", key="k1")
        async with working(agent(open_store(), [pay])):
            result = await client.result(run_id, 60)
        assert result.answer == "7 paid {'euro': [5]}"
        wait_end = next(each.event for each in result.run_records.records if isinstance(each.event, WaitEnded))
        assert (wait_end.event, wait_end.payload, wait_end.by) == ("payment:7", {"euro": [5]}, "bank")
        assert result.memory["entered"] == 1, "the first entry left no result, so its changes of the memory are gone"
        assert not await client.deliver(run_id, "payment:7", "other", key="k1"), "also after the end"
        with pytest.raises(RunError, match="has ended"):
            await client.deliver(run_id, "payment:7", "other")

    open_store.run(main)


def test_an_event_that_comes_before_the_wait_is_there(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [pay])
        await shop.submit(PAY, run_id=run_id)
        await RunClient(journal).deliver(run_id, "payment:7", 1)
        async with working(shop):
            result = await RunClient(journal).result(run_id, 60)
        assert result.answer == "7 paid 1"
        assert kinds(result, RunPaused) == [], "it never paused"

    open_store.run(main)


def test_each_event_goes_to_one_wait_and_keys_tell_deliveries_apart(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [pay])
        client = RunClient(journal)
        call = ("pay", {"order": "7"})
        await shop.submit(task([call, call], [call]), run_id=run_id)
        for key in ("a", "b", "a"):
            await client.deliver(run_id, "payment:7", key, key=key)
        async with working(shop):
            result = await until(journal, run_id, "waiting")
            await client.deliver(run_id, "payment:8", "not this one")
            await client.deliver(run_id, "payment:7", "c", key="c")
            result = await client.result(run_id, 60)
        assert result.answer == "7 paid a; 7 paid b; 7 paid c"

    open_store.run(main)


def test_a_call_that_still_waits_is_not_entered_again(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [pay])
        client = RunClient(journal)
        await shop.submit(task([("pay", {"order": "1"}), ("pay", {"order": "2"})]), run_id=run_id)
        async with working(shop):
            await until(journal, run_id, "waiting")
            await client.deliver(run_id, "payment:2", "two")
            await until(journal, run_id, "waiting")
            await client.deliver(run_id, "payment:1", "one")
            result = await client.result(run_id, 60)
        assert result.answer == "1 paid one; 2 paid two"
        assert len(kinds(result, ToolStarted)) == 4
        assert len(kinds(result, CallSuspended)) == 2

    open_store.run(main)


def test_a_wait_ends_at_its_time(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [pay])
        began = time.time()
        await shop.submit(task([("pay", {"order": "7", "timeout": 0.5})]), run_id=run_id)
        async with working(shop):
            result = await RunClient(journal).result(run_id, 60)
        assert result.answer == "7 is not paid"
        assert result.run_records.records[-1].time - began >= 0.5

    open_store.run(main)


def test_a_function_waits_several_times_and_for_times(open_store):
    entries = []

    @tool(read_only=True)
    async def three(ctx: RunContext) -> str:
        "Waits for a time, an event and a time."
        entries.append(len(entries))
        ctx.sleep(0.1)
        name = ctx.wait_for("name")
        ctx.wait_until(time.time() + 0.1)  # another time at each entry: the first one counts
        return f"after all: {name}"

    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [three])
        await shop.submit(task([("three", {})]), run_id=run_id)
        async with working(shop):
            await RunClient(journal).deliver(run_id, "name", "Ann")
            assert (await RunClient(journal).result(run_id, 60)).answer == "after all: Ann"
        assert len(entries) == 4

    open_store.run(main)


def test_a_function_that_catches_the_wait_waits_all_the_same(open_store):
    @tool(read_only=True)
    def careless(ctx: RunContext) -> str:
        "Catches everything."
        try:
            return ctx.wait_for("it")
        except Exception:  # noqa: BLE001 - what it is about
            return "caught"

    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [careless])
        assert (await shop.run(task([("careless", {})]), run_id=run_id)).status == "waiting"
        await RunClient(journal).deliver(run_id, "it", "here")
        assert (await shop.resume(run_id)).answer == "here"

    open_store.run(main)


def test_a_function_that_waits_for_something_else_than_before_fails(open_store):
    names = iter(["one", "two"])

    @tool(read_only=True)
    def fickle(ctx: RunContext) -> str:
        "Waits for another event each time."
        return ctx.wait_for(next(names))

    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [fickle])
        await shop.run(task([("fickle", {})]), run_id=run_id)
        await RunClient(journal).deliver(run_id, "one", "here")
        assert "waits for 'two' where it waited for 'one' before" in (await shop.resume(run_id)).answer

    open_store.run(main)


def test_a_sub_run_waits_and_the_event_is_brought_to_the_run_above(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        cashier = agent(journal, [pay], name="cashier", description="Takes payments.")
        boss = agent(journal, [cashier.as_tool()], name="boss")
        await boss.submit(task([("cashier", {"task": PAY})]), run_id=run_id)
        async with working(boss):
            waiting = await until(journal, run_id, "waiting")
            assert waiting.state.pending.sub_runs
            await RunClient(journal).deliver(run_id, "payment:7", "well")
            assert (await RunClient(journal).result(run_id, 60)).answer == "7 paid well"

    open_store.run(main)


def test_a_sub_run_that_waits_for_a_time_wakes_the_run_above(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        cashier = agent(journal, [pay], name="cashier", description="Takes payments.")
        boss = agent(journal, [cashier.as_tool()], name="boss")
        await boss.submit(task([("cashier", {"task": task([("pay", {"order": "7", "timeout": 0.3})])})]), run_id=run_id)
        async with working(boss):
            assert (await RunClient(journal).result(run_id, 60)).answer == "7 is not paid"

    open_store.run(main)


def test_a_run_that_waits_can_be_suspended_and_resumed(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop, client = agent(journal, [pay]), RunClient(journal)
        await shop.submit(PAY, run_id=run_id)
        async with working(shop):
            await until(journal, run_id, "waiting")
            assert not await client.suspend(run_id)
            await client.deliver(run_id, "payment:7", 1)
            assert (await client.status(run_id)).status == "suspended"
            await client.resume(run_id)
            assert (await client.result(run_id, 60)).answer == "7 paid 1"
        with pytest.raises(RunError, match="only a suspended run"):
            await client.resume(run_id)

    open_store.run(main)


def test_an_event_that_is_none_is_refused(open_store):
    @tool(read_only=True)
    def nameless(ctx: RunContext) -> str:
        "Waits for nothing."
        return ctx.wait_for("")

    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [nameless, pay])
        await shop.submit(PAY, run_id=run_id)
        client = RunClient(journal)
        for name in ("", "x" * 201, "a\0b"):
            with pytest.raises(ConfigurationError, match="name of an event"):
                await client.deliver(run_id, name)
        with pytest.raises(ConfigurationError, match="must be JSON"):
            await client.deliver(run_id, "payment:7", object())
        with pytest.raises(RunError, match="the journal has no run"):
            await client.deliver("order-none", "payment:7")
        assert "name of an event" in (await shop.run(task([("nameless", {})]))).answer

    open_store.run(main)


def test_outside_of_a_run_nothing_can_wait():
    context = RunContext(None, None)
    with pytest.raises(RunError, match="only the function of a tool can wait"):
        context.wait_for("it")


def test_the_time_of_a_wait_counts_for_no_limit(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [pay])
        start = time.time()
        result = await shop.run(task([("pay", {"order": "7", "timeout": 0.6})]), run_id=run_id)
        assert result.state.until >= start + 0.6
        await asyncio.sleep(max(0.0, result.state.until - time.time()))
        ended_run = await shop.resume(run_id)
        assert ended_run.answer == "7 is not paid"
        assert ended_run.state.time - ended_run.state.started_at < time.time() - start - 0.5

    open_store.run(main)
