"""Telemetry of runs while they go on."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from toolspeak.agent.recording.tracing import Drive, RunTrace
from toolspeak.telemetry.gateway_spans import RequestSpan
from toolspeak.telemetry.instruments import Instruments
from toolspeak.telemetry.message_content import wants_content
from toolspeak.telemetry.run_spans import RunSpans
from toolspeak.telemetry.span_contexts import SCOPE
from toolspeak.version import __version__

_LOG = logging.getLogger("toolspeak.telemetry")
_FLUSH_MILLISECONDS = 5_000
_API = ("opentelemetry.trace", "opentelemetry.metrics")


class Telemetry:
    """Records runs as OpenTelemetry's traces and metrics. Give it to an agent, `Agent(observers=[Telemetry()])`, or to
    all with `instrument`. It also records requests to a gateway (`Gateway(tracer=Telemetry())`).

    - `content`: whether spans hold messages, arguments and results, with secrets as placeholders. None: only if
      OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says so.
    - `tracer_provider`, `meter_provider`: those of the process by default. As long as it has none, nothing is recorded.
    """

    def __init__(
        self,
        *,
        content: bool | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self.content = wants_content() if content is None else content
        self._providers = tracer_provider, meter_provider
        self.tracer = trace.get_tracer(SCOPE, __version__, tracer_provider)
        self.instruments = Instruments(metrics.get_meter(SCOPE, __version__, meter_provider))

    def __call__(self, event: object, /) -> None:
        """As an observer it has nothing to do: it gets the records by the trace that it begins."""

    @property
    def records(self) -> bool:
        """Whether there is an SDK that takes what is recorded. The providers of the API alone drop it."""
        tracers, meters = self._providers
        providers = tracers or trace.get_tracer_provider(), meters or metrics.get_meter_provider()
        return not all(type(provider).__module__.startswith(_API) for provider in providers)

    def begin_run(self, drive: Drive, /) -> RunTrace | None:
        """Begins the trace of a drive; None if there is nobody to take it."""
        if not self.records:
            return None
        try:
            return RunSpans(self.tracer, self.instruments, drive, content=self.content)
        except Exception:  # noqa: BLE001 - telemetry is no reason to fail a run
            _LOG.exception("telemetry failed at the beginning of the run %s", drive.run_id)
            return None

    def flush(self) -> None:
        """Exports what waits to be exported. Takes at most ten seconds."""
        tracers, meters = self._providers
        for provider in (tracers or trace.get_tracer_provider(), meters or metrics.get_meter_provider()):
            force = getattr(provider, "force_flush", None)
            if force is not None:
                force(_FLUSH_MILLISECONDS)

    def begin_request(self, endpoint: str, request_id: str, headers: Mapping[str, str], /) -> RequestSpan | None:
        """Begins the span of a request to the gateway; None if there is nobody to take it."""
        return RequestSpan(self.tracer, self.instruments, endpoint, request_id, headers) if self.records else None
