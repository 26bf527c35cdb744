"""Who says yes, when, and what the model hears of a no."""

import asyncio

import pytest
from agent_helpers import DIALECTS, TOOLS, WatchedJournal, add, an_agent, assert_pairs, calling, play, texts

from toolspeak import Agent, Approval, ConfigurationError, Effects, Rule, RunContext, RunError, tool
from toolspeak.agent import fold
from toolspeak.data.events import ApprovalDecided, ApprovalRequested, RunPaused, RunResumed, ToolStarted
from toolspeak.execute import Decision, StandingRules
from toolspeak.providers.scripted_provider import ScriptedProvider

TWO_NOTES = calling("cogency-json", ("note", {"path": "x"}), ("add", {"a": 1, "b": 2}), ("note", {"path": "y"}))


class Case:
    """A run of a note, a sum and a note that pauses, and is gone on with."""

    def __init__(self, turns=(TWO_NOTES, "ok"), **options):
        self.ran = []

        @tool(effects=lambda path: Effects(writes={f"note:{path}"}))
        def note(path: str) -> str:
            "Writes a note."
            self.ran.append(path)
            return f"wrote {path}"

        self.journal, self.provider = WatchedJournal(), ScriptedProvider(turns)
        options.setdefault("approve", None)
        self.agent = an_agent(self.provider, [add, note], journal=self.journal, **options)

    def run(self, *decisions):
        async def main():
            result = await self.agent.run("go")
            for each in decisions:
                result = await self.agent.resume(result, each)
            return result

        return asyncio.run(main())


def test_with_nobody_to_ask_the_run_waits_and_nothing_is_executed():
    case = Case()
    result = case.run()
    assert (result.status, result.answer) == ("awaiting_approval", "")
    assert result.waiting == ("call_1_0", "call_1_2")
    assert case.ran == []
    assert case.journal.all(ToolStarted) == case.journal.results() == []
    assert [event.call_id for event in case.journal.all(ApprovalRequested)] == ["call_1_0", "call_1_2"]
    assert all("writes note:" in event.reason for event in case.journal.all(ApprovalRequested))
    assert case.journal.events[-1] == RunPaused("awaiting_approval", ("call_1_0", "call_1_2"))


def test_a_yes_runs_the_batch_in_the_same_run():
    case = Case()
    result = case.run({"call_1_0": True, "call_1_2": True})
    assert (result.status, result.answer, case.ran) == ("answered", "ok", ["x", "y"])
    assert result.waiting == ()
    assert fold(case.journal.records) == result.state
    assert case.journal.kinds.count("RunStarted") == 1
    decisions = case.journal.all(ApprovalDecided)
    assert [(event.approved, event.by) for event in decisions] == [(True, "caller"), (True, "caller")]
    assert len(case.journal.all(RunResumed)) == 1
    assert_pairs(result.messages)


def test_a_no_with_its_reason_reaches_the_model():
    case = Case()
    result = case.run({"call_1_0": False, "call_1_2": Decision(False, "y is not yours", by="Ann")})
    assert (result.answer, case.ran) == ("ok", [])
    assert [one.code for one in result.messages[2].results] == ["rejected", None, "rejected"]
    assert "y is not yours" in texts(case.provider.requests[1])[-1]
    question, decision = case.journal.all(ApprovalRequested)[1], case.journal.all(ApprovalDecided)[1]
    assert decision == ApprovalDecided("call_1_2", False, "y is not yours", "Ann", digest=question.digest)


def test_a_part_of_the_decisions_pauses_again():
    case = Case()
    result = case.run({"call_1_2": True})
    assert (result.status, result.waiting, case.ran) == ("awaiting_approval", ("call_1_0",), [])
    assert fold(case.journal.records) == result.state

    async def go_on():
        return await case.agent.resume(result, {"call_1_0": Decision(False, "no")})

    result = asyncio.run(go_on())
    assert (result.answer, case.ran) == ("ok", ["y"])
    assert_pairs(result.messages)


def test_resuming_what_does_not_wait_or_an_unknown_call_is_refused():
    case = Case()
    paused_run = case.run()
    with pytest.raises(RunError, match=r"no call call_9_9 waits for approval; these do: call_1_0, call_1_2"):
        asyncio.run(case.agent.resume(paused_run, {"call_9_9": True}))
    result = Case().run({"call_1_0": True, "call_1_2": True})
    with pytest.raises(RunError, match="is answered; only a run that awaits approval"):
        asyncio.run(case.agent.resume(result, {}))
    assert case.ran == []


