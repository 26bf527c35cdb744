"""Recording what happens in a run: first durable, then part of the state, then visible. Its parent counts its usage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

from toolspeak.agent.drivers.program_driver import PROGRAM
from toolspeak.agent.handoffs import settings_of
from toolspeak.agent.recording.channel import Channel
from toolspeak.agent.recording.publisher import Publisher
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.fold import apply
from toolspeak.agent.state.state import RunState
from toolspeak.agent.state.steps import Memory, RunRecords, StepEnded
from toolspeak.agent.storage.runs import LEASE_SECONDS
from toolspeak.data.deltas import Delta, ToolProgress, TurnRestarted
from toolspeak.data.events import (
    ApprovalDecided,
    Event,
    HandedOff,
    ModelAnswered,
    ModelAsked,
    ModelTextReceived,
    Record,
    RetryScheduled,
    SubRunUsed,
    ToolFinished,
    ToolStarted,
)
from toolspeak.data.messages import Message, Usage, failure
from toolspeak.data.values import evolve
from toolspeak.errors import ConfigurationError, RunError, ToolDefinitionError, ToolspeakError
from toolspeak.execute import BatchContext, BatchResult, HookContext, HookNotes, Pause, RunScope, Timers
from toolspeak.execute.approval.policy_rules import record_decision
from toolspeak.execute.batch_context import ResultCache
from toolspeak.execute.calls.observe import (
    CallTrace,
    DecisionExtractionFailed,
    DecisionTaken,
    DecisionValidationFailed,
    EventOrigin,
    ToolEvent,
    tell,
)
from toolspeak.execute.calls.secrets import hide_retry
from toolspeak.journal.base import Journal, Lease
from toolspeak.tools import Tool, Toolset

_NO_WAITS: Mapping[str, Any] = MappingProxyType({})
_LATE_SECONDS = 1.0  # sooner than any engine believes a worker dead

ACTIVE_RUNS: dict[str, UsageRollUp] = {}
"""The runs in progress in this process, by id: a sub-run knows only the id of its parent (`parent_run_id`)."""

StreamItem: TypeAlias = Delta | TurnRestarted | Record
"""What `Run.stream` yields: the pieces of a turn as they come, and every record once it is durable."""

RunEvent: TypeAlias = (
    Record | StepEnded | ToolEvent | DecisionTaken | DecisionExtractionFailed | DecisionValidationFailed
)
"""What an agent's observers get and `Run.events` yields: every record once it is durable (model turns, calls,
approvals, sub-runs, the end of the run), every step once it is over, and the events that are not recorded."""


def sub_run_records(channel: Channel[StreamItem], run_id: str) -> Callable[[RunEvent], None]:
    """An observer of a run that puts the records of its sub-runs into a channel."""

    def take(event: RunEvent) -> None:
        if isinstance(event, Record) and event.run_id != run_id:
            channel.put(event)

    return take


class Recorder:
    """Records one run's events in order, from any of its tasks. `before`: the messages of the runs that it follows."""

    def __init__(
        self,
        settings: RunSettings,
        run_id: str,
        state: RunState | None = None,
        before: Sequence[Message] = (),
        run_records: RunRecords | None = None,
    ) -> None:
        self.current = state
        """The run's state; None before its first record."""
        self.lease: Lease | None = None
        self.watcher: Channel[StreamItem] | Publisher | None = None
        self.settings = settings
        self._run_id = run_id
        self._before = before
        self.observers = settings.observers
        """Get every record and step."""
        self.tracers: tuple[Any, ...] = ()
        """The `Tracer`s among the run's observers. They get what happens by the trace that they begin."""
        if self.observers:
            self.tracers = tuple(each for each in self.observers if hasattr(each, "begin_run"))
            self.observers = tuple(each for each in self.observers if each not in self.tracers)
        self.trace: CallTrace | None = None
        """Gets every record."""
        self.run_records = RunRecords(before=before) if run_records is None else run_records
        self._lock = asyncio.Lock()

    @property
    def state(self) -> RunState:
        """The run's state. Raises RunError before its first record."""
        if self.current is None:
            raise RunError(f"run {self._run_id} has not started; await finish() or iterate over it first")
        return self.current

    async def record(self, event: Event) -> None:
        """Appends an event to the journal, applies it to the state, and shows it. Ignores the usage of a sub-run that
        outlives the run."""
        lock = self._lock
        await lock.acquire()
        try:
            if type(event) is SubRunUsed and self.state.status != "running":
                return
            settings, state = self.settings, self.current
            of: RunState | RunSettings = settings if state is None else state
            step = 0 if state is None else state.step
            record = Record(
                event,
                self._run_id,
                0 if state is None else state.seq,
                step + 1 if type(event) is ModelAsked else step,
                settings.clock(),
                settings.agent,
                event.result.call_id if type(event) is ToolFinished else getattr(event, "call_id", None),
                of.parent_run_id,
                of.principal,
                of.traceparent if self.trace is None else self.trace.traceparent or of.traceparent,
            )
            start = time.monotonic()
            await settings.journal.append(record, self.lease)
            if type(event) is ToolStarted and self.lease is not None and time.monotonic() - start > _LATE_SECONDS:
                # Another worker may have the run by now, and may have looked whether this call has happened.
                await settings.journal.renew(self.lease, LEASE_SECONDS)
            self.current = apply(state, record, self._before)
            if type(event) is not ModelTextReceived:
                self.run_records.records.append(record)
            if self.watcher is not None:  # before the next event is recorded: a watcher sees the journal's order
                self.watcher.put(record)
                await self.watcher.drain()
            if self.trace is not None:
                self.trace(record, self.current)
            if self.observers:
                self._tell(record, self.current)
        finally:
            lock.release()

    def tell(self, event: RunEvent) -> None:
        """Sends the observers an event that is not recorded."""
        tell(self.observers, event)

    def _tell(self, record: Record, state: RunState) -> None:
        """Sends the observers a record, and the step that ends with it."""
        tell(self.observers, record)
        kind = type(record.event)
        if (kind is ToolFinished or kind is ModelAnswered) and not state.pending.calls:
            run = EventOrigin(record.run_id, record.step, record.agent, record.parent_run_id, record.principal)
            tell(self.observers, StepEnded(self.run_records.steps[-1], run))

    async def record_all(self, events: Iterable[Event]) -> None:
        """Records each, in order."""
        for event in events:
            await self.record(event)

    async def resume(self, first_events: Sequence[Event]) -> None:
        """Records how a run continues: the decisions that were made while it waited, then RunResumed.

        The rules of the decisions become those of the agent that the run stands at. Raises ReplayDiverged if the
        cassette holds other decisions.
        """
        settings, state = self.settings, self.state
        own = {call.id for call in state.pending.calls}  # the other questions are those of sub-runs
        if settings.recording is not None:
            decisions = (event for event in first_events if isinstance(event, ApprovalDecided))
            settings.recording.resume(state, [fact for fact in decisions if fact.call_id in own])
        rules = (settings if state.agent is None else settings_of(settings, state.agent)).rules
        for event in first_events:
            if isinstance(event, ApprovalDecided) and event.call_id in own:
                await record_decision(event, self.record, rules)
            else:
                await self.record(event)

    async def add_sub_run(self, usage_event: SubRunUsed) -> None:
        """Records what a sub-run has used, unless the run has ended."""
        recording = self.settings.recording
        await self.record(usage_event)
        if recording is not None and self.state.status == "running":
            recording.record_sub_run(usage_event)


