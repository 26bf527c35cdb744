"""`find`: finds files by name, and lines by content."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from toolspeak.data.tools import NO_VERSION, Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.files.gitignore import IgnoredPaths
from toolspeak.tools.files.glob import Glob
from toolspeak.tools.files.search import MAX_LINE, Searcher
from toolspeak.tools.files.tree import printable_path, walk
from toolspeak.tools.files.workspace import Workspace
from toolspeak.tools.files.workspace_folders import anywhere, walk_start

MAX_RESULTS = 100

Match = dict[str, str | int]


def find_tool(workspace: Workspace, *, seconds_per_file: float = 10) -> Tool:
    """The tool `find`. `seconds_per_file` limits the time of the regular expression on one file."""

    def effects(path: str = "") -> Effects:
        # A check whether any file below has changed would take as long as another search.
        return Effects(reads={workspace.scope(path)}, idempotent=True, destructive=False, version=NO_VERSION)

    @tool(name="find", aliases={"file": "path"}, effects=effects, effects_bound=anywhere(workspace, effects()))
    def find(
        ctx: RunContext[Any],
        pattern: str = "*",
        content: str | None = None,
        path: str = "",
        ignored: bool = False,
    ) -> list[str] | list[Match | str]:
        """Find files by name, or lines by what they contain.

        Without `content`, returns paths; with it, the path, number and text of each matching line. At most
        100, then a note says how many more. Binary files, .git and what .gitignore names are left out; of a line
        longer than 10,000 characters only the beginning is searched.

        Args:
            pattern: A file name pattern ("*.py"), or with a "/" one for the whole path ("src/**/*.py").
            content: A regular expression (Python's) that a line must contain.
            path: The folder or file to search, relative to the workspace.
            ignored: Also search what .gitignore names.
        """
        paths = None if ignored else IgnoredPaths.to_leave_out(workspace.real(path), workspace.root.as_posix())
        files = _files(workspace, Glob(pattern), path, ctx, paths)
        if content is None:
            names = [printable_path(name) for name in heapq.nsmallest(MAX_RESULTS, files)]
            return [*names, *_note(len(files) - len(names), "files"), *_ignored_note(names, paths)]
        with Searcher(content, seconds=seconds_per_file, is_cancelled=ctx.is_cancelled) as searcher:
            lines = _lines(workspace, sorted(files), searcher)
            return [*lines, *_ignored_note(lines, paths)]

    return find


def _ignored_note(results: Sequence[object], paths: IgnoredPaths | None) -> list[str]:
    left_out = not results and paths is not None and paths.count
    return ["... nothing; what .gitignore names was left out: `ignored: true` searches it too"] if left_out else []


def _files(
    workspace: Workspace, glob: Glob, path: str, ctx: RunContext[Any], ignored: IgnoredPaths | None
) -> list[str]:
    folder = walk_start(workspace, path)
    if folder and not workspace.is_folder(path):
        with workspace.open(path):
            return [folder] if glob.matches(folder) else []
    names: list[str] = []
    for name, entry in walk(workspace, folder, ctx.is_cancelled, ignored_paths=ignored):
        below = name.removeprefix(folder + "/") if folder else name
        # A pattern may start at the searched folder or at the workspace.
        if entry.file and (glob.matches(below) or glob.matches(name)):
            names.append(name)
    return names


def _lines(workspace: Workspace, files: list[str], searcher: Searcher) -> list[Match | str]:
    results: list[Match | str] = []
    total = cut = unread = 0
    for name in files:
        try:
            data = workspace.read(name)
        except ToolError:
            unread += 1  # too large, gone meanwhile or not permitted: the search continues with the others
            continue
        matches = searcher.search(data, MAX_RESULTS - len(results))
        results.extend({"path": printable_path(name), "line": number, "text": text} for number, text in matches.lines)
        total += matches.count
        cut += matches.cut
    notes = _note(total - len(results), "lines")
    if cut:
        notes.append(f"... {cut} lines are longer than {MAX_LINE:,} characters: only their beginning was searched")
    if unread:
        notes.append(f"... {unread} files could not be searched: too large, or not readable")
    return [*results, *notes]


def _note(more: int, what: str) -> list[str]:
    return [f"... and {more} more {what}: narrow 'pattern', 'content' or 'path'"] if more > 0 else []
