"""What happens to kept file changes when runs leave a journal or come into it, for the commands that move runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from toolspeak.agent.storage.archives import read_groups
from toolspeak.changes.change_store import ChangeStore, store_beside
from toolspeak.changes.run_changes import store_of
from toolspeak.changes.store_upkeep import copy_roots, delete_roots, delete_stranded, root_ids, stranded_roots
from toolspeak.journal import Journal


async def delete_changes(journal: Journal) -> int:
    """Deletes the changes of runs that were deleted from the journal. Returns how many runs they were of."""
    store = store_of(journal)
    try:
        return await delete_stranded(store, journal)
    finally:
        if store is not None:
            store.close()


async def archive_changes(journal: Journal, files: Sequence[Path]) -> None:
    """Moves the changes of archived runs beside the archive's file that has the run: the first one in this order."""
    store = store_of(journal)
    if store is None or not store.exists():
        return
    try:
        stranded_ids = await stranded_roots(store, journal)
        for file in files:
            if not stranded_ids:
                break
            run_ids = _runs_in(file)
            own = [root_id for root_id in stranded_ids if root_id in run_ids]
            copy_changes(store, file, own)
            delete_roots(store, own)
            stranded_ids = [root_id for root_id in stranded_ids if root_id not in run_ids]
    finally:
        store.close()


def copy_changes(store: ChangeStore, file: Path, ids: Sequence[str]) -> None:
    """Copies the changes of these runs beside a file that has the runs."""
    if not ids or not store.exists():
        return
    target = store_beside(file)
    try:
        copy_roots(store, target, ids)
    finally:
        target.close()


async def import_changes(journal: Journal, file: Path, ids: Collection[str]) -> None:
    """Copies the changes beside a file, as far as they are of these runs, to the journal's own store."""
    source, store = store_beside(file), store_of(journal)
    if store is None or not source.exists():
        return
    try:
        copy_roots(source, store, [root_id for root_id in root_ids(source) if root_id in ids])
    finally:
        source.close()
        store.close()


def erase_archived_changes(folder: Path) -> None:
    """Deletes the changes beside the files of an archive whose runs were erased from these."""
    for file in archive_files(folder):
        store = store_beside(file)
        if store.exists():
            try:
                delete_roots(store, sorted({*root_ids(store)} - _runs_in(file)))
            finally:
                store.close()


def archive_files(folder: Path) -> list[Path]:
    """The files of an archive."""
    return sorted(folder.glob("runs-*.jsonl"))


def _runs_in(file: Path) -> set[str]:
    with file.open(encoding="utf-8") as lines:
        return {record.run_id for group in read_groups(lines) for record in group.records}
