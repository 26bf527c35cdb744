"""Sub-runs: runs that tools of other runs start. The parent run counts what they use, and asks their questions."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from toolspeak.agent.recording.recorder import ACTIVE_RUNS, Recorder
from toolspeak.agent.run_inputs import ended_waits
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.state import RunState
from toolspeak.data.codec import dumps
from toolspeak.data.events import CallSuspended, RunPaused
from toolspeak.data.messages import JSON, Message
from toolspeak.data.run_values import Limits
from toolspeak.data.tools import URLS, with_sources
from toolspeak.data.values import evolve
from toolspeak.execute import ApprovalRequest, BatchApprover, BatchPaused, Decision, Escalate, Pause, StandingRules
from toolspeak.execute.approval.after_web import urls_of_others, usual_after_web
from toolspeak.execute.approval.approvers import (
    StandingApprover,
    ask,
    ask_together,
    decision_fact,
    decision_of,
    question_fact,
)
from toolspeak.execute.approval.evaluator import PolicyEvaluator, needs_person_reason, unapproved_repair
from toolspeak.execute.approval.policy_rules import resolve_policy
from toolspeak.execute.sub_runs import CURRENT_SUB_RUNS, SubRun, SubRuns
from toolspeak.journal.base import Journal
from toolspeak.journal.memory_journal import MemoryJournal


def parent_call(parent_run_id: str | None) -> SubRuns | None:
    """The call whose function runs here, if it is a call of this run."""
    call = CURRENT_SUB_RUNS.get()
    return call if call is not None and parent_run_id is not None and call.run_id == parent_run_id else None


def sub_run_id(call: SubRuns, agent: str, messages: Sequence[Message]) -> str:
    """The id of a run that a call's function starts. It is the same when the function is entered again, so that the run
    continues and is not started anew. A second run with the same task gets another id."""
    task = hashlib.sha256("\n".join([agent, *map(dumps, messages)]).encode("utf-8", "surrogatepass")).hexdigest()
    number = call.starts[task]
    call.starts[task] += 1
    return hashlib.sha256(f"{call.run_id}\n{call.call_id}\n{task}\n{number}".encode()).hexdigest()[:32]


def within_parent(limits: Limits, parent_run_id: str, *, priced: bool) -> Limits:
    """Returns a sub-run's limits: of tokens and cost no more than what the parent has left, if it runs in this process.

    `priced`: whether the cost of the sub-run can be known; otherwise the parent's limit in USD counts it as nothing.
    """
    parent = ACTIVE_RUNS.get(parent_run_id)
    state = None if parent is None else parent.recorder.current
    if state is None:
        return limits
    tokens, cost = limits.tokens, limits.cost
    if state.limits.tokens is not None:
        tokens_left = max(0, state.limits.tokens - state.totals.tokens)
        tokens = tokens_left if tokens is None else min(tokens, tokens_left)
    if state.limits.cost is not None and priced:
        cost_left = max(0.0, state.limits.cost - state.totals.known_cost)
        cost = cost_left if cost is None else min(cost, cost_left)
    return limits if (tokens, cost) == (limits.tokens, limits.cost) else evolve(limits, tokens=tokens, cost=cost)


def journal_of_parent(parent_run_id: str | None) -> Journal | None:
    """The parent's journal, if a run in this event loop can be recorded there."""
    parent = ACTIVE_RUNS.get(parent_run_id or "")
    if parent is None:
        return None
    with suppress(RuntimeError):  # there is no event loop yet
        if parent.loop is asyncio.get_running_loop():
            return parent.journal
    return parent.journal if isinstance(parent.journal, MemoryJournal) else None


def web_of_parent(parent_run_id: str | None, messages: Sequence[Message]) -> Mapping[str, JSON]:
    """What RunStarted says of the web, for a run with these messages that a tool starts here: what its parent has read,
    and the URLs of its task that the parent's model did not make up."""
    call = CURRENT_SUB_RUNS.get()
    parents = dict.fromkeys((parent_run_id, None if call is None else call.run_id))
    states = [ACTIVE_RUNS[each].recorder.current for each in parents if each in ACTIVE_RUNS]
    readers = [state for state in states if state is not None and state.sources]
    if not readers:
        return {}
    sources = {source for state in readers for source in state.sources}
    urls = {url for state in readers for url in urls_of_others(messages, state)}
    return {**with_sources({}, sources), URLS: sorted(urls)}


def decided_by_parent(state: RunState) -> dict[str, Decision]:
    """The decisions of the run's parent about the run's open questions."""
    parent = ACTIVE_RUNS.get(state.parent_run_id or "")
    if parent is None or parent.recorder.current is None:
        return {}
    waiting, decisions = state.approvals.open_requests, dict[str, Decision]()
    for fact in parent.recorder.current.approvals.decisions:
        short_id, _, call_id = fact.call_id.partition("/")
        if short_id == state.run_id[:_SHORT] and call_id in waiting and fact.digest == waiting[call_id].digest:
            decisions[call_id] = decision_of(fact)
    return decisions


