"""Runs that go on from the journal alone: after they were stopped anywhere, and in sessions."""

import asyncio
from contextlib import aclosing

import pytest
from agent_helpers import WatchedJournal, calling, texts

from toolspeak import Agent, Approval, ConfigurationError, Effects, RunContext, RunError, Session, VerifiedResult, tool
from toolspeak.agent.storage.exports import export_session, import_session
from toolspeak.agent.storage.runs import load_state
from toolspeak.agent.storage.sessions import fork_session
from toolspeak.data.events import ApprovalDecided, ApprovalRequested, RunResumed, RunStarted, ToolFinished, ToolStarted
from toolspeak.errors import FormatError, RunBusy, RunConflict
from toolspeak.execute import Decision
from toolspeak.journal import MemoryJournal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import Toolset

ECHO = "what the last message says"


class StoppedError(Exception):
    """The process ends here."""


def by_conversation(turns):
    """A model that answers by where the conversation is, as a real one does: whoever asks, and however often."""

    def turn(messages):
        reply = turns[sum(message.role == "assistant" for message in messages)]
        return messages[-1].text.replace("<", "") if reply is ECHO else reply

    return ScriptedProvider([turn] * 50)


class Toolbox:
    """Tools of every policy; `ran` is what they did, with the idempotency keys."""

    def __init__(self, **verdicts):
        self.ran = []
        self.checks = []

        def did(name, ctx):
            self.ran.append((name, ctx.idempotency_key))
            return f"{name} done"

        def verdict(key, ctx: RunContext):
            self.checks.append((key, ctx.idempotency_key))
            answer = verdicts["verdict"]
            if isinstance(answer, Exception):
                raise answer
            return answer

        @tool(read_only=True)
        def look(ctx: RunContext) -> str:
            "Looks."
            return did("look", ctx)

        @tool(effects=Effects(writes={"file:a"}), idempotent=True)
        def put(ctx: RunContext) -> str:
            "Puts."
            return did("put", ctx)

        @tool(effects=Effects(writes={"file:a"}))
        def add_line(ctx: RunContext) -> str:
            "Adds a line."
            return did("add_line", ctx)

        @tool(effects=Effects(reads={"web:"}), external=True)
        def fetch(ctx: RunContext) -> str:
            "Sends something."
            return did("fetch", ctx)

        @tool(effects=Effects(writes={"bank:"}), verify=verdict)
        def pay(key: str, ctx: RunContext) -> str:
            "Pays."
            return did("pay", ctx)

        self.tools = Toolset([look, put, add_line, fetch, pay])


def call(name):
    arguments = {"key": "k"} if name == "pay" else {}
    return calling("cogency-json", (name, arguments), tools=Toolbox().tools)


def interrupted_run(name, toolbox, stop_at=ToolFinished, approve="all"):
    """A journal whose run was stopped when an event of this kind was to be recorded."""

    def look(record):
        if isinstance(record.event, stop_at):
            raise StoppedError

    journal = WatchedJournal(look)
    agent = Agent(by_conversation([call(name), ECHO]), toolbox.tools, journal=journal, approve=approve)
    run = agent.start("go")

    async def main():
        with pytest.raises(StoppedError):
            await run.finish()

    asyncio.run(main())
    journal.look = lambda record: None
    return journal, run.run_id


def resume(journal, run_id, toolbox, name, decisions=None, **options):
    options.setdefault("approve", "all")
    agent = Agent(by_conversation([call(name), ECHO]), toolbox.tools, journal=journal, **options)
    return asyncio.run(agent.resume(run_id, decisions or {}))


@pytest.mark.parametrize("name", ["look", "put"])
def test_a_call_in_doubt_that_may_run_twice_runs_again_under_its_key(name):
    toolbox = Toolbox()
    journal, run_id = interrupted_run(name, toolbox)
    result = resume(journal, run_id, toolbox, name)
    key = f"{run_id}:call_1_0"
    assert toolbox.ran == [(name, key), (name, key)]
    assert result.status == "answered"
    assert f"{name} done" in result.answer
    assert [event.idempotency_key for event in journal.all(ToolStarted)] == [key, key]
    assert len(journal.all(RunResumed)) == 1


