"""Holding a run while it goes on, so that nobody else does, and everybody may once this process is dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

from toolspeak.errors import JournalError, LeaseLost
from toolspeak.journal import Journal, Lease
from toolspeak.journal.owner import new_owner

LEASE_SECONDS = 30.0
"""How long a run of a process that died on another machine waits before it can be taken over."""

BEAT_SECONDS = 3.0
"""Between two renewals, which also tell whether the run is to be suspended."""


@asynccontextmanager
async def holding(
    journal: Journal, run_id: str, suspend: Callable[[], None], seconds: float = LEASE_SECONDS
) -> AsyncGenerator[Lease]:
    """Takes the run's lease, renews it until the block ends, and gives it back; calls `suspend` when another process
    asks for it. Raises RunBusy if another has it."""
    lease = await journal.acquire(run_id, new_owner(), seconds)
    renewal = _Renewal(journal, lease, seconds, suspend)
    try:
        yield lease
    finally:
        await renewal.stop()
        # A journal that fails has said so before; the lease ends by itself.
        with suppress(JournalError):
            await journal.release(lease)


class _Renewal:
    """A timer, and no task while nothing is to be done: most runs end before the first renewal."""

    def __init__(self, journal: Journal, lease: Lease, seconds: float, suspend: Callable[[], None]) -> None:
        self._journal = journal
        self._lease = lease
        self._seconds = seconds
        self._suspend = suspend
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(BEAT_SECONDS, self._due)

    def _due(self) -> None:
        self._task = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        try:
            if await self._journal.renew(self._lease, self._seconds):
                self._suspend()
        except LeaseLost:
            return  # the next record is refused, before anything follows from it
        except JournalError:
            pass  # a locked file, say: there is time for more tries
        self._timer = self._loop.call_later(BEAT_SECONDS, self._due)

    async def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._timer.cancel()