def requests_for_parent(run: SubRun) -> list[ApprovalRequest]:
    """A run's open questions as its parent asks them: the call ids begin with the run's id."""
    short = run.run_id[:_SHORT]
    return [
        replace(
            request,
            call=replace(request.call, id=f"{short}/{request.call.id}"),
            reason=f"{run.agent}: {request.reason}",
            _revise=None,  # the sub-run is over, so nothing can evaluate other arguments
        )
        for request in run.pending
    ]


def inactive_run(
    state: RunState | None, settings: RunSettings, run_id: str, call: SubRuns, pending: tuple[ApprovalRequest, ...]
) -> SubRun:
    """The state of a run when its drive ends, for the call whose function drove it."""
    if state is None or state.parent_run_id != call.run_id:
        return SubRun(run_id, settings.agent, "failed", "", sources=() if state is None else state.sources)
    is_kept = settings.keeps or settings.journal is journal_of_parent(state.parent_run_id)
    return SubRun(run_id, settings.agent, state.status, state.reason, pending, is_kept, state.until, state.sources)


_SHORT = 8
"""How many characters of a run's id precede the call ids of its questions."""


async def ask_for_calls(
    recorder: Recorder, settings: RunSettings, pause: Pause, calls: Sequence[SubRuns]
) -> tuple[tuple[ApprovalRequest, ...], bool]:
    """Records what these calls wait for, asks the questions of the runs that they started, and records the answers.

    Returns the unanswered questions, and whether the run must pause because it was asked to or a sub-run was. If it
    must wait, it has paused when this returns; else its batch goes on.
    """
    runs = [run for call in calls for run in call.paused_runs]
    for call in calls:
        if call.is_entered:
            await recorder.record(_suspension(call, settings))
    if recorder.state.stop is not None:
        return (), False  # the run ends: the calls are not entered again
    open_questions: list[ApprovalRequest] = []
    questions = [question for run in runs for question in requests_for_parent(run)]
    has_decision = False
    try:
        async with pause.interrupts():
            for question, answer in await _answers(recorder, settings, questions):
                if isinstance(answer, Decision):
                    call_id, digest = question.call.id, question.digest
                    await recorder.record(decision_fact(call_id, answer, digest, settings.secrets))
                    has_decision = True
                else:
                    open_questions.append(question)
    except BatchPaused:
        return (), True
    wait_ends = await ended_waits(settings.journal, recorder.state, settings.clock())
    await recorder.record_all(wait_ends)
    waits = recorder.state.pending.waits
    times = [*(wait.until for wait in waits.values()), *(run.until for run in runs)]
    until = min((time for time in times if time is not None), default=None)
    if open_questions:
        names = tuple(question.call.id for question in open_questions)
        await recorder.record(RunPaused("awaiting_approval", names, until))
        return tuple(open_questions), False
    if any(run.status in ("suspended", "queued") for run in runs):
        return (), True
    if not wait_ends and not has_decision and (waits or any(run.status == "waiting" for run in runs)):
        await recorder.record(RunPaused("waiting", tuple(call.call_id for call in calls), until))
    return (), False


def _suspension(call: SubRuns, settings: RunSettings) -> CallSuspended:
    """The fact that a call waits."""
    wait = call.wait
    if wait is None:
        return CallSuspended(call.call_id, tuple(call.inactive))
    until = wait.until if wait.seconds is None else settings.clock() + wait.seconds
    return CallSuspended(call.call_id, tuple(call.inactive), wait.event, until)


async def _answers(
    recorder: Recorder, settings: RunSettings, questions: Sequence[ApprovalRequest]
) -> Sequence[tuple[ApprovalRequest, Decision | Escalate]]:
    """Answers the questions: a refusal of the run's policy counts, the approver decides about the rest."""
    approver, answers = settings.kin_approver, list[tuple[ApprovalRequest, Decision | Escalate]]()
    for_approver = list[ApprovalRequest]()
    executor, after_web = settings.executor, usual_after_web(approver)
    policy = resolve_policy(getattr(executor, "policy", None))
    evaluator = PolicyEvaluator(policy, StandingRules(), {}, getattr(executor, "after_web", None) or after_web)
    for question in questions:
        verdict = evaluator.of_policy(question)
        if isinstance(verdict, Escalate) and verdict.person:
            question = replace(question, needs_person=True)
        standing = isinstance(approver, StandingApprover) and approver.decision.approved
        if isinstance(verdict, Escalate) and verdict.person and standing:
            verdict = Decision(False, needs_person_reason(verdict))
        if isinstance(verdict, Decision) and not verdict.approved:  # an approval counts for the run's own calls only
            await recorder.record(question_fact(question))
            answers.append((question, verdict))
        else:
            for_approver.append(question)
    if isinstance(approver, BatchApprover) and for_approver:
        await recorder.record_all(map(question_fact, for_approver))
        return [*answers, *zip(for_approver, await ask_together(approver, for_approver), strict=True)]
    for question in for_approver:
        await recorder.record(question_fact(question))
        if approver is None or isinstance(approver, BatchApprover):
            answers.append((question, Escalate()))
            continue
        answer, problem = await ask(approver, question), unapproved_repair(question)
        if isinstance(approver, StandingApprover) and not approver.repaired and problem:
            answer = Decision(False, problem, approver.decision.by)
        answers.append((question, answer))
    return answers