@pytest.mark.parametrize("name", ["add_line", "fetch"])
@pytest.mark.parametrize("options", [{"approve": "all"}, {"approve": "none"}, {"approve": Approval(in_doubt="report")}])
def test_of_another_the_model_is_told_that_the_outcome_is_unknown(name, options):
    toolbox = Toolbox()
    journal, run_id = interrupted_run(name, toolbox)
    result = resume(journal, run_id, toolbox, name, **options)
    assert len(toolbox.ran) == 1
    assert journal.results()[-1].code == "unknown_outcome"
    assert "before you repeat it" in result.answer


def test_the_user_may_have_it_repeated():
    toolbox = Toolbox()
    journal, run_id = interrupted_run("add_line", toolbox)
    assert "add_line done" in resume(journal, run_id, toolbox, "add_line", approve=Approval(in_doubt="repeat")).answer
    assert len(toolbox.ran) == 2


def test_a_policy_for_doubts_that_nobody_knows_is_refused_at_once():
    with pytest.raises(ConfigurationError, match=r"'ask', 'report', 'repeat', not 'tell'"):
        Agent(ScriptedProvider([]), approve=Approval(in_doubt="tell"))


@pytest.mark.parametrize("is_approved", [True, False])
@pytest.mark.parametrize("way", ["approver", "pause"])
def test_a_person_is_asked_what_to_do(is_approved, way):
    toolbox, reasons = Toolbox(), []
    journal, run_id = interrupted_run("add_line", toolbox)
    decision = Decision(is_approved, "" if is_approved else "it ran far enough", by="Ann")

    async def approver(request):
        reasons.append(request.reason)
        return decision

    if way == "approver":
        result = resume(journal, run_id, toolbox, "add_line", approve=approver)
    else:
        paused_run = resume(journal, run_id, toolbox, "add_line", approve=None)
        assert (paused_run.status, paused_run.waiting, len(toolbox.ran)) == ("awaiting_approval", ("call_1_0",), 1)
        reasons.append(paused_run.requests[0].reason)
        # Again from the journal alone, as another process would.
        result = resume(journal, run_id, toolbox, "add_line", {"call_1_0": decision}, approve=None)
    assert "before the run was interrupted" in reasons[0]
    assert result.status == "answered"
    assert len(toolbox.ran) == 1 + is_approved
    assert journal.results()[-1].code == (None if is_approved else "unknown_outcome")
    assert ("It was not run again: it ran far enough" in journal.results()[-1].text) == (not is_approved)


def test_a_yes_is_good_for_one_more_start():
    toolbox = Toolbox()
    journal, run_id = interrupted_run("add_line", toolbox)
    assert resume(journal, run_id, toolbox, "add_line", approve=None).status == "awaiting_approval"

    def look(record):
        if isinstance(record.event, ToolFinished):
            raise StoppedError

    journal.look = look
    with pytest.raises(StoppedError):
        resume(journal, run_id, toolbox, "add_line", {"call_1_0": True}, approve=None)
    journal.look = lambda record: None
    assert len(toolbox.ran) == 2
    assert resume(journal, run_id, toolbox, "add_line", approve=None).status == "awaiting_approval"
    assert len(toolbox.ran) == 2


VERDICTS = [
    (True, 1, None, "done before"),
    (VerifiedResult("receipt 7"), 1, None, "receipt 7"),
    (False, 2, None, "pay done"),
    (None, 1, "unknown_outcome", "unknown outcome"),
    (OSError("no network"), 1, "unknown_outcome", "unknown outcome"),
]


