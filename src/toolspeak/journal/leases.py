"""The leases of a journal in a database; statements as in `journal.sql`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from toolspeak.journal.base import Lease
from toolspeak.journal.owner import is_dead
from toolspeak.journal.rules import busy, check_lease


class Connection(Protocol):
    """A database within one transaction. `change` returns how many rows were changed."""

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]: ...

    async def change(self, sql: str, *arguments: Any) -> int: ...


class SqlLeases(ABC):
    """The lease methods of `Journal`: one row a run, whose epoch counts its holders."""

    @abstractmethod
    def _writing(self) -> AbstractAsyncContextManager[Connection]:
        """A transaction that is durable at its end, and undone if it ends with an exception."""

    async def acquire(self, run_id: str, owner: str, seconds: float) -> Lease:
        async with self._writing() as db:
            # Created first, so that two processes that want the same new run lock one row.
            await db.change("INSERT INTO runs (run_id, epoch) VALUES ($1, 0) ON CONFLICT DO NOTHING", run_id)
            rows = await db.rows(
                "SELECT owner, held_until, {now} FROM runs WHERE run_id = $1 {update}",
                run_id,
            )
            holder, until, now = rows[0]
            if holder not in (None, owner) and until > now and not is_dead(holder):
                raise busy(run_id, until - now)
            rows = await db.rows(
                "UPDATE runs SET owner = $2, epoch = epoch + 1, held_until = {now} + $3 WHERE run_id = $1"
                " RETURNING epoch",
                run_id,
                owner,
                float(seconds),
            )
            return Lease(run_id, owner, rows[0][0])

    async def renew(self, lease: Lease, seconds: float) -> bool:
        async with self._writing() as db:
            rows = await db.rows(
                "UPDATE runs SET held_until = {now} + $3 WHERE run_id = $1 AND epoch = $2 AND owner IS NOT NULL"
                " RETURNING suspend",
                lease.run_id,
                lease.epoch,
                float(seconds),
            )
        if not rows:
            check_lease(lease.run_id, lease, None, 0)
        return rows[0][0] == lease.epoch

    async def ask_to_suspend(self, run_id: str) -> bool:
        async with self._writing() as db:
            rows = await db.rows("SELECT owner, held_until, {now} FROM runs WHERE run_id = $1 {update}", run_id)
            if not rows or rows[0][0] is None or rows[0][1] <= rows[0][2] or is_dead(rows[0][0]):
                return False
            await db.change("UPDATE runs SET suspend = epoch WHERE run_id = $1", run_id)
            return True

    async def release(self, lease: Lease) -> None:
        async with self._writing() as db:
            await db.change(
                "UPDATE runs SET owner = NULL, held_until = NULL WHERE run_id = $1 AND epoch = $2",
                lease.run_id,
                lease.epoch,
            )