class UsageRollUp:
    """Reports a run's usage to its parent each time the run ends or pauses. Takes the reports of the run's own sub-runs
    and records them, in the run's event loop, during the run."""

    def __init__(self, run_id: str, recorder: Recorder, journal: Journal) -> None:
        self._run_id = run_id
        self.recorder = recorder
        self.journal = journal
        self.loop: asyncio.AbstractEventLoop | None = None
        self._reported_usage, self._reported_cost, self._reported_calls = Usage(), 0.0, 0

    def begin(self, parent_run_id: str | None) -> None:
        """Starts to take reports of sub-runs. The parent's observers get the events of this run too."""
        parent = ACTIVE_RUNS.get(parent_run_id or "")
        if parent is not None:
            own, others = self.recorder, parent.recorder
            own.observers += tuple(each for each in others.observers if each not in own.observers)
            own.tracers += tuple(each for each in others.tracers if each not in own.tracers)
        self.loop = asyncio.get_running_loop()
        ACTIVE_RUNS[self._run_id] = self

    def end(self) -> None:
        """Stops taking reports: a sub-run may outlive the run."""
        if ACTIVE_RUNS.get(self._run_id) is self:
            del ACTIVE_RUNS[self._run_id]

    def skip(self, state: RunState | None) -> None:
        """Takes the usage of this state as reported already: the run is resumed from it."""
        if state is not None:
            totals = state.totals
            self._reported_usage, self._reported_cost, self._reported_calls = (
                totals.usage,
                totals.known_cost,
                totals.calls,
            )

    async def report(self, state: RunState | None, agent: str) -> None:
        """Reports the usage since the last report to the parent, if the parent runs in this process. The parent has
        recorded it when this returns, even if this is cancelled."""
        parent = ACTIVE_RUNS.get(state.parent_run_id or "") if state is not None else None
        if state is None or parent is None:
            return
        calls = state.totals.calls - self._reported_calls if state.model == PROGRAM else 0
        if state.totals.usage == self._reported_usage and not calls:
            return
        usage, cost = state.totals.usage.since(self._reported_usage), state.totals.known_cost - self._reported_cost
        self.skip(state)
        usage_event = SubRunUsed(
            state.run_id, agent, usage, state.totals.estimated, None if state.totals.unpriced else cost, calls
        )
        report = asyncio.ensure_future(_report_to(parent, usage_event))
        try:
            await asyncio.shield(report)
        except asyncio.CancelledError:
            await asyncio.wait([report])
            raise


