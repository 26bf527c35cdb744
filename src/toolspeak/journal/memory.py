"""A journal that lasts as long as its process."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.events import Record
from toolspeak.errors import RunError


class MemoryJournal:
    """Implements `Journal`; keeps everything until it is dropped."""

    def __init__(self) -> None:
        self._runs: dict[str, list[Record]] = {}

    async def append(self, record: Record) -> None:
        records = self._runs.setdefault(record.run_id, [])
        if record.seq != len(records):
            raise RunError(f"run {record.run_id} has gone on elsewhere; only its newest result can be resumed")
        records.append(record)

    async def read(self, run_id: str) -> Sequence[Record]:
        return tuple(self._runs.get(run_id, ()))
