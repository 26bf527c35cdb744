"""Which changes a run made: its change sets, those from a call on, and what they come to for each path."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from platformdirs import user_data_path

from toolspeak.changes.change_recovery import recover_changes
from toolspeak.changes.change_store import ChangeStore, store_beside
from toolspeak.changes.file_states import ChangeSet, FileState
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal, MemoryJournal, SqliteJournal
from toolspeak.tools.builtin import Workspace

_SHORT = 8


@quick()
class NetChange:
    """What change sets come to for one path.

    - `before`, `after`: the state before the first of them and after the last. None: nothing is there.
    - `is_split`: somebody else changed the path in between. Then `before` is what that one left.
    - `workspace`: the folder.
    """

    path: str
    before: FileState | None
    after: FileState | None
    workspace: str
    is_split: bool = False


def store_of(journal: Journal) -> ChangeStore | None:
    """The store of changes that belongs to a journal: beside its file, else in the user's data folder. None for a
    journal in memory."""
    if isinstance(journal, MemoryJournal):
        return None
    if isinstance(journal, SqliteJournal):
        return store_beside(journal.path)
    name = hashlib.sha256(str(journal).encode()).hexdigest()[:16]
    return ChangeStore(user_data_path("toolspeak", appauthor=False) / "files" / name)


async def root_runs(
    journal: Journal,
    store: ChangeStore,
    *,
    run_id: str | None = None,
    session_id: str | None = None,
    folder: str = ".",
) -> list[str]:
    """The runs whose changes are asked for, without sub-runs: those of a session, or the run that a run belongs to, or
    without both the run that changed something in the folder last.

    Raises ConfigurationError if no run did.
    """
    if session_id is not None:
        return [info.run_id for info in await journal.runs(session_id=session_id)]
    if run_id is not None:
        return [(store.root_of(run_id) if store.exists() else None) or run_id]
    path = str(Workspace(folder).root)
    last = store.last_root(path) if store.exists() else None
    if last is None:
        raise ConfigurationError(f"no run changed a file in {path}: name a run, or --session")
    return [last]


def change_sets_of(
    store: ChangeStore,
    root_ids: Sequence[str],
    workspace: Workspace | None = None,
    *,
    tool: str | None = None,
    since: float = 0.0,
) -> list[ChangeSet]:
    """The change sets of runs, in the order in which their calls ended; also of calls whose process died.

    `workspace`: where the runs' workspace is now, if it has moved. `tool`, `since`: as of `ChangeStore.of_roots`.
    """
    if not store.exists() or not root_ids:
        return []
    for name in store.workspaces_in_progress(root_ids):
        with suppress(ConfigurationError):  # the folder is gone
            recover_changes(store, workspace or Workspace(name), name)
    return store.of_roots(root_ids, tool=tool, since=since)


def net_changes(change_sets: Iterable[ChangeSet]) -> list[NetChange]:
    """What the change sets come to, in their order, for each path that differs; sorted by workspace and path."""
    nets: dict[tuple[str, str], NetChange] = {}
    for change_set in change_sets:
        for change in change_set.changes:
            key = change_set.workspace, change.path
            earlier = nets.get(key)
            if earlier is None or earlier.after != change.before:
                before, is_split = change.before, earlier is not None
            else:
                before, is_split = earlier.before, earlier.is_split
            nets[key] = NetChange(change.path, before, change.after, change_set.workspace, is_split)
    return [nets[key] for key in sorted(nets) if nets[key].before != nets[key].after]


def from_call(change_sets: Sequence[ChangeSet], call: str) -> list[ChangeSet]:
    """The change sets of a call and of everything after its beginning. Raises ConfigurationError as `of_call`."""
    own = _sets_of(change_sets, call)
    number, sequence = min(each.number for each in own), min(each.sequence or 0 for each in own)
    return [each for each in change_sets if each.number >= number or (each.sequence or 0) >= sequence]


def of_call(change_sets: Sequence[ChangeSet], call: str) -> list[ChangeSet]:
    """The change sets of a call, and of the sub-runs that it started.

    `call`: the call's id, or an undo's name; after the beginning of a run's id and `/` if several runs have it. Raises
    ConfigurationError for a call that changed no file, and for an ambiguous one.
    """
    numbers = {each.number for each in _sets_of(change_sets, call)}
    for each in sorted(change_sets, key=lambda change_set: change_set.number):
        if each.within in numbers:
            numbers.add(each.number)
    return [each for each in change_sets if each.number in numbers]


def _sets_of(change_sets: Sequence[ChangeSet], call: str) -> list[ChangeSet]:
    prefix, separator, call_id = call.rpartition("/")
    matches = [each for each in change_sets if each.call_id == call]
    if not matches and separator:
        matches = [each for each in change_sets if each.call_id == call_id and each.run_id.startswith(prefix)]
    if len({each.run_id for each in matches}) > 1:
        own = [each for each in matches if each.run_id == each.root_id]
        if len({each.run_id for each in own}) != 1:
            names = ", ".join(sorted({f"{each.run_id[:_SHORT]}/{each.call_id}" for each in matches}))
            raise ConfigurationError(f"several runs have a call {call!r}: write one of {names}")
        matches = own
    if not matches:
        names = ", ".join(dict.fromkeys(each.call_id for each in change_sets))
        raise ConfigurationError(f"no call {call!r} changed a file; these did: {names or 'none'}")
    return matches


def by_workspace(
    change_sets: Iterable[ChangeSet], folder: str | None = None
) -> list[tuple[Workspace, list[ChangeSet]]]:
    """The change sets of each workspace. `folder`: where the workspace is now, if it has moved.

    Raises ConfigurationError for a workspace that is not there, and for a `folder` if there are several workspaces.
    """
    groups: dict[str, list[ChangeSet]] = {}
    for each in change_sets:
        groups.setdefault(each.workspace, []).append(each)
    if folder is not None and len(groups) > 1:
        raise ConfigurationError(f"the changes are in several folders: {', '.join(groups)}; name one run")
    for name in groups:
        if folder is None and not os.path.isdir(name):
            raise ConfigurationError(f"the folder {name!r} is gone; if it has moved, name it with --workspace")
    return [(Workspace(folder or name), group) for name, group in groups.items()]


def uncovered_by(change_sets: Iterable[ChangeSet]) -> dict[str, str]:
    """What the change sets do not cover, with the reasons."""
    return {path: reason for each in change_sets for path, reason in each.uncovered_paths}
