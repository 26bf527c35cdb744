"""What happens to stored changes when runs leave a journal: they go with the runs, and what nothing needs is freed."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

from toolspeak.changes.change_store import ChangeStore, DamagedContent, contents_in_cache, contents_in_tree
from toolspeak.journal import Journal

_CACHE_SECONDS = 30 * 86_400.0
"""How long what was read of a workspace stays without a run there."""

_REFERENCES = """\
SELECT before_content FROM changes WHERE before_kind = 'file'
UNION SELECT after_content FROM changes WHERE after_kind = 'file'"""

_SET_COLUMNS = (
    "run_id, root_id, call_id, tool, step, workspace, start_time, end_time, within, owner, is_recovered"
    ", uncovered, tree"
)


def root_ids(store: ChangeStore) -> list[str]:
    """The runs whose changes the store has."""
    with store.transaction(writes=False) as db:
        return [row[0] for row in db.execute("SELECT DISTINCT root_id FROM change_sets")]


def free_contents(store: ChangeStore, *, caches: bool = False) -> None:
    """Deletes the contents that no change, no call in progress and no workspace's cache needs, and gives their space
    back. `caches`: deletes what was read of workspaces, too; the next run there reads it again."""
    with store.transaction() as db:
        if caches:
            db.execute("DELETE FROM workspaces")
        db.execute("DELETE FROM workspaces WHERE time < ?", (time.time() - _CACHE_SECONDS,))
        digests: set[bytes] = set()
        for (blob,) in db.execute("SELECT cache FROM workspaces").fetchall():
            digests |= contents_in_cache(blob)
        for (blob,) in db.execute("SELECT tree FROM change_sets WHERE tree IS NOT NULL").fetchall():
            digests |= contents_in_tree(blob)
        db.execute("CREATE TEMP TABLE IF NOT EXISTS needed (digest BLOB PRIMARY KEY)")
        db.execute("DELETE FROM needed")
        db.executemany("INSERT INTO needed VALUES (?)", [(digest,) for digest in digests])
        condition = f"digest NOT IN ({_REFERENCES}) AND digest NOT IN (SELECT digest FROM needed)"
        deletions = db.execute(f"DELETE FROM contents WHERE {condition}").rowcount
        db.execute("DELETE FROM needed")
        if deletions:
            db.execute("UPDATE deletions SET count = count + 1")


def delete_roots(store: ChangeStore, ids: Collection[str]) -> None:
    """Deletes the changes of these runs and their sub-runs for good. No byte of a content that only they needed stays
    in the store's files."""
    with store.transaction() as db:
        for root_id in ids:
            numbers = "SELECT number FROM change_sets WHERE root_id = ?"
            db.execute(f"DELETE FROM changes WHERE number IN ({numbers})", (root_id,))
            db.execute("DELETE FROM change_sets WHERE root_id = ?", (root_id,))
    free_contents(store, caches=True)
    store.give_back_space()


async def delete_stranded(store: ChangeStore | None, journal: Journal) -> int:
    """Deletes the changes of runs that the journal does not have. Returns how many runs."""
    if store is None or not store.exists():
        return 0
    # The store first: a run is in the journal before its changes are in the store.
    root_ids = await stranded_roots(store, journal)
    delete_roots(store, root_ids)
    return len(root_ids)


async def stranded_roots(store: ChangeStore, journal: Journal) -> list[str]:
    """The runs whose changes the store has and which the journal does not have."""
    return [root_id for root_id in root_ids(store) if await journal.run(root_id) is None]


def copy_roots(source: ChangeStore, target: ChangeStore, ids: Sequence[str]) -> int:
    """Copies the changes of these runs, with the contents, to another store. Leaves out those that it has. Returns how
    many runs were copied."""
    copies = 0
    with source.transaction(writes=False) as db, target.transaction() as other:
        for root_id in ids:
            if other.execute("SELECT 1 FROM change_sets WHERE root_id = ?", (root_id,)).fetchone():
                continue
            copies += _copy_root(db, other, root_id)
    return copies


def _copy_root(db: sqlite3.Connection, other: sqlite3.Connection, root_id: str) -> bool:
    numbers: dict[int, int] = {}
    marks = ", ".join("?" * len(_SET_COLUMNS.split(",")))
    query = f"SELECT number, sequence, {_SET_COLUMNS} FROM change_sets WHERE root_id = ?"
    rows = db.execute(f"{query} ORDER BY number", (root_id,)).fetchall()
    for row in rows:
        cursor = other.execute(f"INSERT INTO change_sets ({_SET_COLUMNS}) VALUES ({marks})", row[2:])
        numbers[row[0]] = int(cursor.lastrowid or 0)
    for row in rows:
        within = numbers.get(row[10])
        other.execute("UPDATE change_sets SET within = ? WHERE number = ?", (within, numbers[row[0]]))
        for change in db.execute("SELECT * FROM changes WHERE number = ?", (row[0],)).fetchall():
            marks_of_change = ", ".join("?" * len(change))
            other.execute(f"INSERT INTO changes VALUES ({marks_of_change})", (numbers[row[0]], *change[1:]))
            for kind, digest in ((change[2], change[4]), (change[6], change[8])):
                if kind == "file":
                    content = db.execute("SELECT * FROM contents WHERE digest = ?", (digest,)).fetchone()
                    if content is not None:
                        other.execute("INSERT OR IGNORE INTO contents VALUES (?, ?, ?)", content)
    for row in sorted((row for row in rows if row[1] is not None), key=lambda row: row[1]):
        other.execute(
            "UPDATE change_sets SET sequence = (SELECT coalesce(max(sequence), 0) + 1 FROM change_sets)"
            " WHERE number = ?",
            (numbers[row[0]],),
        )
    return bool(rows)


def backup_store(store: ChangeStore, target: ChangeStore) -> None:
    """Copies a store as it is at this moment. Others can go on meanwhile."""
    target.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with store.transaction(writes=False):
        pass  # it can be opened, and has its tables
    descriptor = os.open(target.file, os.O_CREAT | os.O_WRONLY, 0o600)
    os.close(descriptor)
    with closing(sqlite3.connect(store.file)) as db, closing(sqlite3.connect(target.file)) as other:
        db.backup(other)


def size_of_store(store: ChangeStore) -> int:
    """The bytes of the store's files."""
    return sum(file.stat().st_size for file in store.file.parent.glob(f"{store.file.name}*") if file.is_file())


def damaged_contents(store: ChangeStore) -> Iterator[str]:
    """Yields what is wrong with each content that a change needs and that is missing or damaged."""
    with store.transaction(writes=False) as db:
        digests = [bytes(row[0]) for row in db.execute(_REFERENCES)]
    for digest in digests:
        try:
            store.content(digest)
        except DamagedContent as error:
            yield str(error)
