"""What the tools and the interceptors of one run are told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolspeak.agent.recorder import Recorder
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.state import RunState
from toolspeak.data.deltas import ToolProgress
from toolspeak.execute import BatchContext, HookContext, HookNotes, Pause, RunScope, Timers


class RunContexts:
    """Makes the contexts of a run's batches and interceptors, and has what they share: the tools' `memory`, the
    `scope` of its batches, its `pause`. `show` is told what tools report of their progress.

    It knows nothing of the `Run`: what a run is made of has no way back to it, so that a run that is over is freed at
    once, with its messages, and does not wait for the garbage collector.
    """

    def __init__(self, settings: RunSettings, run_id: str, recorder: Recorder, memory: dict[str, Any]) -> None:
        self._settings = settings
        self._run_id = run_id
        self._recorder = recorder
        self.memory = memory
        self.scope = RunScope(timers=Timers(), details=recorder.trail.details)
        self.pause = Pause()
        self.show: Callable[[ToolProgress], object] | None = None

    def batch(self, state: RunState) -> BatchContext:
        """What the calls of the next batch are told of the run, as it stands or stood."""
        settings = self._settings
        return BatchContext(
            run_id=self._run_id,
            step=state.step,
            deps=settings.deps,
            memory=self.memory,
            state=state,
            progress=self._report,
            scope=self.scope,
            pause=self.pause,
            agent=settings.agent,
            parent_run_id=settings.parent_run_id,
            observers=self._recorder.observers,
        )

    def hook(self, notes: HookNotes, name: str) -> HookContext:
        """What the interceptor of this name is told."""
        state = self._recorder.current
        step = 0 if state is None else state.step
        return HookContext(self._run_id, step, self._settings.deps, self.memory, state, notes, name)

    def _report(self, call_id: str, message: str) -> None:
        if self.show is not None:
            self.show(ToolProgress(call_id, message))
