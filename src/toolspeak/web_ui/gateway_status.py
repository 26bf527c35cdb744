"""How a gateway stands, made of its settings, its metrics and its stored usage. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from toolspeak.gateway.running_streams import RunningStream
from toolspeak.gateway.settings.api_keys import Key
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.upstream_settings import Upstream, labels_of
from toolspeak.gateway.upstreams.upstream_health import HEALTH_STATES
from toolspeak.gateway.usage.usage_values import Counts, KeyUsage, UsageLimit
from toolspeak.web_ui.gateway_values import (
    DialectStatus,
    GatewayStatus,
    KeyStatus,
    Latency,
    LimitStatus,
    ModelStatus,
    UpstreamStatus,
)
from toolspeak.web_ui.metric_history import Point, percentile

MOST_ROWS = 300
"""The most entries of each list. Those with most requests come first."""

_MOST_NAMES = 20
_FIRST, _WHOLE = "toolspeak_first_byte_seconds_bucket", "toolspeak_request_seconds_bucket"
_REQUESTS, _BROKEN_STREAMS = "toolspeak_requests_total", "toolspeak_broken_streams_total"
_CALLS, _MALFORMED_CALLS = "toolspeak_calls_total", "toolspeak_malformed_calls_total"
_FORGED_RESULTS, _REPEATED_TURNS = "toolspeak_forged_results_total", "toolspeak_repeated_turns_total"
_UPSTREAM_REQUESTS, _UPSTREAM_FAILURES = "toolspeak_upstream_requests_total", "toolspeak_upstream_failures_total"
_FAILOVERS = "toolspeak_failovers_total"

RECENT = (
    _FIRST,
    _WHOLE,
    _REQUESTS,
    _BROKEN_STREAMS,
    _CALLS,
    _MALFORMED_CALLS,
    _UPSTREAM_REQUESTS,
    _UPSTREAM_FAILURES,
    _FAILOVERS,
)
"""The metrics of which it is known what came in the last minutes."""

Points = Mapping[str, Sequence[Point]]


def gateway_status(
    settings: Settings,
    points: Points,
    *,
    time: float,
    since: float,
    window: float,
    usage: Mapping[str, Counts] | None = None,
    standings: Mapping[str, KeyUsage] | None = None,
    problem: str = "",
    streams: Sequence[RunningStream] = (),
) -> GatewayStatus:
    """The status. `usage`: today's usage by key; None if none is stored. `standings`: by key."""
    rejections = {point.labels["code"]: int(point.value) for point in points.get("toolspeak_rejected_total", ())}
    lists = (
        _upstreams(settings, points),
        _models(settings, points),
        _dialects(points),
        _keys(settings.keys, points, usage, standings or {}),
    )
    upstreams, models, dialects, keys = (tuple(each[:MOST_ROWS]) for each in lists)
    return GatewayStatus(
        time,
        since,
        window,
        settings.workers,
        int(_sum(points.get("toolspeak_active_requests", ()))),
        int(_sum(points.get("toolspeak_queued_requests", ()))),
        settings.workers * settings.bounds.streams,
        {code: count for code, count in sorted(rejections.items()) if count},
        cast("tuple[UpstreamStatus, ...]", upstreams),
        cast("tuple[ModelStatus, ...]", models),
        cast("tuple[DialectStatus, ...]", dialects),
        cast("tuple[KeyStatus, ...]", keys),
        "start" if usage is None else "today",
        sum(max(0, len(each) - MOST_ROWS) for each in lists),
        problem,
        tuple(streams),
    )


def _upstreams(settings: Settings, points: Points) -> list[UpstreamStatus]:
    groups: dict[tuple[str, ...], list[Upstream]] = {}
    for upstream in settings.upstreams:
        groups.setdefault(upstream.names, []).append(upstream)
    metrics = (_UPSTREAM_REQUESTS, _UPSTREAM_FAILURES, _FAILOVERS)
    by_place = [_group_by(points.get(name, ()), "model", "upstream") for name in metrics]
    states = _group_by(points.get("toolspeak_upstream_state", ()), "model", "upstream")
    active = _group_by(points.get("toolspeak_upstream_active_requests", ()), "model", "upstream")
    ends = _group_by(points.get("toolspeak_upstream_aside_until_timestamp_seconds", ()), "model", "upstream")
    rows: list[UpstreamStatus] = []
    for names, group in groups.items():
        for label in labels_of(group):
            place = (names[0], label)
            request_points, failure_points, failovers = (each.get(place, ()) for each in by_place)
            workers = {point.labels["state"]: int(point.value) for point in states.get(place, ())}
            rows.append(
                UpstreamStatus(
                    names[0],
                    names[:_MOST_NAMES],
                    label,
                    {state: workers[state] for state in HEALTH_STATES if workers.get(state)},
                    max(0, int(_sum(active.get(place, ())))),
                    int(_sum(request_points)),
                    {point.labels["code"]: int(point.value) for point in failure_points if point.value},
                    int(_sum(failovers)),
                    int(_recent(request_points)),
                    int(_recent(failure_points)),
                    int(_recent(failovers)),
                    _sum(ends.get(place, ())) or None,
                )
            )
    return sorted(rows, key=lambda row: -row.requests)


