"""The store of file changes beside a journal: contents by their SHA-256, and which call changed what.

A store is a SQLite file of its own, so that a large content never makes a run's records slow. What a call may change is
durable in it before the call begins.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from toolspeak.changes.file_states import ChangeSet, FileState, PathChange, columns_of, state_from
from toolspeak.changes.tree_scan import StatKey, TreeState
from toolspeak.data.protected_files import protect
from toolspeak.errors import JournalError, ToolspeakError
from toolspeak.journal.sqlite_connection import journal_error

VERSION = 1
_APPLICATION = 0x74537063  # "tSpc", in the file's header
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION};
CREATE TABLE contents (digest BLOB PRIMARY KEY, packed INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE change_sets (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, root_id TEXT NOT NULL, call_id TEXT NOT NULL,
    tool TEXT NOT NULL, step INTEGER NOT NULL, workspace BLOB NOT NULL, start_time REAL NOT NULL, end_time REAL,
    sequence INTEGER, within INTEGER, owner TEXT NOT NULL, is_recovered INTEGER NOT NULL DEFAULT 0, uncovered BLOB,
    tree BLOB);
CREATE INDEX change_sets_by_root ON change_sets (root_id);
CREATE INDEX change_sets_by_run ON change_sets (run_id);
CREATE INDEX change_sets_in_progress ON change_sets (workspace) WHERE sequence IS NULL;
CREATE TABLE changes (
    number INTEGER NOT NULL, path BLOB NOT NULL, before_kind TEXT, before_mode INTEGER, before_content BLOB,
    before_size INTEGER, after_kind TEXT, after_mode INTEGER, after_content BLOB, after_size INTEGER, shared TEXT,
    PRIMARY KEY (number, path));
CREATE TABLE deletions (count INTEGER NOT NULL);
INSERT INTO deletions VALUES (0);
CREATE TABLE workspaces (workspace BLOB PRIMARY KEY, cache BLOB NOT NULL, time REAL NOT NULL);
PRAGMA user_version = {VERSION};
"""
_COLUMNS = (
    "number, run_id, root_id, call_id, tool, step, workspace, start_time, end_time, sequence, within, owner,"
    " is_recovered, uncovered"
)
_STATES = "before_kind, before_mode, before_content, before_size, after_kind, after_mode, after_content, after_size"
_SMALL = 64


class DamagedContent(ToolspeakError):
    """A content in the store of changes is missing, or is not what its digest says."""


