"""Suspending or closing a run by its id, from outside of it."""

from __future__ import annotations

import time

from toolspeak.agent.state.fold import apply
from toolspeak.agent.state.history import unstarted_result
from toolspeak.agent.state.state import RunState
from toolspeak.agent.storage.lease_keeper import LeaseKeeper
from toolspeak.agent.storage.load import load_state
from toolspeak.data.events import UNFINISHED, Event, Record, RunFinished, RunPaused, ToolFinished
from toolspeak.errors import RunBusy, RunError
from toolspeak.journal import Journal, Lease


async def suspend_run(journal: Journal, run_id: str) -> bool:
    """Asks whoever is at work on the run to suspend it: True. A run that was interrupted, on which nobody is at work,
    is suspended here and now: False.

    Raises RunError for a run that is not known, has ended, waits for approval or is suspended already.
    """
    info = await journal.run(run_id)
    if info is None:
        raise RunError(f"the journal has no run {run_id}; `toolspeak sessions` lists what it has")
    if info.status != "running":
        status = info.status.replace("_", " ")
        raise RunError(f"run {run_id} is {status}: nothing is at work on it that could be suspended")
    if await journal.ask_to_suspend(run_id):
        return True
    try:
        async with LeaseKeeper(journal, run_id, lambda: None) as lease:
            state = await load_state(journal, run_id)
            if state.status != "running":
                raise RunError(f"run {run_id} has ended meanwhile: it is {state.status.replace('_', ' ')}")
            await _append(journal, lease, state, RunPaused("suspended"), info.agent)
    except RunBusy:
        return await journal.ask_to_suspend(run_id)  # somebody was faster and goes on with it
    return False


async def close_run(journal: Journal, run_id: str, *, doubtful: bool = False) -> None:
    """Ends a run that waits for approval, is suspended or was interrupted, for good, with the runs that its calls wait
    for: no call of them runs any more.

    Each call without a result gets one that says so: it was not started, or it was and its outcome is unknown. The run
    ends as `no_answer`, for the reason `closed`. `doubtful`: records of it may be lost, so that any call may have been
    started.

    Raises RunError for a run that is not known or has ended, RunBusy while a process is at work on it.
    """
    info = await journal.run(run_id)
    if info is None:
        raise RunError(f"the journal has no run {run_id}; `toolspeak sessions` lists what it has")
    async with LeaseKeeper(journal, run_id, lambda: None) as lease:
        state = await load_state(journal, run_id)
        if state.status not in UNFINISHED:
            raise RunError(
                f"run {run_id} is {state.status.replace('_', ' ')}: it has ended, and nothing is left to close"
            )
        for sub_run in state.pending.sub_runs:
            of_sub_run = await journal.run(sub_run)
            if of_sub_run is not None and of_sub_run.status in UNFINISHED:
                await close_run(journal, sub_run, doubtful=doubtful)
        finished = {result.call_id for result in state.pending.results}
        for call in [call for call in state.pending.calls if call.id not in finished]:
            result = unstarted_result(call, started=doubtful or call.id in state.pending.doubtful_calls)
            state = await _append(journal, lease, state, ToolFinished(result), info.agent)
        await _append(journal, lease, state, RunFinished("no_answer", "", "closed"), info.agent)


async def _append(journal: Journal, lease: Lease, state: RunState, event: Event, agent: str) -> RunState:
    """Appends an event to a run that nobody else drives; the state after it."""
    record = Record(
        event,
        state.run_id,
        state.seq,
        state.step,
        time.time(),
        agent,
        getattr(event, "call_id", None),
        state.parent_run_id,
        state.principal,
        state.traceparent,
    )
    await journal.append(record, lease)
    return apply(state, record)
