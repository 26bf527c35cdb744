"""The trace of a recorded run: the spans that `RunSpans` makes, from the journal and with the times of the records.

What no record holds is missing: retries of model requests, calls that were dropped, the dialect of a program that does
not record its setup, and the spans of requests within tools.
"""

from __future__ import annotations

import contextvars
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer

from toolspeak.agent.child_runs import sub_run_id
from toolspeak.agent.recording.tracing import Drive
from toolspeak.agent.state.fold import apply
from toolspeak.agent.state.state import RunState
from toolspeak.agent.storage.runs import load_whole
from toolspeak.data.events import Record, RunPaused, RunResumed, RunStarted, ToolFinished, ToolStarted
from toolspeak.data.messages import Message, ToolCall
from toolspeak.execute.sub_runs import SubRuns
from toolspeak.journal.base import RunInfo
from toolspeak.journal.maintenance import MaintainedJournal
from toolspeak.telemetry.instruments import Instruments
from toolspeak.telemetry.run_spans import RunSpans
from toolspeak.telemetry.span_contexts import SCOPE, read_traceparent
from toolspeak.version import __version__

_MOST_STARTS = 20
"""How many runs of one task a call is expected to start at most."""


async def recorded_trace(
    journal: MaintainedJournal, run_id: str, *, content: bool = False, resource: Resource | None = None
) -> Sequence[ReadableSpan]:
    """Returns the spans of a run and of the runs that its tools started, in the order in which they ended.

    A run that was traced keeps its trace id and the ids of its `invoke_agent` spans. All other ids follow from the
    run's id, so that a second export gives the same spans. Raises RunError if the journal does not have the run.
    """
    group = await journal.group_of(run_id)
    runs = () if group is None else group.runs
    spans: list[ReadableSpan] = []
    await _add_run(journal, run_id, runs, None, content=content, resource=resource, spans=spans)
    return sorted(spans, key=lambda span: span.end_time or 0)


async def _add_run(
    journal: MaintainedJournal,
    run_id: str,
    runs: Sequence[RunInfo],
    parent: SpanContext | None,
    *,
    content: bool,
    resource: Resource | None,
    spans: list[ReadableSpan],
) -> None:
    run = await load_whole(journal, run_id)
    replay = _Replay(run_id, content=content, resource=resource)
    # Spans become the current ones while they are made, as in a live run.
    contextvars.copy_context().run(replay.play, run.records, run.before, parent)
    spans += replay.spans
    for child in runs:
        if child.parent_run_id == run_id and child.session_id is None:
            (first,) = await journal.read(child.run_id, 0, 1)
            above = replay.calls.get(_call_of(first, replay.calls), replay.root)
            await _add_run(journal, child.run_id, runs, above, content=content, resource=resource, spans=spans)


def _call_of(first: Record, calls: Mapping[str, SpanContext]) -> str:
    """The call whose function started a run, by the id that it gave the run; "" if none did."""
    run_start = cast("RunStarted", first.event)
    for call_id in calls:
        starts = SubRuns(first.parent_run_id or "", call_id)
        for _ in range(_MOST_STARTS):
            if sub_run_id(starts, first.agent, run_start.messages) == first.run_id:
                return call_id
    return ""


