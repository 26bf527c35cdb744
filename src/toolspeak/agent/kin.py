"""Questions that runs wait with which a run's tools have started: the run asks them in its own name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolspeak.agent.decisions import fact_of
from toolspeak.agent.family import asked_of_parent
from toolspeak.agent.recorder import Recorder
from toolspeak.agent.settings import RunSettings
from toolspeak.data.events import ApprovalRequested, CallSuspended, RunPaused
from toolspeak.execute import ApprovalRequest, BatchApprover, BatchPaused, Decision, Escalate, Pause
from toolspeak.execute.approval import StandingApprover, ask, ask_together
from toolspeak.execute.judge import no_unasked_repair
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
                    reason = settings.secrets.hide_text(answer.reason)
                    decision = replace(answer, reason=reason, digest=question.digest)
                    await recorder.record(fact_of(question.call.id, decision))
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
    approver, answers = settings.kin_approver, list[Decision | Escalate]()
    if isinstance(approver, BatchApprover) and questions:
        await recorder.record_all(map(_requested, questions))
        answers = await ask_together(approver, questions)
    for question in questions[len(answers) :]:
        await recorder.record(_requested(question))
        if approver is None or isinstance(approver, BatchApprover):
            answers.append(Escalate())
            continue
        answer, refused = await ask(approver, question), no_unasked_repair(question)
        if isinstance(approver, StandingApprover) and not approver.repaired and refused:
            answer = Decision(False, refused, approver.decision.by)
        answers.append(answer)
    return list(zip(questions, answers, strict=True))


def _requested(request: ApprovalRequest) -> ApprovalRequested:
    call = request.call
    return ApprovalRequested(call.id, request.reason, request.preview, call, request.effects, request.digest)
