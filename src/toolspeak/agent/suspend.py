"""Suspending a run by its id, whichever process is at work on it."""

from __future__ import annotations

import time

from toolspeak.agent.hold import Hold
from toolspeak.agent.load import load_state
from toolspeak.data.events import Record, RunPaused
from toolspeak.errors import RunBusy, RunError
from toolspeak.journal import Journal


async def suspend_run(journal: Journal, run_id: str) -> bool:
    """Asks whoever is at work on the run to suspend it: True. A run that was interrupted, on which nobody is at work,
    is suspended here and now: False.

    Raises RunError for a run that is not known, has ended, waits for approval or is suspended already.
    """
    info = await journal.run(run_id)
    if info is None:
        raise RunError(f"the journal has no run {run_id}; `toolspeak sessions` lists what it has")
    if info.status != "running":
        told = info.status.replace("_", " ")
        raise RunError(f"run {run_id} is {told}: nothing is at work on it that could be suspended")
    if await journal.ask_to_suspend(run_id):
        return True
    try:
        async with Hold(journal, run_id, lambda: None) as lease:
            state = await load_state(journal, run_id)
            if state.status != "running":
                raise RunError(f"run {run_id} has ended meanwhile: it is {state.status.replace('_', ' ')}")
            stamp = Record(
                RunPaused("suspended"),
                run_id,
                state.seq,
                state.step,
                time.time(),
                info.agent,
                None,
                state.parent_run_id,
                state.principal,
                state.traceparent,
            )
            await journal.append(stamp, lease)
    except RunBusy:
        return await journal.ask_to_suspend(run_id)  # somebody was faster and goes on with it
    return False
