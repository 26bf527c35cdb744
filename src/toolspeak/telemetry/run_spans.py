"""The spans and metrics of one drive of a run, made of its records as they come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer

from toolspeak.agent.drivers.program_driver import PROGRAM
from toolspeak.agent.recording.tracing import Drive
from toolspeak.data import events
from toolspeak.data.events import Record
from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.providers.trace_context import RETRY_LISTENER, TRACE
from toolspeak.telemetry import convention_names as names
from toolspeak.telemetry.instruments import Instruments
from toolspeak.telemetry.message_content import arguments_json, system_json, tools_json
from toolspeak.telemetry.span_attributes import (
    answer_attributes,
    call_attributes,
    chat_attributes,
    result_attributes,
    usage_attributes,
)
from toolspeak.telemetry.span_contexts import Attributes, current_span, headers_of, parent_and_links
from toolspeak.telemetry.takeovers import report_takeover
from toolspeak.tools.context import StateView

_LOG = logging.getLogger("toolspeak.telemetry")


@dataclass(slots=True)
class _OpenSpan:
    """A span that goes on.

    - `started_at`: on the clock of `time.perf_counter`.
    - `ended_at`: Unix nanoseconds, once its function is over but its result is not recorded yet.
    """

    span: Span
    started_at: float
    ended_at: int | None = None


class RunSpans:
    """The trace of one drive: `invoke_agent`, below it `chat`, `execute_tool` and `approval`.

    Spans are made only if the first one is recorded; metrics always. Nothing here raises: what goes wrong is logged.
    """

    def __init__(self, tracer: Tracer, instruments: Instruments, drive: Drive, *, content: bool) -> None:
        self._tracer = tracer
        self._instruments = instruments
        self._drive = drive
        self._content = content
        self._agent = drive.agent
        self._provider, self._model = names.provider_and_model(drive.model)
        self._started_at = time.perf_counter()
        self._steps = 0
        self._status = ""
        is_resumed = drive.state is not None
        context, links = parent_and_links(drive.traceparent, resumed=is_resumed)
        attributes = self._run_attributes()
        state = drive.state
        # A drive that was cancelled ended its span and released its lease; no record says so.
        broken_off = state is not None and state.status == "running"
        self._taken_over = broken_off and drive.took_over
        if state is not None:
            status = "broken_off" if broken_off else state.status
            attributes[names.RESUMED_FROM] = "takeover" if self._taken_over else status
        self._root = tracer.start_span(f"invoke_agent {drive.agent}", context, attributes=attributes, links=links)
        self._records = self._root.is_recording()
        if self._taken_over and self._records:
            report_takeover(tracer, drive, context)
        self._span = self._root
        self._use(self._root, context)
        self.caller = headers_of(trace.get_current_span(context)).get("traceparent", "")
        self.traceparent: str | None = self._headers.get("traceparent")
        self._chat: _OpenSpan | None = None
        self._retries = 0
        self._step_started_at: float | None = None
        self._open_calls: set[str] = set()
        self._calls: dict[str, _OpenSpan] = {}
        self._approvals: dict[str, Span | None] = {}
        self._handlers: dict[type, Callable[[Record, Any, StateView], None]] = {
            events.ModelAsked: self._on_asked,
            events.ModelAnswered: self._on_answered,
            events.ModelFailed: self._on_failed,
            events.ToolFinished: self._on_finished,
            events.ApprovalRequested: self._on_approval_requested,
            events.ApprovalDecided: self._on_approval_decided,
            events.HistoryCompacted: self._on_compacted,
            events.LimitReached: self._on_limit_reached,
            events.RunPaused: self._on_paused,
            events.RunFinished: self._on_run_finished,
        }
        instruments.active.add(1, self._labels())
        if self._taken_over:
            instruments.takeovers.add(1, self._labels())

    # --- what the run calls -----------------------------------------------------------------------------------------

    def __call__(self, record: Record, state: StateView, /) -> None:
        """Takes a record, with the state after it."""
        handler = self._handlers.get(type(record.event))
        if handler is None:
            return
        try:
            handler(record, record.event, state)
        except Exception:  # noqa: BLE001 - telemetry is no reason to fail a run
            _LOG.exception("telemetry failed at a record of the run %s", record.run_id)

    def active(self) -> AbstractContextManager[None]:
        """Makes the run's span the current one."""
        return current_span(self._context, self._headers)

    @contextmanager
    def call(self, call: ToolCall, /, *, early: bool) -> Generator[None]:
        """Makes a call's span the current one while its function runs."""
        started_at, span, around = time.perf_counter(), trace.INVALID_SPAN, nullcontext()
        if self._records:
            attributes = call_attributes(self._drive.run_id, self._agent, call.id, call.name)
            if early:
                attributes[names.EARLY] = True
            if self._content:
                attributes[names.ARGUMENTS] = arguments_json(call.arguments)
            # An early call begins within the turn, and belongs to the run as every other.
            parent = trace.set_span_in_context(self._span)
            span = self._tracer.start_span(f"execute_tool {call.name}", parent, attributes=attributes)
            around = current_span(trace.set_span_in_context(span), headers_of(span))
        earlier_span, self._calls[call.id] = self._calls.get(call.id), (entry := _OpenSpan(span, started_at))
        if earlier_span is not None:
            _end_dropped(earlier_span)
        with around:
            try:
                yield
            finally:
                entry.ended_at = time.time_ns()
                seconds = time.perf_counter() - started_at
                self._instruments.tool_seconds.record(seconds, self._labels({names.TOOL: call.name}))

    def end(self, error: BaseException | None) -> None:
        """Ends all spans."""
        try:
            self._end(error)
        except Exception:  # noqa: BLE001 - as above
            _LOG.exception("telemetry failed at the end of the run %s", self._drive.run_id)

    # --- records ----------------------------------------------------------------------------------------------------

    def _on_asked(self, record: Record, event: events.ModelAsked, state: StateView) -> None:
        if record.agent != self._agent:
            self._hand_over(record.agent)
        self._provider, self._model = names.provider_and_model(event.model)
        self._end_chat(None)
        self._step_started_at = self._step_started_at or time.perf_counter()
        self._retries = 0
        span = trace.INVALID_SPAN
        if event.model == PROGRAM:  # no model is asked
            return
        if self._records:
            history = getattr(state, "history", ()) if self._content else None
            attributes = chat_attributes(
                record.run_id, self._agent, event.model, self._drive.dialect, record.step, history
            )
            span = self._tracer.start_span(
                f"chat {self._model}", self._context, kind=SpanKind.CLIENT, attributes=attributes
            )
            otel.attach(trace.set_span_in_context(span, self._context))
            TRACE.set(headers_of(span))
        RETRY_LISTENER.set(self._on_retry)
        self._chat = _OpenSpan(span, time.perf_counter())

    def _on_retry(self, error: Exception | None) -> None:
        self._retries += 1
        self._instruments.retries.add(1, self._model_labels())
        if self._chat is not None:
            code = getattr(error, "code", None) or (type(error).__name__ if error is not None else names.OTHER)
            self._chat.span.add_event("toolspeak.retry", {names.ERROR: str(code)})

    def _on_answered(self, record: Record, event: events.ModelAnswered, state: StateView) -> None:
        labels = self._model_labels()
        malformed_calls = [call for call in event.message.calls if isinstance(call, MalformedCall)]
        for call in malformed_calls:
            self._instruments.malformed_calls.add(
                1, {**labels, names.DIALECT: self._drive.dialect, names.MALFORMED_CODE: call.code}
            )
        if self._model != PROGRAM:
            self._instruments.count_usage(event.usage, event.cost, labels)
        if self._chat is not None and self._records:
            span = self._chat.span
            span.set_attributes(answer_attributes(event, content=self._content))
            if self._retries:
                span.set_attribute(names.RETRIES, self._retries)
            for call in malformed_calls:
                span.add_event("toolspeak.malformed_call", {names.MALFORMED_CODE: call.code, names.CALL_ID: call.id})
        self._end_chat(None)
        self._open_calls = {call.id for call in event.message.calls}
        if not self._open_calls:
            self._end_step()

    def _on_failed(self, _record: Record, event: events.ModelFailed, _state: StateView) -> None:
        self._end_chat(str(event.status or "provider_error"), event.error)

    def _on_finished(self, record: Record, event: events.ToolFinished, _state: StateView) -> None:
        result, entry = event.result, self._calls.pop(event.result.call_id, None)
        status = result.code or result.status
        tool = names.OTHER if result.code == "unknown_tool" else result.name or names.OTHER
        self._instruments.calls.add(1, self._labels({names.TOOL: tool, names.CALL_STATUS: status}))
        if self._records and status != "malformed":  # the turn's span has those
            span = None if entry is None else entry.span
            if span is None:  # its function did not run: refused, answered from the cache, not to be run
                attributes = call_attributes(record.run_id, self._agent, result.call_id, tool)
                span = self._tracer.start_span(f"execute_tool {tool}", self._context, attributes=attributes)
            span.set_attributes(result_attributes(result, content=self._content))
            if result.status == "failure":
                span.set_status(StatusCode.ERROR, status)
            span.end(None if entry is None else entry.ended_at)
        self._open_calls.discard(result.call_id)
        if not self._open_calls:
            self._end_step()

    def _on_approval_requested(self, record: Record, event: events.ApprovalRequested, _state: StateView) -> None:
        self._instruments.waiting.add(1, self._labels())
        span = None
        if self._records:
            span = self._tracer.start_span(
                f"approval {event.call.name}",
                self._context,
                attributes={names.RUN: record.run_id, names.TOOL: event.call.name, names.CALL_ID: event.call_id},
            )
            if self._content:
                span.set_attribute(names.REASON, event.reason)
        self._end_approval(event.call_id, "")
        self._approvals[event.call_id] = span

    def _on_approval_decided(self, record: Record, event: events.ApprovalDecided, _state: StateView) -> None:
        decision = "approved" if event.approved else "rejected"
        self._instruments.approvals.add(1, self._labels({names.DECISION: decision}))
        if event.call_id not in self._approvals and self._records:  # asked in an earlier drive, or not at all
            self._root.add_event("toolspeak.approval", {names.CALL_ID: event.call_id, names.DECISION: decision})
        self._end_approval(event.call_id, decision)

    def _on_compacted(self, _record: Record, event: events.HistoryCompacted, _state: StateView) -> None:
        self._instruments.count_usage(event.usage, event.cost, self._model_labels())
        self._root.add_event(
            "toolspeak.history_compacted",
            {"toolspeak.tokens_before": event.tokens_before, "toolspeak.tokens_after": event.tokens_after},
        )

    def _on_limit_reached(self, _record: Record, event: events.LimitReached, _state: StateView) -> None:
        self._end_chat("limit")
        self._root.add_event("toolspeak.limit_reached", {names.LIMIT: event.limit})

    def _on_paused(self, _record: Record, event: events.RunPaused, state: StateView) -> None:
        self._settle(event.reason, "", state)

    def _on_run_finished(self, _record: Record, event: events.RunFinished, state: StateView) -> None:
        self._settle(event.status, event.reason, state)

    def _settle(self, status: str, reason: str, state: StateView) -> None:
        """Notes how the drive ends."""
        self._status = status
        self._instruments.runs.add(1, self._labels({names.STATUS: status}))
        totals = getattr(state, "totals", None)
        self._root.set_attributes(
            {
                names.STATUS: status,
                names.STEPS: getattr(state, "step", 0),
                **({names.REASON: reason} if reason else {}),
                **({} if totals is None else usage_attributes(totals.usage, totals.cost)),
            }
        )
        if status == "failed":
            self._root.set_attribute(names.ERROR, reason or "failed")
            self._root.set_status(StatusCode.ERROR, getattr(state, "error", "") or reason)

    # --- the ends of spans ------------------------------------------------------------------------------------------

    def _end_chat(self, error: str | None, description: str | None = None) -> None:
        chat, self._chat = self._chat, None
        if chat is None:
            return
        labels = self._model_labels() if error is None else {**self._model_labels(), names.ERROR: error}
        self._instruments.chat_seconds.record(time.perf_counter() - chat.started_at, labels)
        RETRY_LISTENER.set(None)
        if self._records:
            if error is not None:
                chat.span.set_attribute(names.ERROR, error)
                chat.span.set_status(StatusCode.ERROR, description)
            chat.span.end()
            # Not the tokens of before: the record may come in another context than the question.
            otel.attach(self._context)
            TRACE.set(self._headers)

    def _end_step(self) -> None:
        started_at, self._step_started_at = self._step_started_at, None
        if started_at is not None:
            self._steps += 1
            self._instruments.step_seconds.record(time.perf_counter() - started_at, self._labels())

    def _end_approval(self, call_id: str, decision: str) -> None:
        if call_id not in self._approvals:
            return
        self._instruments.waiting.add(-1, self._labels())
        span = self._approvals.pop(call_id)
        if span is not None:
            span.set_attribute(names.DECISION, decision or "pending")
            span.end()

    def _hand_over(self, agent: str) -> None:
        """Another agent goes on: it has a span of its own below the run's."""
        before, self._agent = self._agent, agent
        if not self._records:
            return
        if self._span is not self._root:
            self._span.end()
        context = trace.set_span_in_context(self._root, self._context)
        attributes = {**self._run_attributes(), names.HANDED_OFF_FROM: before}
        self._span = self._tracer.start_span(f"invoke_agent {agent}", context, attributes=attributes)
        self._use(self._span, context)

    def _end(self, error: BaseException | None) -> None:
        for call_id in list(self._approvals):
            self._end_approval(call_id, "")
        name = None if error is None else "cancelled" if _is_cancelled(error) else type(error).__name__
        self._end_chat(name)
        for entry in self._calls.values():
            _end_dropped(entry)
        self._calls.clear()
        if self._span is not self._root:
            self._span.end()
        labels = self._labels()
        if not self._status:
            self._instruments.runs.add(1, self._labels({names.STATUS: "broken_off"}))
            self._root.set_attribute(names.STATUS, "broken_off")
            if name is not None:
                labels[names.ERROR] = name
                self._root.set_attribute(names.ERROR, name)
                self._root.set_status(StatusCode.ERROR, name)
        self._instruments.active.add(-1, self._labels(agent=self._drive.agent))
        self._instruments.run_seconds.record(time.perf_counter() - self._started_at, labels)
        self._root.end()

    # --- attributes -------------------------------------------------------------------------------------------------

    def _use(self, span: Span, context: otel.Context) -> None:
        self._context, self._headers = trace.set_span_in_context(span, context), headers_of(span)

    def _run_attributes(self) -> Attributes:
        drive = self._drive
        attributes: Attributes = {
            names.OPERATION: "invoke_agent",
            names.PROVIDER: self._provider,
            names.REQUEST_MODEL: self._model,
            names.AGENT: self._agent,
            names.RUN: drive.run_id,
            names.DIALECT: drive.dialect,
        }
        if drive.session_id is not None:
            attributes[names.CONVERSATION] = drive.session_id
        if drive.parent_run_id is not None:
            attributes[names.PARENT_RUN] = drive.parent_run_id
        if self._content:
            attributes[names.SYSTEM] = system_json(drive.instructions)
            attributes[names.TOOL_DEFINITIONS] = tools_json(drive.tools)
        return attributes

    def _labels(self, more: Mapping[str, str] | None = None, *, agent: str | None = None) -> dict[str, str]:
        return {names.AGENT: agent or self._agent, **(more or {})}

    def _model_labels(self) -> dict[str, str]:
        return {
            names.OPERATION: "chat",
            names.PROVIDER: self._provider,
            names.REQUEST_MODEL: self._model,
            names.AGENT: self._agent,
        }


def _end_dropped(entry: _OpenSpan) -> None:
    """Ends the span of a call whose result nobody recorded: the run broke off, or the call had started early."""
    entry.span.set_attribute(names.CALL_STATUS, "dropped")
    entry.span.end(entry.ended_at)


def _is_cancelled(error: BaseException) -> bool:
    return type(error).__name__ in ("CancelledError", "GeneratorExit", "KeyboardInterrupt")
