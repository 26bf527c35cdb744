"""One batch of a run: executed, paused where its calls wait, and executed on."""

from __future__ import annotations

import asyncio

from toolspeak.agent.child_runs import ask_for_calls
from toolspeak.agent.recording.recorder import BatchContextFactory, BatchRecorder, Recorder
from toolspeak.agent.state.decide import RunTools, decide, seconds_left, time_is_over
from toolspeak.agent.turns import Turns
from toolspeak.data.events import RunPaused
from toolspeak.errors import AgentStop, ToolFailed
from toolspeak.execute import NONE_IN_DOUBT, ApprovalRequest, BatchPaused
from toolspeak.execute.approval.approvers import decision_of
from toolspeak.execute.recovery import calls_in_doubt
from toolspeak.execute.sub_runs import BatchHeld


async def run_batch(
    action: RunTools, recorder: Recorder, turns: Turns, facts: BatchRecorder, contexts: BatchContextFactory
) -> tuple[ApprovalRequest, ...]:
    """Runs a batch to its results, or until the run pauses. Returns the questions that it pauses with.

    Where calls wait for runs that they started, asks what those wait for. Runs the rest of the batch again once that is
    decided, or what other calls waited for has come.
    """
    loop, settings, questions = asyncio.get_running_loop(), recorder.settings, ()
    while True:
        state = recorder.state
        pending, decisions = state.pending, state.approvals.decisions
        seconds = None if state.limits.seconds is None else seconds_left(state, settings.clock)
        if settings.tools_of is not None and contexts.turn_tools is None:
            await turns.compute_tools_again()
        until = None if seconds is None else loop.time() + seconds
        doubtful = NONE_IN_DOUBT
        if pending.call_events:
            doubtful = calls_in_doubt(pending.doubtful_calls, settings.in_doubt_policy)
        try:
            batch = await settings.executor.run(
                action.calls,
                emit=facts.emit,
                context=contexts.batch(state),
                approver=settings.approver,
                decisions={one.call_id: decision_of(one) for one in decisions} if decisions else {},
                earlier_results={one.call_id: one for one in pending.results} if pending.results else {},
                doubtful_calls=doubtful,
                deadline=seconds,
                max_calls=action.max_calls,
                early=turns.take_early(),
                stop=state.stop,
            )
        except BatchPaused:
            await pause_run(recorder, turns, contexts)
            return questions
        except BatchHeld as waits:
            questions, pauses = await ask_for_calls(recorder, settings, contexts.pause, waits.waiting_calls)
            if pauses:
                await pause_run(recorder, turns, contexts)
            following = decide(recorder.state)
            if recorder.state.status != "running" or not isinstance(following, RunTools):
                return questions
            action = following
            continue
        except (AgentStop, ToolFailed) as stop:
            batch = stop.batch  # the executor has recorded that the run is to end
        break
    if recorder.state.pending.calls and not batch.pending:
        await facts.complete(batch)
    if batch.pending:
        call_ids = tuple(pending.call.id for pending in batch.pending)
        waits = [wait.until for wait in state.pending.waits.values() if wait.until is not None]
        await recorder.record(RunPaused("awaiting_approval", call_ids, min(waits, default=None)))
        return batch.pending
    if until is not None and loop.time() >= until + batch.approval_seconds:
        await recorder.record(time_is_over(recorder.state, settings.clock))
    return questions


async def pause_run(recorder: Recorder, turns: Turns, contexts: BatchContextFactory) -> None:
    """Records that the run pauses where nothing is under way: a person suspends it, or its worker ends."""
    await turns.drop_early()
    await recorder.record(RunPaused(contexts.pause.reason))
