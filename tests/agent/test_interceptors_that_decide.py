"""Interceptors that decide about the approval of calls (`HookContext.decide`)."""

import asyncio

import pytest
from agent_helpers import play

from toolspeak import Approval, Decision, Effects, Interceptor, MemoryJournal, Rule, tool
from toolspeak.agent import Agent, fold
from toolspeak.data.events import ApprovalDecided, ApprovalRequested, InterceptorFailed, ToolFinished, ToolStarted
from toolspeak.execute import Escalate
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

ALLOW = Decision(True, "the linter likes it", by="hook lint")
DENY = Decision(False, "not on Fridays", by="hook lint")
ASK = Escalate("it is Friday")


@tool(effects=Effects(writes={"file:/a"}))
def save(text: str = "") -> str:
    """Saves."""
    return f"saved {text}"


@tool(read_only=True)
def look() -> str:
    """Looks."""
    return "seen"


def calling(name):
    return ScriptedTurn("", calls=[ScriptedCall(name)])


class Decides(Interceptor):
    def __init__(self, *decisions):
        self.decisions = [*decisions]

    async def before(self, call, context):
        context.decide(self.decisions.pop(0) if len(self.decisions) > 1 else self.decisions[0])
        return call


def outcome_of(decision, approve=None, call="save", **options):
    """The result of a call, the decisions about it, and the run."""
    result, journal, _ = play(
        [calling(call), "Done."], [save, look], interceptors=[Decides(decision)], approve=approve, **options
    )
    assert fold(journal.records) == result.state
    events = [record.event for record in journal.records]
    results = [each.result for each in events if isinstance(each, ToolFinished)]
    return results[0] if results else None, [each for each in events if isinstance(each, ApprovalDecided)], result


def test_an_approval_stands_for_a_persons_and_is_recorded_before_the_call_starts():
    result, journal, _ = play([calling("save"), "Done."], [save], interceptors=[Decides(ALLOW)])
    assert result.status == "answered"
    kinds = [type(record.event) for record in journal.records]
    assert ApprovalRequested not in kinds
    assert kinds.index(ApprovalDecided) < kinds.index(ToolStarted)
    (fact,) = [record.event for record in journal.records if isinstance(record.event, ApprovalDecided)]
    assert (fact.approved, fact.by, fact.reason) == (True, "hook lint", "the linter likes it")
    assert fact.digest


def test_a_call_that_needs_no_approval_has_no_record_of_one():
    result, decisions, _ = outcome_of(ALLOW, call="look")
    assert result.text == "seen"
    assert decisions == []


@pytest.mark.parametrize("approve", [None, "all", "none"])
@pytest.mark.parametrize("call", ["save", "look"])
def test_a_refusal_stands_against_everybody(approve, call):
    result, decisions, run = outcome_of(DENY, approve, call)
    assert run.status == "answered"
    assert (result.code, result.text) == ("rejected", "the call was rejected: not on Fridays")
    assert [(each.approved, each.by) for each in decisions] == [(False, "hook lint")]


@pytest.mark.parametrize("call", ["save", "look"])
def test_a_question_goes_to_a_person_whatever_the_rules_say(call):
    reasons = []

    async def person(request):
        reasons.append(request.reason)
        return Decision(True, by="person")

    rules = Approval(person, policy=[Rule("approve", tool="save")])
    result, decisions, _ = outcome_of(ASK, rules, call)
    assert result.status == "success"
    assert reasons[0].startswith("it is Friday")
    assert [each.by for each in decisions] == ["person"]


def test_a_question_without_a_person_pauses_or_is_refused():
    _, _, run = outcome_of(ASK, None, "look")
    assert run.status == "awaiting_approval"
    result, _, _ = outcome_of(ASK, "all", "look")
    assert result.text == "the call was rejected: it is Friday; there is no one to ask"


@pytest.mark.parametrize(("action", "expected"), [("reject", "rejected"), ("escalate", None), ("approve", None)])
def test_an_approval_does_not_stand_against_a_refusal_of_the_policy(action, expected):
    result, _, run = outcome_of(ALLOW, Approval(None, policy=[Rule(action, tool="save")]))
    assert run.status == "answered"
    assert result.code == expected


def test_an_approval_does_not_stand_against_a_question_for_a_person():
    policy = Approval(None, policy=lambda request: Escalate("look twice", person=True))
    _, _, run = outcome_of(ALLOW, policy)
    assert run.status == "awaiting_approval"


@pytest.mark.parametrize(("later", "expected"), [(ASK, "saved "), (DENY, "the call was rejected: not on Fridays")])
def test_a_persons_answer_stands_but_against_a_refusal(later, expected):
    journal = MemoryJournal()
    agent = Agent(
        ScriptedProvider([calling("save"), "Done."]), [save], interceptors=[Decides(ASK, later)], journal=journal
    )
    pause = agent.run_sync("x")
    assert pause.status == "awaiting_approval"
    (request,) = pause.requests
    result = asyncio.run(agent.resume(pause, {request.call_id: True}))
    assert result.status == "answered"
    assert result.steps[0].executions[0].result.text == expected


def test_it_decides_only_before_a_call():
    class Late(Interceptor):
        async def after(self, call, result, context):
            context.decide(ALLOW)
            return result

    _, journal, _ = play([calling("look"), "Done."], [look], interceptors=[Late()])
    (failure,) = [record.event for record in journal.records if isinstance(record.event, InterceptorFailed)]
    assert "only the `before` of a call can decide about its approval" in failure.error
