"""The SDK as the variables OTEL_* configure it, for programs without their own: the command line and the gateway."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from toolspeak.errors import ConfigurationError
from toolspeak.version import __version__

_BATCH = 512
"""The most spans in one request, as the SDK sends them."""


def resource_of(service: str) -> Resource:
    """What describes this process in exports: the service's name and version, unless the environment says otherwise."""
    own = Resource({"service.name": service, "service.version": __version__})
    return Resource.create().merge(own).merge(OTELResourceDetector().detect())


def set_up(service: str) -> None:
    """Sets up the providers of this process. The SDK and its exporters read most variables themselves. Raises
    ConfigurationError for an exporter or a protocol that is not here."""
    check_protocol(os.environ)
    resource = resource_of(service)
    if _is_wanted(os.environ, "OTEL_TRACES_EXPORTER"):
        tracers = TracerProvider(resource=resource)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(tracers)
    if _is_wanted(os.environ, "OTEL_METRICS_EXPORTER"):
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        metrics.set_meter_provider(MeterProvider([reader], resource=resource))


def export(spans: Sequence[ReadableSpan]) -> None:
    """Sends spans by OTLP, as the variables say. Raises ConfigurationError if nothing takes them."""
    check_protocol(os.environ)
    exporter = OTLPSpanExporter()
    try:
        for start in range(0, len(spans), _BATCH):
            if exporter.export(spans[start : start + _BATCH]) is not SpanExportResult.SUCCESS:
                raise ConfigurationError(
                    "the spans were not taken: is a collector at OTEL_EXPORTER_OTLP_ENDPOINT (http://localhost:4318)?"
                )
    finally:
        exporter.shutdown()


def check_protocol(environ: Mapping[str, str]) -> None:
    """Raises ConfigurationError for a protocol other than protobuf over HTTP."""
    for variable in ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"):
        protocol = environ.get(variable, "http/protobuf")
        if protocol != "http/protobuf":
            raise ConfigurationError(f"{variable}={protocol}: toolspeak exports by http/protobuf, usually at port 4318")


def _is_wanted(environ: Mapping[str, str], variable: str) -> bool:
    exporter = environ.get(variable, "otlp").strip().lower()
    if exporter not in ("otlp", "none"):
        raise ConfigurationError(f"{variable}={exporter}: toolspeak knows otlp and none")
    return exporter == "otlp"