@pytest.mark.parametrize(("verdict", "runs", "code", "answer"), VERDICTS, ids=repr)
def test_a_tool_that_can_tell_is_asked_what_happened(verdict, runs, code, answer):
    toolbox = Toolbox(verdict=verdict)
    journal, run_id = interrupted_run("pay", toolbox)
    result = resume(journal, run_id, toolbox, "pay")
    assert toolbox.checks == [("k", f"{run_id}:call_1_0")]
    assert (len(toolbox.ran), journal.results()[-1].code) == (runs, code)
    assert answer in result.answer


def test_a_call_whose_tool_is_gone_is_in_doubt_all_the_same():
    toolbox = Toolbox()
    journal, run_id = interrupted_run("add_line", toolbox)
    agent = Agent(by_conversation([call("add_line"), "ok"]), [toolbox.tools.get("look")], journal=journal)
    assert asyncio.run(agent.resume(run_id)).status == "answered"
    (result,) = journal.results()
    assert result.code == "unknown_outcome"
    assert "no tool is called" in result.text


@pytest.mark.parametrize("stop_at", [RunStarted, ToolStarted, ApprovalRequested])
def test_what_was_not_started_is_no_doubt(stop_at):
    toolbox = Toolbox()
    journal, run_id = interrupted_run(
        "add_line", toolbox, stop_at, approve=None if stop_at is ApprovalRequested else "all"
    )
    if stop_at is RunStarted:
        with pytest.raises(RunError, match="no run"):
            resume(journal, run_id, toolbox, "add_line")
        return
    assert "add_line done" in resume(journal, run_id, toolbox, "add_line").answer
    assert len(toolbox.ran) == 1


def test_an_approval_that_was_pending_still_is():
    toolbox = Toolbox()
    journal = MemoryJournal()
    agent = Agent(by_conversation([call("add_line"), ECHO]), toolbox.tools, journal=journal)
    paused_run = asyncio.run(agent.run("go"))
    again = resume(journal, paused_run.run_id, toolbox, "add_line", approve=None)
    assert (again.status, again.waiting) == ("awaiting_approval", ("call_1_0",))
    with pytest.raises(RunError, match="call_9"):
        resume(journal, paused_run.run_id, toolbox, "add_line", {"call_9": True}, approve=None)
    result = resume(journal, paused_run.run_id, toolbox, "add_line", {"call_1_0": True}, approve=None)
    assert (result.status, len(toolbox.ran)) == ("answered", 1)
    with pytest.raises(RunError, match="has ended"):
        resume(journal, paused_run.run_id, toolbox, "add_line")


@pytest.mark.parametrize("is_approved", [True, False])
def test_a_decision_holds_although_its_process_died(is_approved):
    async def ann(request):
        return Decision(is_approved, by="ann")

    toolbox = Toolbox()
    journal, run_id = interrupted_run("add_line", toolbox, ToolStarted if is_approved else ToolFinished, approve=ann)
    result = resume(journal, run_id, toolbox, "add_line", approve=None)  # somebody who is asked would pause the run
    assert (result.status, len(toolbox.ran)) == ("answered", int(is_approved))


@pytest.mark.parametrize("is_approved", [True, False])
def test_a_question_to_an_approver_whose_process_died_can_be_decided(is_approved):
    async def ann(request):
        return Decision(True, by="ann")

    toolbox = Toolbox()
    journal, run_id = interrupted_run("add_line", toolbox, ApprovalDecided, approve=ann)
    result = resume(journal, run_id, toolbox, "add_line", {"call_1_0": is_approved}, approve=None)
    assert (result.status, len(toolbox.ran)) == ("answered", int(is_approved))


def test_a_decision_about_a_run_without_a_question_says_how_to_get_one():
    toolbox = Toolbox()
    journal, run_id = interrupted_run("add_line", toolbox, approve="all")
    with pytest.raises(RunError, match=r"no call call_1_0 waits for approval; these do: none .*without decisions"):
        resume(journal, run_id, toolbox, "add_line", {"call_1_0": True}, approve=None)
    paused_run = resume(journal, run_id, toolbox, "add_line", approve=None)
    assert paused_run.waiting == ("call_1_0",)


