"""What calls changed whose process died: the state before them is in the store, the state after them is in the
workspace."""

from __future__ import annotations

from contextlib import suppress

from toolspeak.changes.change_store import ChangeStore
from toolspeak.changes.file_states import PathChange
from toolspeak.changes.tree_scan import TreeScanner, TreeState, add_changes, differences, parts_of
from toolspeak.journal.leases import is_dead
from toolspeak.tools.builtin import Workspace
from toolspeak.tools.files.workspace import CHANGE_FILE


def recover_changes(store: ChangeStore, workspace: Workspace, name: str = "") -> int:
    """Records the changes of calls in a workspace whose process died before their end. Returns how many calls.

    What others changed since is among these changes: nothing tells them apart. `name`: the workspace's path in the
    store, if it has moved since.
    """
    if not store.exists():
        return 0
    change_sets = [(each, tree) for each, tree in store.in_progress(name or str(workspace.root)) if is_dead(each.owner)]
    if not change_sets:
        return 0
    scanner = TreeScanner(workspace, store.keep)
    with store.transaction():
        now: TreeState | None = None
        for change_set, tree in change_sets:  # the innermost first: what it changed is no change of the call around it
            if tree.folders:
                now = scanner.scan() if now is None else now
                current = now
            else:
                current = scanner.probe(tree.single | tree.states.keys())
            add_changes(tree, store.later_changes(change_set.number, change_set.owner))
            changes = [PathChange(path, before, after) for path, before, after in differences(tree, current)]
            store.end(change_set.number, changes, current.uncovered_paths, is_recovered=True)
            _remove_half_files(workspace, tree, current)
    return len(change_sets)


def _remove_half_files(workspace: Workspace, before: TreeState, now: TreeState) -> None:
    """Removes the files in which the dead process was writing new content: no path has that content yet."""
    paths = {path for path in now.uncovered_paths if path.rpartition("/")[2] == CHANGE_FILE} | before.single
    for above in {path.rpartition("/")[0] for path in paths}:
        with suppress(OSError), workspace.folder(parts_of(above)) as folder:
            folder.take_away(CHANGE_FILE)
