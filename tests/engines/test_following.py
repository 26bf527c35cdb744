"""A run is followed from any process: all records, and the deltas as they come."""

import asyncio
from contextlib import aclosing

import pytest
from shop import agent, new_id, pay, task, until, working

from toolspeak import Agent, RunContext, tool
from toolspeak.data.deltas import TextDelta, ToolProgress, TurnEnded
from toolspeak.data.events import Record, RunFinished, RunStarted
from toolspeak.engines import RunClient
from toolspeak.errors import RunError
from toolspeak.providers import Capabilities

WORDS = [f"word{number} " for number in range(40)]


class SlowProvider:
    """A provider that waits after each word until the test lets it go on."""

    name, capabilities = "slow", Capabilities(tools=False)

    def __init__(self):
        self.steps = asyncio.Semaphore(0)

    async def stream(self, request):
        for word in WORDS:
            await self.steps.acquire()
            yield TextDelta(word)
        yield TurnEnded("stop")

    async def aclose(self):
        pass


@pytest.mark.over_a_second
def test_a_follower_in_another_process_gets_all_records_and_deltas_on_their_way(open_store):
    async def main():
        journal, run_id, model = open_store(), new_id(), SlowProvider()
        slow = Agent(model, name="slow", journal=journal)
        await slow.submit("go", run_id=run_id)
        records, text = [], ""
        follower = RunClient(open_store()).events(run_id)
        async with asyncio.timeout(60), aclosing(follower) as events:
            first = await anext(events)
            assert isinstance(first.event, RunStarted)
            records.append(first)
            reading = asyncio.ensure_future(anext(events))  # it follows from here on
            await wait_for_follower(journal, run_id)
            async with working(slow):
                model.steps.release()
                while True:
                    item = await reading
                    if isinstance(item, Record):
                        records.append(item)
                        if isinstance(item.event, RunFinished):
                            break
                    elif isinstance(item, TextDelta):
                        text += item.text
                        if text in "".join(WORDS[:-1]):
                            model.steps.release()
                    reading = asyncio.ensure_future(anext(events))
        assert text in ("".join(WORDS), "".join(WORDS[:-1])), "each word came before the next was written"
        assert records == list(await journal.read(run_id))
        again = [each async for each in RunClient(open_store()).events(run_id, start=3)]
        assert again == records[3:], "a run that has ended is read"

    open_store.run(main)


async def wait_for_follower(journal, run_id):
    """Waits until the journal knows of the follower."""
    async with asyncio.timeout(60):
        while True:
            lease = await journal.acquire(run_id, "looks", 60)
            await journal.release(lease)
            if lease.followed:
                return
            await asyncio.sleep(0)


def test_progress_of_tools_is_followed_and_secrets_are_hidden(open_store):
    report_sent, receipt = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def report(ctx: RunContext) -> str:
        "Reports."
        ctx.progress("half of pw-123")
        report_sent.set()
        await receipt.wait()
        return "all"

    async def main():
        journal, run_id = open_store(), new_id()
        shop = agent(journal, [report], secrets={"PW": "pw-123"})
        await shop.submit(task([("report", {})]), run_id=run_id)
        lines = []
        async with asyncio.timeout(60), aclosing(RunClient(open_store()).events(run_id)) as events:
            await anext(events)
            reading = asyncio.ensure_future(anext(events))
            await wait_for_follower(journal, run_id)
            async with working(shop):
                while True:
                    item = await reading
                    if isinstance(item, ToolProgress):
                        lines.append(item.message)
                        receipt.set()
                    if isinstance(item, Record) and isinstance(item.event, RunFinished):
                        break
                    reading = asyncio.ensure_future(anext(events))
        assert len(lines) == 1
        assert "pw-123" not in lines[0]

    open_store.run(main)


@pytest.mark.over_a_second
def test_a_slow_reader_loses_deltas_and_no_record(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        await agent(journal, [pay]).submit(task(), run_id=run_id)
        texts = []
        async with asyncio.timeout(60), aclosing(journal.follow(run_id)) as follower:
            await anext(follower)
            for number in range(2_000):
                await journal.publish(run_id, f"{number}")
            await journal.publish(run_id, "")
            async for text in follower:
                if not text:
                    break
                texts.append(int(text))
        assert texts == sorted(texts)
        assert len(texts) < 2_000

    open_store.run(main)


def test_a_run_that_is_not_there_is_not_followed(open_store):
    async def main():
        with pytest.raises(RunError, match="the journal has no run"):
            await anext(RunClient(open_store()).events("order-none"))
        journal, run_id = open_store(), new_id()
        await agent(journal, [pay]).submit(task(), run_id=run_id)
        with pytest.raises(TimeoutError):
            await RunClient(journal).result(run_id, 0.01)
        async with working(agent(journal, [pay])):
            assert (await until(journal, run_id, "answered")).answer == "nothing"

    open_store.run(main)
