"""The calls of another framework's turn come one by one, and run as one batch."""

import asyncio

import pytest

from toolspeak import Agent, Approval, Decision, Effects, Execution, MemoryJournal, RunContext, tool
from toolspeak.adapters.turn_batches import ApprovalMissing, TurnBatches
from toolspeak.agent import RunInterceptor, fold
from toolspeak.data.events import ModelAnswered, RunFinished, ToolFinished, ToolStarted
from toolspeak.data.messages import ToolCall
from toolspeak.errors import AgentStop, ConfigurationError, RunError
from toolspeak.execute import BatchContext
from toolspeak.testing import ScriptedProvider

WRITE = ToolCall("1", "write", {"path": "a"})
READ_A = ToolCall("2", "read", {"path": "a"})
READ_B = ToolCall("3", "read", {"path": "b"})


class Files:
    """Two tools that note what they do."""

    def __init__(self):
        self.log = []
        self.writing, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()

        @tool(effects=lambda path: Effects(writes={f"file:{path}"}))
        async def write(path: str) -> str:
            self.log.append(f"write {path}")
            self.writing.set()
            await self.may_end.wait()
            self.log.append(f"wrote {path}")
            return path

        @tool(effects=lambda path: Effects(reads={f"file:{path}"}))
        async def read(path: str) -> str:
            self.log.append(f"read {path}")
            self.may_end.set()
            return path

        self.tools = [write, read]


async def turn(batches, calls, expected=None, decisions=(), name="turn"):
    """Calls each in a task of its own, as the frameworks do. Returns results and exceptions."""
    ids = [call.id for call in calls] if expected is None else expected
    answers = dict(decisions)
    runs = [batches.run(call, name, ids, BatchContext("run"), answers.get(call.id)) for call in calls]
    return await asyncio.gather(*runs, return_exceptions=True)


def texts(outcomes):
    return [each if isinstance(each, Exception) else each.text for each in outcomes]


def test_the_effects_decide_the_order_whatever_the_order_of_arrival():
    files = Files()
    files.may_end.clear()  # until the free call has run, which is beside the write
    batches = TurnBatches("theirs", files.tools, approve="all")
    outcomes = asyncio.run(turn(batches, [READ_B, READ_A, WRITE], ["1", "2", "3"]))
    assert texts(outcomes) == ["b", "a", "a"]
    assert files.log == ["write a", "read b", "wrote a", "read a"]


def test_a_call_that_never_comes_is_not_waited_for():
    files = Files()
    outcomes = asyncio.run(turn(TurnBatches("theirs", files.tools), [READ_A], ["1", "2", "3"]))
    assert texts(outcomes) == ["a"]


def test_a_late_call_runs_behind_the_batch_of_its_turn():
    files = Files()
    batches = TurnBatches("theirs", files.tools, approve="all")

    async def late():
        await files.writing.wait()
        return await batches.run(READ_A, "turn", (), BatchContext("run"))

    async def both():
        return await asyncio.gather(batches.run(WRITE, "turn", ["1"], BatchContext("run")), late())

    asyncio.run(both())
    assert files.log == ["write a", "wrote a", "read a"]


def test_two_calls_of_one_id_both_run():
    files = Files()
    calls = [READ_A, ToolCall(READ_A.id, "read", {"path": "b"})]
    assert texts(asyncio.run(turn(TurnBatches("theirs", files.tools), calls))) == ["a", "b"]
    assert files.log == ["read a", "read b"]


def test_without_an_answer_a_call_waits_and_so_do_those_that_must_run_behind_it():
    files = Files()
    write, behind, free = asyncio.run(turn(TurnBatches("theirs", files.tools), [WRITE, READ_A, READ_B]))
    assert isinstance(write, ApprovalMissing)
    assert (write.reason, write.waits_for) == ("writes file:a", ())
    assert isinstance(behind, ApprovalMissing)
    assert (behind.request, behind.waits_for) == (None, ("1",))
    assert free.text == "b"
    assert files.log == ["read b"]


@pytest.mark.parametrize(("schedule", "held_back"), [("sequential", ["1", "3", "2"]), ("parallel", ["1"])])
def test_the_schedule_says_what_waits_with_a_call(schedule, held_back):
    calls = [WRITE, READ_B, READ_A]
    batches = TurnBatches("theirs", Files().tools, execution=Execution(schedule=schedule))
    outcomes = asyncio.run(turn(batches, calls))
    pairs = zip(calls, outcomes, strict=True)
    assert [call.id for call, outcome in pairs if isinstance(outcome, ApprovalMissing)] == held_back


def test_a_run_that_a_tool_starts_and_that_waits_is_an_error_that_says_so():
    files = Files()
    inner = ScriptedProvider(['<execute>[{"name": "write", "args": {"path": "a"}}]</execute>', "done"])

    @tool(read_only=True)
    async def delegate(ctx: RunContext[None]) -> str:
        """Has another agent do it."""
        return (await Agent(inner, files.tools, journal=MemoryJournal()).run("write", parent_run_id="run")).answer

    outcomes = asyncio.run(turn(TurnBatches("theirs", [delegate]), [ToolCall("1", "delegate", {})]))
    assert [type(each) for each in outcomes] == [RunError]
    assert "approve=" in str(outcomes[0])