async def _report_to(parent: UsageRollUp, usage_event: SubRunUsed) -> None:
    async def add() -> None:
        # A parent whose journal fails, or that another process took over, raises the error itself.
        with suppress(ToolspeakError):
            await parent.recorder.add_sub_run(usage_event)

    if parent.loop is None or parent.loop is asyncio.get_running_loop():
        await add()
        return
    work = add()
    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, parent.loop))
    except RuntimeError:  # the parent's loop is closed: the parent is over
        work.close()


class BatchRecorder:
    """Records the events of one run's batches. `first`: the settings of the agent that started the run."""

    def __init__(
        self, settings: RunSettings, recorder: Recorder, contexts: BatchContextFactory, first: RunSettings
    ) -> None:
        self._settings = settings
        self._first = first
        self._recorder = recorder
        self._contexts = contexts
        self._has_interceptors = any(settings.interceptors.values())
        self._memory: Memory | None = None

    def emit(self, event: Event) -> Awaitable[None]:
        """Records an event; a result together with the changes of the tools' memory."""
        if type(event) is ToolFinished:
            if event.result.name in self._settings.handoffs and event.result.status == "success":
                return self._hand_off(event)
            tools, name = self._contexts.toolset, event.result.name
            tool = tools.get(name) or tools.deferred_tool(name)
            # A tool that takes the context may have changed the memory, or an interceptor.
            if self._has_interceptors or (tool is not None and "context" in tool.injected_kinds.values()):
                return self._with_memory(event)
        return self._recorder.record(event)

    async def complete(self, batch: BatchResult) -> None:
        """Records the results that a custom executor has returned and not recorded. Raises ConfigurationError if a call
        has no result."""
        state = self._recorder.state
        done_ids = {result.call_id for result in state.pending.results}
        results = {result.call_id: result for result in batch.results}
        missing = [call.id for call in state.pending.calls if call.id not in done_ids | results.keys()]
        if missing:
            executor = type(self._settings.executor).__name__
            raise ConfigurationError(
                f"{executor}.run gave no result for {', '.join(missing)}: return one for each call"
            )
        for call in state.pending.calls:
            if call.id not in done_ids:
                await self.emit(ToolFinished(results[call.id]))

    async def _hand_off(self, event: ToolFinished) -> None:
        """Records a hand-off, then the result of the call that made it. The first one of a step counts."""
        settings, pending = self._settings, self._recorder.state.pending
        if pending.handoff is None:
            agent = settings_of(self._first, settings.handoffs[event.result.name])
            await self._recorder.record(HandedOff(event.call_id, agent.agent, agent.driver.name, agent.choice))
        elif pending.handoff.call_id != event.call_id:
            call = next(call for call in pending.calls if call.id == event.call_id)
            reason = f"another call has handed the conversation to {pending.handoff.agent}; make one hand-off at a time"
            event = replace(event, result=failure(call, "blocked", reason))
        await self._recorder.record(event)

    async def _with_memory(self, event: ToolFinished) -> None:
        if self._memory is None:
            self._memory = Memory(self._contexts.memory, self._recorder.state.memory, self._settings.secrets)
        changes, refusals = self._memory.changes()
        await self._recorder.record(replace(event, memory=changes) if changes else event)
        for key, reason in refusals.items():
            raise ToolDefinitionError(
                f"the tool {event.result.name} stored a value in RunContext.memory[{key!r}] that is not JSON: {reason}."
                " The memory is recorded with the run, so it takes only JSON; put other values in `deps`"
            )


