from toolspeak.changes.change_recorder import ChangeRecorder, recorders
from toolspeak.changes.change_store import ChangeStore, DamagedContent
from toolspeak.changes.file_states import ChangeSet, FileState, PathChange
from toolspeak.changes.git_patch import PathPatch, patch_of, path_patches
from toolspeak.changes.run_changes import (
    NetChange,
    by_workspace,
    change_sets_of,
    from_call,
    net_changes,
    of_call,
    root_runs,
    store_of,
    uncovered_by,
)
from toolspeak.changes.undo import UndoEntry, UndoReport, undo_changes

__all__ = [
    "ChangeRecorder",
    "ChangeSet",
    "ChangeStore",
    "DamagedContent",
    "FileState",
    "NetChange",
    "PathChange",
    "PathPatch",
    "UndoEntry",
    "UndoReport",
    "by_workspace",
    "change_sets_of",
    "from_call",
    "net_changes",
    "of_call",
    "patch_of",
    "path_patches",
    "recorders",
    "root_runs",
    "store_of",
    "uncovered_by",
    "undo_changes",
]
