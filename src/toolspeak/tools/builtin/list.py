"""`list`: lists the files and folders of a folder."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from toolspeak.data.tools import NO_VERSION, Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.files.paths import relative_path
from toolspeak.tools.files.tree import join, printable_path, walk
from toolspeak.tools.files.workspace import Entry, Workspace
from toolspeak.tools.files.workspace_folders import anywhere

MAX_ENTRIES = 1_000


def list_tool(workspace: Workspace) -> Tool:
    """The tool `list`: lists the files and folders of a folder."""

    def effects(prefix: str = "", recursive: bool = False) -> Effects:
        folder, _ = _split(workspace, prefix)
        # A folder's time changes with the names in it, not with the names below its subfolders.
        version = NO_VERSION if recursive else workspace.version(folder)
        return Effects(reads={workspace.scope(folder)}, idempotent=True, destructive=False, version=version)

    @tool(
        name="list",
        aliases={"path": "prefix", "file": "prefix"},
        effects=effects,
        effects_bound=anywhere(workspace, effects()),
    )
    def list_entries(ctx: RunContext[Any], prefix: str = "", recursive: bool = False) -> list[str]:
        """List the files and folders in a folder, sorted; folders end with "/".

        At most 1,000 are listed; a last entry then says how many more there are.

        Args:
            prefix: A folder, relative to the workspace, or the beginning of paths, like "notes/da".
            recursive: Also list everything below, except inside .git.
        """
        folder, start = _split(workspace, prefix)
        counter = EntryCounter()
        names = counter.count(_paths(workspace, folder, start, ctx, recursive=recursive))
        first = heapq.nsmallest(MAX_ENTRIES, names)  # sorted in bounded memory, however many there are
        if not first and start:
            raise ToolError(f"{prefix!r} does not exist and no path starts with it: `list` of '' shows what there is.")
        if counter.number > len(first):
            first.append(f"... and {counter.number - len(first)} more: list a folder inside, or use `find`")
        return first

    return list_entries


class EntryCounter:
    """Counts the entries that pass through it."""

    def __init__(self) -> None:
        self.number = 0

    def count(self, names: Iterator[str]) -> Iterator[str]:
        for name in names:
            self.number += 1
            yield name


def _split(workspace: Workspace, prefix: str) -> tuple[str, str]:
    """The folder of a prefix, and the beginning of the names in it."""
    prefix = relative_path(prefix, workspace.names)
    plain = "/".join(part for part in prefix.split("/") if part not in ("", "."))
    # A path that will be refused stays whole: opening it refuses it.
    if prefix.startswith("/") or prefix.endswith("/") or ".." in plain.split("/") or workspace.is_folder(prefix):
        return prefix if prefix.startswith("/") else plain, ""
    folder, _, start = plain.rpartition("/")
    return folder, start


def _paths(workspace: Workspace, folder: str, start: str, ctx: RunContext[Any], *, recursive: bool) -> Iterator[str]:
    if not recursive:
        for entry in workspace.entries(folder):
            if entry.name.startswith(start):
                yield _entry_name(join(folder, entry.name), entry)
        return
    beginning = join(folder, start) if start else ""
    for path, entry in walk(workspace, folder, ctx.is_cancelled):
        if path.startswith(beginning):
            yield _entry_name(path, entry)


def _entry_name(path: str, entry: Entry) -> str:
    return printable_path(path) + ("/" if entry.folder else "")
