"""What an operator sees of the gateway: metrics in Prometheus's format, and a log.

The log has one line of JSON for each request, on standard error. It holds no key, and contents only with `log_content`.
A line has the id of its request, and the id of the trace that the client names (https://www.w3.org/TR/trace-context/).
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import (
    MultiProcessCollector,
    mark_process_dead,  # pyright: ignore[reportUnknownVariableType] - it has no types
)

from toolspeak.data.messages import JSON
from toolspeak.gateway.settings.api_keys import Key
from toolspeak.gateway.turns.turn_gate import NoteCode
from toolspeak.gateway.turns.turn_report import TurnReport
from toolspeak.providers.http_client import json_bytes
from toolspeak.providers.trace_context import TRACE, trace_id

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder in which several processes count together (prometheus_client's own)."""

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
OTHER_MODEL = "(other)"
"""The label of models that are not configured by name: clients must not create any number of time series."""


REJECTION_CODES = frozenset(
    (
        *("invalid_api_key", "expired_api_key", "origin", "host", "metrics", "request_timeout", "request_too_large"),
        *("headers_too_large", "content_type", "gateway_busy", "gateway_draining", "limits_unavailable"),
        *("rate_limit_exceeded", "upstream_overloaded", "requests_per_minute_exceeded", "streams_exceeded"),
        "tokens_per_day_exceeded",
        "responses_unavailable",
    )
)
"""The codes of requests that are refused. Their counters, like those of notes, begin at 0: Prometheus' `rate` and
`increase` miss the first event of a series that begins with it."""


def worker_gone(pid: int) -> None:
    """Removes the gauges of a process that has ended; its counters stay."""
    if os.environ.get(MULTIPROCESS):
        mark_process_dead(pid)


