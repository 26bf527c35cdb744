"""Opens, creates, checks and upgrades a journal's file."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.errors import JournalError
from toolspeak.journal.leases import is_alive, is_dead, since_boot
from toolspeak.journal.sql_schema import VERSION, newer, steps_from
from toolspeak.journal.sqlite_connection import NOTE, connect_sqlite
from toolspeak.journal.sqlite_log import frames_missing, log_in

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
    "sums": "ALTER TABLE records ADD COLUMN sum INTEGER;\nCREATE TABLE openers (name TEXT PRIMARY KEY)",
    "clocks": "CREATE TABLE clocks (name TEXT PRIMARY KEY, start REAL NOT NULL)",
    "pieces": "CREATE TABLE pieces (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, data TEXT NOT NULL)",
    "vacuums": "CREATE TABLE vacuums (count INTEGER NOT NULL, size INTEGER NOT NULL);\n"
    "INSERT INTO vacuums VALUES (0, 0)",
}
_LOOKS = 3


def open_db(path: Path, file: Path) -> sqlite3.Connection:
    """Returns a connection to a file with the tables of this version. `path` is the user's path for it.

    Raises JournalError for a file of another program or of a later version, and if records are known to be lost. Raises
    sqlite3.Error as SQLite does.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(f"the journal's folder {path.parent} cannot be created: {error.strerror}") from error
    for _ in range(_LOOKS):
        had_log = _check_log(path, file)
        with suppress(OSError):  # SQLite reports the error. It gives the log the file's mode
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        db = connect_sqlite(file)
        try:
            _prepare(db, path)
            # What is deleted is overwritten, also in pages that stay in the file.
            db.execute("PRAGMA secure_delete = ON")
            openers = openers_of(db)
        except BaseException:
            db.close()
            raise
        if had_log or not openers:
            return db
        # A process in the list wrote to a log and has not moved it into the file.
        if any(map(is_alive, openers)) and log_of(file).stat().st_size:  # another process has just opened the file
            return db
        db.close()
    raise JournalError(
        f"the journal {path} is not whole: its write-ahead log {log_of(path).name} is missing, with the newest"
        f" records{_who(file)}. {_REMEDY.format(path)}. If another program (sqlite3, a backup) has since opened the"
        " file and moved the log into it, nothing is lost"
    )


_REMEDY = (
    "A call that ran may not be recorded, so nothing runs: put the files back, or restore both from a backup; or"
    " continue with the remaining records: `toolspeak salvage --journal {}`"
)


def log_of(file: Path) -> Path:
    """The file's write-ahead log."""
    return file.with_name(f"{file.name}-wal")


def _check_log(path: Path, file: Path) -> bool:
    """Whether there is a log. Raises JournalError for a log that SQLite would use only in part.

    Call it before SQLite opens the file: after that SQLite may overwrite the part that it does not use.
    """
    name = log_of(path).name
    what = ""
    boot, _ = since_boot()
    for _ in range(_LOOKS):  # another process may be writing to the log, or begin a new one
        index = _index_of(file) if boot else b""
        try:
            log = log_of(file).read_bytes()
        except OSError:
            return False
        if not log:
            return False
        scan = log_in(log)
        missing = frames_missing(scan, index)
        if scan.lost_transactions:
            transactions = "transaction" if scan.lost_transactions == 1 else "transactions"
            what = (
                f"{name} is damaged in the middle, and {scan.lost_transactions} {transactions} after that place cannot"
                " be read"
            )
        elif missing and index == _index_of(file) and _written_since(boot, file):
            what = (
                f"{name} ends before the newest records ({missing} of its pages are missing): it was cut short or"
                " damaged there, or is an older copy"
            )
        else:
            return True
    raise JournalError(
        f"the journal {path} is not whole: its write-ahead log {what}{_who(file)}. {_REMEDY.format(path)}"
    )


_INDEXES: list[int] = []  # descriptors of indexes
_OPENING = Lock()


def _index_of(file: Path) -> bytes:
    """The beginning of the write-ahead log's index, which holds the log's length; b"" without an index.

    This function opens the index and closes it only after the index is deleted: closing a file releases all of the
    process's locks on it (fcntl(2)), also those of another connection.
    """
    with suppress(OSError), _OPENING:
        for descriptor in [each for each in _INDEXES if not os.fstat(each).st_nlink]:
            _INDEXES.remove(descriptor)
            os.close(descriptor)
        status = os.stat(f"{file}-shm")
        descriptor = next((each for each in _INDEXES if os.path.samestat(os.fstat(each), status)), None)
        if descriptor is None:
            descriptor = os.open(f"{file}-shm", os.O_RDONLY)
            _INDEXES.append(descriptor)
        return os.pread(descriptor, 128, 0)
    return b""


def _written_since(boot: str, file: Path) -> bool:
    """Whether a process has written to the file since the machine started.

    If not, the index is older than the start, and after a power cut the log may hold less than the index counts.
    """
    with suppress(sqlite3.Error), _connected_to_read(file, "immutable=1") as db:
        return db.execute("SELECT 1 FROM clocks WHERE name = ?", (boot,)).fetchone() is not None
    return False


def _who(file: Path) -> str:
    """The unfinished runs, as far as the file can be read, as the end of a sentence."""
    # Under other file names: SQLite would replace this log's index with one that counts only the remaining frames. If
    # that is impossible, the file is read without its log.
    with suppress(OSError, sqlite3.Error), tempfile.TemporaryDirectory(dir=file.parent, prefix=".look-") as folder:
        other = Path(folder, file.name)
        os.link(file, other)
        os.link(log_of(file), log_of(other))
        return _open_runs(other, "mode=ro")
    with suppress(sqlite3.Error):
        return _open_runs(file, "immutable=1")
    return ""


