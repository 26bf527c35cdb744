"""What is said while a run goes on, and a compaction of its history, go through interceptors that may refuse them."""

import asyncio
from dataclasses import replace

import pytest
from agent_helpers import TOOLS, WatchedJournal, adding, assert_pairs, calling, texts

from toolspeak import Agent, AgentStop, Message, RunError, Session, tool
from toolspeak.agent import CompactionInterceptor, MessageInterceptor, fold
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.events import HistoryCompacted, InterceptorFailed, RunFinished, UserMessageQueued
from toolspeak.data.messages import TextPart
from toolspeak.execute import Answer, Block
from toolspeak.providers.scripted_provider import ScriptedProvider


def said_to(interceptor, *words):
    """Says the words while the run's first call runs. Returns the run, its journal and the model."""

    async def main():
        @tool(name="add", read_only=True)
        async def add(a: int, b: int) -> int:
            "Adds."
            for each in words:
                run.say(each)
            return a + b

        provider, journal = ScriptedProvider([adding(1, 2), "Done."]), WatchedJournal()
        run = Agent(provider, [add], journal=journal, interceptors=[interceptor]).start("go")
        await run.finish()
        return run, journal, provider

    return asyncio.run(main())


class Reads(MessageInterceptor):
    async def before(self, message, context):
        if "secret" in message.text:
            return Block("no secrets")
        return replace(message, parts=(*message.parts, TextPart(f" (in {context.state.session_id})")))


def test_a_message_is_changed_or_left_out_and_the_run_goes_on():
    run, journal, provider = said_to(Reads(), "hurry", "a secret", "be kind")
    assert [event.message.text for event in journal.all(UserMessageQueued)] == ["hurry (in None)", "be kind (in None)"]
    assert "a secret" not in str(provider.requests)
    assert (run.state.answer, run.unread) == ("Done.", ())
    assert fold(journal.records) == run.state


@pytest.mark.parametrize(
    ("verdict", "status", "failures"),
    [(AgentStop("enough"), "no_answer", 0), (ValueError("oh no"), "failed", 1), (Answer("mine"), "failed", 1)],
)
def test_an_interceptor_of_messages_may_end_the_run_by_stopping_or_failing(verdict, status, failures):
    class Ends(MessageInterceptor):
        async def before(self, message, context):
            if isinstance(verdict, Exception):
                raise verdict
            return verdict

    run, journal, provider = said_to(Ends(), "hurry")
    assert (run.state.status, len(journal.all(InterceptorFailed))) == (status, failures)
    assert len(provider.requests) == 1


def test_what_comes_too_late_stays_unread():
    late = Message.user("One more thing.")

    def say_late(record):
        if isinstance(record.event, RunFinished):
            run.say(late)

    run = Agent(ScriptedProvider(["Bye."]), TOOLS, journal=WatchedJournal(say_late)).start("go")
    asyncio.run(run.finish())
    assert run.unread == (late,)
    with pytest.raises(RunError, match="is answered"):
        run.say("And another.")


class Keeps(CompactionInterceptor):
    def __init__(self, times):
        self.times, self.compactions = times, []

    async def before(self, compaction, context):
        self.compactions.append(compaction)
        return Block("not now") if len(self.compactions) <= self.times else compaction


def long_talk(interceptor):
    """A conversation of three calls with long results, in a small window."""

    @tool(read_only=True)
    def add(a: int, b: int) -> str:
        "Adds."
        return "x" * 8000

    async def main():
        provider = ScriptedProvider([adding(1, 2), adding(3, 4), adding(5, 6), "Short.", "Done."])
        journal = WatchedJournal()
        agent = Agent(provider, [add], journal=journal, window=3000, interceptors=[interceptor])
        return await agent.run("go"), journal, provider

    return asyncio.run(main())


def test_a_compaction_that_is_refused_is_asked_about_again_at_the_next_step():
    keeps = Keeps(1)
    result, journal, provider = long_talk(keeps)
    assert result.answer == "Done."
    assert [each.trigger for each in keeps.compactions] == ["auto", "auto"]
    (event,) = journal.all(HistoryCompacted)
    assert keeps.compactions[1].tokens == event.tokens_before
    assert str(provider.requests[2]).count("x" * 8000) == 2
    assert_pairs(result.messages)


def in_session(*turns, interceptors=(), compactions=1, window=None):
    """Asks twice, compacts, and asks again. Returns the journal, the compactions and the model."""

    async def main():
        provider, journal = ScriptedProvider(turns), WatchedJournal()
        session = Session(Agent(provider, journal=journal, interceptors=interceptors, window=window))
        assert await session.compact() is None  # nothing was said
        await session.run("tea " * 500)
        await session.run("milk " * 500)
        before = await session.messages()
        events = [await session.compact() for _ in range(compactions)]
        await session.run("And?")
        assert list(await session.messages())[: len(before)] == list(before)
        state = await load_state(journal, (await session.info()).last_run)
        return journal, events, provider, state

    return asyncio.run(main())


def test_a_session_is_compacted_at_once_and_the_next_run_reads_the_summary():
    journal, (event,), provider, state = in_session("Fine.", "Good.", "All of it, in short.", "Yes.")
    assert event.summary == "All of it, in short."
    assert event.tokens_after < event.tokens_before
    assert journal.all(HistoryCompacted) == [event]
    assert "tea tea" in str(provider.requests[2])
    assert "tea tea" not in str(provider.requests[3])
    assert "All of it, in short." in texts(provider.requests[3])[0] + texts(provider.requests[3])[1]
    assert state.answer == "Yes."


def test_an_interceptor_refuses_a_compaction_that_a_person_asks_for():
    keeps = Keeps(1)
    _, events, provider, _ = in_session("Fine.", "Good.", "Short.", "Yes.", interceptors=[keeps], compactions=2)
    assert [event and event.summary for event in events] == [None, "Short."]
    assert [each.trigger for each in keeps.compactions] == ["manual", "manual"]
    assert len(provider.requests) == 4


def test_a_run_that_has_not_ended_is_not_compacted():
    async def main():
        turns = [calling("cogency-json", ("note", {"path": "a"}))]
        session = Session(Agent(ScriptedProvider(turns), TOOLS, journal=WatchedJournal()))
        await session.run("Write.")
        with pytest.raises(RunError, match="is awaiting approval: let it end"):
            await session.compact()

    asyncio.run(main())
    with pytest.raises(RunError, match="the journal has no run some-run"):
        asyncio.run(Agent(ScriptedProvider(["x"])).compact("some-run"))