def test_a_run_that_somebody_is_at_work_on_is_not_resumed():
    toolbox, journal = Toolbox(), MemoryJournal()

    async def main():
        agent = Agent(by_conversation([call("look"), "ok"]), toolbox.tools, journal=journal)
        async for state in agent.iterate("go"):
            with pytest.raises(RunBusy, match="held by this process"):
                await agent.resume(state.run_id)
        assert (await journal.run(state.run_id)).owner is None

    asyncio.run(main())


def test_a_run_whose_lease_was_lost_does_nothing_more():
    toolbox, journal = Toolbox(), MemoryJournal()

    @tool
    async def take_over() -> str:
        "Takes the run over, as another process would that holds its owner for dead."
        info = await journal.run(run.run_id)
        await journal.acquire(run.run_id, info.owner, 30)
        return "done"

    tools = Toolset([take_over, *toolbox.tools])
    turn = calling("cogency-json", ("take_over", {}), ("add_line", {}), tools=tools)
    run = Agent(ScriptedProvider([turn]), tools, journal=journal, approve="all").start("go")
    with pytest.raises(RunError, match="taken over"):
        asyncio.run(run.finish())
    assert toolbox.ran == []


def test_an_agent_without_a_journal_says_what_it_needs():
    agent = Agent(ScriptedProvider([]))
    with pytest.raises(ConfigurationError, match="journal"):
        agent.reopen("abc")
    with pytest.raises(ConfigurationError, match="journal"):
        Session(agent)


# --- sessions ----------------------------------------------------------------------------------------------------


def test_the_runs_of_a_session_share_their_history_in_any_process_and_dialect():
    journal, toolbox = MemoryJournal(), Toolbox()
    first = Session(Agent(by_conversation([call("look"), "seen"]), toolbox.tools, journal=journal), principal="ann")
    provider = by_conversation([None, None, calling("tool-call", ("look", {}), tools=toolbox.tools), "again"])
    other = Agent(provider, toolbox.tools, journal=journal, dialect="tool-call")

    async def main():
        one = await first.run("  What is\nthere?")
        second = Session(other, first.session_id, principal="ann")
        two = await second.run("And now?")
        assert texts(provider.requests[-1])[1].strip().startswith("What is")
        assert [m.text for m in two.messages if m.role in ("user", "assistant") and m.text] == [
            "  What is\nthere?", "seen", "And now?", "again",
        ]  # fmt: skip
        assert list(await second.messages()) == list(two.messages)
        assert (await load_state(journal, two.run_id)).messages == two.state.messages
        info = await second.info()
        assert (info.title, info.runs, info.version, info.principal) == ("What is", 2, 2, "ann")
        ids = [c.id for m in two.messages for c in m.calls]
        assert len(ids) == len(set(ids)) == 2
        with pytest.raises(RunError, match="belongs to another user"):
            await Session(other, first.session_id, principal="bob").run("Tell me.")
        start = (await journal.read(two.run_id))[0].event
        assert (start.follows, len(start.messages)) == (one.run_id, 1)

    asyncio.run(main())


def test_two_that_go_on_with_a_session_do_not_mix():
    journal = MemoryJournal()
    agent = Agent(by_conversation(["one", "two", "three"]), journal=journal)

    async def main():
        session = Session(agent)
        await session.run("go")
        mine, theirs = await session.start("mine"), await session.start("theirs")
        await mine.finish()
        with pytest.raises(RunConflict, match="another process has continued"):
            await theirs.finish()
        renamed_session = await session.rename("Another title")
        assert (renamed_session.title, renamed_session.version) == ("Another title", 3)
        assert (await session.run("more")).answer == "three"

    asyncio.run(main())


