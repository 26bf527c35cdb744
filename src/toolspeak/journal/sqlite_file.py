"""A journal's file: how it is opened, made, and brought forward from an earlier version."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from toolspeak.errors import JournalError
from toolspeak.journal.schema import VERSION, newer, steps_from
from toolspeak.journal.stretches import NOTE

_APPLICATION = 0x7453706B  # "tSpk", in the file's header: https://www.sqlite.org/fileformat2.html#application_id
_TYPES = {
    "integer": "INTEGER",
    "number": "INTEGER PRIMARY KEY",
    "key": "INTEGER PRIMARY KEY",
    "real": "REAL",
    "bytes": "BLOB",
    "found": """CREATE VIRTUAL TABLE found USING fts5(words, tokenize = "unicode61 remove_diacritics 0")""",
    "arrivals": ";\n".join(
        (
            "ALTER TABLE records RENAME TO records_by_run",
            "CREATE TABLE records (id INTEGER PRIMARY KEY, pos INTEGER NOT NULL, data TEXT NOT NULL, places TEXT)",
            "INSERT INTO records (pos, data, places) SELECT pos, data, places FROM records_by_run ORDER BY pos",
            "DROP TABLE records_by_run",
            "CREATE TABLE stretches (pos INTEGER PRIMARY KEY, id INTEGER NOT NULL, count INTEGER NOT NULL)",
            "CREATE TABLE noted (upto INTEGER NOT NULL)",
            "INSERT INTO noted VALUES (0)",
            *NOTE,
        )
    ),
}


def opened(path: Path, file: Path) -> sqlite3.Connection:
    """A connection to a file with the tables of this version. `path` is what the user calls it.

    Raises JournalError for a file of another program or of a later version, and sqlite3.Error as SQLite does.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(f"the journal's folder {path.parent} cannot be made: {error.strerror}") from error
    db = connected(file)
    try:
        _prepare(db, path)
    except BaseException:
        db.close()
        raise
    return db


def connected(file: Path) -> sqlite3.Connection:
    # Waiting for locks is done in the event loop, where others go on meanwhile.
    return sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)


def roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:  # SQLite has done it itself after some errors
        db.execute("ROLLBACK")


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    _check_ours(db, path, version)
    if version == VERSION and db.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        return
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
        roll_back(db)
        raise


def _check_ours(db: sqlite3.Connection, path: Path, version: int) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application != _APPLICATION:
        raise JournalError(f"the journal {path} is a database of another program: name another file")
    if version > VERSION:
        raise JournalError(newer(f"the journal {path}", version))
