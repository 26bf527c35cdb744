"""Time limits of calls that stand still while a person answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager


class PausedLimits:
    """The time limits of the calls under way on one connection.

    A server does not say which of its calls a question belongs to, so all of them stand still.
    """

    def __init__(self) -> None:
        self._limits: set[asyncio.Timeout] = set()
        self._rests: dict[asyncio.Timeout, float] = {}
        self._pauses = 0

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncGenerator[None]:
        """Raises TimeoutError after so many seconds outside of pauses; None is no limit."""
        async with asyncio.timeout(seconds) as limit:
            self._limits.add(limit)
            if self._pauses:
                self._pause(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)
                self._rests.pop(limit, None)

    @contextmanager
    def pause(self) -> Generator[None]:
        """The limits stand still during the context."""
        self._pauses += 1
        if self._pauses == 1:
            for limit in self._limits:
                self._pause(limit)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                now = asyncio.get_running_loop().time()
                for limit, rest in self._rests.items():
                    if not limit.expired():
                        limit.reschedule(now + rest)
                self._rests.clear()

    def _pause(self, limit: asyncio.Timeout) -> None:
        due = limit.when()
        if due is not None and not limit.expired():
            self._rests[limit] = due - asyncio.get_running_loop().time()
            limit.reschedule(None)
