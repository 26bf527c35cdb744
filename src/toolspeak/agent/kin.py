"""Questions that runs wait with which a run's tools have started: the run asks them in its own name."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.agent.family import asked_of_parent
from toolspeak.agent.recorder import Recorder
from toolspeak.agent.settings import RunSettings
from toolspeak.data.events import CallSuspended, RunPaused
from toolspeak.execute import ApprovalRequest, BatchApprover, BatchPaused, Decision, Escalate, Pause, StandingRules
from toolspeak.execute.approval.approvers import StandingApprover, ask, ask_together
from toolspeak.execute.approval.decisions import decision_fact, question_fact
from toolspeak.execute.approval.evaluator import PolicyEvaluator, no_unasked_repair, only_a_person
from toolspeak.execute.approval.policy_rules import resolve_policy
from toolspeak.execute.sub_runs import SubRuns


async def ask_for_sub_runs(
    recorder: Recorder, settings: RunSettings, pause: Pause, held: Sequence[SubRuns]
) -> tuple[tuple[ApprovalRequest, ...], bool]:
    """Asks what the runs wait for that these calls started, and records it. The questions that are left, with which
    the run has paused; and whether it is to be suspended. With neither its batch goes on."""
    runs = [run for call in held for run in call.waiting]
    for call in held:
        await recorder.record(CallSuspended(call.call_id, tuple(call.resting)))
    if recorder.state.stop is not None:
        return (), False  # the run ends: the calls are not made again
    left: list[ApprovalRequest] = []
    questions = [question for run in runs for question in asked_of_parent(run)]
    try:
        async with pause.ends():
            for question, answer in await _answers(recorder, settings, questions):
                if isinstance(answer, Decision):
                    call_id, digest = question.call.id, question.digest
                    await recorder.record(decision_fact(call_id, answer, digest, settings.secrets))
                else:
                    left.append(question)
    except BatchPaused:
        return (), True
    if left:
        await recorder.record(RunPaused("awaiting_approval", tuple(question.call.id for question in left)))
    return tuple(left), not left and any(run.status == "suspended" for run in runs)


async def _answers(
    recorder: Recorder, settings: RunSettings, questions: Sequence[ApprovalRequest]
) -> Sequence[tuple[ApprovalRequest, Decision | Escalate]]:
    """What the run's policy refuses is refused; the rest is its approver's to answer."""
    approver, answers = settings.kin_approver, list[tuple[ApprovalRequest, Decision | Escalate]]()
    left = list[ApprovalRequest]()
    evaluator = PolicyEvaluator(resolve_policy(getattr(settings.executor, "policy", None)), StandingRules(), {})
    for question in questions:
        said = evaluator.of_policy(question)
        standing = isinstance(approver, StandingApprover) and approver.decision.approved
        if isinstance(said, Escalate) and said.person and standing:
            said = Decision(False, only_a_person(said))
        if isinstance(said, Decision) and not said.approved:  # its yes is for this run's own calls
            await recorder.record(question_fact(question))
            answers.append((question, said))
        else:
            left.append(question)
    if isinstance(approver, BatchApprover) and left:
        await recorder.record_all(map(question_fact, left))
        return [*answers, *zip(left, await ask_together(approver, left), strict=True)]
    for question in left:
        await recorder.record(question_fact(question))
        if approver is None or isinstance(approver, BatchApprover):
            answers.append((question, Escalate()))
            continue
        answer, refused = await ask(approver, question), no_unasked_repair(question)
        if isinstance(approver, StandingApprover) and not approver.repaired and refused:
            answer = Decision(False, refused, approver.decision.by)
        answers.append((question, answer))
    return answers
