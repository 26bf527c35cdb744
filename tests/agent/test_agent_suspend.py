"""A run that is suspended stops where nothing is under way, and goes on as if nothing had happened."""

import asyncio

import pytest
from agent_helpers import WatchedJournal, an_agent, assert_pairs, calling

from jumping_loop import run_jumping
from toolspeak import Agent, AgentStop, ConfigurationError, Effects, RunError, Session, tool
from toolspeak.agent import fold
from toolspeak.data.events import (
    ApprovalRequested,
    MetadataSet,
    ModelAnswered,
    ModelAsked,
    RunPaused,
    StopRequested,
    ToolFinished,
    ToolStarted,
)
from toolspeak.errors import LeaseLost
from toolspeak.execute import Decision, Interceptor
from toolspeak.journal import MemoryJournal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import Toolset


class Work:
    """Tools whose first call asks for `suspend` while it is at work; `ran` says which ran to their end."""

    def __init__(self):
        self.ran, self.suspend = [], None

        async def did(name):
            if self.suspend is not None:
                suspend, self.suspend = self.suspend, None
                await suspend()
                await asyncio.sleep(0)
            self.ran.append(name)
            return f"{name} done"

        @tool(effects=lambda name: Effects(writes={"disk:"}))
        async def put(name: str) -> str:
            "Puts; one after the other."
            return await did(name)

        @tool(effects=lambda name: Effects(writes={f"own:{name}"}))
        async def own(name: str) -> str:
            "Puts; all at once."
            return await did(name)

        @tool(effects=lambda name: Effects(writes={f"one:{name}"}), max_concurrent=1)
        async def single(name: str) -> str:
            "Puts; one at a time."
            return await did(name)

        self.tools = Toolset([put, own, single])


def calls(work, *names):
    return calling("cogency-json", *[(name, {"name": each}) for name, each in names], tools=work.tools)


def suspended_in(work, names, *, ask=True, interceptors=(), **options):
    """A run that is asked to suspend during its first call, and how it stands after; with its journal and agent."""
    journal = WatchedJournal()
    turns = [calls(work, *names), "All done."]
    agent = an_agent(turns, work.tools, journal=journal, interceptors=interceptors, **options)
    run = agent.start("go")

    async def suspend():
        run.suspend()

    work.suspend = suspend if ask else None
    return asyncio.run(agent.finish(run)), journal, agent


BATCHES = [
    ([("put", "a"), ("put", "b"), ("put", "c")], ["a"]),
    ([("own", "a"), ("own", "b"), ("put", "c"), ("put", "d")], ["b", "c", "a"]),
    ([("single", "a"), ("single", "b")], ["a"]),
    ([("put", "a")], ["a"]),
]


@pytest.mark.parametrize(("names", "first"), BATCHES)
def test_calls_under_way_end_and_the_others_run_when_it_goes_on(names, first):
    work = Work()
    result, journal, agent = suspended_in(work, names)
    assert result.status == "suspended"
    assert sorted(work.ran) == sorted(first)
    assert len(journal.all(ToolStarted)) == len(journal.all(ToolFinished)) == len(first)
    assert journal.events[-1] == RunPaused("suspended")
    assert fold(journal.records) == result.state
    assert asyncio.run(journal.run(result.run_id)).status == "suspended"
    assert asyncio.run(journal.run(result.run_id)).owner is None

    resumed_result = asyncio.run(agent.resume(result.run_id))
    whole, plain_journal, _ = suspended_in(plain := Work(), names, ask=False)
    assert (resumed_result.status, resumed_result.answer) == ("answered", "All done.")
    assert sorted(work.ran) == sorted(plain.ran) == sorted(name for _, name in names)
    assert resumed_result.messages == whole.messages
    assert len(journal.all(ToolStarted)) == len(plain_journal.all(ToolStarted))
    assert_pairs(resumed_result.messages)


def test_no_turn_is_asked_for_once_it_is_asked():
    provider = ScriptedProvider(["never"])
    agent, journal = Agent(provider, journal=(journal := WatchedJournal())), journal
    run = agent.start("go")
    run.suspend()
    result = asyncio.run(agent.finish(run))
    assert (result.status, provider.requests, journal.kinds) == ("suspended", [], ["RunStarted", "RunPaused"])
    assert asyncio.run(agent.resume(result)).answer == "never"


def test_a_turn_under_way_is_read_to_its_end_and_its_calls_wait():
    work = Work()
    journal = WatchedJournal(lambda record: isinstance(record.event, ModelAsked) and run.suspend())
    agent = an_agent([calls(work, ("put", "a")), "Done."], work.tools, journal=journal)
    run = agent.start("go")
    result = asyncio.run(agent.finish(run))
    assert (result.status, work.ran) == ("suspended", [])
    assert len(journal.all(ModelAnswered)) == 1
    journal.look = lambda record: None
    assert asyncio.run(agent.resume(result.run_id)).answer == "Done."
    assert work.ran == ["a"]


def test_an_answer_under_way_ends_the_run_instead():
    journal = WatchedJournal(lambda record: isinstance(record.event, ModelAsked) and run.suspend())
    agent = Agent(ScriptedProvider(["The answer."]), journal=journal)
    run = agent.start("go")
    assert asyncio.run(agent.finish(run)).answer == "The answer."


