"""What a trace shows of a drive that was lost: its span, and the time until another process went on with the run.

A process that is killed exports no span that goes on, so that the spans below it would belong to nothing. The run's
records say which span it was, when it began and when it was last alive.
"""

from __future__ import annotations

import time

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace import Tracer as SdkTracer
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status, StatusCode, Tracer

from toolspeak.agent.recording.tracing import Drive
from toolspeak.data.events import Record
from toolspeak.telemetry import convention_names as names
from toolspeak.telemetry.span_contexts import SCOPE, read_traceparent
from toolspeak.version import __version__


def report_takeover(tracer: Tracer, drive: Drive, context: Context) -> None:
    """Exports the span of the lost drive, and one for the time after it."""
    last = drive.last
    if last is None:
        return
    lost_context = read_traceparent(last.traceparent) if drive.drive_start is not None else None
    span = tracer.start_span(
        "takeover",
        context,
        attributes={names.RUN: drive.run_id, names.AGENT: drive.agent},
        links=[] if lost_context is None else [Link(lost_context, {names.LINK: "lost"})],
        start_time=_nanoseconds(last.time),
    )
    span.end()
    if drive.drive_start is not None and isinstance(tracer, SdkTracer):
        lost_span = _lost_span(tracer, drive, drive.drive_start, last)
        if lost_span is not None:
            tracer.span_processor.on_end(lost_span)


def _lost_span(tracer: SdkTracer, drive: Drive, drive_start: Record, last: Record) -> ReadableSpan | None:
    """The span of the drive that recorded `drive_start` first and `last` last, as far as it came."""
    context = read_traceparent(last.traceparent)
    if context is None:
        return None
    provider, model = names.provider_and_model(drive.model)
    return ReadableSpan(
        f"invoke_agent {last.agent}",
        context,
        read_traceparent(getattr(drive_start.event, "caller_trace", None)),
        tracer.resource,
        attributes={
            names.OPERATION: "invoke_agent",
            names.PROVIDER: provider,
            names.REQUEST_MODEL: model,
            names.AGENT: last.agent,
            names.RUN: drive.run_id,
            names.STATUS: "lost",
            names.ERROR: "lost",
        },
        status=Status(StatusCode.ERROR, "the process that drove the run was lost; another one went on with it"),
        start_time=_nanoseconds(drive_start.time),
        end_time=_nanoseconds(last.time),
        instrumentation_scope=InstrumentationScope(SCOPE, __version__),
    )


def _nanoseconds(seconds: float) -> int:
    """Unix nanoseconds, not in the future: another machine's clock may be ahead."""
    return min(int(seconds * 1e9), time.time_ns())
