"""The contract of a journal: an append-only list of records per run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolspeak.data.events import Record


class Journal(Protocol):
    async def append(self, record: Record) -> None:
        """Returns once the record is durable.

        Raises RunError for a record whose `seq` is not the next of its run: somebody else has gone on with it.
        """
        ...

    async def read(self, run_id: str) -> Sequence[Record]:
        """The run's records in order; empty for a run it does not know."""
        ...
