"""The upkeep of a journal's file: SQLite's own check, freeing space, and removing what deleted rows leave behind.

These functions use connections of their own, so that they can run in any thread.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from toolspeak.errors import ConfigurationError, JournalError
from toolspeak.journal.leases import is_alive
from toolspeak.journal.sqlite_connection import connect_sqlite, is_busy
from toolspeak.journal.sqlite_file import log_of, openers_of, roll_back

INCREMENTAL = 2
"""The value of `PRAGMA auto_vacuum` with which a file can be made smaller step by step."""

_MOST_FAULTS = 20
_PAGES = 256
"""The pages that one transaction frees, which takes some milliseconds: other processes write in between."""


def structure_faults(file: Path) -> list[str]:
    """What SQLite finds wrong with the structure of the file. Raises sqlite3.Error if it cannot go on to read."""
    with closing(connect_sqlite(file)) as db:
        db.execute("PRAGMA busy_timeout = 1000")
        rows = [str(verdict) for (verdict,) in db.execute(f"PRAGMA integrity_check({_MOST_FAULTS})")]
    return [] if rows == ["ok"] else rows


def sizes(file: Path) -> tuple[int, int]:
    """The bytes of the file with its log, and those of them that are free."""
    with closing(connect_sqlite(file)) as db:
        (page,), (free,) = db.execute("PRAGMA page_size").fetchone(), db.execute("PRAGMA freelist_count").fetchone()
    size = 0
    for each in (file, log_of(file)):
        with suppress(FileNotFoundError):
            size += each.stat().st_size
    return size, page * free


def was_vacuumed(file: Path, vacuums: int, size: int) -> bool:
    """Whether a process has made the file smaller, to this size at least. `vacuums`: how often that had happened
    before."""
    try:
        with closing(connect_sqlite(file)) as db:
            count, smallest = db.execute("SELECT count, size FROM vacuums").fetchone()
    except (sqlite3.Error, TypeError) as error:
        return is_busy(error)
    return count != vacuums and size >= smallest


def other_process(file: Path, own: str) -> str | None:
    """Another living process that has the file open to write. `own`: a name of this one."""
    this_process = own.rpartition(" ")[0]
    with closing(connect_sqlite(file)) as db:
        names = [name for name in openers_of(db) if name.rpartition(" ")[0] != this_process]
    return next(filter(is_alive, names), None)


def free_pages(file: Path, seconds: float) -> bool:
    """Frees some pages at the end of the file. Returns whether there are more. Raises JournalError for a file that was
    made without that."""
    with closing(connect_sqlite(file)) as db:
        db.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
        (mode,), (free,) = db.execute("PRAGMA auto_vacuum").fetchone(), db.execute("PRAGMA freelist_count").fetchone()
        if not free:
            return False
        if mode != INCREMENTAL:
            raise JournalError(
                f"the journal {file} was made by an earlier toolspeak, so its space can only be freed while no other"
                " process uses it: end those, and rebuild it once with `toolspeak journal vacuum --full`. Until then"
                " later records use the free space"
            )
        db.execute("PRAGMA secure_delete = ON")
        db.execute("BEGIN IMMEDIATE")
        try:
            for _ in range(_PAGES):  # one a call: it gives a row without columns, and sqlite3 does not ask for the next
                db.execute("PRAGMA incremental_vacuum(1)")
            _note_size(db)
            db.execute("COMMIT")
        except BaseException:
            roll_back(db)
            raise
        (remaining,) = db.execute("PRAGMA freelist_count").fetchone()
        return 0 < remaining < free


def rebuild(file: Path, seconds: float, *, index: bool = False) -> None:
    """Writes the file anew, without free space and without anything of deleted rows, and empties its log. Other
    processes wait meanwhile. `index`: the index of the search too.

    Raises JournalError while another process reads the file.
    """
    with closing(connect_sqlite(file)) as db:
        db.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
        db.execute("PRAGMA secure_delete = ON")
        if index:  # a deleted row leaves its words in the index until that is merged
            db.execute("INSERT INTO found(found) VALUES ('optimize')")
        # A process that opens the file meanwhile sees it shrink.
        db.execute("UPDATE vacuums SET count = count + 1, size = 0")
        db.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        db.execute("VACUUM")
        _note_size(db)
        (is_blocked, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_blocked:
            raise JournalError(
                f"the journal {file} is rebuilt, but its log {log_of(file).name} still holds what was deleted, because"
                " another process reads the file: end that process, and do the same again"
            )


def copy_to(file: Path, target: Path) -> None:
    """Writes a copy of the file as it is at this moment, with all of its log, and checks it. Other processes go on.

    Raises ConfigurationError if `target` exists, and JournalError if the copy is damaged, as the file then is.
    """
    if target.exists():
        raise ConfigurationError(f"{target} exists: name a file that does not, so that no backup is overwritten")
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(connect_sqlite(file)) as db:
        db.execute("VACUUM INTO ?", (str(partial),))
    with closing(connect_sqlite(partial)) as copy:
        copy.execute("DELETE FROM openers")  # it has no log, and no process has it open
        copy.execute("UPDATE runs SET held_until = 0 WHERE owner IS NOT NULL")  # or drives a run of it
    if faults := structure_faults(partial):
        raise JournalError(f"the journal {file} is damaged, so {partial} is no backup: {faults[0]}")
    descriptor = os.open(partial, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    partial.rename(target)


def empty_log(file: Path, seconds: float) -> None:
    """Moves the log into the file, so that the file has its size. Does nothing while another process reads it."""
    with suppress(sqlite3.Error), closing(connect_sqlite(file)) as db:
        db.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _note_size(db: sqlite3.Connection) -> None:
    (pages,), (size,) = db.execute("PRAGMA page_count").fetchone(), db.execute("PRAGMA page_size").fetchone()
    db.execute("UPDATE vacuums SET count = count + 1, size = ?", (pages * size,))
