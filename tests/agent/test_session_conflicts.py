"""A session goes on only behind a run that has ended: no call of an earlier run comes later, behind its back."""

import asyncio

import pytest
from agent_helpers import WatchedJournal, calling

from toolspeak import Agent, Effects, Session, tool
from toolspeak.agent.storage.runs import close_run
from toolspeak.data.deltas import TextDelta
from toolspeak.data.events import ModelAsked, RunFinished, ToolStarted
from toolspeak.errors import ConfigurationError, RunConflict, RunError
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import Toolset

DIALECT = "cogency-json"


class Shop:
    """A tool that costs money; `payments` names what was bought, and `hang` keeps the next call at work until it is
    cancelled."""

    def __init__(self):
        self.payments, self.hang, self.tool_begun = [], False, asyncio.Event()

        @tool(effects=lambda thing: Effects(writes={f"order:{thing}"}, external=True))
        async def pay(thing: str) -> str:
            "Buys a thing."
            if self.hang:
                self.tool_begun.set()
                await asyncio.Event().wait()
            self.payments.append(thing)
            return f"paid for {thing}"

        self.tools = Toolset([pay])
        self.journal = WatchedJournal()

    def calls(self, *things):
        return calling(DIALECT, *(("pay", {"thing": thing}) for thing in things), tools=self.tools)

    def session(self, *turns, session_id=None, **options):
        self.model = ScriptedProvider(list(turns))
        agent = Agent(self.model, self.tools, dialect=DIALECT, journal=self.journal, **options)
        return Session(agent, session_id), agent


def texts(messages):
    return [result.text for message in messages for result in message.results]


def test_a_task_after_a_call_that_awaits_approval_is_refused_and_says_how_to_decide():
    async def main():
        shop = Shop()
        session, agent = shop.session(shop.calls("bread"), "Bought.", "Sunny.")
        waiting = await session.run("Buy bread.")
        assert waiting.status == "awaiting_approval"
        with pytest.raises(RunError, match=rf"{waiting.run_id}, waits for a decision about pay.*toolspeak resume"):
            await session.run("What is the weather?")
        assert len(shop.model.requests) == 1, "the refused task reaches no model"
        resumed_result = await agent.resume(waiting.run_id, {waiting.waiting[0]: True})
        assert (resumed_result.answer, shop.payments) == ("Bought.", ["bread"])
        assert (await session.run("What is the weather?")).answer == "Sunny."
        assert texts(await session.messages()) == ["paid for bread"]

    asyncio.run(main())


@pytest.mark.parametrize("is_suspended", [False, True], ids=["awaiting", "suspended"])
def test_a_run_that_is_closed_never_runs_its_calls_and_the_model_reads_that(is_suspended):
    async def main():
        shop = Shop()
        session, agent = shop.session(shop.calls("bread", "milk"), "Sunny.", approve="all" if is_suspended else None)
        run = await session.start("Buy bread and milk.")
        if is_suspended:
            shop.journal.look = lambda record: isinstance(record.event, ModelAsked) and run.suspend()
        first = await agent.finish(run)
        shop.journal.look = lambda record: None
        assert first.status == ("suspended" if is_suspended else "awaiting_approval")
        with pytest.raises(RunError):
            await session.run("What is the weather?")
        assert (await session.run("What is the weather?", when_open="close")).answer == "Sunny."
        not_run = "this call did not run: the conversation continued without it"
        assert texts(await session.messages()) == [not_run, not_run]
        assert not_run in str(shop.model.requests[-1].messages)
        last_event = [record.event for record in await shop.journal.read(first.run_id)][-1]
        assert last_event == RunFinished("no_answer", "", "closed")
        for again in (first, first.run_id):
            with pytest.raises(RunError):
                await agent.resume(again, dict.fromkeys(first.waiting, True))
        assert (shop.payments, shop.journal.all(ToolStarted)) == ([], [])

    asyncio.run(main())


def test_a_call_that_was_under_way_when_its_run_was_interrupted_has_an_unknown_outcome():
    async def main():
        shop = Shop()
        session, agent = shop.session(shop.calls("bread", "bread"), "Sunny.", approve="all")
        shop.hang = True
        task = asyncio.create_task(session.run("Buy bread."))
        await shop.tool_begun.wait()
        task.cancel()
        await asyncio.wait([task])
        shop.hang = False
        assert (await session.run("What is the weather?")).answer == "Sunny."
        first, second = texts(await session.messages())
        assert "was started, and its outcome is unknown" in first
        assert "did not run" in second
        run_id = shop.journal.records[0].run_id
        with pytest.raises(RunError, match="it has ended"):
            await agent.resume(run_id)
        assert shop.payments == []

    asyncio.run(main())


