"""The journal of a server that was given none: in memory, and only the latest runs."""

from __future__ import annotations

from toolspeak.journal.base import Lease
from toolspeak.journal.memory_journal import MemoryJournal

_MOST = 1_000


class RecentRuns(MemoryJournal):
    """A journal in memory that forgets the oldest runs that nobody drives, so that a server may live long."""

    async def release(self, lease: Lease) -> None:
        await super().release(lease)
        if len(self._runs) > _MOST:
            oldest = next((run_id for run_id, run in self._runs.items() if run.owner is None), None)
            if oldest is not None:
                del self._runs[oldest]
