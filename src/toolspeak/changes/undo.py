"""Undoes changes of files, where nobody has changed them since."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal, TypeAlias

from toolspeak.changes.change_recovery import recover_changes
from toolspeak.changes.change_store import ChangeStore, DamagedContent
from toolspeak.changes.file_states import ChangeSet, FileState, PathChange
from toolspeak.changes.run_changes import NetChange, net_changes
from toolspeak.changes.tree_scan import TreeScanner, TreeState, differences, parts_of
from toolspeak.data.values import quick
from toolspeak.errors import RunBusy
from toolspeak.journal.leases import is_dead, new_owner
from toolspeak.tools.builtin import Workspace
from toolspeak.tools.files.folder import Folder
from toolspeak.tools.files.tree import printable_path
from toolspeak.tools.files.workspace import keep_attributes, keep_owner_and_mode

UNDO = "undo"
"""The tool of an undo's change set."""

UndoOutcome: TypeAlias = Literal["undone", "already", "changed", "uncovered", "failed"]
"""What became of a path: it is as before; it was so already; it is left because somebody changed it since; it is left
because its earlier content is not in the store; it could not be written."""

_LOCK_SECONDS = 10.0
_NOT_EMPTY = "holds files that came later, or that are not covered"

_PathStep: TypeAlias = Callable[[Folder, str, NetChange], None]
"""One step of an undo for one path: its open folder, its name in there, and its change."""


@quick()
class UndoEntry:
    """What an undo did, or would do, with one path. `reason`: why not, or what is special."""

    path: str
    outcome: UndoOutcome
    reason: str = ""