def test_a_person_who_is_being_asked_is_asked_again():
    work, journal, call_ids = Work(), WatchedJournal(), []

    async def approver(request):
        call_ids.append(request.call.id)
        if len(call_ids) == 1:
            run.suspend()
            await asyncio.Event().wait()
        return Decision(True)

    agent = an_agent([calls(work, ("put", "a")), "Done."], work.tools, journal=journal, approve=approver)
    run = agent.start("go")
    result = asyncio.run(agent.finish(run))
    assert (result.status, result.waiting, work.ran) == ("suspended", ("call_1_0",), [])
    assert len(journal.all(ApprovalRequested)) == 1
    assert asyncio.run(agent.resume(result.run_id)).answer == "Done."
    assert call_ids == ["call_1_0"] * 2


def test_the_time_it_is_suspended_is_not_the_runs():
    now = [1000.0]
    agent = Agent(ScriptedProvider(["ok"]), journal=MemoryJournal(), clock=lambda: now[0])
    run = agent.start("go")
    run.suspend()
    asyncio.run(agent.finish(run))
    now[0] += 5000
    state = asyncio.run(agent.resume(run.run_id)).state
    assert state.time - state.started_at < 1


def test_what_interceptors_keep_of_calls_that_ended_is_recorded():
    class Counts(Interceptor):
        async def after(self, call, result, context):
            context.set("seen", result.text)
            return result

    result, journal, agent = suspended_in(Work(), [("put", "a"), ("put", "b")], interceptors=(Counts(),))
    assert [event.values for event in journal.all(MetadataSet)] == [{"seen": "a done"}]
    assert result.state.metadata == {"seen": "a done"}
    assert asyncio.run(agent.resume(result.run_id)).state.metadata == {"seen": "b done"}


class ProcessDeath(Exception):
    """The process ends here."""


def test_what_a_stop_kept_from_starting_does_not_start_after_a_crash():
    ran = []

    @tool(effects=Effects(writes={"disk:"}))
    def halt() -> str:
        "Ends the run."
        raise AgentStop("enough", answer="I stop.")

    @tool(effects=Effects(writes={"disk:"}))
    def more() -> str:
        "Goes on."
        ran.append("more")
        return "more"

    def look(record):
        if isinstance(record.event, ToolFinished):
            raise ProcessDeath

    journal = WatchedJournal(look)
    tools = Toolset([halt, more])
    agent = an_agent([calling("cogency-json", ("halt", {}), ("more", {}), tools=tools)], tools, journal=journal)
    run = agent.start("go")
    with pytest.raises(ProcessDeath):
        asyncio.run(run.finish())
    assert len(journal.all(StopRequested)) == 1
    journal.look = lambda record: None
    resumed_result = asyncio.run(agent.resume(run.run_id))
    assert (resumed_result.answer, ran) == ("I stop.", [])
    assert [result.code for result in journal.results()] == ["unknown_outcome", "skipped"]


def test_a_session_is_suspended_by_whoever_has_its_journal():
    work, journal = Work(), MemoryJournal()
    agent = an_agent([calls(work, ("put", "a"), ("put", "b")), "Done."], work.tools, journal=journal)
    session = Session(agent)

    async def suspend():
        other = Session(an_agent([], journal=journal), session.session_id)
        assert await other.suspend()
        await asyncio.sleep(60)  # jumps: the holder hears of it while it renews its lease

    async def main():
        work.suspend = suspend
        first = await session.run("go")
        assert (first.status, work.ran) == ("suspended", ["a"])
        with pytest.raises(RunError, match="is suspended: only a run in progress"):
            await agent.suspend(first.run_id)
        resumed_result = await agent.resume(first.run_id)
        assert (resumed_result.answer, work.ran) == ("Done.", ["a", "b"])
        with pytest.raises(RunError, match="is answered"):
            await session.suspend()
        with pytest.raises(RunError, match="no run nobody"):
            await agent.suspend("nobody")

    run_jumping(main())
    with pytest.raises(ConfigurationError, match="journal"):
        asyncio.run(Agent(ScriptedProvider([])).suspend("x"))


def test_a_run_whose_process_died_is_suspended_at_once():
    def look(record):
        if isinstance(record.event, ModelAnswered):
            raise ProcessDeath

    journal = WatchedJournal(look)
    agent = Agent(ScriptedProvider(["one", "two"]), journal=journal)
    run = agent.start("go", principal="ann")
    with pytest.raises(ProcessDeath):
        asyncio.run(run.finish())
    journal.look = lambda record: None
    assert asyncio.run(agent.suspend(run.run_id)) is False
    assert asyncio.run(journal.run(run.run_id)).status == "suspended"
    assert journal.records[-1].principal == "ann"
    assert asyncio.run(agent.resume(run.run_id)).answer == "two"


def test_a_run_that_has_lost_its_lease_does_not_ask_for_it_again():
    """The next record is refused; asking again and again would only load the store."""

    class LostLease(WatchedJournal):
        renewals = 0

        async def renew(self, lease, seconds):
            self.renewals += 1
            raise LeaseLost("taken over")

    @tool(read_only=True)
    async def wait() -> str:
        "Takes a minute."
        await asyncio.sleep(60)
        return "waited"

    journal = LostLease()
    turns = [calling("cogency-json", ("wait", {}), tools=Toolset([wait])), "done"]
    assert run_jumping(an_agent(turns, [wait], journal=journal).run("go")).answer == "done"
    assert journal.renewals == 1