class ChangeStore:
    """The changes of the runs of one journal. Its methods wait for the disk: call them in a thread.

    - `folder`: where the store is. It is made at the first write.

    Every method raises JournalError if the store cannot be read or written.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder.absolute() / "changes.db"
        self._db: sqlite3.Connection | None = None
        self._lock = threading.RLock()
        self._is_synced = True
        protect(self.file, "the store of file changes", endings=("", "-wal", "-shm", "-journal"), secret=True)

    def exists(self) -> bool:
        """Whether something was stored here."""
        return self.file.is_file()

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextmanager
    def transaction(self, *, writes: bool = True, synced: bool = True) -> Generator[sqlite3.Connection]:
        """A transaction. Undone if it ends with an exception. Threads and processes take turns.

        `synced`: a power cut does not undo it. Otherwise the next synced one makes it durable.
        """
        with self._lock:
            try:
                db = self._open()
                if db.in_transaction:  # of the caller
                    yield db
                    return
                if writes and synced != self._is_synced:
                    db.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
                    self._is_synced = synced
                db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    with suppress(sqlite3.Error):
                        db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise journal_error(error, self.file, "the store of file changes", "") from error

    def _open(self) -> sqlite3.Connection:
        if self._db is not None:
            return self._db
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(f"the folder {self.file.parent} cannot be made: {error.strerror}") from error
        with suppress(OSError):  # SQLite reports the error
            os.close(os.open(self.file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        db = sqlite3.connect(self.file, timeout=60.0, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            self._is_synced = True
            db.execute("BEGIN IMMEDIATE")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
            elif db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
                raise JournalError(f"{self.file} is the file of another program: move it away")
            elif version > VERSION:
                raise JournalError(f"{self.file} was written by a later version of toolspeak: use that version")
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    # --- contents -----------------------------------------------------------------------------------------------------

    def give_back_space(self) -> None:
        """Gives the space of what was deleted back to the system, and empties the write-ahead log: no byte of it stays.

        Raises JournalError while another process reads the store.
        """
        with self._lock:
            try:
                db = self._open()
                db.execute("PRAGMA incremental_vacuum").fetchall()
                busy = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            except sqlite3.Error as error:
                raise journal_error(error, self.file, "the store of file changes", "") from error
        if busy:
            raise JournalError(f"{self.file}: another process reads it, so its log was not emptied: try again")

    def keep(self, data: bytes) -> bytes:
        """Stores a content, and returns its SHA-256. Call it in a transaction."""
        digest = hashlib.sha256(data).digest()
        db = self._open()
        if db.execute("SELECT 1 FROM contents WHERE digest = ?", (digest,)).fetchone() is None:
            content_data = zlib.compress(data, 1) if len(data) > _SMALL else data
            if len(content_data) >= len(data):
                content_data = data
            is_packed = content_data is not data
            db.execute(
                "INSERT INTO contents (digest, packed, data) VALUES (?, ?, ?)", (digest, is_packed, content_data)
            )
        return digest

    def content(self, digest: bytes) -> bytes:
        """The content with this SHA-256. Raises DamagedContent."""
        with self.transaction(writes=False) as db:
            row = db.execute("SELECT packed, data FROM contents WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            raise DamagedContent(f"the content {digest.hex()[:12]} is missing in {self.file}")
        data = bytes(row[1])
        if row[0]:
            with suppress(zlib.error):
                data = zlib.decompress(data)
        if hashlib.sha256(data).digest() != digest:
            raise DamagedContent(f"the content {digest.hex()[:12]} in {self.file} is damaged")
        return data

    # --- change sets --------------------------------------------------------------------------------------------------

    def begin(self, change_set: ChangeSet, tree: TreeState) -> int:
        """Records that a call begins, with what it may change. Returns the change set's number."""
        with self.transaction() as db:
            cursor = db.execute(
                "INSERT INTO change_sets (run_id, root_id, call_id, tool, step, workspace, start_time, within, owner,"
                " tree) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    change_set.run_id,
                    change_set.root_id,
                    change_set.call_id,
                    change_set.tool,
                    change_set.step,
                    os.fsencode(change_set.workspace),
                    change_set.start_time,
                    change_set.within,
                    change_set.owner,
                    _packed_tree(tree),
                ),
            )
            return int(cursor.lastrowid or 0)

    def end(
        self,
        number: int,
        changes: Iterable[PathChange],
        uncovered_paths: Mapping[str, str],
        *,
        is_recovered: bool = False,
    ) -> None:
        """Records what a call has changed."""
        with self.transaction() as db:
            db.executemany(
                f"INSERT OR REPLACE INTO changes (number, path, {_STATES}, shared) VALUES (?, ?, {'?, ' * 8}?)",
                [
                    (
                        number,
                        os.fsencode(each.path),
                        *columns_of(each.before),
                        *columns_of(each.after),
                        "\n".join(each.sharing_calls),
                    )
                    for each in changes
                ],
            )
            places = msgspec.msgpack.encode([(os.fsencode(path), reason) for path, reason in uncovered_paths.items()])
            db.execute(
                "UPDATE change_sets SET tree = NULL, end_time = ?, is_recovered = ?, uncovered = ?,"
                " sequence = (SELECT coalesce(max(sequence), 0) + 1 FROM change_sets) WHERE number = ?",
                (time.time(), is_recovered, places, number),
            )

    def of_roots(self, root_ids: Sequence[str], *, tool: str | None = None, since: float = 0.0) -> list[ChangeSet]:
        """The change sets of these runs and their sub-runs whose calls have ended, in the order of their end.

        `tool`: only its calls. `since`: only those that began then or later, in Unix seconds.
        """
        with self.transaction(writes=False) as db:
            marks = ", ".join("?" * len(root_ids))
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM change_sets WHERE root_id IN ({marks}) AND sequence IS NOT NULL"
                " AND tool = coalesce(?, tool) AND start_time >= ? ORDER BY sequence",
                [*root_ids, tool, since],
            ).fetchall()
            return [_change_set(row, self._changes(db, row[0])) for row in rows]

    def of_call(self, run_id: str, call_id: str) -> list[ChangeSet]:
        """The change sets of a call that has ended: one for each time that it ran, in their order."""
        with self.transaction(writes=False) as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM change_sets WHERE run_id = ? AND call_id = ? AND sequence IS NOT NULL"
                " ORDER BY sequence",
                (run_id, call_id),
            ).fetchall()
            return [_change_set(row, self._changes(db, row[0])) for row in rows]

    def root_of(self, run_id: str) -> str | None:
        """The run to which the changes of this run belong; None if it has none."""
        with self.transaction(writes=False) as db:
            row = db.execute(
                "SELECT root_id FROM change_sets WHERE run_id = ? OR root_id = ?", (run_id,) * 2
            ).fetchone()
            return None if row is None else str(row[0])

    def last_root(self, workspace: str) -> str | None:
        """The run that changed something in the workspace last; None if no run did."""
        with self.transaction(writes=False) as db:
            row = db.execute(
                "SELECT root_id FROM change_sets WHERE workspace = ? AND EXISTS (SELECT 1 FROM changes WHERE"
                " changes.number = change_sets.number) ORDER BY sequence DESC LIMIT 1",
                (os.fsencode(workspace),),
            ).fetchone()
            return None if row is None else str(row[0])

    def workspaces_in_progress(self, root_ids: Sequence[str]) -> list[str]:
        """The workspaces in which calls of these runs have no end."""
        marks = ", ".join("?" * len(root_ids))
        query = f"SELECT DISTINCT workspace FROM change_sets WHERE root_id IN ({marks}) AND sequence IS NULL"
        with self.transaction(writes=False) as db:
            return [os.fsdecode(row[0]) for row in db.execute(query, [*root_ids])]

    def in_progress(self, workspace: str) -> list[tuple[ChangeSet, TreeState]]:
        """The change sets of a workspace whose calls have no end, the newest first, each with the state before it."""
        with self.transaction(writes=False) as db:
            rows = db.execute(
                f"SELECT {_COLUMNS}, tree FROM change_sets WHERE workspace = ? AND sequence IS NULL"
                " ORDER BY number DESC",
                (os.fsencode(workspace),),
            ).fetchall()
            return [(_change_set(row[:-1], ()), _tree(row[-1])) for row in rows]

    def later_changes(self, number: int, owner: str) -> list[PathChange]:
        """What the calls of the same process changed that began after change set `number`, in the order of their
        end."""
        with self.transaction(writes=False) as db:
            rows = db.execute(
                "SELECT number FROM change_sets WHERE number > ? AND owner = ? AND sequence IS NOT NULL"
                " ORDER BY sequence",
                (number, owner),
            ).fetchall()
            return [change for row in rows for change in self._changes(db, row[0])]

    def _changes(self, db: sqlite3.Connection, number: int) -> list[PathChange]:
        rows = db.execute(f"SELECT path, {_STATES}, shared FROM changes WHERE number = ? ORDER BY path", (number,))
        return [
            PathChange(os.fsdecode(row[0]), state_from(row[1:5]), state_from(row[5:9]), tuple((row[9] or "").split()))
            for row in rows
        ]

    def content_count(self) -> int:
        """How many contents the store has."""
        with self.transaction(writes=False) as db:
            return int(db.execute("SELECT count(*) FROM contents").fetchone()[0])

    def deletions(self) -> int:
        """How often contents were deleted. While it stays the same, each content that was here is here."""
        with self.transaction(writes=False) as db:
            return int(db.execute("SELECT count FROM deletions").fetchone()[0])

    # --- what was read ------------------------------------------------------------------------------------------------

    def cache(self, workspace: str) -> dict[str, tuple[StatKey, FileState]]:
        """What earlier processes read of a workspace, as far as the contents are still here."""
        with self.transaction(writes=False) as db:
            row = db.execute("SELECT cache FROM workspaces WHERE workspace = ?", (os.fsencode(workspace),)).fetchone()
            if row is None:
                return {}
            digests = {bytes(each[0]) for each in db.execute("SELECT digest FROM contents")}
        return {
            os.fsdecode(path): (tuple(key), FileState("file", mode, content, size))
            for path, key, mode, content, size in msgspec.msgpack.decode(zlib.decompress(row[0]))
            if content in digests
        }

    def set_cache(self, workspace: str, cache: Mapping[str, tuple[StatKey, FileState]]) -> None:
        """Stores what was read of a workspace, for the next process. Call it in a transaction."""
        rows = [(os.fsencode(path), key, state.mode, state.content, state.size) for path, (key, state) in cache.items()]
        self._open().execute(
            "INSERT OR REPLACE INTO workspaces VALUES (?, ?, ?)",
            (os.fsencode(workspace), zlib.compress(msgspec.msgpack.encode(rows), 1), time.time()),
        )


