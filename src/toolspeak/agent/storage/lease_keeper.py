"""The lease of a run while it goes on, so that nobody else does, and everybody may once this process is dead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from toolspeak.errors import JournalError, LeaseLost
from toolspeak.journal import Journal, Lease
from toolspeak.journal.owner import new_owner

LEASE_SECONDS = 30.0
"""How long a run of a process that died on another machine waits before it can be taken over."""

RENEW_SECONDS = 3.0
"""Between two renewals, which also tell whether the run is to be suspended."""


class LeaseKeeper:
    """A run's lease, renewed by a timer until it is given back (and by no task while nothing is to be done: most runs
    end before the first renewal); `suspend` is called when another process asks for it."""

    def __init__(
        self, journal: Journal, run_id: str, suspend: Callable[[], None], seconds: float = LEASE_SECONDS
    ) -> None:
        self._journal = journal
        self._run_id = run_id
        self._suspend = suspend
        self._seconds = seconds
        self._lease: Lease | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self) -> Lease:
        """The lease, held from here on. Raises RunBusy if another has it."""
        lease = self._lease = await self._journal.acquire(self._run_id, new_owner(), self._seconds)
        self._timer = asyncio.get_running_loop().call_later(RENEW_SECONDS, self._due, lease)
        return lease

    async def release(self) -> None:
        """Ends the lease, if there is one."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._stop_timer()
        # A journal that fails has said so before; the lease ends by itself.
        with suppress(JournalError):
            await self._journal.release(lease)

    async def __aenter__(self) -> Lease:
        return await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    def _due(self, lease: Lease) -> None:
        self._task = asyncio.get_running_loop().create_task(self._renew(lease))

    async def _renew(self, lease: Lease) -> None:
        try:
            if await self._journal.renew(lease, self._seconds):
                self._suspend()
        except LeaseLost:
            return  # the next record is refused, before anything follows from it
        except JournalError:
            pass  # a locked file, say: there is time for more tries
        self._timer = asyncio.get_running_loop().call_later(RENEW_SECONDS, self._due, lease)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
