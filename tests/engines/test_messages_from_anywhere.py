"""A run reads a message that another process sends, once, whoever drives it."""

import asyncio

import pytest
from shop import new_id, pay, script, task, until, working

from toolspeak import Agent
from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.data.events import UserMessageQueued
from toolspeak.engines import RunClient
from toolspeak.errors import RunError
from toolspeak.journal.base import RunInput
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedProvider

PAY = task([("pay", {"order": "1"})])


def shop_that_answers(journal):
    return Agent(ScriptedProvider([script, "It is for Ann."]), [pay], dialect="native", name="shop", journal=journal)


async def messages_of(journal, run_id):
    events = [record.event for record in await journal.read(run_id)]
    return [(each.message.text, each.by) for each in events if isinstance(each, UserMessageQueued)]


def test_a_run_that_waits_reads_a_message_when_it_goes_on(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        client = RunClient(open_store())
        shop = Agent(
            ScriptedProvider([script, "It is for Ann."]), [pay], dialect="native", name="shop", journal=journal
        )
        await shop.submit(PAY, run_id=run_id)
        async with working(shop):
            await until(journal, run_id, "waiting")
            assert await client.say(run_id, "It is for Ann.", key="k", principal="bob")
            assert not await client.say(run_id, "It is for Ann.", key="k", principal="bob")
            await client.deliver(run_id, "payment:1", 5)
            await until(journal, run_id, "answered")
        assert await messages_of(journal, run_id) == [("It is for Ann.", "bob")]
        with pytest.raises(RunError, match="it has ended, and reads no message"):
            await client.say(run_id, "too late")

    open_store.run(main)


def test_a_message_that_was_recorded_before_a_crash_is_not_read_twice(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        client = RunClient(journal)
        shop = shop_that_answers(journal)
        await shop.submit(PAY, run_id=run_id)
        async with working(shop):
            await until(journal, run_id, "waiting")
            await client.say(run_id, "hello", key="k")
            await client.deliver(run_id, "payment:2", 5)  # not for this call
            async with asyncio.timeout(60):
                async for _ in journal.follow(run_id):
                    if await messages_of(journal, run_id):
                        break
            (entry,) = [each for each in await journal.inputs(run_id) if each.kind == "message"]
            # As if the process had died before it marked the input: another has the same key.
            assert entry.key == "k"
            await journal.add_input(RunInput(run_id, "message", "k2", "k", entry.data))
            await client.deliver(run_id, "payment:1", 5)
            await until(journal, run_id, "answered")
        assert await messages_of(journal, run_id) == [("hello", None)]

    open_store.run(main)


class GatedProvider:
    """A provider that answers once the test lets it."""

    name, capabilities = "gated", Capabilities(tools=False)

    def __init__(self):
        self.request_event, self.gate = asyncio.Event(), asyncio.Semaphore(0)

    async def stream(self, request):
        self.request_event.set()
        await self.gate.acquire()
        yield TextDelta(f"You said: {request.messages[-1].text}")
        yield TurnEnded("stop")

    async def aclose(self):
        pass


def test_a_run_that_is_followed_reads_what_is_said_during_its_last_turn(open_store):
    async def main():
        journal, run_id, model = open_store(), new_id(), GatedProvider()
        gated_agent = Agent(model, name="gated", journal=journal)
        await gated_agent.submit("go", run_id=run_id)
        client = RunClient(open_store())
        news = journal.follow(run_id)
        await anext(news)
        async with working(gated_agent), asyncio.timeout(60):
            await model.request_event.wait()
            await client.say(run_id, "wait, one more thing")
            model.gate.release()
            model.gate.release()
            result = await until(journal, run_id, "answered")
        await news.aclose()
        assert result.answer == "You said: wait, one more thing"

    open_store.run(main)
