"""Runs that tools start, and that wait for a yes: their parents wait with them, ask their questions, and go on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from agent_helpers import WatchedJournal

from toolspeak import Agent, Decision, Effects, RunContext, RunError, Session, tool
from toolspeak.agent import fold
from toolspeak.agent.storage.exports import export_session, import_session
from toolspeak.agent.storage.runs import close_run, load_state
from toolspeak.data.events import CallSuspended, SubRunUsed
from toolspeak.errors import SubRunPaused
from toolspeak.execute import ApprovalRequest, Escalate
from toolspeak.journal import MemoryJournal, SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


def native(*calls, text=""):
    return ScriptedTurn(text, calls=[ScriptedCall(name, arguments) for name, arguments in calls])


def the_name(messages):
    """What the task of a clerk is about: the last word of its first message."""
    return messages[0].text.split()[-1].rstrip(".")


CLERK = [lambda messages: native(("put", {"name": the_name(messages)})), lambda messages: f"{the_name(messages)} done."]


class Family:
    """A boss whose tools give work to a clerk, who has the tool `put`; `log` is what happened."""

    def __init__(self, *boss, clerk=CLERK, journal=None, clerk_options=None, **options):
        self.log = log = []

        @tool(effects=lambda name: Effects(writes={f"file:{name}"}), preview=lambda name: f"put {name}")
        def put(name: str) -> str:
            "Puts."
            log.append(name)
            return f"{name} is put"

        if not isinstance(clerk, Agent):
            self.clerk = ScriptedProvider(clerk, follow=True, tools=True)
            clerk = Agent(self.clerk, [put], name="clerk", **(clerk_options or {}))
        self.put = put

        @tool(read_only=True)
        async def ask(question: str, ctx: RunContext) -> str:
            "Asks the clerk."
            answer = (await clerk.run(question, parent_run_id=ctx.state.run_id)).answer
            log.append(f"answer {answer}")
            return answer

        @tool(read_only=True)
        def ask_sync(question: str, ctx: RunContext) -> str:
            "Asks the clerk."
            return clerk.run_sync(question, parent_run_id=ctx.state.run_id).answer

        @tool(read_only=True)
        async def both(one: str, two: str, ctx: RunContext) -> str:
            "Asks the clerk twice at once."
            runs = (clerk.run(question, parent_run_id=ctx.state.run_id) for question in (one, two))
            return " and ".join(run.answer for run in await asyncio.gather(*runs))

        @tool(read_only=True)
        async def careless(question: str, ctx: RunContext) -> str:
            "Asks the clerk, and takes whatever comes."
            try:
                return (await clerk.run(question, parent_run_id=ctx.state.run_id)).answer
            except Exception:  # noqa: BLE001 - as careless code does
                return "something went wrong"

        @tool(effects=Effects(writes={"file:own"}))
        async def own() -> str:
            "Writes."
            log.append("own")
            return "own"

        self.journal = WatchedJournal() if journal is None else journal
        self.tools = [ask, ask_sync, both, careless, own]
        self.provider = ScriptedProvider(boss, follow=True, tools=True)
        self.boss = Agent(self.provider, self.tools, name="boss", journal=self.journal, **options)

    @property
    def puts(self):
        return [one for one in self.log if len(one) == 1]

    def clerks(self):
        """The states of the clerk's runs."""

        async def read():
            infos = [info for info in await self.journal.runs() if info.agent == "clerk"]
            return [await load_state(self.journal, info.run_id) for info in infos]

        return asyncio.run(read())


ASKING = native(("ask", {"question": "Put a."}))


def resume(family, waiting, **options):
    """Goes on with a run, a yes to every question unless said otherwise."""
    return asyncio.run(family.boss.resume(waiting, options.get("decisions", dict.fromkeys(waiting.waiting, True))))


@pytest.mark.parametrize("how", ["ask", "ask_sync", "careless"])
def test_the_parent_waits_with_the_questions_of_the_run_it_started(how):
    family = Family(native((how, {"question": "Put a."})), "All is put.")
    waiting = family.boss.run_sync("Go.")
    (request,) = waiting.requests
    assert (waiting.status, request.call_id.partition("/")[2]) == ("awaiting_approval", "call_1_0")
    assert (request.call.name, request.call.arguments, request.preview) == ("put", {"name": "a"}, "put a")
    assert request.reason == "clerk: writes file:a"
    assert family.log == []  # nothing was made of an answer that is not there
    result = resume(family, waiting)
    assert (result.status, result.answer) == ("answered", "All is put.")
    assert family.puts == ["a"]
    assert result.messages[2].results[0].text == "a done."
    assert len(family.clerks()) == 1
    assert fold(record for record in family.journal.records if record.run_id == result.run_id) == result.state