class _Replay:
    """Plays a run's records to `RunSpans`.

    - `spans`: those that have ended.
    - `calls`: the spans of calls whose function ran, by the call's id. `root`: the newest `invoke_agent` span.
    """

    def __init__(self, run_id: str, *, content: bool, resource: Resource | None) -> None:
        self.run_id = run_id
        self.spans: list[ReadableSpan] = []
        self.calls: dict[str, SpanContext] = {}
        self.root: SpanContext | None = None
        self._content = content
        self._ids = _RecordedIds(run_id)
        provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=self._ids)
        provider.add_span_processor(_Collector(self.spans))
        self._tracer = _RecordedTracer(provider.get_tracer(SCOPE, __version__))

    def play(self, records: Sequence[Record], before: Sequence[Message], parent: SpanContext | None) -> None:
        state: RunState | None = None
        for drive in _drives(records):
            state = self._play_drive(drive, state, before, parent)

    def _play_drive(
        self, records: Sequence[Record], state: RunState | None, before: Sequence[Message], parent: SpanContext | None
    ) -> RunState:
        tracer, first = self._tracer, records[0]
        opening = next((record for record in records if isinstance(record.event, RunStarted | RunResumed)), first)
        caller, own = getattr(opening.event, "caller_trace", None), read_traceparent(opening.traceparent)
        if caller is None:  # not traced: the records have the trace of the caller
            caller, own = opening.traceparent, None
        above = parent or read_traceparent(caller)
        if above is None and state is not None:
            above = self.root  # a later drive of a run is below the one before
        tracer.now = _nanoseconds(first)
        self._ids.next_trace, self._ids.next_span = (None, None) if own is None else (own.trace_id, own.span_id)
        run_start = records[0].event
        drive = Drive(
            run_id=self.run_id,
            agent=first.agent,
            model=run_start.model if isinstance(run_start, RunStarted) else state.model if state is not None else "",
            dialect=_dialect_of(run_start),
            traceparent=None if above is None else _traceparent(above),
            parent_run_id=first.parent_run_id,
            state=state,
            session_id=run_start.session_id if isinstance(run_start, RunStarted) else None,
        )
        spans = RunSpans(tracer, Instruments(metrics.NoOpMeter(SCOPE)), drive, content=self._content)
        self.root = tracer.newest
        functions: dict[str, AbstractContextManager[None]] = {}
        for record in records:
            tracer.now, event = _nanoseconds(record), record.event
            state = apply(state, record, before)
            if isinstance(event, ToolStarted):
                calls = {call.id: call for call in state.pending.calls if isinstance(call, ToolCall)}
                call = event.changed or calls.get(event.call_id) or ToolCall(event.call_id, event.name, {})
                functions[event.call_id] = spans.call(call, early=event.early)
                functions[event.call_id].__enter__()
                if tracer.newest is not None:
                    self.calls[event.call_id] = tracer.newest
            elif isinstance(event, ToolFinished) and event.call_id in functions:
                functions.pop(event.call_id).__exit__(None, None, None)
            spans(record, state)
        for function in functions.values():
            function.__exit__(None, None, None)
        spans.end(None)
        assert state is not None, "a drive has records"
        return state


def _drives(records: Sequence[Record]) -> list[list[Record]]:
    """The records of each drive. A drive begins after a pause, or where the run was resumed after it broke off."""
    drives: list[list[Record]] = []
    has_ended = True
    for record in records:
        resumes = isinstance(record.event, RunResumed) and any(
            isinstance(each.event, RunStarted | RunResumed) for each in drives[-1]
        )
        if has_ended or resumes:
            drives.append([])
        drives[-1].append(record)
        has_ended = isinstance(record.event, RunPaused)
    return drives


def _dialect_of(event: object) -> str:
    """The dialect in the setup of a run, as the command line records it."""
    return str(event.setup.get("dialect") or "unknown") if isinstance(event, RunStarted) else "unknown"


def _nanoseconds(record: Record) -> int:
    return int(record.time * 1e9)


def _traceparent(span: SpanContext) -> str:
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-01"


class _RecordedIds(IdGenerator):
    """Ids that follow from a run's id. `next_trace`, `next_span`: those of the next span, if they are recorded."""

    def __init__(self, run_id: str) -> None:
        self.next_trace: int | None = None
        self.next_span: int | None = None
        self._run_id = run_id
        self._count = 0

    def _digest(self, what: str, size: int) -> int:
        data = f"{self._run_id}\n{what}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(data).digest()[:size], "big") or 1

    def generate_trace_id(self) -> int:
        trace_id, self.next_trace = self.next_trace, None
        return trace_id or self._digest("trace", 16)

    def generate_span_id(self) -> int:
        span_id, self.next_span = self.next_span, None
        self._count += 1
        return span_id or self._digest(f"span {self._count}", 8)


class _Collector(SpanProcessor):
    def __init__(self, spans: list[ReadableSpan]) -> None:
        self._spans = spans

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)


class _RecordedTracer(Tracer):
    """Makes spans that begin and end at `now` (Unix nanoseconds). `newest`: the span that was made last."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.now = 0
        self.newest: SpanContext | None = None

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Any = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> Span:
        span = self._tracer.start_span(name, context, kind, attributes, links, self.now)
        self.newest = span.get_span_context()
        return _RecordedSpan(span, self)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return trace.use_span(self.start_span(*args, **kwargs), end_on_exit=True)


class _RecordedSpan(Span):
    """A span whose events and end have the time of its tracer."""

    def __init__(self, span: Span, tracer: _RecordedTracer) -> None:
        self._span = span
        self._tracer = tracer

    def end(self, end_time: int | None = None) -> None:
        self._span.end(self._tracer.now)

    def get_span_context(self) -> SpanContext:
        return self._span.get_span_context()

    def set_attributes(self, attributes: Any) -> None:
        self._span.set_attributes(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        self._span.set_attribute(key, value)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        self._span.add_event(name, attributes, self._tracer.now)

    def update_name(self, name: str) -> None:
        self._span.update_name(name)

    def is_recording(self) -> bool:
        return self._span.is_recording()

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        self._span.set_status(status, description)

    def record_exception(self, exception: BaseException, *args: Any, **kwargs: Any) -> None:
        self._span.record_exception(exception, *args, **kwargs)
