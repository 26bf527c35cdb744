"""Tracers: what lets a run show in a trace. `telemetry` has one.

The records of a run tell a trace nearly everything. What a record cannot be is the context in which a tool runs, so
that the tool's own requests belong to its call.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from toolspeak.agent.recording.recorder import Recorder
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.state import FINAL, RunState
from toolspeak.data.events import Event, Record, RunResumed, RunStarted
from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import evolve, quick
from toolspeak.execute.calls.observe import CallTrace
from toolspeak.providers.trace_context import TRACE, trace_id


@quick()
class Drive:
    """A process begins to drive a run.

    - `agent`: the agent's name. `model`: its driver's name. `dialect`: how it writes calls; `native` for an API's own.
    - `tools`, `instructions`: those that the agent begins with, without secrets.
    - `traceparent`: the trace that the caller names for a new run.
    - `session_id`: the session that it belongs to.
    - `state`: where a run stands that goes on; None for a new one. `last`: its last record.
    - `drive_start`: the first record of the drive before this one, if that was traced.
    - `took_over`: the process that drove it before was lost, and so was the span of that drive.
    """

    run_id: str
    agent: str
    model: str
    dialect: str
    tools: Sequence[ToolSpec] = ()
    instructions: str = ""
    traceparent: str | None = None
    parent_run_id: str | None = None
    state: RunState | None = None
    last: Record | None = None
    drive_start: Record | None = None
    session_id: str | None = None
    took_over: bool = False


class RunTrace(CallTrace, Protocol):
    """The trace of one drive of a run. Its methods raise nothing."""

    caller: str
    """The `traceparent` of the drive's caller, empty without one (`RunStarted.caller_trace`)."""

    def active(self) -> AbstractContextManager[None]:
        """Makes the run the current context, for the next step."""
        ...

    def end(self, error: BaseException | None) -> None:
        """The process drives the run no more: it has ended or paused, or `error` broke it off."""
        ...


class Tracer(Protocol):
    """Begins a trace for each drive of a run. Give it to an agent among its `observers`, or install it for all. It is
    not called with events: the trace gets the records."""

    def begin_run(self, drive: Drive, /) -> RunTrace | None:
        """Returns the trace of a drive, in the context of the run's caller; None if nothing of it is recorded."""
        ...


class NoTrace:
    """The trace of a run that no tracer records. Its requests to models and MCP servers carry the caller's trace."""

    traceparent: str | None = None
    caller = ""

    def __init__(self, traceparent: str = "") -> None:
        self._headers = {"traceparent": traceparent} if traceparent else None

    def __call__(self, record: Record, state: object, /) -> None: ...

    def active(self) -> AbstractContextManager[None]:
        return nullcontext() if self._headers is None else _passing_on(self._headers)

    def call(self, call: ToolCall, /, *, early: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def end(self, error: BaseException | None) -> None: ...


NO_TRACE = NoTrace()


@contextmanager
def _passing_on(headers: Mapping[str, str]) -> Generator[None]:
    token = TRACE.set(headers)
    try:
        yield
    finally:
        TRACE.reset(token)


_INSTALLED_TRACERS: list[Tracer] = []


def install_tracer(tracer: Tracer | None) -> None:
    """Lets every run of this process that has no tracer of its own be traced by this one; None by none."""
    _INSTALLED_TRACERS[:] = [] if tracer is None else [tracer]


def begin_trace(
    recorder: Recorder, settings: RunSettings, run_id: str, first_events: Sequence[Event]
) -> tuple[RunTrace, Sequence[Event]]:
    """Begins the trace of a run that this process begins to drive. Call it once the run's records are read, and before
    the next one. Returns the events that open the drive, with the trace that its caller is in."""
    state, driver, records = recorder.current, settings.driver, recorder.run_records.records
    if state is not None and state.status in FINAL:
        return NO_TRACE, first_events
    traceparent = settings.traceparent if state is None else state.traceparent
    passed_on = NoTrace(traceparent) if traceparent is not None and trace_id(traceparent) else NO_TRACE
    tracers = recorder.tracers or _INSTALLED_TRACERS
    if not tracers:
        return passed_on, first_events
    run_start = records[0].event if records else next(iter(first_events), None)
    drive_start = next((each for each in reversed(records) if isinstance(each.event, _DRIVE_STARTS)), None)
    if drive_start is not None and getattr(drive_start.event, "caller_trace", None) is None:
        drive_start = None  # its `traceparent` is the caller's
    trace: RunTrace | None = tracers[0].begin_run(
        Drive(
            run_id=run_id,
            agent=settings.agent if state is None else state.agent or settings.agent,
            model=driver.name if state is None else state.model,
            dialect=getattr(getattr(driver, "dialect", None), "name", "native"),
            tools=settings.toolset.specs,
            instructions=settings.instructions,
            traceparent=traceparent,
            parent_run_id=settings.parent_run_id if state is None else state.parent_run_id,
            state=state,
            last=records[-1] if records else None,
            drive_start=drive_start,
            session_id=getattr(run_start, "session_id", None),
            took_over=recorder.lease is not None and recorder.lease.took_over,
        )
    )
    if trace is None:
        return passed_on, first_events
    recorder.trace = trace
    if trace.traceparent is None:
        return trace, first_events
    traced_events = (
        evolve(each, caller_trace=trace.caller) if isinstance(each, _DRIVE_STARTS) else each for each in first_events
    )
    return trace, tuple(traced_events)


_DRIVE_STARTS = (RunStarted, RunResumed)
