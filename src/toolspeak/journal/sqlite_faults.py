"""What goes wrong with a SQLite file, and what to do about it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from toolspeak.errors import JournalError

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
    """What a caller is told of an error: SQLite's with the file and the remedy; `what` begins it, `promise` ends it."""
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
