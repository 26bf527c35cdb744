"""Asking a model API again: when, how often, and after how long."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Protocol

from toolspeak.errors import ProviderError

RETRIES = 2
"""How many times more a request is sent unless a provider is told otherwise."""

BASE_SECONDS = 0.5
CAP_SECONDS = 8.0
"""The delay before the n-th retry is chance's, from 0 to `BASE_SECONDS` * 2 ** (n - 1), to `CAP_SECONDS` at the most
("full jitter": AWS Architecture Blog, "Exponential Backoff And Jitter")."""

LONGEST_SECONDS = 60.0
"""The longest wait that a server may ask for (Retry-After); a request that is to wait longer fails at once."""

_LOG = logging.getLogger("toolspeak.providers")


class Clock(Protocol):
    """Time and chance, as retries need them."""

    def now(self) -> float:
        """Unix time in seconds."""
        ...

    def random(self) -> float:
        """From 0 up to 1."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The real one."""

    def now(self) -> float:
        return time.time()

    def random(self) -> float:
        return random.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def delay_before(attempt: int, error: ProviderError, chance: float, longest: float = LONGEST_SECONDS) -> float | None:
    """The seconds to wait before retry number `attempt` (from 1), or None: no retry makes sense.

    `chance` is from 0 up to 1. Where the server says how long to wait, it is at least that; None if that is longer
    than `longest`.
    """
    if not error.retryable or (error.retry_after or 0) > longest:
        return None
    # The exponent is bounded: an attempt number may be any.
    jitter = chance * min(CAP_SECONDS, BASE_SECONDS * 2 ** min(attempt - 1, 10))
    return (error.retry_after or 0) + jitter


class Attempts:
    """The sendings of one request, which is sent again, up to `retries` times, while it fails without having said
    anything. Behind the first delta an error comes out as it is: what a user has read is not taken back. A wait of
    more than `longest` seconds that the server asks for is not waited for."""

    def __init__(self, retries: int, clock: Clock = SYSTEM_CLOCK, longest: float = LONGEST_SECONDS) -> None:
        self._retries = retries
        self._clock = clock
        self._longest = longest
        self._failed = 0

    async def failed(self, error: ProviderError) -> None:
        """Returns once it is time to ask again; raises ProviderError if no retry makes sense, or none is left."""
        self._failed += 1
        delay = delay_before(self._failed, error, self._clock.random(), self._longest)
        if delay is None or self._failed > self._retries:
            if reason := _why_not_again(error, self._failed, self._longest):
                raise error.with_message(f"{error} {reason}") from error
            raise error
        fields = {"seconds": round(delay, 3), "retry": self._failed, "retries": self._retries, "problem": str(error)}
        message = "asking again in %.1f s (%s of %s): %s"
        _LOG.info(
            message, delay, self._failed, self._retries, error, extra={"event": "upstream_retry", "fields": fields}
        )
        await self._clock.sleep(delay)


def _why_not_again(error: ProviderError, attempts: int, longest: float) -> str:
    if error.retryable and (error.retry_after or 0) > longest:
        return f"That is longer than the {longest:g} seconds that are waited for here: try again then."
    return f"Asked {attempts} times." if attempts > 1 else ""