def test_a_late_call_does_not_pass_one_that_waits():
    files = Files()
    batches = TurnBatches("theirs", files.tools)

    async def both():
        (write,) = await turn(batches, [WRITE], ["1"])
        (late,) = await turn(batches, [READ_A], ["1", "2"])
        approvals = {each: Decision(True, by="theirs") for each in ("1", "2")}
        return write, late, await turn(batches, [WRITE, READ_A], decisions=approvals)

    write, late, results = asyncio.run(both())
    assert (type(write), late.waits_for) == (ApprovalMissing, ("1",))
    assert texts(results) == ["a", "a"]
    assert files.log == ["write a", "wrote a", "read a"]


def test_an_answer_of_the_framework_lets_the_call_run():
    files = Files()
    decisions = {"1": Decision(True, by="theirs")}
    outcomes = asyncio.run(turn(TurnBatches("theirs", files.tools), [WRITE, READ_A], decisions=decisions))
    assert texts(outcomes) == ["a", "a"]
    assert files.log == ["write a", "wrote a", "read a"]


def test_a_refusal_of_the_framework_is_a_result():
    files = Files()
    decisions = {each: Decision(False, "not today", by="theirs") for each in ("1", "2")}
    outcomes = asyncio.run(turn(TurnBatches("theirs", files.tools), [WRITE, READ_A], decisions=decisions))
    assert [each.code for each in outcomes] == ["rejected", "rejected"]
    assert "not today" in outcomes[0].text
    assert files.log == []


def test_the_approver_is_asked_once_and_the_framework_about_the_rest():
    files, paths = Files(), []

    async def approve(request):
        paths.append(request.call.arguments["path"])
        return True

    rules = Approval(approve, policy=lambda request: None)
    outcomes = asyncio.run(turn(TurnBatches("theirs", files.tools, approve=rules), [WRITE, READ_A]))
    assert texts(outcomes) == ["a", "a"]
    assert paths == ["a"]


def test_a_stop_is_raised_to_every_call_of_the_batch():
    @tool(read_only=True)
    def stop() -> str:
        raise AgentStop("enough")

    files = Files()
    calls = [ToolCall("1", "stop", {}), READ_A]
    outcomes = asyncio.run(turn(TurnBatches("theirs", [stop, *files.tools]), calls))
    assert [type(each) for each in outcomes] == [AgentStop, AgentStop]


def test_when_all_calls_are_cancelled_the_tools_have_ended():
    endings = []

    @tool(read_only=True)
    async def wait() -> str:
        start.set()
        try:
            await asyncio.Event().wait()
        finally:
            endings.append("wait")

    async def cancel():
        task = asyncio.create_task(batches.run(ToolCall("1", "wait", {}), "turn", ["1"], BatchContext("run")))
        await start.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return list(endings)

    start, batches = asyncio.Event(), TurnBatches("theirs", [wait], journal=(journal := MemoryJournal()))
    assert asyncio.run(cancel()) == ["wait"]
    (run,) = asyncio.run(journal.runs())
    assert run.status == "no_answer"


def test_the_journal_has_a_run_for_each_turn():
    files, journal = Files(), MemoryJournal()
    asyncio.run(turn(TurnBatches("theirs", files.tools, journal=journal), [WRITE, READ_A, READ_B]))
    (run,) = asyncio.run(journal.runs())
    assert (run.status, run.title, run.owner) == ("no_answer", "theirs: run run, step 0", None)
    records = asyncio.run(journal.read(run.run_id))
    events = [record.event for record in records]
    (answer,) = [event for event in events if isinstance(event, ModelAnswered)]
    assert answer.message.calls == (WRITE, READ_A, READ_B)
    assert [event.call_id for event in events if isinstance(event, ToolStarted)] == ["3"]
    results = {event.call_id: event.result.text for event in events if isinstance(event, ToolFinished)}
    assert results == {
        "1": "not run yet: writes file:a",
        "2": "not run yet: it must run after 1, which a person has not decided yet",
        "3": "b",
    }
    assert isinstance(events[-1], RunFinished)
    assert fold(records).pending.calls == ()


def test_options_that_do_not_fit_are_refused():
    class Wrap(RunInterceptor):
        pass

    with pytest.raises(ConfigurationError, match="unknown option: aprove; known: approve"):
        TurnBatches("theirs", [], aprove="all")
    with pytest.raises(ConfigurationError, match="Wrap: pass only interceptors of calls"):
        TurnBatches("theirs", [], interceptors=[Wrap()])
    with pytest.raises(ConfigurationError, match="theirs has none"):
        TurnBatches("theirs", [], execution=Execution(schedule="native"))
