"""Spans as W3C Trace Context writes them, and which span a run belongs to."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from toolspeak.data.messages import JSON
from toolspeak.providers.trace_context import TRACE
from toolspeak.telemetry import convention_names as names

_W3C = TraceContextTextMapPropagator()
SCOPE = "toolspeak"
Attributes = dict[str, JSON]


def headers_of(span: Span) -> Mapping[str, str]:
    """`traceparent` and `tracestate` of a span; empty for one that is not valid."""
    context = span.get_span_context()
    if not context.is_valid:
        return {}
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header()
    return {"traceparent": parent, "tracestate": state} if state else {"traceparent": parent}


def read_traceparent(traceparent: str | None) -> SpanContext | None:
    """The span that a `traceparent` names; None if it is not valid."""
    if traceparent is None:
        return None
    span = trace.get_current_span(_W3C.extract({"traceparent": traceparent}, Context())).get_span_context()
    return span if span.is_valid else None


def with_parent(parent: SpanContext | None) -> Context:
    """The current context (its baggage stays) with another parent for spans."""
    return otel.get_current() if parent is None else trace.set_span_in_context(trace.NonRecordingSpan(parent))


def parent_and_links(traceparent: str | None, *, resumed: bool) -> tuple[Context, list[Link]]:
    """The context for the span of a drive, and what it is linked to.

    A run goes on in its recorded trace, wherever it is resumed, with a link to the span in which it is. Where that span
    is of the same trace, as for the run of a call that is entered again, it is the parent.
    """
    parent, current = read_traceparent(traceparent), trace.get_current_span().get_span_context()
    if parent is None:
        return otel.get_current(), []
    if current.is_valid and current.trace_id == parent.trace_id:
        return otel.get_current(), [Link(parent, {names.LINK: "resumed"})] if resumed else []
    return with_parent(parent), [Link(current, {names.LINK: "caller"})] if current.is_valid else []


@contextmanager
def current_span(context: Context, headers: Mapping[str, str]) -> Generator[None]:
    """Makes a context the current one, and its span that of requests to models and MCP servers."""
    token, trace_token = otel.attach(context), TRACE.set(headers)
    try:
        yield
    finally:
        TRACE.reset(trace_token)
        otel.detach(token)
