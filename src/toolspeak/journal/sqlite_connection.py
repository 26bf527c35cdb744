"""A SQLite connection with the contract of `journal.sql`, and the errors of SQLite with their remedies."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Coroutine, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from toolspeak.errors import JournalError
from toolspeak.journal.stretches import END

ResultT = TypeVar("ResultT")

_WALL = "((julianday('now') - 2440587.5) * 86400.0)"
_FILL = {
    "{now}": "lease_now()",  # made by `sqlite_file.clocked`
    "{held}": f"held_until + CASE WHEN abs(lease_now() - {_WALL}) < 1 THEN 0 ELSE {_WALL} - lease_now() END",
    "{share}": "",
    "{update}": "",
    "{found}": "rowid",
    "{end}": END,
    "{unless}": "",
}


class SqliteConnection:
    """Implements `Connection` without ever waiting."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        return self._execute(sql, arguments).fetchall()

    async def change(self, sql: str, *arguments: Any) -> int:
        return self._execute(sql, arguments).rowcount

    def _execute(self, sql: str, arguments: Sequence[Any]) -> sqlite3.Cursor:
        # To SQLite `$1` is a name, and from Python 3.14 on a name is only filled from a mapping.
        return self.db.execute(_own(sql), dict(zip(_NUMBERS, arguments, strict=False)))


@lru_cache(256)
def _own(sql: str) -> str:
    for name, text in _FILL.items():
        sql = sql.replace(name, text)
    return sql


_NUMBERS = [str(number) for number in range(1, 100)]


def at_once(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Runs a coroutine that never waits, and returns its result."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a statement waited inside of a transaction")


_REMEDIES = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, or name a file elsewhere",
    sqlite3.SQLITE_IOERR: "it cannot be written (is the disk full, or a quota reached?): free some space, or name a"
    " file elsewhere",
    sqlite3.SQLITE_CORRUPT: "it is damaged: restore it from a backup, or save what can be read with"
    " `sqlite3 FILE .recover` into a new file",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database: name another file",
    sqlite3.SQLITE_READONLY: "it cannot be written: give yourself the right to write the file and its folder, or name"
    " another",
    sqlite3.SQLITE_PERM: "it cannot be opened: give yourself the right to read and write it",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: its folder must be there and writable",
    sqlite3.SQLITE_BUSY: "another process has locked it: end that process, or try again when it is done",
}


_PROMISE = " Nothing was done that is not recorded in it"


def journal_error(
    error: BaseException, path: Path, what: str = "the journal", promise: str = _PROMISE
) -> BaseException:
    """Returns the error for the caller: for an error of SQLite a JournalError with the file and the remedy.

    Its text begins with `what` and ends with `promise`.
    """
    if isinstance(error, UnicodeDecodeError):  # a text of the file, or one that SQLite quotes in an error
        error = sqlite3.DatabaseError(f"a text is not UTF-8 ({error.reason})")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    if not isinstance(error, sqlite3.Error):
        return error
    code: int = getattr(error, "sqlite_errorcode", 0)
    # A write beyond a quota is reported as an I/O error, like a broken disk.
    remedy = _REMEDIES.get(code & 0xFF, "its file may be damaged, or the disk")
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN and path.is_file() and not os.access(path, os.R_OK | os.W_OK):
        remedy = _REMEDIES[sqlite3.SQLITE_PERM]
    if path.is_dir():
        remedy = "it is a folder: name a file in it"
    return JournalError(f"{what} {path}: {error}; {remedy}.{promise}".rstrip("."))


def is_busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
