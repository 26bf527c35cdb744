"""Spans and metrics of requests to the gateway."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, cast

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from toolspeak.data.messages import JSON
from toolspeak.telemetry import convention_names as names
from toolspeak.telemetry.instruments import Instruments
from toolspeak.telemetry.span_contexts import headers_of

_LOG = logging.getLogger("toolspeak.telemetry")
_W3C = TraceContextTextMapPropagator()
_OPERATIONS = {"/v1/embeddings": "embeddings", "/v1/completions": "text_completion"}
_CHATS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


class RequestSpan:
    """The span of one request to the gateway, below the span that the client's `traceparent` names.

    - `headers`: `traceparent` and `tracestate` for the requests to upstreams.
    """

    def __init__(
        self, tracer: Tracer, instruments: Instruments, endpoint: str, request_id: str, headers: Mapping[str, str]
    ) -> None:
        self._instruments = instruments
        self._began = time.monotonic()
        self._operation = "chat" if endpoint in _CHATS else _OPERATIONS.get(endpoint, "")
        attributes = {names.METHOD: "POST", names.PATH: endpoint, names.REQUEST_ID: request_id}
        if self._operation:
            attributes[names.OPERATION] = self._operation
        self._span: Span = tracer.start_span(
            self._operation or f"POST {endpoint}", _W3C.extract(headers, Context()), SpanKind.SERVER, attributes
        )
        self.headers = headers_of(self._span) or headers

    def end(self, fields: Mapping[str, JSON], model: str) -> None:
        """Ends the span. Raises nothing.

        - `fields`: those of the request's line in the gateway's log.
        - `model`: the model's name if it is configured, else a word for all others: clients may name any.
        """
        try:
            self._end(fields, model)
        except Exception:  # noqa: BLE001 - telemetry is no reason to fail a request
            _LOG.exception("telemetry failed at the end of a request")

    def _end(self, fields: Mapping[str, JSON], model: str) -> None:
        status, code = cast("int", fields.get("status") or 0), fields.get("code")
        upstream = fields.get("upstream")
        provider, upstream_model = names.provider_and_model(str(upstream)) if upstream else (names.OTHER, "")
        error = str(code) if code is not None else str(status) if status >= 500 else None
        if fields.get("client_left"):
            error = "client_left"
        finish = "tool_calls" if fields.get("calls") and fields.get("finish") == "stop" else fields.get("finish")
        span = self._span
        if span.is_recording():
            if self._operation:
                span.update_name(f"{self._operation} {model}")
            optional: dict[str, Any] = {
                names.STATUS_CODE: status or None,
                names.REQUEST_MODEL: fields.get("model"),
                names.PROVIDER: provider if upstream else None,
                names.RESPONSE_MODEL: upstream_model or None,
                names.FINISH_REASONS: [finish] if finish else None,
                names.INPUT_TOKENS: fields.get("input_tokens"),
                names.OUTPUT_TOKENS: fields.get("output_tokens"),
                names.DIALECT: fields.get("dialect"),
                names.CALLS: fields.get("calls"),
                names.GATEWAY_KEY: fields.get("key"),
                names.GATEWAY_UPSTREAM: fields.get("at"),
                names.GATEWAY_ATTEMPTS: fields.get("attempts"),
                names.GATEWAY_WARNINGS: fields.get("warnings"),
                names.FIRST_CHUNK: fields.get("first_byte"),
                names.ERROR: error,
            }
            span.set_attributes({name: value for name, value in optional.items() if value is not None})
            for failure in cast("list[Mapping[str, str]]", fields.get("failed") or []):
                span.add_event(
                    "toolspeak.gateway.upstream_failed",
                    {names.GATEWAY_UPSTREAM: failure["at"], names.ERROR: failure["code"]},
                )
            # A wrong request is no error of a server, as the conventions for HTTP say.
            if error is not None and not 400 <= status < 500:
                span.set_status(StatusCode.ERROR)
        span.end()
        if not self._operation:
            return
        labels: dict[str, Any] = {
            names.OPERATION: self._operation,
            names.PROVIDER: provider,
            names.REQUEST_MODEL: model,
        }
        with_error = labels if error is None else {**labels, names.ERROR: error}
        self._instruments.request_seconds.record(time.monotonic() - self._began, with_error)
        first = fields.get("first_byte")
        if isinstance(first, int | float):
            self._instruments.first_token_seconds.record(first, labels)
