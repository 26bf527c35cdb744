"""Workers of newer code meet runs of older code: a tool has another name now."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from shop import agent, new_id, pay, ship, task, until, working

from toolspeak import tool
from toolspeak.data.events import WaitEnded
from toolspeak.engines import RunClient, open_engine
from toolspeak.errors import EngineError, RunStuck

charge = tool(name="charge", read_only=True)(pay.function)


async def check_new_code(journal, engine_url):
    """A run that waits in the old tool is suspended, with an error that names the remedy, and keeps its event. The
    model of any other run reads that the tool is gone."""
    client = RunClient(journal, open_engine(engine_url, journal))
    before, after, repaired_agent = (agent(journal, tools) for tools in ([pay, ship], [charge], [charge, pay]))
    waiting, asking, queued_id = (new_id() for _ in range(3))
    async with driving(before, engine_url):
        await submit(client, [("pay", {"order": "7"})], waiting)
        await submit(client, [("ship", {"order": "8"})], asking)
        await until(journal, waiting, "waiting")
        (question,) = (await until(journal, asking, "awaiting_approval")).requests
    await submit(client, [("pay", {"order": "9"})], queued_id)
    await client.deliver(waiting, "payment:7", 5)
    await client.decide(asking, question.call_id, True)
    async with driving(after, engine_url):
        assert (await client.result(asking, 60)).answer == "no tool is called 'ship'. Known: charge."
        assert (await client.result(queued_id, 60)).answer == "no tool is called 'pay'. Known: charge."
        result = await until(journal, waiting, "suspended")
        assert not [each for each in result.run_records.records if isinstance(each.event, WaitEnded)]
    with pytest.raises(RunStuck, match="of the tool 'pay', which the agent 'shop' does not have: give"):
        await after.resume(waiting)
    async with driving(repaired_agent, engine_url):
        await client.resume(waiting)
        assert (await client.result(waiting, 60)).answer == "7 paid 5"
    await client.aclose()


@asynccontextmanager
async def driving(shop, engine_url):
    engine = open_engine(engine_url, shop.journal)
    async with working(shop, engine=engine):
        yield
    await engine.aclose()


async def submit(client, calls, run_id):
    """Submits a run to a worker that may not have registered yet."""
    while True:
        try:
            return await client.submit("shop", task(calls), run_id=run_id)
        except EngineError:
            await asyncio.sleep(0.1)
