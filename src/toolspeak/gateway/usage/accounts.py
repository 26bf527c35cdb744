"""The account of a request: whether its key is at a limit, and the usage of the request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from copy import copy
from datetime import UTC, datetime
from typing import Self

from toolspeak.data.messages import Usage
from toolspeak.errors import JournalError
from toolspeak.gateway.http.asgi import ClientGone, Headers
from toolspeak.gateway.http.error_responses import Failure
from toolspeak.gateway.observability import Metrics, log
from toolspeak.gateway.settings.api_keys import Key
from toolspeak.gateway.settings.usage_settings import UsageSettings
from toolspeak.gateway.turns.turn_report import TurnReport, tokens_of
from toolspeak.gateway.usage.usage_ledger import Ledger
from toolspeak.gateway.usage.usage_values import Counts, StartRequest, UsageDecision, UsageLimit, day_left
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import WireFormat

NO_LABEL = "(none)"
"""The name for a request without a key, or without a known model."""

MOST_RESERVED = 131_072
"""The most tokens that a request reserves: an image has far more bytes than tokens."""

_MOST_COUNTED = 10**12
"""The most tokens that count for one request. An upstream may send a number that no database takes."""

_LOG_SECONDS = 10.0
"""The least time between two lines of the log about a failing store."""

_LONGEST_RETRY = 60.0
"""The longest wait, in seconds, before a retry of OpenAI's and Anthropic's clients."""


class Accounts:
    """The accounts of one process. Counts usage in the metrics, and in the store if there is one. Raises
    ConfigurationError for an invalid store."""

    def __init__(self, usage: UsageSettings | None, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged_at = -_LOG_SECONDS
        self._ledger: Ledger | None = None
        self.begin(usage)

    def begin(self, usage: UsageSettings | None) -> None:
        """Starts to count in a store, unless there is one already. Raises ConfigurationError."""
        if self._ledger is None and usage is not None:
            self._ledger = Ledger(usage, self._note_failure)

    async def open(self) -> None:
        """Raises JournalError if the store cannot be used."""
        if self._ledger is not None:
            await self._ledger.open()

    async def aclose(self) -> None:
        """Writes all counts to the store; logs those that the store refuses."""
        if self._ledger is not None:
            await self._ledger.aclose()

    def account(self, key: Key | None, wire: WireFormat) -> Account:
        """The account of one request in this API."""
        return Account(key, wire, self._ledger, self._metrics)

    def _note_failure(self, error: Exception, lost_counts: Mapping[str, object] | None) -> None:
        self._metrics.usage_failures.inc()
        if lost_counts is None and time.monotonic() - self._logged_at < _LOG_SECONDS:
            return
        self._logged_at = time.monotonic()
        log("usage_store_failed", {"problem": str(error), **(lost_counts or {})}, level=logging.ERROR)


class Account:
    """The limits and the usage of one request. Settles when its context ends.

    - `headers`: the client's limits.
    - `model`: the requested model, once it is known to exist.
    - `report`: the result of the request.
    - `usage_of`: returns the tokens instead of the report; its argument is whether the answer failed.
    """

    def __init__(self, key: Key | None, wire: WireFormat, ledger: Ledger | None, metrics: Metrics) -> None:
        self.headers: Headers = []
        self.model = NO_LABEL
        self.report = TurnReport()
        self.failed = False
        self.usage_of: Callable[[bool], Usage] | None = None
        self._key = key
        self._wire = wire
        self._ledger = ledger
        self._metrics = metrics
        self._ask: StartRequest | None = None
        self._open = False

    async def __aenter__(self) -> Self:
        """Raises Failure if the key is known to be at a limit, without reading the body or the store."""
        if not self._open and self._ledger is not None and self._key is not None and self._key.limited:
            refusal = self._ledger.refusal(self._key)
            if refusal is not None:
                self._refuse(self._key, refusal)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Settles. A client that leaves is not a failure."""
        self.failed = self.failed or (kind is not None and not issubclass(kind, ClientGone | asyncio.CancelledError))
        self.settle(failed=self.failed)

    def handed_on(self) -> Account:
        """An account that replaces this one; this one counts nothing from now on."""
        other, self._open = copy(self), False
        return other

    async def begin(self, size: int) -> None:
        """Counts a request of `size` bytes for the key. Raises Failure if a limit refuses it, or if the store fails."""
        key = self._key
        if key is None or not key.limited:
            self._open = True
            return
        assert self._ledger is not None, "where a key has limits there is a store"
        ask = StartRequest(key, min(tokens_of(size), MOST_RESERVED) if key.tokens_per_day is not None else 0)
        try:
            verdict = await self._ledger.ask(ask)
        except JournalError as error:
            problem = "the gateway cannot look up the limits of this key just now: ask again soon"
            raise Failure(503, problem, "limits_unavailable", 1, cause=str(error)) from error
        if verdict.limit is not None:
            self._refuse(key, verdict)
        self._ask, self._open = ask, True
        self.headers = limit_headers(key, verdict, self._wire)

    def _refuse(self, key: Key, verdict: UsageDecision) -> None:
        assert verdict.limit is not None
        self._metrics.key_refused.labels(key.name, verdict.limit).inc()
        if self._ledger is not None:
            self._ledger.count(key.name, NO_LABEL, Counts(refused=1))
        self.headers = limit_headers(key, verdict, self._wire)
        if verdict.seconds > _LONGEST_RETRY:
            self.headers.append((b"x-should-retry", b"false"))
        raise Failure(429, _refusal(key, verdict), f"{verdict.limit}_exceeded", verdict.seconds)

    def settle(self, *, failed: bool = False) -> None:
        """Counts the usage of the request, once. `failed`: its answer is an error."""
        if not self._open:
            return
        self._open = False
        counts, name = self._counts(failed), NO_LABEL if self._key is None else self._key.name
        if self._key is not None:
            self._count(name, counts)
        if self._ledger is not None:
            self._ledger.count(name, _printable(self.model), counts)
            if self._ask is not None:
                self._ledger.end(self._ask)

    def _count(self, key: str, counts: Counts) -> None:
        """Adds the usage to the metrics of the key."""
        metrics = self._metrics
        for counter, count in (
            (metrics.key_requests, counts.requests),
            (metrics.key_errors, counts.errors),
            (metrics.key_calls, counts.calls),
            (metrics.key_malformed, counts.malformed),
        ):
            if count:
                counter.labels(key).inc(count)
        for kind, count in (("input", counts.input), ("output", counts.output), ("cached", counts.cached)):
            if count:
                metrics.key_tokens.labels(key, kind).inc(count)

    async def settle_and_wait(self, *, failed: bool = False) -> None:
        """As `settle`. If the key has limits, waits until other workers see the usage: a client may send its next
        request as soon as it reads the end of an answer."""
        self.settle(failed=failed)
        if self._ledger is not None and self._ask is not None:
            await self._ledger.wait_for_store()

    def _counts(self, failed: bool) -> Counts:
        usage = self.report.usage if self.usage_of is None else self.usage_of(failed)
        return Counts(
            requests=1,
            errors=int(failed),
            input=_clamp(usage.input),
            output=_clamp(usage.output),
            cached=_clamp(usage.cached),
            calls=self.report.calls,
            malformed=self.report.malformed_calls,
        )


