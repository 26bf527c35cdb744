"""Recording what happens in a run: durable first, then true, then visible."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from toolspeak.agent.channel import Channel
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.fold import apply
from toolspeak.agent.state.state import RunState
from toolspeak.agent.state.steps import StepEnded, Trail
from toolspeak.data.deltas import Delta
from toolspeak.data.events import Event, ModelAnswered, ModelAsked, ModelTextReceived, Record, SubRunUsed, ToolFinished
from toolspeak.data.messages import Message
from toolspeak.errors import RunError
from toolspeak.execute.calls.observe import (
    DecisionExtractionFailed,
    DecisionTaken,
    DecisionValidationFailed,
    Observed,
    ToolEvent,
    tell,
)
from toolspeak.journal.base import Lease

Watched: TypeAlias = Delta | Record
"""What `Run.stream` yields: the transient pieces of a turn, and every record once it is durable."""

RunEvent: TypeAlias = (
    Record | StepEnded | ToolEvent | DecisionTaken | DecisionExtractionFailed | DecisionValidationFailed
)
"""What observers of an agent are told, and `Run.events` yields: every record once it is durable (model turns, calls,
approvals, sub-runs, how the run ends), every step once it is over, and what no record holds."""


class Recorder:
    """Records one run's events, one after the other, whichever of its tasks they come from.

    `current` is the run's state, None before its first record; `before` are the messages of the runs it follows,
    `trail` its records until now, `lease` what the run is held by. `watcher` gets every record, `observers` every
    record and step.
    """

    def __init__(
        self,
        settings: RunSettings,
        run_id: str,
        state: RunState | None = None,
        before: Sequence[Message] = (),
        trail: Trail | None = None,
    ) -> None:
        self.current = state
        self.lease: Lease | None = None
        self.watcher: Channel[Watched] | None = None
        self._settings = settings
        self._run_id = run_id
        self._before = before
        self.observers = settings.observers
        self.trail = Trail(before=before) if trail is None else trail
        self._lock = asyncio.Lock()

    @property
    def state(self) -> RunState:
        """The run's state. Raises RunError before its first record."""
        if self.current is None:
            raise RunError(f"run {self._run_id} has not started; await finish() or iterate over it first")
        return self.current

    async def record(self, event: Event) -> None:
        """Makes an event durable, then true, then visible; not what a sub-run used that outlives the run."""
        lock = self._lock
        await lock.acquire()
        try:
            if type(event) is SubRunUsed and self.state.status != "running":
                return
            settings, state = self._settings, self.current
            of: RunState | RunSettings = settings if state is None else state
            step = 0 if state is None else state.step
            record = Record(
                event,
                self._run_id,
                0 if state is None else state.seq,
                step + 1 if type(event) is ModelAsked else step,
                settings.clock(),
                settings.agent,
                getattr(event, "call_id", None),
                of.parent_run_id,
                of.principal,
                of.traceparent,
            )
            await settings.journal.append(record, self.lease)
            self.current = apply(state, record, self._before)
            if type(event) is not ModelTextReceived:
                self.trail.records.append(record)
            if self.watcher is not None:  # before the next one is recorded: a watcher sees the journal's order
                self.watcher.put(record)
                await self.watcher.drain()
            if self.observers:
                self._tell(record, self.current)
        finally:
            lock.release()

    def tell(self, event: RunEvent) -> None:
        """Tells the observers of what is no record."""
        tell(self.observers, event)

    def _tell(self, record: Record, state: RunState) -> None:
        """Tells the observers of a record, and of the step that ends with it."""
        tell(self.observers, record)
        kind = type(record.event)
        if (kind is ToolFinished or kind is ModelAnswered) and not state.pending.calls:
            run = Observed(record.run_id, record.step, record.agent, record.parent_run_id)
            tell(self.observers, StepEnded(self.trail.steps[-1], run))

    async def record_all(self, events: Iterable[Event]) -> None:
        """Records each, in order."""
        for event in events:
            await self.record(event)

    async def add_sub_run(self, used: SubRunUsed) -> None:
        """Records what a sub-run has used; nothing of one that outlives the run."""
        recording = self._settings.recording
        await self.record(used)
        if recording is not None and self.state.status == "running":
            recording.spent(used)