def test_a_run_that_was_interrupted_in_a_turn_is_closed_by_the_next_task():
    async def main():
        shop = Shop()
        session, agent = shop.session("Sunny.")

        class Stops(Exception):
            pass

        def stop(record):
            if isinstance(record.event, ModelAsked):
                raise Stops

        shop.journal.look = stop
        with pytest.raises(Stops):
            await session.run("Hello?")
        shop.journal.look = lambda record: None
        first = shop.journal.records[0].run_id
        assert (await session.run("What is the weather?")).answer == "Sunny."
        with pytest.raises(RunError, match="it has ended"):
            await agent.resume(first)
        assert [message.text for message in await session.messages()] == ["Hello?", "What is the weather?", "Sunny."]

    asyncio.run(main())


def test_a_run_that_is_closed_in_a_turn_keeps_what_the_user_saw_of_it():
    async def main():
        shop = Shop()
        session, _ = shop.session("The first planet is Mercury. The second", "Venus.")
        run = await session.start("Name the planets.")
        stream = run.stream()
        async for item in stream:
            if isinstance(item, TextDelta):
                break
        await stream.aclose()
        await close_run(shop.journal, run.run_id, partial_text=item.text)
        assert (await session.run("Go on.")).answer == "Venus."
        conversation = ["Name the planets.", item.text, "Go on.", "Venus."]
        assert [message.text for message in await session.messages()] == conversation
        assert item.text in str(shop.model.requests[-1])

    asyncio.run(main())


def test_a_fork_says_that_the_call_did_not_run_and_leaves_it_to_its_own_session():
    async def main():
        shop = Shop()
        session, agent = shop.session(shop.calls("bread"), "Bought.")
        waiting = await session.run("Buy bread.")
        fork = await session.fork()
        assert texts(await fork.messages()) == ["this call did not run: the conversation continued without it"]
        await agent.resume(waiting, {waiting.waiting[0]: True})
        assert texts(await session.messages()) == ["paid for bread"]

    asyncio.run(main())


@pytest.mark.parametrize("when_open", ["Refuse", "wait", True, None])
def test_what_is_neither_to_refuse_nor_to_close_closes_nothing(when_open):
    async def main():
        shop = Shop()
        session, agent = shop.session(shop.calls("bread"), "Bought.")
        waiting = await session.run("Buy bread.")
        with pytest.raises(ConfigurationError, match="'refuse' or 'close'"):
            await session.run("What is the weather?", when_open=when_open)
        assert (await agent.resume(waiting, {waiting.waiting[0]: True})).answer == "Bought."

    asyncio.run(main())


@pytest.mark.parametrize("session_id", ["", 7])
def test_a_session_id_that_is_none_begins_no_session(session_id):
    with pytest.raises(ConfigurationError, match="session_id must be a string that is not empty"):
        Shop().session(session_id=session_id)


def test_a_closed_call_does_not_run_from_a_text_either():
    async def main():
        shop = Shop()
        session, agent = shop.session(shop.calls("bread"), "Sunny.", "Bought.")
        text = await (await session.run("Buy bread.")).dumps()
        await session.run("What is the weather?", when_open="close")
        with pytest.raises(RunConflict, match="has continued since it was stored"):
            await agent.loads(text)
        with pytest.raises(RunError, match="belongs to session"):
            await Agent(shop.model, shop.tools, dialect=DIALECT).loads(text)
        assert shop.payments == []

    asyncio.run(main())


def test_a_run_of_a_session_goes_on_from_a_text_where_the_session_is_kept():
    async def main():
        shop = Shop()
        session, agent = shop.session("Hello.", shop.calls("bread"), "Bought.", "Paid.")
        await session.run("Hi.")
        text = await (await session.run("Buy bread.")).dumps()
        waiting = await agent.loads(text)
        again = await agent.loads(text)
        yes = dict.fromkeys(waiting.waiting, True)
        assert (await agent.resume(waiting, yes)).answer == "Bought."
        with pytest.raises(RunConflict):
            await agent.resume(again, yes)
        assert shop.payments == ["bread"]
        assert [message.text for message in await session.messages()][:3] == ["Hi.", "Hello.", "Buy bread."]
        assert (await session.run("And?")).answer == "Paid."

    asyncio.run(main())


def test_only_a_run_is_resumed():
    _, agent = Shop().session()
    for run_id in (None, 7, b"text"):
        with pytest.raises(ConfigurationError, match="a RunResult or a run's id"):
            asyncio.run(agent.resume(run_id))


def test_a_fork_keeps_what_was_said_before_it_in_every_run_and_after_a_resume():
    async def main():
        shop = Shop()
        session, _ = shop.session("Sunny.")
        first = await session.run("What is the weather?")
        fork = await session.fork(first.run_id)
        later, agent = shop.session(
            "Good.", shop.calls("bread"), "Bought.", "Bye.", session_id=fork.session_id, approve=None
        )
        await later.run("Good?")
        waiting = await later.run("Buy bread.")
        await agent.resume(waiting.run_id, {waiting.waiting[0]: True})
        await later.run("Bye.")
        for request in shop.model.requests:
            assert [message.text for message in request.messages[1:4]][:2] == ["What is the weather?", "Sunny."]
        assert [message.text for message in await later.messages()][:3] == ["What is the weather?", "Sunny.", "Good?"]

    asyncio.run(main())
