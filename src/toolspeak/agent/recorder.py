"""Recording what happens in a run: durable first, then true, then visible."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from toolspeak.agent.channel import Channel
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.fold import apply
from toolspeak.agent.state.memory import Memory
from toolspeak.agent.state.state import RunState
from toolspeak.agent.state.steps import RunRecords, StepEnded
from toolspeak.data.deltas import Delta, ToolProgress
from toolspeak.data.events import Event, ModelAnswered, ModelAsked, ModelTextReceived, Record, SubRunUsed, ToolFinished
from toolspeak.data.messages import Message
from toolspeak.errors import ConfigurationError, RunError, ToolDefinitionError
from toolspeak.execute import BatchContext, BatchResult, HookContext, HookNotes, Pause, RunScope, Timers
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
    `run_records` its records until now, `lease` what the run is held by. `watcher` gets every record, `observers` every
    record and step.
    """

    def __init__(
        self,
        settings: RunSettings,
        run_id: str,
        state: RunState | None = None,
        before: Sequence[Message] = (),
        run_records: RunRecords | None = None,
    ) -> None:
        self.current = state
        self.lease: Lease | None = None
        self.watcher: Channel[Watched] | None = None
        self._settings = settings
        self._run_id = run_id
        self._before = before
        self.observers = settings.observers
        self.run_records = RunRecords(before=before) if run_records is None else run_records
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
                self.run_records.records.append(record)
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
            tell(self.observers, StepEnded(self.run_records.steps[-1], run))

    async def record_all(self, events: Iterable[Event]) -> None:
        """Records each, in order."""
        for event in events:
            await self.record(event)

    async def add_sub_run(self, used: SubRunUsed) -> None:
        """Records what a sub-run has used; nothing of one that outlives the run."""
        recording = self._settings.recording
        await self.record(used)
        if recording is not None and self.state.status == "running":
            recording.record_sub_run(used)


class BatchRecorder:
    """Records the facts of one run's batches; `values` is the mapping that its tools share."""

    def __init__(self, settings: RunSettings, recorder: Recorder, values: dict[str, Any]) -> None:
        self._settings = settings
        self._recorder = recorder
        self._values = values
        self._hooked = any(settings.interceptors.values())
        self._memory: Memory | None = None

    def emit(self, event: Event) -> Awaitable[None]:
        """Records a fact, a result with what has changed in the tools' memory."""
        if type(event) is ToolFinished:
            tool = self._settings.toolset.get(event.result.name)
            # What may have changed the memory: the tool, or an interceptor.
            if self._hooked or (tool is not None and "context" in tool.injected.values()):
                return self._with_memory(event)
        return self._recorder.record(event)

    async def complete(self, batch: BatchResult) -> None:
        """Records the results of a batch that an executor of the user's own has not recorded. Raises ConfigurationError
        if there is a call without one."""
        state = self._recorder.state
        recorded = {result.call_id for result in state.pending.results}
        results = {result.call_id: result for result in batch.results}
        missing = [call.id for call in state.pending.calls if call.id not in recorded | results.keys()]
        if missing:
            executor = type(self._settings.executor).__name__
            raise ConfigurationError(f"{executor}.run gave no result for {', '.join(missing)}: each call has one")
        for call in state.pending.calls:
            if call.id not in recorded:
                await self.emit(ToolFinished(results[call.id]))

    async def _with_memory(self, event: ToolFinished) -> None:
        if self._memory is None:
            self._memory = Memory(self._values, self._recorder.state.memory, self._settings.secrets)
        changes, refused = self._memory.changes()
        await self._recorder.record(replace(event, memory=changes) if changes else event)
        for key, reason in refused.items():
            raise ToolDefinitionError(
                f"the tool {event.result.name} keeps something in RunContext.memory[{key!r}] that is no JSON: {reason}."
                " What a run remembers is recorded with it, so that it survives; keep other things in `deps`"
            )


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
        self.scope = RunScope(timers=Timers(), details=recorder.run_records.details)
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
