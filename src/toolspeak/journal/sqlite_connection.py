"""A SQLite connection for `journal.sql`, the places of a run's records in the file, and SQLite's errors with remedies.

Records are stored in the order of their arrival, so that a commit of many runs writes few pages. With a key that keeps
each run together, it would write a page for each run. A stretch is a part of a run whose records arrived one directly
after the other. Stretches are noted for hundreds of records at once, up to the record `noted.upto`. Later records are
scanned.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Coroutine, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from toolspeak.errors import JournalError
from toolspeak.journal.leases import Connection
from toolspeak.journal.sql_schema import SPAN

BATCH = 256
"""The number of records after which stretches are noted: at most this many are scanned for a run's newest record."""

END = f"""\
coalesce(
    (SELECT max(pos) + 1 FROM records
     WHERE id > (SELECT upto FROM noted) AND pos >= runs.number * {SPAN} AND pos < (runs.number + 1) * {SPAN}),
    (SELECT pos + count FROM stretches
     WHERE pos >= runs.number * {SPAN} AND pos < (runs.number + 1) * {SPAN} ORDER BY pos DESC LIMIT 1))"""
"""The position after the last record of a row of `runs`."""

INSERT = "INSERT INTO records (pos, data, sum) VALUES (?, ?, ?)"
COUNT_UNNOTED = "SELECT coalesce((SELECT max(id) FROM records), 0) - (SELECT upto FROM noted)"
NOTE = (
    # The positions of records of two runs are much further apart than their ids.
    """
INSERT INTO stretches SELECT min(pos), min(id), count(*) FROM records
WHERE id > (SELECT upto FROM noted) GROUP BY pos - id""",
    # SQLite reuses ids after the last rows are deleted, so this number may also decrease.
    "UPDATE noted SET upto = coalesce((SELECT max(id) FROM records), 0)",
)

_ROWS_IN_STRETCHES = """\
SELECT r.pos, r.data, r.places, r.sum FROM stretches AS s
JOIN records AS r ON r.id >= s.id + max(0, $1 - s.pos) AND r.id < s.id + s.count
WHERE s.pos >= coalesce((SELECT max(pos) FROM stretches WHERE pos <= $1), $1) AND s.pos + s.count > $1 AND s.pos < $2
ORDER BY s.pos, r.id LIMIT $3"""

_SINCE = """\
SELECT pos, data, places, sum FROM records WHERE id > (SELECT upto FROM noted) AND pos >= $1 AND pos < $2
ORDER BY pos LIMIT $3"""

_DELETE = (
    """\
DELETE FROM records WHERE id IN (
    SELECT r.id FROM stretches AS s JOIN records AS r ON r.id >= s.id AND r.id < s.id + s.count
    WHERE s.pos >= $1 AND s.pos < $2)""",
    "DELETE FROM stretches WHERE pos >= $1 AND pos < $2",
)


async def rows_of(db: Connection, start: int, end: int, limit: int) -> Sequence[Sequence[Any]]:
    """Returns at most `limit` rows (position, JSON, places, checksum) at a run's positions, from `start` up to but not
    including `end`, in order."""
    rows = [*await db.rows(_ROWS_IN_STRETCHES, start, end, limit)]
    if len(rows) < limit:
        rows += await db.rows(_SINCE, start, end, limit - len(rows))
    return rows


async def delete_run(db: Connection, number: int) -> None:
    """Removes the records of run `number`."""
    await note(db)
    for statement in _DELETE:
        await db.change(statement, number * SPAN, (number + 1) * SPAN)
    await note(db)


async def note(db: Connection) -> None:
    """Notes the stretches of the records that were added since the last call."""
    for statement in NOTE:
        await db.change(statement)


ResultT = TypeVar("ResultT")

_WALL = "((julianday('now') - 2440587.5) * 86400.0)"
_FILL = {
    "{now}": "lease_now()",  # `sqlite_file.add_lease_clock` creates this function
    "{held}": f"held_until + CASE WHEN abs(lease_now() - {_WALL}) < 1 THEN 0 ELSE {_WALL} - lease_now() END",
    "{share}": "",
    "{update}": "",
    "{found}": "rowid",
    "{end}": END,
    "{unless}": "",
    "{month}": "strftime('%Y-%m', created, 'unixepoch')",
    "{bytes}": "length(CAST(data AS BLOB))",
}


def connect_sqlite(file: Path) -> sqlite3.Connection:
    # SQLite does not wait for locks: the event loop does, so that other tasks run in the meantime.
    return sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)


class SqliteConnection:
    """Implements `Connection`. Its methods never wait."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        return self._execute(sql, arguments).fetchall()

    async def change(self, sql: str, *arguments: Any) -> int:
        return self._execute(sql, arguments).rowcount

    def _execute(self, sql: str, arguments: Sequence[Any]) -> sqlite3.Cursor:
        # To SQLite `$1` is a name, and since Python 3.14 names need a mapping.
        return self.db.execute(_own(sql), dict(zip(_NUMBERS, arguments, strict=False)))


@lru_cache(256)
def _own(sql: str) -> str:
    for name, text in _FILL.items():
        sql = sql.replace(name, text)
    return sql


_NUMBERS = [str(number) for number in range(1, 1000)]


def at_once(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Runs a coroutine that never waits, and returns its result."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a statement waited inside a transaction")


_REMEDIES = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, or name a file elsewhere",
    sqlite3.SQLITE_IOERR: "it cannot be written (is the disk full, or a quota reached?): free some space, or name a"
    " file elsewhere",
    sqlite3.SQLITE_CORRUPT: "it is damaged: restore it from a backup, or save what can be read with"
    " `sqlite3 FILE .recover` into a new file",
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database: name another file",
    sqlite3.SQLITE_READONLY: "it cannot be written: give yourself the right to write the file and its folder, or name"
    " another",
    sqlite3.SQLITE_PERM: "it cannot be opened: give yourself the right to read and write it",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: its folder must exist and be writable",
    sqlite3.SQLITE_BUSY: "another process has locked it: end that process, or try again when it is done",
}


_PROMISE = " Nothing was done that is not recorded in it"


def journal_error(
    error: BaseException, path: Path, what: str = "the journal", promise: str = _PROMISE
) -> BaseException:
    """Returns the error for the caller: for an error from SQLite, a JournalError with the file and the remedy.

    Its text begins with `what` and ends with `promise`.
    """
    if isinstance(error, UnicodeDecodeError):  # from a text in the file, or in an error from SQLite
        error = sqlite3.DatabaseError(f"a text is not UTF-8 ({error.reason})")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    if not isinstance(error, sqlite3.Error):
        return error
    code: int = getattr(error, "sqlite_errorcode", 0)
    # SQLite reports a write beyond a quota as an I/O error, like a broken disk.
    remedy = _REMEDIES.get(code & 0xFF, "its file may be damaged, or the disk")
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN and path.is_file() and not os.access(path, os.R_OK | os.W_OK):
        remedy = _REMEDIES[sqlite3.SQLITE_PERM]
    if path.is_dir():
        remedy = "it is a folder: name a file in it"
    return JournalError(f"{what} {path}: {error}; {remedy}.{promise}".rstrip("."))


def is_busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