def _open_runs(file: Path, how: str) -> str:
    with _connected_to_read(file, how) as db:
        rows = db.execute(
            f"SELECT run_id FROM runs WHERE status IN ({', '.join(map(repr, UNFINISHED_STATUSES))})"
            " ORDER BY created DESC LIMIT 5"
        )
        names = ", ".join(run_id for (run_id,) in rows)
    return f" (of run {names}, or of a run that began later)" if names else ""


def _connected_to_read(file: Path, how: str) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(f"{file.as_uri()}?{how}", uri=True))


def openers_of(db: sqlite3.Connection) -> list[str]:
    """The processes that have the file open for writing, or had when they died."""
    return [name for (name,) in db.execute("SELECT name FROM openers")]


def add_lease_clock(db: sqlite3.Connection, wall: Callable[[], float]) -> None:
    """Adds the SQL function `lease_now()` to the connection: Unix seconds, counted by a clock that cannot be set.

    The first process that writes to the file after the machine has started stores the time of the start, by the wall
    clock.
    """
    name, clock = since_boot()
    if not name:
        db.create_function("lease_now", 0, wall)
        return
    row = db.execute("SELECT start FROM clocks WHERE name = ?", (name,)).fetchone()
    start = wall() - clock() if row is None else row[0]
    db.create_function("lease_now", 0, lambda: start + clock())


def mark_open(db: sqlite3.Connection, name: str, wall: Callable[[], float]) -> None:
    """Marks in the file that its log holds more, so that a lost log is noticed. Stores the machine's start time."""
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("INSERT INTO openers VALUES (?)", (name,))
    boot, clock = since_boot()
    if boot:
        db.execute("INSERT OR IGNORE INTO clocks VALUES (?, ?)", (boot, wall() - clock()))
    add_lease_clock(db, wall)
    try:
        _forget_openers(db, openers_of(db))
    except sqlite3.Error:
        roll_back(db)
        raise
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def close_all(
    reader: sqlite3.Connection | None, db: sqlite3.Connection, log: int | None, file: Path, name: str, pid: int
) -> None:
    """Closes the connections, last the one that writes: it cleans up the file. Does nothing in a fork, since its
    connections belong to its parent."""
    if os.getpid() != pid:
        _PARENT_CONNECTIONS.append((reader, db))
        return
    if log is not None:
        os.close(log)
    if reader is not None:
        reader.close()
    _mark_closed(db, file, name)


_PARENT_CONNECTIONS: list[Any] = []  # the connections of a fork's parent, which this process never closes


def _mark_closed(db: sqlite3.Connection, file: Path, name: str) -> None:
    """Removes the mark and closes the connection. With the last connection SQLite moves the log into the file and
    deletes it."""
    remaining: list[str] = []
    with suppress(sqlite3.Error):  # on an error the mark stays, and so does the log
        db.execute("PRAGMA busy_timeout = 1000")
        openers = openers_of(db)
        try:
            remaining = _forget_openers(db, openers, name)
        except sqlite3.Error:  # the disk is full: moving the log into the file frees the log's space
            roll_back(db)
            db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            remaining = _forget_openers(db, openers, name)
    with suppress(sqlite3.Error):
        roll_back(db)
    db.close()
    if remaining and not log_of(file).exists():
        # This was the last connection. The others are gone; for example, they were in another container.
        with suppress(sqlite3.Error), closing(connect_sqlite(file)) as again:
            again.execute("DELETE FROM openers")


def _forget_openers(db: sqlite3.Connection, openers: Sequence[str], name: str = "") -> list[str]:
    """Removes this process and dead ones from the list. Returns those that remain."""
    dead_names = [each for each in openers if each == name or is_dead(each)]
    if dead_names:
        db.execute("BEGIN IMMEDIATE")
        db.executemany("DELETE FROM openers WHERE name = ?", [(each,) for each in dead_names])
        db.execute("COMMIT")
    return [each for each in openers if each not in dead_names]


def salvage(path: Path, file: Path) -> list[Path]:
    """Makes a file with a damaged or missing log usable, without the lost records. Returns the copies of both files.

    Raises JournalError if another process has the file open.
    """
    copies: list[Path] = []
    for each in (file, log_of(file)):
        if each.exists():
            number = 1
            while (copy := each.with_name(f"{each.name}.damaged-{number}")).exists():
                number += 1
            shutil.copy2(each, copy)
            copies.append(copy)
    with closing(connect_sqlite(file)) as db:
        try:
            _prepare(db, path)
            if living := [name for name in openers_of(db) if is_alive(name)]:
                raise JournalError(f"the journal {path} is open in another process ({living[0]}): end it first")
            db.execute("DELETE FROM openers")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except BaseException:
            for copy in copies:
                copy.unlink()
            raise
    return copies


def roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:  # after some errors SQLite rolls back by itself
        db.execute("ROLLBACK")


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    _check_ours(db, path, version)
    if version == VERSION and db.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        return
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # it counts for a new file only
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()  # another process may have upgraded the file first
        for statement in steps_from(version, _TYPES):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {_APPLICATION}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        roll_back(db)
        raise


def _check_ours(db: sqlite3.Connection, path: Path, version: int) -> None:
    # In this order: another process may create the tables in between, together with the file's number.
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if tables and application != _APPLICATION:
        raise JournalError(f"the journal {path} is a database of another program: name another file")
    if version > VERSION:
        raise JournalError(newer(f"the journal {path}", version))