def test_a_rejection_goes_to_the_run_that_asked():
    family = Family(ASKING, "Nothing is put.", clerk=[CLERK[0], "I may not."])
    waiting = family.boss.run_sync("Go.")
    result = resume(family, waiting, decisions={waiting.waiting[0]: Decision(False, "not today")})
    assert (result.answer, result.messages[2].results[0].text) == ("Nothing is put.", "I may not.")
    assert family.puts == []
    assert family.clerks()[0].messages[2].results[0].text == "the call was rejected: not today"


def test_a_decision_that_ends_the_run_ends_the_family():
    family = Family(ASKING, "never asked")
    waiting = family.boss.run_sync("Go.")
    result = resume(family, waiting, decisions={waiting.waiting[0]: Decision(False, "enough", ends_run=True)})
    assert (result.status, result.answer, len(family.provider.requests)) == ("no_answer", "", 1)
    assert (family.puts, family.clerks()[0].status) == ([], "no_answer")


def test_calls_of_the_parent_are_asked_about_before_anything_runs():
    family = Family(native(("own", {}), ("ask", {"question": "Put a."})), "Done.")
    waiting = family.boss.run_sync("Go.")
    assert (waiting.waiting, family.log) == (("call_1_0",), [])
    waiting = resume(family, waiting)
    assert (len(waiting.waiting), family.log) == (1, ["own"])
    assert (resume(family, waiting).answer, family.log) == ("Done.", ["own", "a", "answer a done."])


@pytest.mark.parametrize(
    "calls",
    [
        [("ask", {"question": "Put a."}), ("ask", {"question": "Put b."})],
        [("both", {"one": "Put a.", "two": "Put b."})],
    ],
)
def test_two_that_wait_at_once_are_one_list_and_are_answered_one_by_one(calls):
    family = Family(native(*calls), "Both.")
    waiting = family.boss.run_sync("Go.")
    assert sorted(request.call.arguments["name"] for request in waiting.requests) == ["a", "b"]
    of = {request.call.arguments["name"]: request.call_id for request in waiting.requests}
    again = resume(family, waiting, decisions={of["b"]: True})
    assert (again.status, again.waiting, family.puts) == ("awaiting_approval", (of["a"],), ["b"])
    result = resume(family, again)
    assert (result.answer, family.puts, len(family.clerks())) == ("Both.", ["b", "a"], 2)
    text = " and ".join(one.text for one in result.messages[2].results)
    assert text == "a done. and b done."


def test_the_same_task_twice_is_two_runs():
    family = Family(native(("both", {"one": "Put a.", "two": "Put a."})), "Both.")
    waiting = family.boss.run_sync("Go.")
    assert len(set(waiting.waiting)) == 2
    assert (resume(family, waiting).answer, family.puts, len(family.clerks())) == ("Both.", ["a", "a"], 2)


def test_grandchildren_ask_through_their_parents():
    inner = Family(ASKING, "The clerk did it.")
    manager = Agent(inner.provider, inner.tools, name="manager")
    family = Family(ASKING, "Done.", clerk=manager)
    waiting = family.boss.run_sync("Go.")
    (request,) = waiting.requests
    assert (request.reason, request.call_id.count("/")) == ("manager: clerk: writes file:a", 2)
    assert {info.agent for info in asyncio.run(family.journal.runs())} == {"boss", "manager", "clerk"}
    result = resume(family, waiting)
    assert (result.answer, inner.puts) == ("Done.", ["a"])
    assert result.messages[2].results[0].text == "The clerk did it."


def test_the_parents_approver_answers_for_the_family_outside_of_the_calls_time():
    questions = []

    async def person(request: ApprovalRequest):
        questions.append((request.call.name, request.reason, request.preview))
        return Decision(True, by="ann")

    family = Family(ASKING, "Done.", approve=person)
    assert (family.boss.run_sync("Go.").answer, family.puts) == ("Done.", ["a"])
    assert questions == [("put", "clerk: writes file:a", "put a")]
    assert [state.approvals.decisions[0].by for state in family.clerks() if state.approvals.decisions] in ([], ["ann"])


