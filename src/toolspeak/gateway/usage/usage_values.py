"""The counts of a key, its usage now, and whether one more request may begin: values and a pure decision."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Literal, TypeAlias

from toolspeak.gateway.settings.api_keys import Key

WINDOW = 60.0
"""Seconds in which `requests_per_minute` are counted."""

DAY = 86400.0

UsageLimit: TypeAlias = Literal["requests_per_minute", "streams", "tokens_per_day"]
Column: TypeAlias = Literal["day", "key", "model"]
COLUMNS: Sequence[Column] = ("day", "key", "model")


@dataclass(frozen=True, slots=True)
class Counts:
    """What is counted. `requests` were let in, `refused` were not, by a limit of the key. `errors` are requests that
    failed or broke off, but not those whose client left. Tokens: `input`, `output`, and `cached` as a part of `input`.
    `calls` and `malformed_calls` are calls of tools."""

    requests: int = 0
    refused: int = 0
    errors: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    calls: int = 0
    malformed: int = 0

    def plus(self, more: Counts) -> Counts:
        return Counts(*map(sum, zip(astuple(self), astuple(more), strict=True)))


COUNT_FIELDS = tuple(each.name for each in fields(Counts))


@dataclass(frozen=True, slots=True)
class UsageInProgress:
    """A key's requests in progress, and the tokens that they reserve until they end."""

    streams: int = 0
    tokens: int = 0

    def plus(self, more: UsageInProgress) -> UsageInProgress:
        return UsageInProgress(self.streams + more.streams, self.tokens + more.tokens)

    def minus(self, less: UsageInProgress) -> UsageInProgress:
        return UsageInProgress(max(0, self.streams - less.streams), max(0, self.tokens - less.tokens))


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """A key's usage at `now` (Unix seconds).

    - `requests`: its requests in the last minute.
    - `load`: its requests in progress, in all workers.
    - `tokens`: its tokens of the day.
    - `freed_at`: when enough of the requests are a minute old that one more may begin (Unix seconds).
    - `emptied_at`: when all of them are (Unix seconds).
    """

    now: float
    requests: int = 0
    load: UsageInProgress = UsageInProgress()
    tokens: int = 0
    freed_at: float = 0.0
    emptied_at: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageDecision:
    """Whether a request may begin.

    - `standing`: the key's usage after the decision.
    - `limit`: the limit that refuses it, if one does.
    - `seconds`: how long to wait before the next attempt.
    """

    standing: KeyUsage
    limit: UsageLimit | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A request of a key that wants to begin, with the tokens that it reserves."""

    key: Key
    tokens: int = 0

    @property
    def load(self) -> UsageInProgress:
        return UsageInProgress(1, self.tokens)


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """What one worker writes to the store in one transaction.

    - `lease`: the seconds after which the load of a silent worker no longer counts.
    - `counts`: the counts by key and model.
    - `load`: the requests in progress in this worker, for the keys whose load has changed.
    - `start_requests`: the requests that want to start, in this order.
    """

    worker: str
    lease: float
    counts: Mapping[tuple[str, str], Counts]
    load: Mapping[str, UsageInProgress]
    start_requests: Sequence[StartRequest] = ()


@dataclass(frozen=True, slots=True)
class UsageOutcome:
    """The outcome of a batch: a verdict for each of its asks, and the worker's load of the keys in the batch."""

    verdicts: Sequence[UsageDecision]
    load: Mapping[str, UsageInProgress]


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Counts of a day (UTC, `2026-11-23`), a key and a model. An empty field means all of them."""

    day: str
    key: str
    model: str
    counts: Counts


def day_of(now: float) -> str:
    """The day in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(now))


def day_left(now: float) -> float:
    """Seconds until the next day in UTC."""
    return DAY - now % DAY


def usage_decision(ask: StartRequest, standing: KeyUsage) -> UsageDecision:
    """Whether a request may begin, and the key's usage then. A request that is refused does not count.

    The day's tokens refuse a request once they have reached the limit together with what is under way. What the request
    itself will use is not known.
    """
    key, now = ask.key, standing.now
    if key.tokens_per_day is not None and standing.tokens >= key.tokens_per_day:
        return UsageDecision(standing, "tokens_per_day", day_left(now))
    if key.requests_per_minute is not None and standing.requests >= key.requests_per_minute:
        return UsageDecision(standing, "requests_per_minute", max(0.0, standing.freed_at - now))
    if key.streams is not None and standing.load.streams >= key.streams:
        return UsageDecision(standing, "streams", 1.0)
    if key.tokens_per_day is not None and standing.tokens + standing.load.tokens >= key.tokens_per_day:
        return UsageDecision(standing, "tokens_per_day", 1.0)
    after = replace(
        standing,
        requests=standing.requests + 1,
        load=standing.load.plus(ask.load),
        freed_at=standing.freed_at or now + WINDOW,  # the first request of the minute is the first to leave it
        emptied_at=now + WINDOW,
    )
    return UsageDecision(after)