def test_a_session_forks_at_any_record_and_both_go_on():
    journal, toolbox = MemoryJournal(), Toolbox()
    agent = Agent(by_conversation([call("look"), "seen", "more", "most"]), toolbox.tools, journal=journal)

    async def main():
        session = Session(agent)
        first = await session.run("look")
        await session.run("more?")
        records = await journal.read(first.run_id)
        for count in range(1, len(records) + 1):
            fork = await session.fork(first.run_id, count)
            messages = await fork.messages()
            state = await load_state(journal, first.run_id, count)
            assert list(messages)[: len(state.messages)] == list(state.messages)
            assert [m.role for m in messages if m.calls] == [m.role for m in messages if m.results] or any(
                m.results for m in messages
            )
            info = await fork.info()
            assert info.forked_from == (first.run_id, count)
        whole = await session.fork()
        await session.delete()
        assert (await whole.run("and?")).answer == "most"
        assert (await whole.info()).title == "look (fork)"
        with pytest.raises(RunError):
            await session.info()
        with pytest.raises(RunError, match="no session"):
            await fork_session(journal, session.session_id)

    asyncio.run(main())


def test_a_fork_is_refused_where_there_is_nothing():
    journal = MemoryJournal()

    async def main():
        session = Session(Agent(by_conversation(["ok"]), journal=journal))
        run = await session.run("go")
        for count in (0, 99):
            with pytest.raises(RunError, match="records"):
                await session.fork(run.run_id, count)
        with pytest.raises(RunError, match="no run"):
            await session.fork("nobody")

    asyncio.run(main())


def test_a_session_goes_to_another_journal_and_loses_nothing():
    here, there, toolbox = MemoryJournal(), MemoryJournal(), Toolbox()
    agent = Agent(by_conversation([call("look"), "seen \ud800\0", "more"]), toolbox.tools, journal=here)

    async def main():
        session = Session(agent, principal="ann")
        await session.run("look")
        fork = await session.fork()
        await fork.run("go on")
        await fork.rename("Mine")
        lines = [line async for line in export_session(here, fork.session_id)]
        assert all("\n" not in line for line in lines)
        info = await import_session(there, lines)
        assert info == await fork.info()
        assert [line async for line in export_session(there, fork.session_id)] == lines
        with pytest.raises(RunConflict, match="already"):
            await import_session(there, lines)
        for bad_lines, place in [
            ([], "line 1"), (lines[1:], "line 1"), ([*lines, "{"], f"line {len(lines) + 1}"), (["[]"], "line 1"),
            ([lines[0][:-1] + ', "toolspeak_session": 2}'], "line 1"),
        ]:  # fmt: skip
            with pytest.raises(FormatError, match=place):
                await import_session(MemoryJournal(), bad_lines)

    asyncio.run(main())


def test_the_dead_time_of_a_process_is_not_the_runs():
    toolbox = Toolbox()
    now = [1000.0]
    journal = WatchedJournal(lambda record: None)
    agent = Agent(by_conversation([call("look"), "ok"]), toolbox.tools, journal=journal, clock=lambda: now[0])

    async def main():
        run = agent.start("go")
        async with aclosing(run.states()) as states:
            async for _ in states:
                break
        now[0] += 5000
        await agent.resume(run.run_id)
        return await load_state(journal, run.run_id)

    state = asyncio.run(main())
    assert state.time - state.started_at < 1


def test_a_run_that_is_resumed_by_its_id_goes_on_for_the_same_user():
    toolbox = Toolbox()
    journal = WatchedJournal()
    turns = [call("add_line"), ECHO]
    agent = Agent(by_conversation(turns), toolbox.tools, journal=journal)

    async def main():
        waiting = await agent.run("go", principal="ann")
        await agent.resume(waiting.run_id, {waiting.waiting[0]: True})

    asyncio.run(main())
    assert {record.principal for record in journal.records} == {"ann"}