def store_beside(file: Path) -> ChangeStore:
    """The store beside the file of a journal, of an archive or of an export."""
    return ChangeStore(file.with_name(f"{file.name}.files"))


def contents_in_cache(blob: bytes) -> set[bytes]:
    """The digests of the contents in what was read of a workspace."""
    return {row[3] for row in msgspec.msgpack.decode(zlib.decompress(blob))}


def contents_in_tree(blob: bytes) -> set[bytes]:
    """The digests of the contents in the state before a call."""
    return {state.content for state in _tree(blob).states.values() if state.kind == "file"}


def _packed_tree(tree: TreeState) -> bytes:
    rows = [(os.fsencode(path), *columns_of(state)) for path, state in tree.states.items()]
    folders, single = ([os.fsencode(path) for path in paths] for paths in (tree.folders, tree.single))
    uncovered_paths = [(os.fsencode(path), reason) for path, reason in tree.uncovered_paths.items()]
    return zlib.compress(msgspec.msgpack.encode((rows, folders, single, uncovered_paths)), 1)


def _tree(blob: bytes) -> TreeState:
    rows, folders, single, uncovered_paths = msgspec.msgpack.decode(zlib.decompress(blob))
    return TreeState(
        {os.fsdecode(row[0]): FileState(*row[1:]) for row in rows},
        {os.fsdecode(path) for path in folders},
        {os.fsdecode(path) for path in single},
        {os.fsdecode(path): reason for path, reason in uncovered_paths},
    )


def _change_set(row: Sequence[Any], changes: Sequence[PathChange]) -> ChangeSet:
    uncovered_paths = () if row[13] is None else msgspec.msgpack.decode(row[13])
    return ChangeSet(
        number=row[0],
        run_id=row[1],
        root_id=row[2],
        call_id=row[3],
        tool=row[4],
        step=row[5],
        workspace=os.fsdecode(row[6]),
        start_time=row[7],
        end_time=row[8],
        sequence=row[9],
        within=row[10],
        owner=row[11],
        is_recovered=bool(row[12]),
        uncovered_paths=tuple([(os.fsdecode(path), reason) for path, reason in uncovered_paths]),
        changes=changes,
    )
