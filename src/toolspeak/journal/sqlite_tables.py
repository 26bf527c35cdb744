"""The parts of a journal that are specific to SQLite: its tables, its search, and the checks for damage."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from toolspeak.data.events import Record
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.errors import JournalError
from toolspeak.journal.base import Lease
from toolspeak.journal.commits import Commits
from toolspeak.journal.leases import Connection
from toolspeak.journal.maintenance import JournalFinding
from toolspeak.journal.records import Row, sum_of
from toolspeak.journal.sql_maintenance import MaintainedSqlJournal
from toolspeak.journal.sql_runs import FOLLOW_SECONDS
from toolspeak.journal.sql_schema import SPAN
from toolspeak.journal.sqlite_connection import (
    END,
    NOTE,
    SqliteConnection,
    at_once,
    connect_sqlite,
    delete_run,
    rows_of,
)
from toolspeak.journal.sqlite_file import add_lease_clock
from toolspeak.journal.sqlite_upkeep import (
    copy_to,
    empty_log,
    free_pages,
    other_process,
    rebuild,
    sizes,
    structure_faults,
)

ResultT = TypeVar("ResultT")

_MOST_PIECES = 500
"""Published texts that are kept in the file, of all runs: who lags further behind loses them."""

_FOLLOW_PAUSE = 0.05
"""Seconds between two looks for something new."""

_CHECK_SECONDS, _CHECK_SHARE = 10.0, 0.02
"""How long runs are taken up without another check of the file's structure, and the most time that checks may take."""

_MOST_SCANNED = 10_000
"""The number of records since a run began up to which the file is searched for those of the run, in a twentieth of a
second."""


