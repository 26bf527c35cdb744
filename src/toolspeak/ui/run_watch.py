"""Drives a run and shows it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from toolspeak.agent import Run, RunState
from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.ui.approval import AfterDisplayApprover


async def watch(run: Run, show: Callable[[StreamItem], None], approver: AfterDisplayApprover | None = None) -> RunState:
    """Drives a run to its end or pause, and shows every item. `approver`: the one in the agent's settings.

    Raises ProviderError if the model API fails. Cancelling it cancels the run.
    """
    async with aclosing(run.stream()) as items:
        async for item in items:
            show(item)
            if approver is not None:
                approver.saw(item)
    return run.state
