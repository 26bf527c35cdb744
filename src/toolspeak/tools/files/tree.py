"""Walks the files below a folder of the workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from toolspeak.errors import ToolError
from toolspeak.tools.files.gitignore import IgnoredPaths
from toolspeak.tools.files.workspace import Entry, Workspace

SKIPPED_NAMES = frozenset({".git"})
"""Folders that a walk leaves out: those of version control."""


def walk(
    workspace: Workspace, folder: str, is_cancelled: Callable[[], bool], *, ignored_paths: IgnoredPaths | None = None
) -> Iterator[tuple[str, Entry]]:
    """Yields (path, entry) for all files and folders below a folder, with paths relative to the workspace. Follows no
    links, and leaves out what is ignored.

    Skips a folder that is gone or cannot be opened. Raises ToolError if `folder` itself cannot be opened, and on
    cancellation.
    """
    top = workspace.real(folder) if ignored_paths is not None else ""
    todo = [(folder, True)]
    while todo:
        here, first = todo.pop()
        if is_cancelled():
            raise ToolError("Cancelled.")
        try:
            entries = workspace.entries(here)
        except ToolError:
            if first:
                raise
            continue
        for entry in entries:
            if entry.name in SKIPPED_NAMES:
                continue
            path = join(here, entry.name)
            if ignored_paths is not None and ignored_paths.names(
                join(top, path.removeprefix(folder).lstrip("/")), entry.folder and not entry.link
            ):
                continue
            yield path, entry
            if entry.folder and not entry.link:
                todo.append((path, False))


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def printable_path(path: str) -> str:
    """The path as text that can be encoded: a byte of a name that is not UTF-8 becomes `\\xff`."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
