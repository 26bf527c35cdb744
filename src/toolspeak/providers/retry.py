"""Retries of a request to a model API: when, how often, and after how long."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Protocol

from toolspeak.errors import ProviderError

RETRIES = 2
"""The default number of retries of a request."""

BASE_SECONDS = 0.5
CAP_SECONDS = 8.0
"""The delay before the n-th retry is random, from 0 to `BASE_SECONDS` * 2 ** (n - 1), and at most `CAP_SECONDS`
("full jitter": AWS Architecture Blog, "Exponential Backoff And Jitter")."""

LONGEST_SECONDS = 60.0
"""The longest wait that a server may request (Retry-After). If it requests a longer one, the request fails at once."""

_LOG = logging.getLogger("toolspeak.providers")


class Clock(Protocol):
    """The time and random numbers for retries."""

    def now(self) -> float:
        """Unix time in seconds."""
        ...

    def random(self) -> float:
        """A random number from 0 up to, and without, 1."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The system's time and random numbers."""

    def now(self) -> float:
        return time.time()

    def random(self) -> float:
        return random.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def delay_before(attempt: int, error: ProviderError, chance: float, longest: float = LONGEST_SECONDS) -> float | None:
    """The seconds to wait before retry number `attempt` (from 1); None if a retry makes no sense.

    `chance` is a random number from 0 up to 1. The delay is at least the wait that the server requests; None if that
    is longer than `longest`.
    """
    if not error.retryable or (error.retry_after or 0) > longest:
        return None
    # The exponent is bounded, since the attempt number is not.
    jitter = chance * min(CAP_SECONDS, BASE_SECONDS * 2 ** min(attempt - 1, 10))
    return (error.retry_after or 0) + jitter


class Attempts:
    """The attempts to send one request, at most `retries` more than the first.

    Use it only before the first delta: a retry cannot take back text that a user has read. If the server requests a
    wait of more than `longest` seconds, the request fails at once.
    """

    def __init__(self, retries: int, clock: Clock = SYSTEM_CLOCK, longest: float = LONGEST_SECONDS) -> None:
        self._retries = retries
        self._clock = clock
        self._longest = longest
        self._failed = 0

    async def wait_or_raise(self, error: ProviderError) -> None:
        """Waits until the next attempt. Raises `error` if a retry makes no sense, or no attempt is left."""
        self._failed += 1
        delay = delay_before(self._failed, error, self._clock.random(), self._longest)
        if delay is None or self._failed > self._retries:
            if reason := _why_no_retry(error, self._failed, self._longest):
                raise error.with_message(f"{error} {reason}") from error
            raise error
        fields = {"seconds": round(delay, 3), "retry": self._failed, "retries": self._retries, "problem": str(error)}
        message = "retrying in %.1f s (%s of %s): %s"
        _LOG.info(
            message, delay, self._failed, self._retries, error, extra={"event": "upstream_retry", "fields": fields}
        )
        await self._clock.sleep(delay)


def _why_no_retry(error: ProviderError, attempts: int, longest: float) -> str:
    if error.retryable and (error.retry_after or 0) > longest:
        return f"That is longer than toolspeak waits ({longest:g} seconds): try again then."
    return f"Tried {attempts} times." if attempts > 1 else ""
