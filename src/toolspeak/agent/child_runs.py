"""Runs that tools of other runs start: their parent counts what they use, and asks their questions."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from toolspeak.agent.recorder import Recorder
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.state import RunState
from toolspeak.data.codec import dumps
from toolspeak.data.events import CallSuspended, RunPaused, SubRunUsed
from toolspeak.data.messages import Message, Usage
from toolspeak.errors import ToolspeakError
from toolspeak.execute import ApprovalRequest, BatchApprover, BatchPaused, Decision, Escalate, Pause, StandingRules
from toolspeak.execute.approval.approvers import (
    StandingApprover,
    ask,
    ask_together,
    decision_fact,
    decision_of,
    question_fact,
)
from toolspeak.execute.approval.evaluator import PolicyEvaluator, no_unasked_repair, only_a_person
from toolspeak.execute.approval.policy_rules import resolve_policy
from toolspeak.execute.sub_runs import ENTERED, SubRun, SubRuns
from toolspeak.journal.base import Journal
from toolspeak.journal.memory_journal import MemoryJournal

_ACTIVE_RUNS: dict[str, UsageRollUp] = {}
"""The runs that go on in this process, by id: a sub-run knows no more of its parent than that (`parent_run_id`)."""


class UsageRollUp:
    """Reports what a run uses to its parent as often as the run comes to rest, and hands what its sub-runs use to its
    recorder, in its event loop, while it goes on."""

    def __init__(self, run_id: str, recorder: Recorder, journal: Journal) -> None:
        self._run_id = run_id
        self.recorder = recorder
        self.journal = journal
        self.loop: asyncio.AbstractEventLoop | None = None
        self._reported_usage, self._reported_cost = Usage(), 0.0

    def begin(self, parent_run_id: str | None) -> None:
        """From here on sub-runs may tell what they use, and the parent's observers are told of this run too."""
        parent = _ACTIVE_RUNS.get(parent_run_id or "")
        if parent is not None:
            own = self.recorder.observers
            self.recorder.observers += tuple(each for each in parent.recorder.observers if each not in own)
        self.loop = asyncio.get_running_loop()
        _ACTIVE_RUNS[self._run_id] = self

    def end(self) -> None:
        """Of a sub-run that outlives the run nothing more is heard."""
        if _ACTIVE_RUNS.get(self._run_id) is self:
            del _ACTIVE_RUNS[self._run_id]

    def skip(self, state: RunState | None) -> None:
        """What this state has used was reported before the run was resumed."""
        if state is not None:
            self._reported_usage, self._reported_cost = state.totals.usage, state.totals.known_cost

    async def report(self, state: RunState | None, agent: str) -> None:
        """Reports to the run's parent, if that goes on in this process. It is recorded there when this returns, even if
        this is cancelled."""
        parent = _ACTIVE_RUNS.get(state.parent_run_id or "") if state is not None else None
        if state is None or parent is None or state.totals.usage == self._reported_usage:
            return
        usage, cost = state.totals.usage.since(self._reported_usage), state.totals.known_cost - self._reported_cost
        self.skip(state)
        used = SubRunUsed(state.run_id, agent, usage, state.totals.estimated, None if state.totals.unpriced else cost)
        report = asyncio.ensure_future(_hand(parent, used))
        try:
            await asyncio.shield(report)
        except asyncio.CancelledError:
            await asyncio.wait([report])
            raise


async def _hand(parent: UsageRollUp, used: SubRunUsed) -> None:
    async def added() -> None:
        # A parent whose journal fails, or that was taken over, says so itself.
        with suppress(ToolspeakError):
            await parent.recorder.add_sub_run(used)

    if parent.loop is None or parent.loop is asyncio.get_running_loop():
        await added()
        return
    work = added()
    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, parent.loop))
    except RuntimeError:  # its loop is closed: it is over
        work.close()


def parent_call(parent_run_id: str | None) -> SubRuns | None:
    """The call whose function starts a run here and now, if it is one of that run."""
    call = ENTERED.get()
    return call if call is not None and parent_run_id is not None and call.run_id == parent_run_id else None


def sub_run_id(call: SubRuns, agent: str, messages: Sequence[Message]) -> str:
    """The id of a run that a call's function starts: the same when the function is entered again, so that the run is
    found and not started anew. The second run with the same task has another one."""
    task = hashlib.sha256("\n".join([agent, *map(dumps, messages)]).encode("utf-8", "surrogatepass")).hexdigest()
    number = call.started[task]
    call.started[task] += 1
    return hashlib.sha256(f"{call.run_id}\n{call.call_id}\n{task}\n{number}".encode()).hexdigest()[:32]


