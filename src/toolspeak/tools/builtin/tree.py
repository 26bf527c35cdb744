"""Walking the files below a folder of the workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from toolspeak.errors import ToolError
from toolspeak.tools.builtin.workspace import Entry, Workspace

SKIPPED = frozenset({".git"})
"""Names a walk does not go into: version control's own files are not the project's."""


def walk(workspace: Workspace, folder: str, cancelled: Callable[[], bool]) -> Iterator[tuple[str, Entry]]:
    """(path, entry) of everything below a folder, path relative to the workspace; links are not followed.

    A folder that cannot be opened, or is gone when its turn comes, is passed over; the first one raises
    ToolError. So does cancellation.
    """
    todo = [(folder, True)]
    while todo:
        here, first = todo.pop()
        if cancelled():
            raise ToolError("Cancelled.")
        try:
            entries = workspace.entries(here)
        except ToolError:
            if first:
                raise
            continue
        for entry in entries:
            if entry.name in SKIPPED:
                continue
            path = join(here, entry.name)
            yield path, entry
            if entry.folder and not entry.link:
                todo.append((path, False))


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def printable_path(path: str) -> str:
    """The path as text that any encoder takes: a byte of a name that is not UTF-8 becomes `\\xff`."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