class Metrics:
    """The counters of one process, or of all workers if `MULTIPROCESS` is set. They are updated once a request."""

    def __init__(self) -> None:
        disable_created_metrics()  # they add a series for each counter
        registry = self._registry = CollectorRegistry()
        labels = ("endpoint", "model")
        self.requests = Counter(
            "toolspeak_requests", "Requests answered", (*labels, "stream", "status"), registry=registry
        )
        self.first_byte = Histogram(
            "toolspeak_first_byte_seconds", "Until the answer begins", labels, registry=registry, buckets=_SECONDS
        )
        self.seconds = Histogram(
            "toolspeak_request_seconds", "Until the answer is over", labels, registry=registry, buckets=_SECONDS
        )
        self.chunks = Counter("toolspeak_chunks", "Pieces of streams sent", labels, registry=registry)
        self.tokens = Counter(
            "toolspeak_tokens", "Tokens, as upstreams count them", ("model", "kind"), registry=registry
        )
        by_dialect = ("model", "dialect")
        self.calls = Counter("toolspeak_calls", "Tool calls given to clients", by_dialect, registry=registry)
        self.malformed_calls = Counter(
            "toolspeak_malformed_calls", "Calls that cannot be read", by_dialect, registry=registry
        )
        self.notes = Counter(
            "toolspeak_notes", "Turns with a warning, by its code", (*by_dialect, "code"), registry=registry
        )
        self.repeats = Counter(
            "toolspeak_repeated_turns",
            "Turns that the model was asked for again, for a malformed or a missing call",
            by_dialect,
            registry=registry,
        )
        self.forged_results = Counter(
            "toolspeak_forged_results", "Results that a model made up", by_dialect, registry=registry
        )
        self.rejections = Counter(
            "toolspeak_rejected", "Requests that were not let in, by reason", ("code",), registry=registry
        )
        self.clients_gone = Counter(
            "toolspeak_clients_gone", "Clients that left before the end", labels, registry=registry
        )
        self.broken_streams = Counter(
            "toolspeak_broken_streams",
            "Streams that ended in an error",
            (*labels, "code"),
            registry=registry,
        )
        by_tool = ("server", "tool")
        self.tool_calls = Counter(
            "toolspeak_server_tool_calls", "Calls that the gateway ran itself", (*by_tool, "outcome"), registry=registry
        )
        self.tool_seconds = Histogram(
            "toolspeak_server_tool_seconds", "How long they took", by_tool, registry=registry, buckets=_SECONDS
        )
        by_upstream = ("model", "upstream")
        self.upstream_requests = Counter(
            "toolspeak_upstream_requests", "Requests to an upstream", by_upstream, registry=registry
        )
        self.upstream_failures = Counter(
            "toolspeak_upstream_failures", "Those that it failed", (*by_upstream, "code"), registry=registry
        )
        self.upstream_up = Gauge(
            "toolspeak_upstream_up",
            "0 after three failures in a row, until it answers again",
            by_upstream,
            registry=registry,
            multiprocess_mode="livemin",
        )
        self.upstream_state = Gauge(
            "toolspeak_upstream_state",
            "The workers in which an upstream is in this state",
            (*by_upstream, "state"),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.upstream_aside_until = Gauge(
            "toolspeak_upstream_aside_until_timestamp_seconds",
            "When an upstream that was put aside is asked again (Unix seconds), of the worker that does so last",
            by_upstream,
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.upstream_active = Gauge(
            "toolspeak_upstream_active_requests",
            "Requests under way at an upstream",
            by_upstream,
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.failovers = Counter(
            "toolspeak_failovers",
            "Requests that an upstream got because another one failed",
            by_upstream,
            registry=registry,
        )
        self.key_requests = Counter("toolspeak_key_requests", "Requests of a key, let in", ["key"], registry=registry)
        self.key_refused = Counter(
            "toolspeak_key_refused", "Requests of a key that its limit refused", ("key", "limit"), registry=registry
        )
        self.key_errors = Counter(
            "toolspeak_key_errors", "Requests of a key that failed or broke off", ["key"], registry=registry
        )
        self.key_tokens = Counter("toolspeak_key_tokens", "Tokens of a key", ("key", "kind"), registry=registry)
        self.key_calls = Counter("toolspeak_key_calls", "Tool calls of a key", ["key"], registry=registry)
        self.key_malformed = Counter(
            "toolspeak_key_malformed_calls", "Calls of a key that cannot be read", ["key"], registry=registry
        )
        self.usage_failures = Counter(
            "toolspeak_usage_store_failures", "Transactions that the store of usage failed", registry=registry
        )
        self.reloads = Counter("toolspeak_reloads", "Reloads of the files, by outcome", ["outcome"], registry=registry)
        self.reload_successful = Gauge(
            "toolspeak_config_last_reload_successful",
            "Whether the last reload succeeded; 0 if it failed in one of the workers",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self.reload_time = Gauge(
            "toolspeak_config_last_reload_success_timestamp_seconds",
            "When the settings were read that are in use (Unix seconds), of the worker that did so first",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self.active = Gauge(
            "toolspeak_active_requests", "Requests under way", registry=registry, multiprocess_mode="livesum"
        )
        self.queued_requests = Gauge(
            "toolspeak_queued_requests",
            "Requests that wait for a place",
            registry=registry,
            multiprocess_mode="livesum",
        )

        for code in REJECTION_CODES:
            self.rejections.labels(code)
        for outcome in ("succeeded", "failed"):
            self.reloads.labels(outcome)
        self.reload_successful.set(1)
        self.reload_time.set(time.time())

    def count_reload(self, *, succeeded: bool) -> None:
        """Counts a reload of the configuration."""
        self.reloads.labels("succeeded" if succeeded else "failed").inc()
        self.reload_successful.set(succeeded)
        if succeeded:
            self.reload_time.set(time.time())

    def count_turn(self, model: str, dialect: str, report: TurnReport) -> None:
        """Counts a turn: its calls, notes and tokens."""
        self.calls.labels(model, dialect).inc(report.calls)
        if report.malformed_calls:
            self.malformed_calls.labels(model, dialect).inc(report.malformed_calls)
        if report.attempts > 1:
            self.repeats.labels(model, dialect).inc(report.attempts - 1)
        if report.forged_results:
            self.forged_results.labels(model, dialect).inc(report.forged_results)
        for code in {note.code for note in report.notes}:
            self.notes.labels(model, dialect, code).inc()
        usage = report.end.usage
        for kind, count in (("input", usage.input), ("output", usage.output)):
            if count:
                self.tokens.labels(model, kind).inc(count)

    def show_keys(self, keys: Iterable[Key]) -> None:
        """Starts the counters of these keys at 0, so that `increase` sees their first event."""
        for key in keys:
            self.key_requests.labels(key.name)
            self.key_errors.labels(key.name)
            for limit in key.limits:
                self.key_refused.labels(key.name, limit)
            self.key_calls.labels(key.name)
            self.key_malformed.labels(key.name)
            for kind in ("input", "output", "cached"):
                self.key_tokens.labels(key.name, kind)

    def show_models(self, models: Iterable[str], endpoints: Iterable[str], codes: Collection[str]) -> None:
        """Starts the counters of broken streams, by these codes, and of clients that left, at 0."""
        for endpoint, model in itertools.product(endpoints, (*models, OTHER_MODEL)):
            self.clients_gone.labels(endpoint, model)
            for code in codes:
                self.broken_streams.labels(endpoint, model, code)

    def show_route(self, model: str, dialect: str) -> None:
        """Starts the counters of a model's turns at 0."""
        self.calls.labels(model, dialect)
        self.malformed_calls.labels(model, dialect)
        self.repeats.labels(model, dialect)
        self.forged_results.labels(model, dialect)
        for code in get_args(NoteCode):
            self.notes.labels(model, dialect, code)

    def show_upstream(self, model: str, upstream: str, codes: Iterable[str], *, is_up: bool) -> None:
        """Whether an upstream of a model is up; its counters, of failures with one of these codes too, begin at 0."""
        self.upstream_up.labels(model, upstream).set(is_up)
        self.upstream_requests.labels(model, upstream)
        self.upstream_active.labels(model, upstream)
        self.failovers.labels(model, upstream)
        for code in codes:
            self.upstream_failures.labels(model, upstream, code)

    def show_health(self, model: str, upstream: str, states: Mapping[str, bool], until: float) -> None:
        """In which of the states an upstream of a model is, and until when it is aside (Unix seconds)."""
        for state, is_in in states.items():
            self.upstream_state.labels(model, upstream, state).set(is_in)
        self.upstream_aside_until.labels(model, upstream).set(until)

    def show_load(self, active: int, queue_length: int) -> None:
        """Sets the gauges of requests under way and in the queue."""
        self.active.set(active)
        self.queued_requests.set(queue_length)

    def close(self) -> None:
        """Removes the gauges of this process; its counters stay."""
        worker_gone(os.getpid())

    def text(self) -> bytes:
        """The metrics as Prometheus reads them."""
        return generate_latest(_of_all_workers() if os.environ.get(MULTIPROCESS) else self._registry)

    def families(self) -> Iterable[Metric]:
        """The metrics of this process as values. It may be called in any thread."""
        return self._registry.collect()


def families_of_workers() -> Iterable[Metric]:
    """The metrics of all workers together, for the process that started them (`MULTIPROCESS` is set)."""
    return _of_all_workers().collect()


def _of_all_workers() -> CollectorRegistry:
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return registry


# --- the log -------------------------------------------------------------------------------------------------------

REQUEST_ID: ContextVar[str] = ContextVar("REQUEST_ID", default="")
"""The id of the current request, for every line of its context."""

TRACE_ID: ContextVar[str] = ContextVar("TRACE_ID", default="")
"""The id of the request's trace, if the client names one."""

LOG = logging.getLogger("toolspeak.gateway")

_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
_MOST_MEMBERS = 32
_MOST_CHARACTERS = 512


class JsonLines(logging.Formatter):
    """A record as one line: time (UTC), level, event and fields. A record of another library names no event: it is a
    `message`."""

    def format(self, record: logging.LogRecord) -> str:
        event_name: str | None = getattr(record, "event", None)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, JSON] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": event_name or "message",
            **({"id": REQUEST_ID.get()} if REQUEST_ID.get() else {}),
            **({"trace_id": TRACE_ID.get()} if TRACE_ID.get() else {}),
            **(
                getattr(record, "fields", {}) if event_name else {"logger": record.name, "problem": record.getMessage()}
            ),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json_bytes(line).decode()


def log(
    event: str, fields: Mapping[str, JSON], *, level: int = logging.INFO, error: BaseException | None = None
) -> None:
    """Writes a line without the fields that are None."""
    present = {name: value for name, value in fields.items() if value is not None}
    LOG.log(level, event, extra={"event": event, "fields": present}, exc_info=error)


def log_to_stderr() -> None:
    """Sends the log of the gateway, its server and the providers to standard error, as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("toolspeak", logging.INFO), ("uvicorn.error", logging.WARNING), ("mcp", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


# --- W3C Trace Context -------------------------------------------------------------------------------------------


class RequestTrace(Protocol):
    """The trace of one request. Its methods raise nothing."""

    headers: Mapping[str, str]
    """`traceparent` and `tracestate` for the requests to upstreams."""

    def end(self, fields: Mapping[str, JSON], model: str) -> None:
        """The request is over. `fields`: those of its line in the log. `model`: the label of its metrics."""
        ...


class RequestTracer(Protocol):
    """Records requests to a gateway (`Gateway(tracer=…)`), as `telemetry.Telemetry` does."""

    def begin_request(self, endpoint: str, request_id: str, headers: Mapping[str, str], /) -> RequestTrace | None:
        """Returns the trace of a request, None if it is not recorded. `headers`: the trace that the client names."""
        ...

    def flush(self) -> None:
        """Exports what waits to be exported: the gateway ends. It may take some seconds. It is called in a thread."""
        ...


def begin_trace(
    tracer: RequestTracer | None, endpoint: str, request_id: str, headers: Iterable[tuple[bytes, bytes]]
) -> RequestTrace | None:
    """Begins the trace of a request, and passes it to upstreams and to the log for the rest of this task, with the
    request's id. Without a tracer they get the trace that the client names."""
    REQUEST_ID.set(request_id)
    upstream_headers = trace_headers([*headers])
    trace = None if tracer is None else tracer.begin_request(endpoint, request_id, upstream_headers)
    upstream_headers = upstream_headers if trace is None else trace.headers
    TRACE.set(upstream_headers)
    TRACE_ID.set(trace_id(upstream_headers["traceparent"]) if "traceparent" in upstream_headers else "")
    return trace


def trace_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """`traceparent` and `tracestate` of a request, to be passed on. Empty for an invalid trace; an invalid state is
    left out."""
    parents = [value.decode("latin-1").strip() for name, value in headers if name == b"traceparent"]
    if len(parents) != 1 or not trace_id(parents[0]):
        return {}
    states = [value.decode("latin-1") for name, value in headers if name == b"tracestate"]
    state = ",".join(states)
    members = [member.strip(" \t") for member in state.split(",") if member.strip(" \t")]
    keys = {member.partition("=")[0] for member in members}
    valid = len(members) <= _MOST_MEMBERS and len(state) <= _MOST_CHARACTERS and len(keys) == len(members)
    if not members or not valid or not all(map(_MEMBER.fullmatch, members)):
        return {"traceparent": parents[0]}
    return {"traceparent": parents[0], "tracestate": ",".join(members)}
