"""The journal in one SQLite file: the default, which several processes can use safely."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from toolspeak.data.events import Record, RunStarted
from toolspeak.data.protected_files import protect
from toolspeak.errors import ConfigurationError, JournalError, ToolspeakError
from toolspeak.journal.base import Lease
from toolspeak.journal.commits import FIRST_WAIT, LONGEST_WAIT, Commits, Syncs, Waiting
from toolspeak.journal.leases import Connection, new_owner
from toolspeak.journal.records import CHANGES_OF_RUNS, ENDS, FOLLOWED_EVENTS, SYNCED_EVENTS, RecordRow, pack, sum_of
from toolspeak.journal.sql_schema import SPAN
from toolspeak.journal.sqlite_connection import (
    BATCH,
    COUNT_UNNOTED,
    INSERT,
    NOTE,
    SqliteConnection,
    at_once,
    connect_sqlite,
    is_busy,
    journal_error,
)
from toolspeak.journal.sqlite_file import add_lease_clock, close_all, log_of, mark_open, open_db, roll_back, salvage
from toolspeak.journal.sqlite_log import MAGIC
from toolspeak.journal.sqlite_tables import SqliteTables
from toolspeak.journal.sqlite_upkeep import was_vacuumed

Sync: TypeAlias = Literal["effects", "always", "never"]

_ENDINGS = ("", "-wal", "-shm", "-journal")
_MOST_CURSORS = 10_000  # the most runs whose state is remembered
_CHECKPOINT = 1000  # the pages of the write-ahead log between two checkpoints, approximately: SQLite's default
_PAGE = 4096


@dataclass(slots=True)
class _RunCursor:
    """A run's place in the file, valid until another process changes the file.

    - `first`: the position of its first record.
    - `epoch`: its lease's epoch; 0 without a lease.
    - `next`: the number of its next record.
    """

    first: int
    epoch: int
    next: int


class SqliteJournal(SqliteTables):
    """Implements `Journal` in a file, which is created on first use.

    - `path`: the file.
    - `sync`: when to sync to the disk, so that records survive a power cut or a crash of the system. A crash of the
      process never loses a record. "effects": before and after every tool call, after every decision about a call, and
      before the end of a run is reported. "always": after every record. "never": the system decides.
    - `lock_seconds`: how long to wait for another process's lock.
    - `clock`: the wall clock (Unix seconds). Leases use it between machines and across restarts of a machine. Otherwise
      they use the time since the machine started.

    Records that are appended at the same time are committed together. A thread syncs, and moves the write-ahead log
    into the file. While the disk syncs quickly, the event loop syncs instead (`journal.commits.Syncs`). One object
    serves one event loop at a time.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        sync: Sync = "effects",
        lock_seconds: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if sync not in get_args(Sync):
            raise ConfigurationError(f"sync={sync!r} is unknown; write {', '.join(get_args(Sync))}")
        self.path = Path(path)
        self._file = self.path.absolute()
        self._name_of_file = str(self._file)
        # Tools must not even read it: closing a file releases the process's locks on it (fcntl(2)), also SQLite's.
        protect(self._file, "a journal of runs", endings=_ENDINGS, secret=True)
        self._sync: Sync = sync
        self._lock_seconds = lock_seconds
        self._wall = clock
        self._db: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._mode: tuple[bool, bool] | None = None
        self._commits = Commits(self._write, self._may_wait, is_busy, self._error_of, lock_seconds)
        self._run_cursors: dict[str, _RunCursor] = {}
        self._data_version = -1
        self._unnoted_count = 0  # the records whose stretches this object has not noted
        self._name = ""  # the name in the list of processes that have the file open; "" before the first write
        self._place: tuple[int, int] = (0, 0)  # device and inode of the open file
        self._finalizer: weakref.finalize[..., SqliteJournal] | None = None
        self._size = 0  # the file's size, which shrinks only if the file is vacuumed
        self._vacuums = 0  # how often it had been vacuumed when it was opened
        self._log: int | None = None  # a descriptor of the write-ahead log
        self._pages_since_checkpoint = 0  # approximately
        self._syncs = Syncs()
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return str(self.path)

    async def append(self, record: Record, lease: Lease | None = None) -> None:
        event, synced = record.event, self._sync == "always"
        if self._sync == "effects":  # who submits a run counts on its start
            synced = isinstance(event, SYNCED_EVENTS) or (type(event) is RunStarted and event.due is not None)
        await self._commits.add(record, pack(record), lease, synced=synced)

    def _may_wait(self, group: Sequence[Waiting]) -> bool:
        return self._pages_since_checkpoint >= _CHECKPOINT or (
            not self._syncs.short and any(each.synced for each in group)
        )

    def _write(self, group: Sequence[Waiting]) -> list[Exception | None]:
        """Returns an error or None for each record. Raises sqlite3.Error if none was written."""
        full = any(waiting.synced for waiting in group)
        outcomes: list[Exception | None] = []
        rows: list[tuple[int, str, int]] = []  # the next records of their runs: one statement adds them all
        with self._lock:
            checkpoint = self._pages_since_checkpoint >= _CHECKPOINT
            db = self._begin(full, checkpoint=checkpoint)
            try:
                (version,) = db.execute("PRAGMA data_version").fetchone()
                if version != self._data_version:  # another connection has changed runs or leases
                    self._run_cursors.clear()
                    self._data_version = version
                for waiting in group:
                    record, row, lease = waiting.record, waiting.row, waiting.lease
                    cursor = self._run_cursors.get(record.run_id)
                    if (
                        cursor is not None
                        and cursor.next == record.seq
                        and cursor.epoch == (lease.epoch if lease else 0)
                        and row.places is None
                        and not isinstance(record.event, CHANGES_OF_RUNS)
                    ):
                        pos = cursor.first + record.seq
                        rows.append((pos, row.text, sum_of(pos, row.text)))
                        cursor.next += 1
                        outcomes.append(None)
                        continue
                    if rows:
                        self._insert(db, rows)
                    outcomes.append(self._write_one(db, waiting))
                if rows:
                    self._insert(db, rows)
                began = time.perf_counter()
                db.execute("COMMIT")
                if full and not checkpoint:
                    self._syncs.took(time.perf_counter() - began)
                followed_events = [kind for waiting in group if (kind := type(waiting.record.event)) in FOLLOWED_EVENTS]
                if followed_events:
                    self._check_place(with_log=not ENDS.isdisjoint(followed_events))
            except BaseException:
                self._undo(db)
                raise
        return outcomes

    def _note(self, db: sqlite3.Connection, more: int, size: int) -> None:
        """Counts added records and their characters. Notes the stretches once there are many records."""
        self._unnoted_count += more
        self._pages_since_checkpoint += 1 + 2 * size // _PAGE  # the last page, and new ones with their parents
        if self._unnoted_count >= BATCH:
            for statement in NOTE:
                db.execute(statement)
            self._unnoted_count = 0

    def _insert(self, db: sqlite3.Connection, rows: list[tuple[int, str, int]]) -> None:
        """Adds the rows, and empties the list."""
        if len(rows) == 1:
            db.execute(INSERT, rows[0])
        else:
            db.executemany(INSERT, rows)
        self._note(db, len(rows), sum([len(text) for _, text, _ in rows]))
        rows.clear()

    def _write_one(self, db: sqlite3.Connection, waiting: Waiting) -> Exception | None:
        record, row = waiting.record, waiting.row
        epoch = waiting.lease.epoch if waiting.lease else 0
        # This takes more than one statement, or must explain a refusal. A failure undoes this record, not the group.
        self._run_cursors.pop(record.run_id, None)
        db.execute("SAVEPOINT one")
        try:
            at_once(self._add(SqliteConnection(db), record, row, waiting.lease))
        except ToolspeakError as error:
            db.execute("ROLLBACK TO one")
            return error
        finally:
            if db.in_transaction:  # not after a full disk, which rolls everything back
                db.execute("RELEASE one")
        (number,) = db.execute("SELECT number FROM runs WHERE run_id = ?", (record.run_id,)).fetchone()
        if len(self._run_cursors) >= _MOST_CURSORS:
            self._run_cursors.clear()
        self._run_cursors[record.run_id] = _RunCursor(number * SPAN, epoch, record.seq + 1)
        return None

    async def _add(self, db: Connection, record: Record, row: RecordRow, lease: Lease | None) -> None:
        await super()._add(db, record, row, lease)
        ((row_id, pos),) = await db.rows("SELECT id, pos FROM records ORDER BY id DESC LIMIT 1")
        await db.change("UPDATE records SET sum = $1 WHERE id = $2", sum_of(pos, row.text, row.places), row_id)
        self._note(cast("SqliteConnection", db).db, 1, len(row.text) + sum(map(len, row.blobs.values())))

    @asynccontextmanager
    async def _writing(self, *, synced: bool = False) -> AsyncGenerator[SqliteConnection]:
        full = self._sync == "always" or (synced and self._sync == "effects")
        db = await self._transaction(partial(self._begin_writing, full), writes=True)
        try:
            yield SqliteConnection(db)
            if not full:
                db.execute("COMMIT")
        except BaseException as error:
            self._undo(db)
            raise self._error_of(error) from error
        finally:
            self._lock.release()
        if full:
            try:
                await self._commits.in_thread(partial(self._commit, db))
            except sqlite3.Error as error:
                raise self._error_of(error) from error

    @asynccontextmanager
    async def _reading(self) -> AsyncGenerator[SqliteConnection]:
        db = await self._transaction(self._begin_reading, writes=False)
        try:
            yield SqliteConnection(db)
            db.execute("COMMIT")
        except BaseException as error:
            roll_back(db)
            raise self._error_of(error) from error

    async def _transaction(self, begin: Callable[[], sqlite3.Connection], *, writes: bool) -> sqlite3.Connection:
        """Begins a transaction once no other process and not the thread holds the lock."""
        loop = asyncio.get_running_loop()
        since, wait = loop.time(), FIRST_WAIT
        while True:
            if writes or self._reader is None:
                await self._commits.idle()
            try:
                return begin()
            except (sqlite3.Error, UnicodeDecodeError) as error:
                if not is_busy(error) or loop.time() - since >= self._lock_seconds:
                    raise self._error_of(error) from error
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _begin_writing(self, full: bool) -> sqlite3.Connection:
        """Begins a transaction that writes. It holds the lock when this returns."""
        self._lock.acquire()
        try:
            self._check_place()
            self._run_cursors.clear()  # data_version does not report this connection's own changes
            self._pages_since_checkpoint += 1
            return self._begin(full, checkpoint=full)
        except BaseException:
            self._lock.release()
            raise

    def _begin_reading(self) -> sqlite3.Connection:
        # A separate connection, so that reading never waits for the disk.
        if self._reader is None:
            with self._lock:
                self._open()
                reader = connect_sqlite(self._file)
                try:
                    add_lease_clock(reader, self._wall)
                except BaseException:  # for example, the file is locked: the caller tries again
                    reader.close()
                    raise
                self._reader = reader
                self._close_later()
        self._check_place()
        self._reader.execute("BEGIN")
        return self._reader

    def _begin(self, full: bool, *, checkpoint: bool) -> sqlite3.Connection:
        """Begins a transaction. `checkpoint`: its commit may also move the log's pages into the file, which takes
        time."""
        db = self._open() if self._db is None else self._db
        if not self._name:
            name = new_owner()
            mark_open(db, name, self._wall)
            self._name = name
            if hasattr(os, "pread"):  # on other systems an open file cannot be deleted
                self._log = os.open(log_of(self._file), os.O_RDONLY)
            self._close_later()
        if self._mode != (full, checkpoint):
            db.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT // 2 if checkpoint else 0}")
            self._mode = full, checkpoint
        db.execute("BEGIN IMMEDIATE")
        if checkpoint:
            self._pages_since_checkpoint = 0
        return db

    def _commit(self, db: sqlite3.Connection) -> None:
        with self._lock:
            try:
                db.execute("COMMIT")
            except BaseException:
                self._undo(db)
                raise

    def _undo(self, db: sqlite3.Connection) -> None:
        self._run_cursors.clear()
        self._unnoted_count = BATCH  # the noted stretches may be undone too
        roll_back(db)

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            db = open_db(self.path, self._file)
            try:
                add_lease_clock(db, self._wall)
                (self._unnoted_count,) = db.execute(COUNT_UNNOTED).fetchone()
                (self._vacuums,) = db.execute("SELECT count FROM vacuums").fetchone()
            except BaseException:
                db.close()
                raise
            status = os.stat(self._file)
            self._db, self._place, self._size = db, (status.st_dev, status.st_ino), status.st_size
            self._close_later()
        return self._db

    def _close_later(self) -> None:
        """Closes the journal when it becomes garbage or the interpreter ends. Otherwise SQLite would move the log into
        the file and delete it, and the mark of an open log would stay."""
        assert self._db is not None
        if self._finalizer is not None:
            self._finalizer.detach()
        args = (self._reader, self._db, self._log, self._file, self._name, os.getpid())
        self._finalizer = weakref.finalize(self, close_all, *args)

    def _check_place(self, *, with_log: bool = True) -> None:
        """Raises JournalError if the open file or its log is no longer the one at its path."""
        if self._db is None:
            return
        path = name = str(self.path)
        what = ""
        try:
            status = os.stat(self._name_of_file)
            if (status.st_dev, status.st_ino) != self._place:
                what = "replaced by another file"
            elif status.st_size < self._size and not was_vacuumed(self._file, self._vacuums, status.st_size):
                what = "overwritten"
            else:
                self._size = status.st_size
        except FileNotFoundError:
            what = "deleted"
        if not what and with_log and self._log is not None:
            status = os.fstat(self._log)
            magic = int.from_bytes(os.pread(self._log, 4, 0), "big")
            if not status.st_nlink or (status.st_size and magic not in MAGIC):
                name, what = f"{path}-wal", "overwritten" if status.st_nlink else "deleted"
        if what:
            raise JournalError(
                f"the journal {path}: {name} was {what} while it was in use, so nothing more can be recorded in it,"
                " and nothing more runs: restore it from a backup, or name another journal"
            )

    def _error_of(self, error: BaseException) -> BaseException:
        return journal_error(error, self.path)

    def salvage(self) -> Sequence[Path]:
        """Makes a file with a damaged or missing write-ahead log usable, without the lost records. Returns the copies
        of the files that it made.

        An unfinished run may have done more than its records show. Close it (`toolspeak.agent.storage.runs.close_run`
        with `doubtful=True`), and check its effects. Raises JournalError while another process has the file open.
        """
        self.close()
        try:
            return salvage(self.path, self._file)
        except sqlite3.Error as error:
            raise self._error_of(error) from error

    async def aclose(self) -> None:
        """Like `close`, but other tasks run while it waits for the disk."""
        await self._commits.drain()
        await self._commits.idle()
        close = self._detach()
        if close is not None:
            await self._commits.in_thread(close)
        self._commits.stop_if_idle()

    def close(self) -> None:
        """Writes the waiting records and closes the file. The next use opens it again.

        Blocks while SQLite moves its write-ahead log into the file. In an event loop use `aclose`.
        """
        self._commits.stop()
        close = self._detach()
        if close is not None:
            close()

    def _detach(self) -> Callable[[], None] | None:
        """Detaches the connections from the object. Returns the function that closes them."""
        with self._lock:
            close, self._finalizer = self._finalizer, None
            self._db = self._reader = self._mode = self._log = None
            self._name = ""
            self._data_version = -1
            self._run_cursors.clear()
        return close
