"""A journal that lasts as long as its process."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.events import Record


class MemoryJournal:
    """Implements `Journal`; keeps everything until it is dropped."""

    def __init__(self) -> None:
        self._runs: dict[str, list[Record]] = {}

    async def append(self, record: Record) -> None:
        self._runs.setdefault(record.run_id, []).append(record)

    async def read(self, run_id: str) -> Sequence[Record]:
        return tuple(self._runs.get(run_id, ()))
