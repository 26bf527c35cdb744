"""Reads the state of a folder's files: what is there, with the digest of each content. Only files whose size, times or
inode have changed are read again."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from toolspeak.changes.file_states import FileState, PathChange, state_of_link
from toolspeak.data.protected_files import protected_below
from toolspeak.tools.builtin import Workspace
from toolspeak.tools.files.folder import Folder
from toolspeak.tools.files.paths import Parts

MAX_FILE = 8 * 1024 * 1024
"""The size in bytes of the largest file whose content is kept."""

MAX_FILES = 50_000
"""The most files and folders of a workspace that a scan covers."""

MAX_CONTENT = 1024 * 1024 * 1024
"""The most bytes of all files together whose content is kept."""

SKIPPED_FOLDERS: Mapping[str, str] = {
    **dict.fromkeys((".git", ".hg", ".svn", ".jj"), "of version control"),
    **dict.fromkeys(("node_modules", "__pycache__"), "made again by its program"),
}
"""Folders that a scan of a workspace leaves out, with the reason."""

_CACHES = ("CACHEDIR.TAG", "pyvenv.cfg")
"""Files that mark a folder as a cache (https://bford.info/cachedir/) or as a virtual environment of Python."""

_TICK = 20_000_000
"""Nanoseconds within which two changes may get the same time: kernels count in steps of 1 to 10 ms."""

_TEMPORARY = re.compile(r"\.toolspeak-[\w-]+\.tmp")

StatKey: TypeAlias = tuple[int, int, int, int, int]
"""The size, times, inode and mode of a file. While they stay the same, so does the content."""


@dataclass(slots=True)
class TreeState:
    """The state of the paths of a folder, relative to it and written with `/`; "" is the folder itself.

    - `states`: what is there, by path.
    - `folders`: the folders whose entries are all in `states`, but for those in `uncovered_paths`.
    - `single`: paths that were looked up one by one.
    - `uncovered_paths`: what is not covered, with the reason.
    """

    states: dict[str, FileState] = field(default_factory=dict[str, FileState])
    folders: set[str] = field(default_factory=set[str])
    single: set[str] = field(default_factory=set[str])
    uncovered_paths: dict[str, str] = field(default_factory=dict[str, str])

    def covers(self, path: str) -> bool:
        """Whether the state says what is at the path, or that nothing is there."""
        if path in self.single or path in self.states:
            return path not in self.uncovered_paths or path in self.states
        if path in self.uncovered_paths or not path:
            return False
        above = path.rpartition("/")[0]
        if above in self.folders:
            return True
        state = self.states.get(above)
        return self.covers(above) and (state is None or state.kind != "folder")


def differences(before: TreeState, after: TreeState) -> Iterator[tuple[str, FileState | None, FileState | None]]:
    """Yields (path, state before, state after) for each path that differs, among the paths that both cover."""
    for path in sorted(before.states.keys() | after.states.keys()):
        one, two = before.states.get(path), after.states.get(path)
        if one != two and (one is not None or before.covers(path)) and (two is not None or after.covers(path)):
            yield path, one, two


def add_changes(tree: TreeState, changes: Iterable[PathChange]) -> None:
    """Takes these changes into the tree, as if they had been made before it was scanned."""
    for change in changes:
        if change.after is None:
            tree.states.pop(change.path, None)
        else:
            tree.states[change.path] = change.after
        if change.after is None or change.after.kind != "folder":
            tree.folders.discard(change.path)
        elif change.before is None or change.before.kind != "folder":
            tree.folders.add(change.path)  # what is in a new folder is among the changes


class TreeScanner:
    """Scans one workspace again and again.

    - `keep`: stores the content of a file and returns its digest. None: contents are not stored.
    """

    def __init__(self, workspace: Workspace, keep: Callable[[bytes], bytes] | None = None) -> None:
        self.workspace = workspace
        self.cache: dict[str, tuple[StatKey, FileState]] = {}
        """The state of each file that a scan may use again, by path."""
        self.has_read = False
        """Whether a file was read since this was last set."""
        self._keep = keep
        self._tree = TreeState()
        self._trusted_until = 0
        self._size = 0
        self._protected_paths: frozenset[str] = frozenset()

    def scan(self, places: Iterable[str] | None = None) -> TreeState:
        """The state of the whole workspace, or of these places with what is in and above them.

        Raises OSError if the workspace itself cannot be opened.
        """
        self._begin()
        if places is None:
            with self.workspace.folder(()) as folder:
                self._tree.states[""] = FileState("folder", 0)
                self._list(folder, "")
        else:
            for place in places:
                self._look_up(place, deep=True)
        return self._end()

    def probe(self, paths: Iterable[str]) -> TreeState:
        """The state of exactly these paths."""
        self._begin()
        for path in paths:
            self._look_up(path, deep=False)
        return self._end()

    def state_in(self, folder: Folder, name: str, path: str) -> FileState | None:
        """What `name` is in an open folder; `path` is its path. Raises OSError if it cannot be read."""
        self._begin()
        try:
            self._add(folder, name, path, folder.stat(name), deep=False)
        except FileNotFoundError:
            return None
        tree = self._end()
        if path not in tree.states:
            raise OSError(errno.EINVAL, tree.uncovered_paths.get(path, "not readable"))
        return tree.states[path]

    def _begin(self) -> None:
        self._tree, self._size = TreeState(), 0
        self._trusted_until = time.time_ns() - _TICK
        self._protected_paths = protected_below(str(self.workspace.root))

    def _end(self) -> TreeState:
        tree, self._tree = self._tree, TreeState()
        return tree

    def _look_up(self, path: str, *, deep: bool) -> None:
        """Adds one path, and what is in and above it if `deep`."""
        tree, parts = self._tree, parts_of(path)
        if not parts:
            with self.workspace.folder(()) as folder:
                tree.states[""] = FileState("folder", 0)
                self._list(folder, "")
            return
        folder = Folder.top(str(self.workspace.root))
        try:
            for depth, name in enumerate(parts):
                here = "/".join(parts[: depth + 1])
                is_last = depth == len(parts) - 1
                if deep or is_last:
                    tree.single.add(here)
                try:
                    status = folder.stat(name)
                except FileNotFoundError:
                    tree.single.add(path)
                    return
                if is_last:
                    self._add(folder, name, here, status, deep=deep)
                    return
                if not stat.S_ISDIR(status.st_mode):
                    tree.single.add(path)
                    if deep:
                        self._add(folder, name, here, status, deep=False)
                    return
                if deep:
                    tree.states[here] = FileState("folder", stat.S_IMODE(status.st_mode))
                inner = folder.enter(name)
                folder.close()
                folder = inner
        except OSError as error:
            tree.single.discard(path)
            tree.uncovered_paths[path] = error.strerror or str(error)
        finally:
            folder.close()

    def _list(self, folder: Folder, path: str) -> None:
        """Adds the entries of a folder, and of those in it."""
        tree = self._tree
        with folder.entries() as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        tree.folders.add(path)
        if path and any(entry.name in _CACHES for entry in entries):
            tree.folders.discard(path)
            tree.uncovered_paths[path] = "a cache or a virtual environment"
            return
        above = f"{path}/" if path else ""
        for entry in entries:
            here = above + entry.name
            if len(tree.states) > MAX_FILES:
                tree.folders.discard(path)
                tree.uncovered_paths[here] = f"beyond the first {MAX_FILES:,} files of the workspace"
                return
            if _TEMPORARY.fullmatch(entry.name) or here in self._protected_paths:
                tree.uncovered_paths[here] = ""
                continue
            try:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and entry.name in SKIPPED_FOLDERS:
                    tree.uncovered_paths[here] = SKIPPED_FOLDERS[entry.name]
                else:
                    self._add(folder, entry.name, here, status, deep=True)
            except FileNotFoundError:
                continue  # it was removed while the folder was read
            except OSError as error:
                tree.uncovered_paths[here] = error.strerror or str(error)

    def _add(self, folder: Folder, name: str, path: str, status: os.stat_result, *, deep: bool) -> None:
        """Adds what is at a path; with `deep` also what is in a folder."""
        tree, mode = self._tree, status.st_mode
        if stat.S_ISREG(mode):
            tree.states[path] = self._file(folder, name, path, status)
        elif stat.S_ISLNK(mode):
            tree.states[path] = state_of_link(folder.read_link(name))
        elif stat.S_ISDIR(mode):
            tree.states[path] = FileState("folder", stat.S_IMODE(mode))
            if deep:
                with folder.enter(name) as inner:
                    self._list(inner, path)
        else:
            tree.states.pop(path, None)
            tree.uncovered_paths[path] = "no regular file"

    def _file(self, folder: Folder, name: str, path: str, status: os.stat_result) -> FileState:
        key: StatKey = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode)
        self._size += status.st_size
        entry = self.cache.get(path)
        if entry is not None and entry[0] == key:
            return entry[1]
        mode = stat.S_IMODE(status.st_mode)
        data = None
        if path in self._protected_paths:
            self._tree.uncovered_paths[path] = "this program depends on it"
        elif status.st_size > MAX_FILE:
            self._tree.uncovered_paths[path] = f"larger than {MAX_FILE // 1024 // 1024} MB"
        elif self._size > MAX_CONTENT:
            self._tree.uncovered_paths[path] = f"beyond the first {MAX_CONTENT // 1024 // 1024} MB of the workspace"
        else:
            try:
                with os.fdopen(folder.open(name, os.O_RDONLY), "rb") as file:
                    data = file.read(MAX_FILE + 1)
            except FileNotFoundError:
                raise
            except OSError as error:
                self._tree.uncovered_paths[path] = error.strerror or str(error)
        if data is None or len(data) > MAX_FILE:
            # Without its content, but a change of it shows.
            return FileState("unread", mode, repr(key[:4]).encode(), status.st_size)
        self.has_read = True
        digest = hashlib.sha256(data).digest() if self._keep is None else self._keep(data)
        state = FileState("file", mode, digest, len(data))
        if max(status.st_mtime_ns, status.st_ctime_ns) < self._trusted_until:
            self.cache[path] = key, state
        else:
            self.cache.pop(path, None)
        return state

    def remember(self, states: Mapping[str, tuple[StatKey, FileState]]) -> None:
        """Adds what an earlier process has read."""
        self.cache.update(states)

    def forget_missing(self, tree: TreeState) -> None:
        """Drops the files that a scan of the whole workspace has not met."""
        for path in self.cache.keys() - tree.states.keys():
            del self.cache[path]


def parts_of(path: str) -> Parts:
    """The components of a path as trees have it."""
    return tuple(path.split("/")) if path else ()