def test_standing_answers_and_an_approver_of_its_own():
    family = Family(ASKING, "Done.", approve="all")
    assert (family.boss.run_sync("Go.").answer, family.puts) == ("Done.", ["a"])
    family = Family(ASKING, "Done.", approve="none")
    result = family.boss.run_sync("Go.")
    assert (result.answer, family.puts, result.messages[2].results[0].text) == ("Done.", [], "a done.")
    family = Family(ASKING, "Done.", clerk_options={"approve": "none"}, approve="all")
    assert (family.boss.run_sync("Go.").answer, family.puts) == ("Done.", [])

    async def unsure(request: ApprovalRequest):
        return Escalate()

    family = Family(ASKING, "Done.", approve=unsure)
    waiting = family.boss.run_sync("Go.")
    assert (waiting.status, resume(family, waiting, decisions={waiting.waiting[0]: True}).answer) == (
        "awaiting_approval",
        "Done.",
    )


class Panel:
    async def together(self, requests):
        return [Decision(request.call.arguments["name"] == "b", by="panel") for request in requests]


def test_a_batch_approver_is_shown_the_family_at_once():
    family = Family(native(("ask", {"question": "Put a."}), ("ask", {"question": "Put b."})), "Done.", approve=Panel())
    assert (family.boss.run_sync("Go.").answer, family.puts) == ("Done.", ["b"])


def test_a_session_waits_and_goes_on():
    family = Family(ASKING, "Done.", "Nothing more.")

    async def scenario():
        session = Session(family.boss)
        waiting = await session.run("Go.")
        with pytest.raises(RunError, match="waits for a decision about put"):
            await session.run("And now?")
        await family.boss.resume(waiting.run_id, {waiting.waiting[0]: True})
        return [message.text for message in await session.messages()], (await session.run("And now?")).answer

    messages, answer = asyncio.run(scenario())
    assert (messages[-1], answer, family.puts) == ("Done.", "Nothing more.", ["a"])


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_an_exported_session_has_the_runs_it_waits_for(store, tmp_path: Path):
    def journal(name):
        return MemoryJournal() if store == "memory" else SqliteJournal(tmp_path / name)

    async def scenario():
        first, second = journal("one.db"), journal("two.db")
        family = Family(ASKING, "Done.", journal=first)
        waiting = await Session(family.boss).run("Go.")
        lines = [line async for line in export_session(first, (await first.sessions())[0].session_id)]
        await import_session(second, lines)
        there = Family(ASKING, "Done.", journal=second)
        result = await there.boss.resume(waiting.run_id, {waiting.waiting[0]: True})
        (session,) = await second.sessions()
        run_counts = len(await second.runs(session_id=session.session_id)), len(await second.runs())
        counts = *run_counts, len(there.provider.requests), len(there.clerk.requests)
        for each in (first, second):
            await each.aclose()
        return result.answer, there.puts, counts

    assert asyncio.run(scenario()) == ("Done.", ["a"], (1, 2, 1, 1))


def test_closing_a_run_closes_the_runs_it_waits_for():
    family = Family(ASKING, "Done.")
    waiting = family.boss.run_sync("Go.")
    asyncio.run(close_run(family.journal, waiting.run_id))
    assert [(state.status, state.reason) for state in family.clerks()] == [("no_answer", "closed")]


def test_a_run_that_is_suspended_by_itself_suspends_its_parent():
    entry = asyncio.Event()

    class Slow(ScriptedProvider):
        async def stream(self, request):
            if not entry.is_set():
                entry.set()
                (info,) = [info for info in await family.journal.runs() if info.agent == "clerk"]
                running[info.run_id].suspend()
            async for delta in super().stream(request):
                yield delta

    running = {}
    family = Family()
    clerk = Agent(Slow(CLERK, follow=True, tools=True), [family.put], name="clerk", approve="all")

    @tool(read_only=True)
    async def ask(question: str, ctx: RunContext) -> str:
        "Asks the clerk."
        run = clerk.start(question, parent_run_id=ctx.state.run_id)
        running[run.run_id] = run
        return (await clerk.finish(run)).answer

    provider = ScriptedProvider([ASKING, "Done."], follow=True, tools=True)
    boss = Agent(provider, [ask], journal=family.journal, name="boss")
    waiting = boss.run_sync("Go.")
    assert (waiting.status, family.puts) == ("suspended", [])
    assert (asyncio.run(boss.resume(waiting)).answer, family.puts) == ("Done.", ["a"])


