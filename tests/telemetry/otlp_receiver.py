"""A collector at the loopback address: it takes OTLP over HTTP and decodes it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class OtlpCollector:
    """What the collector got: spans and the names of metrics, with the name of the service that sent them."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.metrics: set[str] = set()
        self.gauges: dict[tuple[str, ...], float] = {}
        """The newest value of each gauge, by its name and the values of its attributes."""
        self.bodies = b""
        self._more = threading.Condition()

    @property
    def environ(self) -> dict[str, str]:
        """The variables that send a program's telemetry here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_METRIC_EXPORT_INTERVAL": "200"}

    def tree(self) -> list[str]:
        """The spans' names in the order in which they began, indented below their parents; `?` for a lost parent."""
        spans = sorted(self.spans, key=lambda span: span.start_time_unix_nano)
        span_ids = {span.span_id for span in spans}

        def under(parent: bytes, depth: int) -> Iterator[str]:
            for span in spans:
                if span.parent_span_id == parent:
                    yield "  " * depth + span.name
                    yield from under(span.span_id, depth + 1)

        lost_spans = [f"? {span.name}" for span in spans if span.parent_span_id and span.parent_span_id not in span_ids]
        return [*under(b"", 0), *lost_spans]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Returns once something has come that makes the condition true."""
        with self._more:
            assert self._more.wait_for(condition, timeout=120)

    def take(self, path: str, body: bytes) -> None:
        with self._more:
            self._take(path, body)
            self._more.notify_all()

    def _take(self, path: str, body: bytes) -> None:
        self.bodies += body
        if path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            for each in request.resource_spans:
                self._note(each.resource)
                self.spans += [span for scope in each.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/metrics", path
            for each in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self._note(each.resource)
                metrics = [metric for scope in each.scope_metrics for metric in scope.metrics]
                self.metrics |= {metric.name for metric in metrics}
                for metric in metrics:
                    for point in metric.gauge.data_points:
                        value = point.as_double if point.HasField("as_double") else point.as_int
                        labels = tuple(sorted(each.value.string_value for each in point.attributes))
                        self.gauges[metric.name, *labels] = value

    def _note(self, resource: Any) -> None:
        self.services |= {each.value.string_value for each in resource.attributes if each.key == "service.name"}


def attributes(span: Any) -> dict[str, Any]:
    """A span's attributes with plain values."""

    def plain(value: Any) -> Any:
        kind = value.WhichOneof("value")
        if kind == "array_value":
            return [plain(each) for each in value.array_value.values]
        return getattr(value, kind)

    return {each.key: plain(each.value) for each in span.attributes}


@contextmanager
def collecting() -> Iterator[OtlpCollector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = OtlpCollector(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
