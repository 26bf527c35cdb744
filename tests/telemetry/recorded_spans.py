"""Telemetry that stays in the process, and what a test reads of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from toolspeak import telemetry


class Recording:
    """The SDK with exporters in memory."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(sampler=sampler)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def span(self, name: str) -> AbstractContextManager[Any]:
        """A span of the program around it."""
        return self.tracers.get_tracer("app").start_as_current_span(name)

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order in which they began."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def find(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def tree(self) -> list[str]:
        """The spans' names, each indented below its parent; a parent that is not here stands as `?`."""
        spans_by_id = {span.context.span_id: span for span in self.spans}

        def depth(span: ReadableSpan) -> int:
            if span.parent is None:
                return 0
            return 1 + depth(spans_by_id[span.parent.span_id]) if span.parent.span_id in spans_by_id else 100

        def under(parent: int | None) -> Iterator[str]:
            for span in self.spans:
                own = None if span.parent is None else span.parent.span_id
                if own == parent or (parent is None and own not in spans_by_id):
                    yield ("  " * depth(span) if depth(span) < 100 else "?" * (own is not None)) + span.name
                    yield from under(span.context.span_id)

        return list(under(None))

    def metrics(self) -> dict[str, dict[tuple[tuple[str, Any], ...], Any]]:
        """Each metric's value, or count, by its attributes."""
        data = self.reader.get_metrics_data()
        metric_points: dict[str, dict[tuple[tuple[str, Any], ...], Any]] = {}
        for resource in () if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = metric_points.setdefault(metric.name, {})
                    for point in metric.data.data_points:
                        key = tuple(sorted((point.attributes or {}).items()))
                        points[key] = point.count if hasattr(point, "count") else point.value
        return metric_points


@contextmanager
def recording(*, content: bool | None = None, sampler: Sampler | None = None) -> Iterator[Recording]:
    """All runs of this process are recorded meanwhile."""
    trace = Recording(sampler)
    telemetry.instrument(content=content, tracer_provider=trace.tracers, meter_provider=trace.meters)
    try:
        yield trace
    finally:
        telemetry.uninstrument()


def total(points: dict[tuple[tuple[str, Any], ...], Any], **attributes: Any) -> Any:
    """The sum of a metric's points that have these attributes, written with `_` for `.`."""

    def has_all(key: tuple[tuple[str, Any], ...]) -> bool:
        own = {name.replace(".", "_"): value for name, value in key}
        return all(own.get(name) == value for name, value in attributes.items())

    return sum(value for key, value in points.items() if has_all(key))
