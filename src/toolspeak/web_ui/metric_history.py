"""Metrics as they are now and as they were some minutes ago, and percentiles of what came between. No I/O."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric


@dataclass(frozen=True, slots=True)
class Point:
    """The value of one series: its labels, what it is now, and how much came in the last minutes."""

    labels: Mapping[str, str]
    value: float
    recent: float = 0.0


class MetricHistory:
    """Looks back `seconds`, with a stored sample every `every` seconds of the counters with these `names`. A sample
    takes 8 bytes a series."""

    def __init__(self, names: Collection[str], seconds: float = 300.0, every: float = 10.0) -> None:
        self._names = frozenset(names)
        self._seconds, self._every = seconds, every
        self._places: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
        self._samples: deque[tuple[float, array[float]]] = deque()

    def read(self, now: float, families: Iterable[Metric]) -> tuple[Mapping[str, Sequence[Point]], float]:
        """The points by the name of their metric, and how many seconds what is recent goes back. `now` never goes
        back."""
        while len(self._samples) > 1 and self._samples[1][0] <= now - self._seconds:
            self._samples.popleft()
        oldest_time, oldest = self._samples[0] if self._samples else (now, None)
        values = array("d", bytes(8 * len(self._places)))
        points: dict[str, list[Point]] = {}
        for family in families:
            for sample in family.samples:
                recent = 0.0
                if sample.name in self._names:
                    place = self._places.setdefault((sample.name, tuple(sorted(sample.labels.items()))), len(values))
                    if place == len(values):
                        values.append(0.0)
                    values[place] = sample.value
                    # A series that begins after the oldest sample began at 0.
                    before = sample.value if oldest is None else oldest[place] if place < len(oldest) else 0.0
                    recent = max(0.0, sample.value - before)
                points.setdefault(sample.name, []).append(Point(sample.labels, sample.value, recent))
        if not self._samples or now - self._samples[-1][0] >= self._every:
            self._samples.append((now, values))
        return points, now - oldest_time


def percentile(buckets: Mapping[float, float], share: float) -> float:
    """The value below which this share of the observations of a histogram lies. `buckets`: the number of observations
    up to each bound. Between two bounds they are taken as even; above the last one, the last one is given."""
    bounds = sorted(buckets)
    wanted_count, lower, count_below = share * buckets[bounds[-1]], 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted_count and buckets[bound] > count_below:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (wanted_count - count_below) / (buckets[bound] - count_below)
        lower, count_below = bound, buckets[bound]
    return lower