class SqliteTables(MaintainedSqlJournal):
    """The places of records in the file, the search, the checks for damage, and the upkeep of the file."""

    path: Path
    _file: Path
    _commits: Commits
    _unnoted_count: int
    _name: str
    _lock_seconds: float
    _structure_check: asyncio.Task[None] | None = None
    _next_structure_check = 0.0

    @abstractmethod
    def _error_of(self, error: BaseException) -> BaseException:
        """Returns the error for the caller."""

    async def _rows(self, db: Connection, start: int, end: int, limit: int) -> Sequence[Row]:
        rows = await rows_of(db, start, end, limit)
        for pos, data, places, stored_sum in rows:
            if stored_sum is not None and stored_sum != sum_of(pos, data, places):
                ((run_id,),) = await db.rows("SELECT run_id FROM runs WHERE number = $1", pos // SPAN)
                raise self._damage(f"record {pos % SPAN} of run {run_id} differs from what was written")
        return [(pos, data, places) for pos, data, places, _ in rows]

    async def acquire(self, run_id: str, owner: str, seconds: float, *, takes_over: str | None = None) -> Lease:
        lease = await super().acquire(run_id, owner, seconds, takes_over=takes_over)
        try:
            info = await self.run(run_id)
            # A call whose result is missing would run again. Nothing has run of a run that is only submitted.
            if (
                info is not None
                and info.status in UNFINISHED_STATUSES
                and (info.status != "queued" or info.records > 1)
            ):
                await self._check_run(run_id)
        except BaseException:
            await self.release(lease)
            raise
        return lease

    async def publish(self, run_id: str, text: str) -> None:
        async with self._writing() as db:
            await db.change("INSERT INTO pieces (run_id, data) VALUES ($1, $2)", run_id, text)
            await db.change(f"DELETE FROM pieces WHERE id <= (SELECT max(id) - {_MOST_PIECES} FROM pieces)")

    async def follow(self, run_id: str) -> AsyncGenerator[str]:
        rows = await self._pieces(run_id, None)
        newest, version, looked_at, marked_at = rows[-1][0] if rows else 0, -1, 0.0, 0.0
        while True:
            if time.monotonic() - marked_at > FOLLOW_SECONDS / 3:
                await self._follow(run_id)
                marked_at = time.monotonic()
            current = await self._changes()
            if current != version or time.monotonic() - looked_at > 1:
                version, looked_at = current, time.monotonic()
                rows = await self._pieces(run_id, newest)
                for number, text in rows:
                    newest = number
                    if text:
                        yield text
                yield ""
            await asyncio.sleep(_FOLLOW_PAUSE)

    async def _pieces(self, run_id: str, after: int | None) -> Sequence[tuple[int, str]]:
        async with self._reading() as db:
            if after is None:
                return [(row[0] or 0, "") for row in await db.rows("SELECT max(id) FROM pieces")]
            rows = await db.rows("SELECT id, data FROM pieces WHERE run_id = $1 AND id > $2 ORDER BY id", run_id, after)
        return [(row[0], row[1]) for row in rows]

    async def _changes(self) -> int:
        """A number that changes when anybody has written to the file."""
        async with self._reading() as db:
            return (await db.rows("PRAGMA data_version"))[0][0]

    async def read(self, run_id: str, start: int = 0, most: int | None = None) -> Sequence[Record]:
        records = await super().read(run_id, start, most)
        if not records and not start and most != 0:
            await self._check_all()  # before the caller learns that there is no such run
        return records

    async def _check_run(self, run_id: str) -> None:
        """Raises JournalError if what a run depends on is damaged. It takes as long as reading the file to check the
        file's structure, so a worker that takes up one run after the other does not do it for each."""
        if time.monotonic() >= self._next_structure_check:
            check, loop = self._structure_check, asyncio.get_running_loop()
            if check is None or check.done() or check.get_loop() is not loop:
                check = self._structure_check = loop.create_task(self._check_structure())
            await asyncio.shield(check)
        if faults := await self._in_thread(partial(_faults_of_run, self._file, run_id)):
            raise self._damage(faults)

    async def _check_structure(self) -> None:
        start = time.monotonic()
        if faults := await self._in_thread(partial(_faults_of_structure, self._file)):
            raise self._damage(faults)
        now = time.monotonic()
        self._next_structure_check = now + max(_CHECK_SECONDS, (now - start) / _CHECK_SHARE)

    async def _check_all(self) -> None:
        """Raises JournalError if any table is damaged."""
        await self._commits.idle()
        try:
            faults = await self._commits.in_thread(partial(_faults, self._file))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._error_of(error) from error
        if faults:
            raise self._damage(faults)

    def _damage(self, what: str) -> JournalError:
        return JournalError(
            f"the journal {self.path} is damaged: {what}. A call may have run already, so nothing runs: restore the"
            " journal from a backup, or save what can be read with `sqlite3 FILE .recover` into a new file"
        )

    # --- upkeep ---------------------------------------------------------------------------------------------------

    async def _apart(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        await self._in_file()
        return await self._in_thread(partial(_rows_apart, self._file, sql, arguments))

    async def _in_file(self) -> None:
        """Opens the file, which checks it and brings it to this version, if this object has not opened it yet."""
        async with self._reading():
            pass

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        try:
            return await asyncio.to_thread(work)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._error_of(error) from error

    async def _store_faults(self) -> Sequence[JournalFinding]:
        await self._in_file()
        return [JournalFinding("damage", text) for text in await self._in_thread(partial(structure_faults, self._file))]

    async def _store_size(self) -> tuple[int, int | None]:
        return await self._in_thread(partial(sizes, self._file))

    async def _before_erasing(self) -> None:
        async with self._writing():  # so that the file knows this process
            pass
        other = await self._in_thread(partial(other_process, self._file, self._name))
        if other is not None:
            raise JournalError(
                f"the journal {self.path} is open in another process ({other}), so nothing was done: end that process"
                " first"
            )

    async def _after_erasing(self) -> None:
        await self._in_thread(partial(rebuild, self._file, self._lock_seconds, index=True))

    async def backup(self, target: str | Path) -> None:
        """Copies the journal to a new file, as it is at this moment, with what is in its log. Other processes go on.

        Raises ConfigurationError if the file exists, and JournalError if the journal is damaged.
        """
        await self._in_file()
        await self._in_thread(partial(copy_to, self._file, Path(target)))

    async def vacuum(self, *, full: bool = False) -> tuple[int, int]:
        async with self._writing():  # marks that the log is needed
            pass
        before, _ = await self._store_size()
        if full:
            await self._before_erasing()
            await self._in_thread(partial(rebuild, self._file, self._lock_seconds))
        else:
            while await self._in_thread(partial(free_pages, self._file, self._lock_seconds)):
                pass
            await self._in_thread(partial(empty_log, self._file, 1.0))
        after, _ = await self._store_size()
        return before, after

    async def _delete_records(self, db: Connection, run_id: str, number: int) -> None:
        await delete_run(db, number)
        await db.change("DELETE FROM pieces WHERE run_id = $1", run_id)

    async def _unindexed_runs(self, db: Connection) -> Sequence[tuple[str, int]]:
        for statement in NOTE:  # so that stretches include every run's newest record
            await db.change(statement)
        self._unnoted_count = 0
        return await super()._unindexed_runs(db)

    async def _index(self, db: Any, pos: int, text: Sequence[str]) -> None:
        await db.change("INSERT INTO found (rowid, words) VALUES ($1, $2)", pos, " ".join(text))

    async def _matches(
        self, db: Any, words: Sequence[str], principal: str | None, private: bool, limit: int
    ) -> Sequence[int]:
        query = " ".join(f'"{word}"' for word in words) + "*"
        rows = await db.rows(
            f"SELECT found.rowid FROM found JOIN runs ON runs.number = found.rowid / {SPAN}"
            " WHERE found MATCH $1 AND (runs.principal IS $2 OR ($2 IS NULL AND NOT $4))"
            " ORDER BY runs.created DESC, found.rowid DESC LIMIT $3",
            query,
            principal,
            limit,
            private,
        )
        return [pos for (pos,) in rows]


def _rows_apart(file: Path, sql: str, arguments: Sequence[Any]) -> Sequence[Sequence[Any]]:
    with closing(connect_sqlite(file)) as db:
        add_lease_clock(db, time.time)
        return at_once(SqliteConnection(db).rows(sql, *arguments))


def _faults(file: Path) -> str:
    """Returns the damage to the tables; "" if there is none. Raises sqlite3.Error if SQLite cannot continue to read."""
    with closing(connect_sqlite(file)) as db:
        db.execute("PRAGMA busy_timeout = 1000")
        (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            return str(verdict)
        db.execute("BEGIN")  # all queries see one state of the file
        return next(_faults_of_records(db, 0), "")


def _faults_of_structure(file: Path) -> str:
    with closing(connect_sqlite(file)) as db:
        db.execute("PRAGMA busy_timeout = 1000")
        (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    return "" if verdict == "ok" else str(verdict)


def _faults_of_run(file: Path, run_id: str) -> str:
    """Returns how the records of a run that the file holds differ from those that can be found; "" if they do not.

    Searches no more than `_MOST_SCANNED` records. Raises sqlite3.Error if SQLite cannot continue to read.
    """
    with closing(connect_sqlite(file)) as db:
        db.execute("PRAGMA busy_timeout = 1000")
        db.execute("BEGIN")  # all queries see one state of the file
        row = db.execute(f"SELECT number, {END} FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            return ""
        number, end = row
        query = "SELECT min(id) FROM stretches WHERE pos >= ? AND pos < ?"
        (since,) = db.execute(query, (number * SPAN, (number + 1) * SPAN)).fetchone()
        if since is None:
            (since,) = db.execute("SELECT upto + 1 FROM noted").fetchone()
        (newest,) = db.execute("SELECT coalesce(max(id), 0) FROM records").fetchone()
        if newest - since >= _MOST_SCANNED:
            return ""
        first = number * SPAN
        query = "SELECT count(*) FROM records WHERE id >= ? AND pos >= ? AND pos < ?"
        (count,) = db.execute(query, (since, first, first + SPAN)).fetchone()
        if count != (end or first) - first:
            return f"the file holds {count} records of the run, and {(end or first) - first} can be found"
        return next(_faults_of_records(db, since), "")


def _faults_of_records(db: sqlite3.Connection, since: int) -> Iterator[str]:
    numbers: set[int] = set()
    for pos, data, places, stored_sum in db.execute(
        "SELECT pos, data, places, sum FROM records WHERE id >= ?", (since,)
    ):
        if stored_sum is not None and stored_sum != sum_of(pos, data, places):
            yield f"record {pos % SPAN} of the run with the number {pos // SPAN} differs from what was written"
        numbers.add(pos // SPAN)
    for number in numbers:
        if db.execute("SELECT 1 FROM runs WHERE number = ?", (number,)).fetchone() is None:
            yield f"there are records of a run that is not listed (number {number})"