@quick()
class UndoReport:
    """What an undo did, or would do.

    - `name`, `root_id`: of the undo, and of the run that it belongs to: by these it can be undone. The name is "" if it
      changed nothing.
    - `entries`: one for each path, sorted.
    """

    name: str
    root_id: str
    workspace: str
    entries: tuple[UndoEntry, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every path is as before."""
        return all(each.outcome in ("undone", "already") for each in self.entries)


class _PathStays(Exception):
    """A path stays as it is."""

    def __init__(self, outcome: UndoOutcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome: UndoOutcome = outcome


def undo_changes(
    store: ChangeStore, change_sets: Sequence[ChangeSet], workspace: Workspace, *, dry_run: bool = False
) -> UndoReport:
    """Brings the files of a workspace back to what they were before the change sets, in their order.

    A path that somebody changed since is left, and the report says so. Each file is replaced as a whole or not at all.
    The undo is a change set itself, so undoing it brings the changes back. The change sets have one workspace;
    `workspace` is where it is now. `dry_run`: changes nothing.

    Raises DamagedContent if the store has not what a file needs, before anything is written; RunBusy while a call or
    another undo changes files of the workspace.
    """
    name, root_id = change_sets[-1].workspace, change_sets[-1].root_id
    recover_changes(store, workspace, name)
    nets = net_changes(change_sets)
    scanner = TreeScanner(workspace)
    tree = scanner.probe([net.path for net in nets])
    outcomes = {net.path: _outlook(net, tree) for net in nets}
    todo = [net for net in nets if outcomes[net.path].outcome == "undone"]
    if dry_run:
        outcomes |= {path: UndoEntry(path, "changed", _NOT_EMPTY) for path in _folders_that_stay(workspace, todo)}
    for net in todo:
        if net.before is not None and net.before.kind == "file":
            try:
                store.content(net.before.content)
            except DamagedContent as error:
                raise DamagedContent(f"{printable_path(net.path)!r}: {error}. Nothing was undone") from None
    if dry_run or not todo:
        return UndoReport("", root_id, name, tuple(outcomes.values()))
    number, undo_name = _begin(store, change_sets[-1], tree)
    after = tree
    try:
        for net, reason in _perform(store, workspace, scanner, todo):
            outcomes[net.path] = UndoEntry(net.path, reason.outcome, str(reason))
    finally:
        after = scanner.probe([net.path for net in nets])
        changes = [PathChange(path, one, two) for path, one, two in differences(tree, after)]
        store.end(number, changes, {})
    return UndoReport(undo_name if changes else "", root_id, name, tuple(outcomes.values()))


def _outlook(net: NetChange, tree: TreeState) -> UndoEntry:
    """What an undo can do with a path."""
    now = tree.states.get(net.path)
    if now is None and not tree.covers(net.path):
        return UndoEntry(net.path, "failed", tree.uncovered_paths.get(net.path, ""))
    if now == net.before:
        return UndoEntry(net.path, "already")
    if now != net.after:
        return UndoEntry(net.path, "changed", "changed since")
    if net.before is not None and net.before.kind == "unread":
        return UndoEntry(net.path, "uncovered", "its content before is not kept")
    return UndoEntry(net.path, "undone", "back to what somebody else left in between" if net.is_split else "")


def _folders_that_stay(workspace: Workspace, todo: Sequence[NetChange]) -> Iterator[str]:
    """The paths of folders that an undo would leave, because something else is in them."""
    leaving = {net.path for net in todo if net.before is None and not _is_folder(net.after)}
    for net in sorted(todo, key=lambda net: net.path.count("/"), reverse=True):
        if not _is_folder(net.after) or _is_folder(net.before):
            continue
        names = [""]  # of a folder that cannot be read
        with suppress(OSError), workspace.folder(parts_of(net.path)) as folder, folder.entries() as entries:
            names = [entry.name for entry in entries]
        if leaving.issuperset(f"{net.path}/{name}" for name in names):
            leaving.add(net.path)
        else:
            yield net.path


def _begin(store: ChangeStore, last: ChangeSet, tree: TreeState) -> tuple[int, str]:
    """Records that an undo begins. Returns its number and its name."""
    with store.transaction():
        for other, _ in store.in_progress(last.workspace):
            if not is_dead(other.owner):
                what = "another undo" if other.tool == UNDO else f"the call {other.call_id} of run {other.run_id}"
                raise RunBusy(f"{what} is changing files of {last.workspace} now: wait until it has ended")
        undo_count = len(store.of_roots([last.root_id], tool=UNDO))
        name = f"undo-{undo_count + 1}"
        change_set = replace(
            last,
            run_id=last.root_id,
            call_id=name,
            tool=UNDO,
            start_time=time.time(),
            within=None,
            owner=new_owner(),
            is_recovered=False,
            uncovered_paths=(),
        )
        return store.begin(change_set, tree), name


def _perform(
    store: ChangeStore, workspace: Workspace, scanner: TreeScanner, todo: Sequence[NetChange]
) -> list[tuple[NetChange, _PathStays]]:
    """Brings each path to its state before. Returns those that are left, with the reasons."""
    failures: dict[str, tuple[NetChange, _PathStays]] = {}
    deepest = sorted(todo, key=lambda net: net.path.count("/"), reverse=True)

    def each(nets: Sequence[NetChange], step: _PathStep) -> None:
        for net in nets:
            if net.path in failures:
                continue
            try:
                *above, last = parts_of(net.path)
                with workspace.folder(tuple(above)) as folder, folder.alone(_LOCK_SECONDS):
                    step(folder, last, net)
            except _PathStays as reason:
                failures[net.path] = net, reason
            except OSError as error:
                failures[net.path] = net, _reason_of(error)

    def loosen(folder: Folder, last: str, net: NetChange) -> None:
        folder.set_mode(last, _mode_of(net.after) | 0o700)

    def remove(folder: Folder, last: str, net: NetChange) -> None:
        _expect(scanner.state_in(folder, last, net.path), net.after)
        folder.unlink(last)
        folder.sync()

    def remove_folder(folder: Folder, last: str, net: NetChange) -> None:
        folder.remove_folder(last)
        folder.sync()

    def make_folder(folder: Folder, last: str, net: NetChange) -> None:
        folder.make_folder(last)
        folder.set_mode(last, _mode_of(net.before) | 0o700)
        folder.sync()

    def put(folder: Folder, last: str, net: NetChange) -> None:
        assert net.before is not None, "only what was there is put back"
        _put(folder, last, net, net.before, store, scanner)

    def set_mode(folder: Folder, last: str, net: NetChange) -> None:
        folder.set_mode(last, _mode_of(net.before))

    was_folder = [net for net in deepest if _is_folder(net.before)]
    is_folder = [net for net in deepest if _is_folder(net.after)]
    each([net for net in is_folder if _mode_of(net.after) & 0o700 != 0o700], loosen)
    each([net for net in deepest if net.after is not None and not _is_folder(net.after) and not _is_put(net)], remove)
    each([net for net in is_folder if not _is_folder(net.before)], remove_folder)
    each([net for net in reversed(was_folder) if not _is_folder(net.after)], make_folder)
    each([net for net in deepest if _is_put(net)], put)
    each(was_folder, set_mode)
    return list(failures.values())


def _put(
    folder: Folder, name: str, net: NetChange, before: FileState, store: ChangeStore, scanner: TreeScanner
) -> None:
    """Makes the file or link, and replaces what is there, if that is what the change left."""
    now = scanner.state_in(folder, name, net.path)
    expected_state = None if _is_folder(net.after) else net.after
    _expect(now, expected_state)
    if now is not None and before.kind == now.kind == "file" and before.content == now.content:
        folder.set_mode(name, before.mode)
        return
    if before.kind == "link" and expected_state is None:
        folder.make_link(os.fsdecode(before.content), name)
        folder.sync()
        return
    temporary = f".toolspeak-{secrets.token_hex(8)}.tmp"
    try:
        if before.kind == "link":
            folder.make_link(os.fsdecode(before.content), temporary)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(folder.open(temporary, flags, 0o600), "wb") as file:
                if now is not None and now.kind != "link" and hasattr(os, "fchmod"):
                    keep_owner_and_mode(file.fileno(), folder.stat(name))
                    keep_attributes(folder, name, file.fileno())
                file.write(store.content(before.content))
                file.flush()
                if hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), before.mode)
                os.fsync(file.fileno())
        if expected_state is None:
            folder.add(temporary, name)
        else:
            _expect(scanner.state_in(folder, name, net.path), expected_state)
            folder.rename(temporary, name)
    except BaseException:
        with suppress(OSError):
            folder.unlink(temporary)
        raise
    folder.sync()


def _expect(now: FileState | None, expected_state: FileState | None) -> None:
    if now != expected_state:
        raise _PathStays("changed", "changed since")


def _reason_of(error: OSError) -> _PathStays:
    """Why a path is left, for an error of the system."""
    match error.errno:
        case errno.ENOTEMPTY:
            return _PathStays("changed", _NOT_EMPTY)
        case errno.EEXIST:
            return _PathStays("changed", "made since by somebody else")
        case errno.ENOENT:
            return _PathStays("changed", "its folder is gone")
        case errno.ENOTDIR | errno.ELOOP:
            return _PathStays("changed", "something above it is a file or a link now")
        case errno.ENOSPC | errno.EDQUOT:
            return _PathStays("failed", "the disk is full: free some space, and undo again")
        case errno.EACCES | errno.EPERM:
            return _PathStays("failed", "permission denied for it or its folder: get the right, and undo again")
        case errno.EROFS:
            return _PathStays("failed", "on a read-only file system")
        case errno.ETIMEDOUT:
            return _PathStays("failed", "another process holds its folder: undo again")
        case _:
            return _PathStays("failed", error.strerror or str(error))


def _is_folder(state: FileState | None) -> bool:
    return state is not None and state.kind == "folder"


def _is_put(net: NetChange) -> bool:
    """Whether a file or a link was there."""
    return net.before is not None and net.before.kind in ("file", "link")


def _mode_of(state: FileState | None) -> int:
    return 0 if state is None else state.mode
