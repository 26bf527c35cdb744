"""What the calls of runs change in files: kept beside the journal, shown as one patch, and undone.

It needs no git, and does not touch a repository. A name is imported when it is first used: a run needs the recorder
alone.
"""

# pyright: reportUnsupportedDunderAll=false

from toolspeak.lazy import lazy_names

_PLACES = {
    "ChangeRecorder": "toolspeak.changes.change_recorder",
    "ChangeSet": "toolspeak.changes.file_states",
    "ChangeStore": "toolspeak.changes.change_store",
    "DamagedContent": "toolspeak.changes.change_store",
    "FileState": "toolspeak.changes.file_states",
    "NetChange": "toolspeak.changes.run_changes",
    "PathChange": "toolspeak.changes.file_states",
    "PathPatch": "toolspeak.changes.git_patch",
    "UndoEntry": "toolspeak.changes.undo",
    "UndoReport": "toolspeak.changes.undo",
    "by_workspace": "toolspeak.changes.run_changes",
    "change_sets_of": "toolspeak.changes.run_changes",
    "from_call": "toolspeak.changes.run_changes",
    "net_changes": "toolspeak.changes.run_changes",
    "of_call": "toolspeak.changes.run_changes",
    "patch_of": "toolspeak.changes.git_patch",
    "path_patches": "toolspeak.changes.git_patch",
    "recorders": "toolspeak.changes.change_recorder",
    "root_runs": "toolspeak.changes.run_changes",
    "store_of": "toolspeak.changes.run_changes",
    "uncovered_by": "toolspeak.changes.run_changes",
    "undo_changes": "toolspeak.changes.undo",
}

__all__ = list(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