def test_the_run_as_text_has_the_runs_it_waits_for():
    family = Family(ASKING, "Done.", journal=MemoryJournal())

    async def one():
        agent = Agent(family.provider, family.tools, name="boss")
        return await (await agent.run("Go.")).dumps()

    async def other(text):
        agent = Agent(family.provider, family.tools, name="boss")
        waiting = await agent.loads(text)
        return await agent.resume(waiting, dict.fromkeys(waiting.waiting, True))

    result = asyncio.run(other(asyncio.run(one())))
    assert (result.answer, family.puts) == ("Done.", ["a"])


def test_a_tool_may_answer_for_the_run_it_started():
    family = Family(ASKING, "Done.")
    clerk = Agent(ScriptedProvider(CLERK, follow=True, tools=True), [family.put], name="clerk", journal=MemoryJournal())

    @tool(read_only=True)
    async def ask(question: str, ctx: RunContext) -> str:
        "Asks the clerk."
        try:
            return (await clerk.run(question, parent_run_id=ctx.state.run_id)).answer
        except SubRunPaused as pause:
            waiting = pause.result
            return (await clerk.resume(waiting, dict.fromkeys(waiting.waiting, True))).answer

    result = Agent(family.provider, [ask]).run_sync("Go.")
    assert (result.answer, family.puts) == ("Done.", ["a"])


def test_a_run_that_nothing_keeps_fails_its_call_and_says_what_to_do(tmp_path: Path):
    family = Family()
    clerk = Agent(ScriptedProvider(CLERK, follow=True, tools=True), [family.put], name="clerk")

    @tool(read_only=True)
    def ask(question: str, ctx: RunContext) -> str:
        "Asks the clerk, in an event loop of its own, which cannot use the parent's journal."
        return asyncio.run(clerk.run(question, parent_run_id=ctx.state.run_id)).answer

    async def scenario():
        journal = SqliteJournal(tmp_path / "work.db")
        boss = Agent(ScriptedProvider([ASKING, "Done."], follow=True, tools=True), [ask], journal=journal)
        try:
            return await boss.run("Go.")
        finally:
            await journal.aclose()

    result = asyncio.run(scenario())
    assert "give that agent" in result.messages[2].results[0].text


PROGRAM = """
import asyncio, sys
sys.path.insert(0, {folder!r})
from test_sub_run_approvals import ASKING, Family
from toolspeak.journal import SqliteJournal

async def main(how, run_id=None):
    journal = SqliteJournal("work.db")
    family = Family(ASKING, "Done.", journal=journal)
    if how == "pause":
        result = await family.boss.run("Go.")
        print(result.run_id, *result.waiting)
    else:
        state = await family.boss.resume(run_id)  # asks again
        result = await family.boss.resume(run_id, dict.fromkeys(state.waiting, how == "yes"))
        print(result.status, result.answer, family.puts, len(await journal.runs()))
    await journal.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.over_a_second
@pytest.mark.parametrize(("how", "puts"), [("yes", "['a']"), ("no", "[]")])
def test_one_process_pauses_and_another_goes_on(tmp_path: Path, how: str, puts: str):
    program = PROGRAM.format(folder=str(Path(__file__).parent))

    def run(*arguments):
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout

    run_id, waiting = run("pause").split()
    assert waiting.partition("/")[2] == "call_1_0"
    assert run(how, run_id) == f"answered Done. {puts} 2\n"


def test_a_run_whose_process_died_is_found_again_by_the_call_that_started_it():
    family = Family(ASKING, "Done.", clerk_options={"approve": "all"})

    class ProcessDeath(BaseException):
        pass

    def look(record):
        if record.agent == "clerk" and type(record.event).__name__ == "ModelAsked" and record.step == 2:
            family.journal.look = lambda record: None
            raise ProcessDeath

    family.journal.look = look
    with pytest.raises(ProcessDeath):
        family.boss.run_sync("Go.")
    (info,) = [info for info in asyncio.run(family.journal.runs()) if info.agent == "boss"]
    result = asyncio.run(family.boss.resume(info.run_id))
    assert (result.answer, family.puts, len(family.clerks())) == ("Done.", ["a"], 1)


def test_what_the_family_used_is_counted_once_over_a_pause():
    family = Family(ASKING, "Done.")
    waiting = family.boss.run_sync("Go.")
    result = resume(family, waiting)
    of_boss = [record.event for record in family.journal.records if record.run_id == result.run_id]
    assert [type(event) for event in of_boss].count(CallSuspended) == 1
    tokens = [event.usage.total for event in of_boss if isinstance(event, SubRunUsed)]
    assert sum(tokens) == family.clerks()[0].totals.tokens
