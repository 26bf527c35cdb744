"""Metrics of a journal as a whole: how many runs wait, for what, and since when. A worker reports them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from toolspeak.data.run_values import PAUSED_STATUSES, UNFINISHED_STATUSES
from toolspeak.errors import JournalError
from toolspeak.journal.maintenance import MaintainedJournal, OpenRuns
from toolspeak.telemetry import convention_names as names
from toolspeak.telemetry.span_contexts import SCOPE
from toolspeak.version import __version__

_DEFAULT_SECONDS = 60.0
"""The SDK's interval between two exports."""


class JournalGauges:
    """The gauges of one journal. They report nothing while the journal cannot be read. See
    docs/reference/telemetry.md."""

    def __init__(self, meter: Meter | None = None) -> None:
        meter = metrics.get_meter(SCOPE, __version__) if meter is None else meter
        self.runs = meter.create_observable_gauge(
            "toolspeak.journal.runs", [self._runs], "{run}", "Runs of the journal that have not ended, by status"
        )
        self.waiting_age = meter.create_observable_gauge(
            "toolspeak.journal.waiting.age", [self._waiting_age], "s", "How long the oldest run of a status waits"
        )
        self.due = meter.create_observable_gauge(
            "toolspeak.journal.due", [self._due], "{run}", "Runs that a worker could drive now and none does"
        )
        self.due_age = meter.create_observable_gauge(
            "toolspeak.journal.due.age", [self._due_age], "s", "How long the first of the due runs waits for a worker"
        )
        self._open_runs: OpenRuns | None = None

    async def follow(self, journal: MaintainedJournal) -> None:
        """Counts the journal's runs once for each export, until it is cancelled."""
        while True:
            try:
                self._open_runs = await journal.open_runs()
            except JournalError:
                self._open_runs = None
            await asyncio.sleep(_seconds(os.environ))

    def _runs(self, _: CallbackOptions) -> Iterable[Observation]:
        if self._open_runs is not None:
            for status in UNFINISHED_STATUSES:
                yield Observation(self._open_runs.counts.get(status, 0), {names.STATUS: status})

    def _waiting_age(self, _: CallbackOptions) -> Iterable[Observation]:
        if self._open_runs is not None:
            for status in sorted(PAUSED_STATUSES):
                yield Observation(_age(self._open_runs.waiting_since.get(status)), {names.STATUS: status})

    def _due(self, _: CallbackOptions) -> Iterable[Observation]:
        if self._open_runs is not None:
            yield Observation(self._open_runs.due)

    def _due_age(self, _: CallbackOptions) -> Iterable[Observation]:
        if self._open_runs is not None:
            yield Observation(_age(self._open_runs.due_since))


def _age(since: float | None) -> float:
    return 0.0 if since is None else max(0.0, time.time() - since)


def _seconds(environ: Mapping[str, str]) -> float:
    """The time between two exports (OTEL_METRIC_EXPORT_INTERVAL, in milliseconds)."""
    interval = environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    return max(0.1, float(interval) / 1000) if interval.isdigit() else _DEFAULT_SECONDS
