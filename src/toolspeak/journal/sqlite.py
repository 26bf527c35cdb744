"""The journal in one SQLite file: the embedded default, safe with several processes."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from toolspeak.data.events import Event, Record, RunFinished, RunPaused, ToolFinished, ToolStarted
from toolspeak.errors import JournalError, ToolspeakError
from toolspeak.journal.base import Lease
from toolspeak.journal.rules import is_listed
from toolspeak.journal.schema import VERSION, newer, steps_from
from toolspeak.journal.sql import SPAN, SqlJournal
from toolspeak.journal.stored import Stored, pack

Sync: TypeAlias = Literal["effects", "always", "never"]

_APPLICATION = 0x7453706B  # "tSpk", in the file's header: https://www.sqlite.org/fileformat2.html#application_id
_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_TYPES = {
    "integer": "INTEGER",
    "number": "INTEGER PRIMARY KEY",
    "key": "INTEGER PRIMARY KEY",
    "real": "REAL",
    "bytes": "BLOB",
    "found": """CREATE VIRTUAL TABLE found USING fts5(words, tokenize = "unicode61 remove_diacritics 0")""",
}
_FILL = {"{now}": _NOW, "{share}": "", "{update}": "", "{found}": "rowid"}
_MOST_KNOWN = 10_000  # runs whose state is kept to spare looking it up
_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.05  # seconds between two tries at a locked file

_REMEDIES = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, or name a journal elsewhere",
    sqlite3.SQLITE_IOERR: "it cannot be written (is the disk full, or a quota reached?): free some space, or name a"
    " journal elsewhere",
    sqlite3.SQLITE_CORRUPT: "it is damaged: restore it from a backup, or save what can be read with"
    " `sqlite3 FILE .recover` into a new file",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database: name another file",
    sqlite3.SQLITE_READONLY: "it cannot be written: give yourself the right to write the file and its folder, or name"
    " another",
    sqlite3.SQLITE_PERM: "it cannot be opened: give yourself the right to read and write it",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: its folder must be there and writable",
    sqlite3.SQLITE_BUSY: "another process has locked it: end that process, or try again when it is done",
}


def is_synced(event: Event) -> bool:
    """Whether the event is on the disk before anything follows from it: a power cut must not undo that an effect was
    begun or what came of it, nor what the caller was told."""
    return isinstance(event, _SYNCED)


_SYNCED = (ToolStarted, ToolFinished, RunPaused, RunFinished)


@dataclass(slots=True)
class _Waiting:
    """A record on its way into the file."""

    record: Record
    stored: Stored
    lease: Lease | None
    done: asyncio.Future[None]


@dataclass(slots=True)
class _Known:
    """A run as it stands, while nobody else has changed the file: where its records begin, the epoch of its lease (0:
    nobody holds it) and the number of its next record."""

    first: int
    epoch: int
    next: int


class SqliteJournal(SqlJournal):
    """Implements `Journal` in a file, which is made when it is first used.

    `sync` says what survives a power cut or a crash of the system (a crash of the process loses nothing, ever):
    "effects" syncs before and after every tool call and before a run's end is told, "always" every record, "never"
    leaves it to the system. `lock_seconds` is how long a lock of another process is waited for.

    Records that are appended at the same time are committed together. One object serves one event loop at a time.
    """

    def __init__(self, path: str | Path, *, sync: Sync = "effects", lock_seconds: float = 10.0) -> None:
        self.path = Path(path)
        self._sync: Sync = sync
        self._lock_seconds = lock_seconds
        self._db: sqlite3.Connection | None = None
        self._full: bool | None = None
        self._waiting: list[_Waiting] = []
        self._known: dict[str, _Known] = {}
        self._seen = -1
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return str(self.path)

    async def append(self, record: Record, lease: Lease | None = None) -> None:
        loop = asyncio.get_running_loop()
        waiting = _Waiting(record, pack(record), lease, loop.create_future())
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            # Behind whatever else is ready to run: its records are committed together with this one.
            loop.call_soon(self._flush, loop, loop.time(), _FIRST_WAIT)
        await waiting.done

    def _flush(self, loop: asyncio.AbstractEventLoop, since: float, wait: float) -> None:
        group = [waiting for waiting in self._waiting if not waiting.done.done()]
        if not group:
            self._waiting.clear()
            return
        try:
            with self._lock:
                outcomes = self._write(group)
        except sqlite3.Error as error:
            if is_busy(error) and loop.time() - since < self._lock_seconds:
                loop.call_later(wait, self._flush, loop, since, min(2 * wait, _LONGEST_WAIT))
                return
            outcomes = [self._problem(error)] * len(group)
        except Exception as error:  # noqa: BLE001 - those who wait are told; a callback's own error would be lost
            outcomes = [error] * len(group)
        self._waiting.clear()
        for waiting, outcome in zip(group, outcomes, strict=True):
            if outcome is None:
                waiting.done.set_result(None)
            else:
                waiting.done.set_exception(outcome)

    def _write(self, group: Sequence[_Waiting]) -> list[Exception | None]:
        """What became of each. Raises sqlite3.Error when none was written."""
        full = self._sync == "always" or (
            self._sync == "effects" and any(is_synced(waiting.record.event) for waiting in group)
        )
        db = self._begin(full)
        try:
            (seen,) = db.execute("PRAGMA data_version").fetchone()
            if seen != self._seen:  # another connection has changed something: runs, leases
                self._known.clear()
                self._seen = seen
            outcomes = self._write_all(db, group)
            db.execute("COMMIT")
        except BaseException:
            self._known.clear()
            _roll_back(db)
            raise
        return outcomes

    def _write_all(self, db: sqlite3.Connection, group: Sequence[_Waiting]) -> list[Exception | None]:
        outcomes: list[Exception | None] = []
        rows: list[tuple[int, str]] = []  # those known to be the next of their runs: one statement adds them
        known_runs = self._known
        for waiting in group:
            record, stored, lease = waiting.record, waiting.stored, waiting.lease
            known = known_runs.get(record.run_id)
            if (
                known is not None
                and known.next == record.seq
                and known.epoch == (lease.epoch if lease else 0)
                and stored.places is None
                and not is_listed(record.event)
            ):
                rows.append((known.first + record.seq, stored.text))
                known.next += 1
                outcomes.append(None)
                continue
            if rows:
                db.executemany(_INSERT, rows)
                rows.clear()
            outcomes.append(self._write_one(db, waiting))
        if rows:
            db.executemany(_INSERT, rows)
        return outcomes

    def _write_one(self, db: sqlite3.Connection, waiting: _Waiting) -> Exception | None:
        record, stored = waiting.record, waiting.stored
        epoch = waiting.lease.epoch if waiting.lease else 0
        # More than one statement, or a refusal to be explained: undone as a whole, without the rest of the group.
        self._known.pop(record.run_id, None)
        db.execute("SAVEPOINT one")
        try:
            _finish(self._add(_Connection(db), record, stored, waiting.lease))
        except ToolspeakError as error:
            db.execute("ROLLBACK TO one")
            return error
        finally:
            if db.in_transaction:  # a full disk has rolled everything back
                db.execute("RELEASE one")
        (number,) = db.execute("SELECT number FROM runs WHERE run_id = ?", (record.run_id,)).fetchone()
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[record.run_id] = _Known(number * SPAN, epoch, record.seq + 1)
        return None

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[_Connection]:
        async with self._transaction("write") as connection:
            yield connection

    @asynccontextmanager
    async def _reading(self) -> AsyncGenerator[_Connection]:
        async with self._transaction("read") as connection:
            yield connection

    @asynccontextmanager
    async def _transaction(self, kind: Literal["read", "write"]) -> AsyncGenerator[_Connection]:
        loop = asyncio.get_running_loop()
        since, wait = loop.time(), _FIRST_WAIT
        while True:
            self._lock.acquire()  # nothing below waits for anything while it is held
            try:
                if kind == "write":
                    self._known.clear()  # data_version tells of others' changes, not of our own
                    db = self._begin(self._sync == "always")
                else:
                    db = self._snapshot()
                break
            except sqlite3.Error as error:
                self._lock.release()
                if not is_busy(error) or loop.time() - since >= self._lock_seconds:
                    raise self._problem(error) from error
            except BaseException:
                self._lock.release()
                raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        try:
            yield _Connection(db)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(db)
            raise self._problem(error) from error
        except BaseException:
            _roll_back(db)
            raise
        finally:
            self._lock.release()

    def _begin(self, full: bool) -> sqlite3.Connection:
        db = self._open()
        if full is not self._full:
            db.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._full = full
        db.execute("BEGIN IMMEDIATE")
        return db

    def _snapshot(self) -> sqlite3.Connection:
        db = self._open()
        db.execute("BEGIN")
        return db

    def _open(self) -> sqlite3.Connection:
        if self._db is not None:
            return self._db
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(f"the journal's folder {self.path.parent} cannot be made: {error.strerror}") from error
        # Waiting for locks is done in the event loop, where others go on meanwhile.
        db = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == VERSION and db.execute("PRAGMA journal_mode").fetchone() == ("wal",):
            self._check_ours(db, version)
            return
        self._check_ours(db, version)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()  # another process may have been faster
            for statement in steps_from(version, _TYPES):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("COMMIT")
        except BaseException:
            _roll_back(db)
            raise

    def _check_ours(self, db: sqlite3.Connection, version: int) -> None:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables and application != _APPLICATION:
            raise JournalError(f"the journal {self.path} is a database of another program: name another file")
        if version > VERSION:
            raise JournalError(newer(f"the journal {self.path}", version))

    def _problem(self, error: sqlite3.Error) -> JournalError:
        code: int = getattr(error, "sqlite_errorcode", 0)
        # A write beyond a quota is reported as an I/O error, like a broken disk.
        remedy = _REMEDIES.get(code & 0xFF, "its file may be damaged, or the disk")
        return JournalError(f"the journal {self.path}: {error}; {remedy}. Nothing was done that is not recorded in it")

    async def _index(self, db: Any, pos: int, text: Sequence[str]) -> None:
        await db.change("INSERT INTO found (rowid, words) VALUES ($1, $2)", pos, " ".join(text))

    async def _matches(
        self, db: Any, wanted: Sequence[str], principal: str | None, private: bool, limit: int
    ) -> Sequence[int]:
        query = " ".join(f'"{word}"' for word in wanted) + "*"
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

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; it is opened again when it is used again."""
        with self._lock:
            db, self._db, self._full, self._seen = self._db, None, None, -1
            self._known.clear()
            if db is not None:
                db.close()


class _Connection:
    """Implements `Connection` without ever waiting: what is done in it is done at one go."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        return self._execute(sql, arguments).fetchall()

    async def change(self, sql: str, *arguments: Any) -> int:
        return self._execute(sql, arguments).rowcount

    def _execute(self, sql: str, arguments: Sequence[Any]) -> sqlite3.Cursor:
        # To SQLite `$1` is a name, and from Python 3.14 on a name is only filled from a mapping.
        return self._db.execute(_own(sql), dict(zip(_NUMBERS, arguments, strict=False)))


@lru_cache(256)
def _own(sql: str) -> str:
    for name, text in _FILL.items():
        sql = sql.replace(name, text)
    return sql


_NUMBERS = [str(number) for number in range(1, 100)]
_INSERT = "INSERT INTO records (pos, data) VALUES (?, ?)"


def is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:  # SQLite has done it itself after some errors
        db.execute("ROLLBACK")


def _finish(work: Any) -> None:
    """Runs a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("a statement waited inside of a transaction")