class BatchContextFactory:
    """Makes the contexts of a run's batches and interceptors, and holds what they share.

    It has no reference to the `Run`, so that a run that is over is freed at once with its messages, and not by the
    garbage collector.
    """

    def __init__(self, settings: RunSettings, run_id: str, recorder: Recorder, memory: dict[str, Any]) -> None:
        self.settings = settings
        self._run_id = run_id
        self._recorder = recorder
        self.memory = memory
        self.scope = RunScope(timers=Timers(), details=recorder.run_records.details)
        self.pause = Pause()
        self.toolset = settings.toolset
        """The tools of the last turn."""
        self.turn_tools: Toolset | None = None
        """The same, of an agent that computes them for each turn."""
        self._tools: dict[str, Tool] = {}  # the last ones of each name that such turns had
        self.show: Callable[[ToolProgress], object] | None = None
        """Takes what tools report of their progress."""

    def batch(self, state: RunState) -> BatchContext:
        """The context of a batch, with the run's state before it."""
        settings = self.settings
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
            trace=self._recorder.trace,
            tools=self.turn_tools,
            waits=state.pending.waits if state.pending.call_events else _NO_WAITS,
            ended_waits=state.pending.ended_waits if state.pending.call_events else _NO_WAITS,
        )

    def offer(self, tools: Toolset) -> None:
        """Takes the tools of the next turn. Empties the result cache if another tool now has the name of an earlier
        one."""
        self.toolset = self.turn_tools = tools
        earlier = self._tools
        for each in tools:
            before = earlier.get(each.name)
            if before is each:
                continue
            earlier[each.name] = each
            if before is not None and (before.function is not each.function or before.spec != each.spec):
                self.scope = evolve(self.scope, result_cache=ResultCache())

    def hand_over(self, settings: RunSettings) -> None:
        """Continues with another agent, whose tools may have the same names and other functions."""
        self.settings = self._recorder.settings = settings
        self.toolset, self.turn_tools, self._tools = settings.toolset, None, {}
        self.scope = evolve(self.scope, result_cache=ResultCache(), _tools={})

    def hook(self, notes: HookNotes, name: str) -> HookContext:
        """The context of the interceptor of this name."""
        state = self._recorder.current
        step = 0 if state is None else state.step
        own = self.settings
        return HookContext(
            self._run_id, step, own.deps, self.memory, state, notes, name, agent=own.agent, _record=self.record_retry
        )

    async def record_retry(self, event: RetryScheduled) -> None:
        """Records that something is tried again, with placeholders for secrets."""
        await self._recorder.record(hide_retry(event, self.settings.secrets))

    def _report(self, call_id: str, message: str) -> None:
        if self.show is not None:
            self.show(ToolProgress(call_id, message))