def _printable(model: str) -> str:
    """The name without characters that databases and terminals refuse: if an upstream serves a glob, clients choose
    it."""
    return "".join(char if char.isprintable() else "\ufffd" for char in model)


def _clamp(tokens: int | None) -> int:
    return min(max(0, tokens or 0), _MOST_COUNTED)


_RULES: Mapping[UsageLimit, str] = {
    "requests_per_minute": "may send {} requests a minute (requests_per_minute)",
    "streams": "may have {} answers under way at once (streams)",
    "tokens_per_day": "may use {} tokens a day in UTC (tokens_per_day)",
}


def _refusal(key: Key, verdict: UsageDecision) -> str:
    assert verdict.limit is not None
    rule = _RULES[verdict.limit].format(getattr(key, verdict.limit))
    if verdict.limit == "streams":
        return f"the key {key.name!r} {rule}: ask again when one of them has ended"
    seconds = max(1, round(verdict.seconds))
    minutes = -(-seconds // 60)
    long = f" ({minutes // 60} h {minutes % 60} min)" if seconds > 600 else ""
    return f"the key {key.name!r} {rule}: ask again in {seconds} seconds{long}"


def limit_headers(key: Key, verdict: UsageDecision, wire: WireFormat) -> Headers:
    """The limits as OpenAI's or Anthropic's headers: the limit, the rest, and the time until all of it is free."""
    standing = verdict.standing
    limits: list[tuple[str, int, int, float]] = []
    if key.requests_per_minute is not None:
        seconds = max(0.0, standing.emptied_at - standing.now)
        limits.append(("requests", key.requests_per_minute, standing.requests, seconds))
    if key.tokens_per_day is not None:
        tokens_used = standing.tokens + standing.load.tokens
        limits.append(("tokens", key.tokens_per_day, tokens_used, day_left(standing.now)))
    headers: list[tuple[str, str]] = []
    for name, most, tokens_used, seconds in limits:
        remaining = max(0, most - tokens_used)
        if wire is ANTHROPIC:
            reset = datetime.fromtimestamp(standing.now + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            for word, value in (("limit", str(most)), ("remaining", str(remaining)), ("reset", reset)):
                headers.append((f"anthropic-ratelimit-{name}-{word}", value))
        else:
            for word, value in (("limit", str(most)), ("remaining", str(remaining)), ("reset", _duration(seconds))):
                headers.append((f"x-ratelimit-{word}-{name}", value))
    return [(name.encode(), value.encode()) for name, value in headers]


def _duration(seconds: float) -> str:
    """Seconds as OpenAI writes them: `1h2m3s`, `12s`, `20ms`."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{rest}s"