def journal_of_parent(parent_run_id: str | None) -> Journal | None:
    """Where the parent's records are, if a run in this event loop can be kept there too."""
    parent = _ACTIVE_RUNS.get(parent_run_id or "")
    if parent is None:
        return None
    with suppress(RuntimeError):  # there is no event loop yet
        if parent.loop is asyncio.get_running_loop():
            return parent.journal
    return parent.journal if isinstance(parent.journal, MemoryJournal) else None


def decided_by_parent(state: RunState) -> dict[str, Decision]:
    """What was decided, in the run's parent, about the questions it waits with."""
    parent = _ACTIVE_RUNS.get(state.parent_run_id or "")
    if parent is None or parent.recorder.current is None:
        return {}
    waiting, decisions = state.approvals.undecided, dict[str, Decision]()
    for fact in parent.recorder.current.approvals.decisions:
        run, _, call_id = fact.call_id.partition("/")
        if run == state.run_id[:_SHORT] and call_id in waiting and fact.digest == waiting[call_id].digest:
            decisions[call_id] = decision_of(fact)
    return decisions


def asked_of_parent(run: SubRun) -> list[ApprovalRequest]:
    """The questions a run waits with as its parent asks them: their ids begin with the run's."""
    short = run.run_id[:_SHORT]
    return [
        replace(
            request,
            call=replace(request.call, id=f"{short}/{request.call.id}"),
            reason=f"{run.agent}: {request.reason}",
            _revise=None,  # what would evaluate other arguments is gone with the run
        )
        for request in run.pending
    ]


def at_rest(
    state: RunState | None, settings: RunSettings, run_id: str, call: SubRuns, pending: tuple[ApprovalRequest, ...]
) -> SubRun:
    """What the call whose function drove a run is told of it."""
    if state is None or state.parent_run_id != call.run_id:
        return SubRun(run_id, settings.agent, "failed", "")
    is_kept = settings.keeps or settings.journal is journal_of_parent(state.parent_run_id)
    return SubRun(run_id, settings.agent, state.status, state.reason, pending, is_kept)


_SHORT = 8
"""How much of a run's id stands in front of its questions."""


async def ask_for_sub_runs(
    recorder: Recorder, settings: RunSettings, pause: Pause, calls: Sequence[SubRuns]
) -> tuple[tuple[ApprovalRequest, ...], bool]:
    """Asks what the runs wait for that these calls started, and records it. The questions that are left, with which
    the run has paused; and whether it is to be suspended. With neither its batch goes on."""
    runs = [run for call in calls for run in call.waiting]
    for call in calls:
        await recorder.record(CallSuspended(call.call_id, tuple(call.resting)))
    if recorder.state.stop is not None:
        return (), False  # the run ends: the calls are not made again
    unanswered: list[ApprovalRequest] = []
    questions = [question for run in runs for question in asked_of_parent(run)]
    try:
        async with pause.ends():
            for question, answer in await _answers(recorder, settings, questions):
                if isinstance(answer, Decision):
                    call_id, digest = question.call.id, question.digest
                    await recorder.record(decision_fact(call_id, answer, digest, settings.secrets))
                else:
                    unanswered.append(question)
    except BatchPaused:
        return (), True
    if unanswered:
        await recorder.record(RunPaused("awaiting_approval", tuple(question.call.id for question in unanswered)))
    return tuple(unanswered), not unanswered and any(run.status == "suspended" for run in runs)


async def _answers(
    recorder: Recorder, settings: RunSettings, questions: Sequence[ApprovalRequest]
) -> Sequence[tuple[ApprovalRequest, Decision | Escalate]]:
    """What the run's policy refuses is refused; the rest is its approver's to answer."""
    approver, answers = settings.kin_approver, list[tuple[ApprovalRequest, Decision | Escalate]]()
    for_approver = list[ApprovalRequest]()
    evaluator = PolicyEvaluator(resolve_policy(getattr(settings.executor, "policy", None)), StandingRules(), {})
    for question in questions:
        verdict = evaluator.of_policy(question)
        standing = isinstance(approver, StandingApprover) and approver.decision.approved
        if isinstance(verdict, Escalate) and verdict.person and standing:
            verdict = Decision(False, only_a_person(verdict))
        if isinstance(verdict, Decision) and not verdict.approved:  # its yes is for this run's own calls
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
        answer, refused = await ask(approver, question), no_unasked_repair(question)
        if isinstance(approver, StandingApprover) and not approver.repaired and refused:
            answer = Decision(False, refused, approver.decision.by)
        answers.append((question, answer))
    return answers