def test_several_batches_may_wait_one_after_the_other():
    turns = [calling("cogency-json", ("note", {"path": name})) for name in "ab"] + ["ok"]
    case = Case(turns)
    result = case.run({"call_1_0": True}, {"call_2_0": True})
    assert (result.answer, case.ran) == ("ok", ["a", "b"])
    assert fold(case.journal.records) == result.state


def test_memory_and_usage_go_on_after_a_pause():
    memories = []

    @tool
    def remember(word: str, ctx: RunContext) -> str:
        "Remembers."
        ctx.memory[word] = ctx.deps
        memories.append(dict(ctx.memory))
        return word

    turns = [calling("cogency-json", ("remember", {"word": name})) for name in "ab"] + ["ok"]
    agent = an_agent(turns, [remember], approve=None)

    async def main():
        first = await agent.run("go", deps=1)
        second = await agent.resume(first, {"call_1_0": True}, deps=2)
        return first, await agent.resume(second, {"call_2_0": True}, deps=3)

    first, result = asyncio.run(main())
    assert memories == [{"a": 2}, {"a": 2, "b": 3}]
    assert result.usage.total > first.usage.total > 0


def test_an_approver_is_asked_in_call_order_one_at_a_time():
    questions, busy = [], []

    async def approve(request):
        assert not busy
        busy.append(1)
        await asyncio.sleep(0)
        busy.clear()
        questions.append((request.call.id, request.call.name, request.call.arguments["path"]))
        return Decision(request.call.arguments["path"] == "y", "only y", by="Ann")

    case = Case(approve=approve)
    result = case.run()
    assert questions == [("call_1_0", "note", "x"), ("call_1_2", "note", "y")]
    assert case.ran == ["y"]
    assert "only y" in texts(case.provider.requests[1])[-1]
    kinds = [kind for kind in case.journal.kinds if kind.startswith("Approval")]
    assert kinds == ["ApprovalRequested", "ApprovalDecided"] * 2
    assert fold(case.journal.records) == result.state


@pytest.mark.parametrize("dialect", DIALECTS)
def test_approving_none_tells_the_model_why_and_reading_needs_nobody(dialect):
    turns = [calling(dialect, ("note", {"path": "x"})), calling(dialect, ("add", {"a": 1, "b": 2})), "ok"]
    result, journal, provider = play(turns, approve="none", dialect=dialect)
    assert "changes are not allowed in this run" in texts(provider.requests[1])[-1]
    assert [one.code for one in journal.results()] == ["rejected", None]
    assert journal.all(ApprovalRequested) == []
    assert result.answer == "ok"
    assert_pairs(result.messages)


def test_an_approver_that_raises_ends_the_run():
    async def approve(request):
        raise LookupError("who?")

    case = Case(approve=approve)
    with pytest.raises(LookupError, match="who"):
        case.run()
    assert case.ran == []


def test_an_approver_that_answers_anything_else_is_no_yes():
    async def approve(request):
        return "yes"

    case = Case(approve=approve)
    with pytest.raises(ConfigurationError, match="answers with a bool, a Decision or Escalate, not str"):
        case.run()
    assert case.ran == []


def test_an_approver_may_answer_with_a_bool():
    async def approve(request):
        return request.call.id != "call_1_0"

    case = Case(approve=approve)
    assert (case.run().answer, case.ran) == ("ok", ["y"])


def test_a_call_that_only_reads_asks_nobody():
    result, journal, _ = play([calling("cogency-json", ("add", {"a": 1, "b": 2})), "3"], TOOLS, approve=None)
    assert result.answer == "3"
    assert journal.all(ApprovalRequested) == []


def test_what_was_said_while_it_waits_is_read_afterwards():
    case = Case()

    async def main():
        paused_run = await case.agent.run("go")
        run = case.agent.reopen(paused_run, {"call_1_0": True, "call_1_2": False})
        run.say("and hurry")
        return await run.finish()

    asyncio.run(main())
    assert texts(case.provider.requests[1])[-1].endswith("and hurry")


