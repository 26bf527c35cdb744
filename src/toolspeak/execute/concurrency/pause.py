"""Asking a run to stop where nothing is under way, so that it can go on later as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager


class BatchPaused(Exception):
    """The run was asked to pause: the calls that were under way have their results, the others were not started."""


class NotStarted(BaseException):
    """The run was asked to pause before this call was started."""


class Pause:
    """Whether a run is asked to pause; lives in the run's event loop."""

    def __init__(self) -> None:
        self.is_requested = False
        self._callbacks: list[Callable[[], None]] = []

    def ask(self) -> None:
        """From here on nothing is begun."""
        if not self.is_requested:
            self.is_requested = True
            for callback in tuple(self._callbacks):
                callback()

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Calls `told` when it is asked, until `untell`."""
        self._callbacks.append(callback)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks.remove(callback)

    @asynccontextmanager
    async def ends(self) -> AsyncGenerator[None]:
        """Cancels what is awaited in the block when it is asked. Raises BatchPaused then."""
        loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)
        self.add_callback(end := lambda: limit.reschedule(loop.time()))
        try:
            async with limit:
                if self.is_requested:
                    limit.reschedule(loop.time())
                yield
        except TimeoutError:
            if limit.expired():
                raise BatchPaused from None
            raise
        finally:
            self.remove_callback(end)