def _models(settings: Settings, points: Points) -> list[ModelStatus]:
    by_model = {
        name: _group_by(points.get(name, ()), "model")
        for name in (_REQUESTS, _BROKEN_STREAMS, _FIRST, _WHOLE, "toolspeak_tokens_total")
    }
    served_names = {name for upstream in settings.upstreams for name in upstream.exact}
    names = served_names | {name for (name,), each in by_model[_REQUESTS].items() if _sum(each)}
    rows: list[ModelStatus] = []
    for name in sorted(names):
        requests, broken_points, first, whole, tokens = (each.get((name,), ()) for each in by_model.values())
        errors = [*(point for point in requests if point.labels["status"] >= "500"), *broken_points]
        by_kind = {kind: int(_sum(point for point in tokens if point.labels["kind"] == kind)) for kind in _KINDS}
        rows.append(
            ModelStatus(
                name,
                int(_sum(requests)),
                int(_sum(errors)),
                int(_recent(requests)),
                int(_recent(errors)),
                by_kind["input"],
                by_kind["output"],
                _latency(first),
                _latency(whole),
            )
        )
    return sorted(rows, key=lambda row: -row.requests)


_KINDS = ("input", "output")


def _dialects(points: Points) -> list[DialectStatus]:
    names = (_CALLS, _MALFORMED_CALLS, _FORGED_RESULTS, _REPEATED_TURNS)
    counts = [_group_by(points.get(name, ()), "model", "dialect") for name in names]
    rows: list[DialectStatus] = []
    for place in counts[0].keys() | counts[1].keys():
        calls, malformed_points, forged_points, repeated_points = (each.get(place, ()) for each in counts)
        row = DialectStatus(
            *cast("tuple[str, str]", place),
            calls=int(_sum(calls)),
            malformed=int(_sum(malformed_points)),
            forged=int(_sum(forged_points)),
            repeated=int(_sum(repeated_points)),
            recent_calls=int(_recent(calls)),
            recent_malformed=int(_recent(malformed_points)),
        )
        if row.calls or row.malformed or row.forged or row.repeated:
            rows.append(row)
    return sorted(rows, key=lambda row: (-row.malformed, -row.calls, row.model, row.dialect))


def _keys(
    keys: Sequence[Key], points: Points, usage: Mapping[str, Counts] | None, standings: Mapping[str, KeyUsage]
) -> list[KeyStatus]:
    counts = _counts_since_start(points) if usage is None else usage
    rows = [_key(key, counts.get(key.name, Counts()), standings.get(key.name, KeyUsage(0.0))) for key in keys]
    return sorted(rows, key=lambda row: -row.requests)


def _key(key: Key, counts: Counts, standing: KeyUsage) -> KeyStatus:
    usage = {
        "requests_per_minute": standing.requests,
        "streams": standing.load.streams,
        "tokens_per_day": standing.tokens + standing.load.tokens,
    }
    limits = tuple(LimitStatus(cast("UsageLimit", name), usage[name], getattr(key, name)) for name in key.limits)
    return KeyStatus(
        key.name,
        key.models[:_MOST_NAMES],
        counts.requests,
        counts.refused,
        counts.errors,
        counts.input,
        counts.output,
        counts.calls,
        counts.malformed,
        limits,
        key.expires,
    )


def _counts_since_start(points: Points) -> Mapping[str, Counts]:
    """The usage of each key since the start."""
    sums: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for metric in ("requests", "refused", "errors", "tokens", "calls", "malformed_calls"):
        for point in points.get(f"toolspeak_key_{metric}_total", ()):
            field = point.labels["kind"] if metric == "tokens" else metric.removesuffix("_calls")
            sums[point.labels["key"]][field] += int(point.value)
    return {name: Counts(**fields) for name, fields in sums.items()}


def _latency(points: Iterable[Point]) -> Latency | None:
    """The latency in the last minutes; None without an answer in them."""
    buckets: defaultdict[float, float] = defaultdict(float)
    for point in points:
        buckets[float(point.labels["le"])] += point.recent
    count = buckets.get(math.inf, 0.0)
    if not count:
        return None
    return Latency(int(count), *(round(percentile(buckets, share), 4) for share in (0.5, 0.95, 0.99)))


def _group_by(points: Iterable[Point], *names: str) -> Mapping[tuple[str, ...], Sequence[Point]]:
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point.labels[name] for name in names), []).append(point)
    return groups


def _sum(points: Iterable[Point]) -> float:
    return sum(point.value for point in points)


def _recent(points: Iterable[Point]) -> float:
    return sum(point.recent for point in points)