def test_the_same_waiting_result_resumes_once_and_its_call_runs_once():
    ran = []

    @tool
    def launch(name: str) -> str:
        "Launches."
        ran.append(name)
        return "away"

    provider = ScriptedProvider([calling("cogency-json", ("launch", {"name": "x"})), "Away.", "Again."])
    agent = Agent(provider, [launch])
    waiting = agent.run_sync("go")
    yes = dict.fromkeys(waiting.waiting, True)
    assert asyncio.run(agent.resume(waiting, yes)).answer == "Away."
    with pytest.raises(RunError, match="another process has continued"):
        asyncio.run(agent.resume(waiting, yes))
    assert ran == ["x"]


@pytest.mark.parametrize("answer", ["no", "n", 1, None])
def test_only_a_bool_or_a_decision_decides(answer):
    provider = ScriptedProvider([calling("cogency-json", ("note", {"path": "a"})), "Done."])
    agent = Agent(provider, TOOLS)
    waiting = agent.run_sync("go")
    with pytest.raises(ConfigurationError, match="True, False or a Decision"):
        asyncio.run(agent.resume(waiting, {waiting.waiting[0]: answer}))


def test_a_waiting_result_says_what_each_call_would_do():
    provider = ScriptedProvider([calling("cogency-json", ("note", {"path": "a"})), "Done."])
    waiting = Agent(provider, TOOLS).run_sync("go")
    (request,) = waiting.requests
    assert (request.call_id, request.reason) == (waiting.waiting[0], "writes note:a")
    assert waiting.reason == ""


def test_a_question_says_what_its_preview_was_made_of():
    @tool(
        effects=Effects(writes={"repo"}), preview=lambda path, text: f"--- {path}\n+++ {path}\n@@ -0,0 +1 @@\n+{text}\n"
    )
    def commit(path: str, text: str, message: str) -> str:
        "Commits."
        return "done"

    @tool(effects=Effects(writes={"repo"}), preview=lambda: None)
    def push(branch: str) -> str:
        "Pushes."
        return "done"

    questions = []

    async def approve(request):
        questions.append((request.preview[:5], request.preview_parameters))
        return Decision(True)

    arguments = {"path": "a", "text": "x", "message": "m"}
    turn = calling("cogency-json", ("commit", arguments), ("push", {"branch": "b"}))
    Agent(ScriptedProvider([turn, "Done."]), [commit, push], approve=approve).run_sync("go")
    assert questions == [("--- a", {"path", "text"}), ("", frozenset())]


def test_why_nobody_was_asked_is_a_record_of_calls_that_need_approval():
    policy = [Rule("approve", "add"), Rule("approve", "note", arguments={"path": "x"}), Rule("reject", "note")]
    result, journal, _ = play([TWO_NOTES, "ok"], approve=Approval(None, policy=policy))
    assert result.status == "answered"
    assert [(fact.call_id, fact.approved, fact.by) for fact in journal.all(ApprovalDecided)] == [
        ("call_1_0", True, "rule")
    ]
    kinds = [type(event) for event in journal.events]
    assert kinds.index(ApprovalDecided) < kinds.index(ToolStarted)
    assert ApprovalRequested not in kinds
    assert fold(journal.records) == result.state


def test_an_approval_that_nobody_was_asked_for_does_not_outlive_its_rule():
    """The process ends between the record that a rule approves a call and the call's start."""

    class EndedError(Exception):
        pass

    def look(record):
        if isinstance(record.event, ToolStarted):
            raise EndedError

    rules = StandingRules()
    rules.add(Rule("approve", "note"), "ann")
    journal = WatchedJournal(look)
    turns = [calling("cogency-json", ("note", {"path": "x"})), "ok"]
    agent = an_agent(ScriptedProvider(turns), journal=journal, approve=Approval(None, rules=rules))
    run = agent.start("go")

    async def main():
        with pytest.raises(EndedError):
            await run.finish()
        assert [fact.by for fact in journal.all(ApprovalDecided)] == ["rule 1"]
        journal.look = lambda record: None
        rules.revoke("1")
        return await agent.resume(run.run_id)

    result = asyncio.run(main())
    assert (result.status, result.waiting) == ("awaiting_approval", ("call_1_0",))
    assert journal.results() == []
