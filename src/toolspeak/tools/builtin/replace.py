"""`replace`: replaces a text or a pattern in many files, with one diff to approve."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.builtin import files_read
from toolspeak.tools.builtin.diff import shortened, unified_diff
from toolspeak.tools.builtin.glob import Glob
from toolspeak.tools.builtin.search import Searcher
from toolspeak.tools.builtin.text_format import decode, encode, visible
from toolspeak.tools.builtin.tree import walk
from toolspeak.tools.builtin.workspace import MAX_EDIT, Workspace
from toolspeak.tools.builtin.workspace_folders import anywhere, walk_start

MOST_FILES = 200
"""The most files that one call changes."""


@dataclass(frozen=True, slots=True)
class FileReplacement:
    """A file with its content before and after."""

    path: str
    before: bytes
    after: bytes
    count: int

    @property
    def diff(self) -> str:
        return unified_diff(self.path, self.before.decode(), self.after.decode())


def replace_tool(workspace: Workspace, *, seconds_per_file: float = 10) -> Tool:
    """The tool `replace`. `seconds_per_file` limits the time of the pattern on one file."""

    def effects(path: str) -> Effects:
        key = {workspace.scope(path)}
        return Effects(reads=key, writes=key)

    def planned(
        old: str, new: str, files: str, path: str, regex: bool, cancelled: Callable[[], bool]
    ) -> list[FileReplacement]:
        encode(old, "old")
        encode(new, "new")
        if not old:
            raise ToolError("'old' is empty: give the text or the pattern to replace.")
        names = _files(workspace, Glob(files), path, cancelled)
        replacements: list[FileReplacement] = []
        with ExitStack() as process:
            searcher = None
            if regex:
                searcher = Searcher(f"(?m){old}", seconds=seconds_per_file, cancelled=cancelled, parameter="old")
                process.enter_context(searcher)
            for name in names:
                try:
                    before = workspace.read(name)
                    text = decode(before, name)
                except ToolError:
                    continue  # a binary file, or one that cannot be read, has no text to replace
                if searcher is None:
                    after, count = text.replace(old, new), text.count(old)
                else:
                    after, count = searcher.replaced_text(text, new)
                if after == text:
                    continue
                if len(after) > MAX_EDIT:
                    raise ToolError(f"{name!r} would have more than {MAX_EDIT:,} bytes: nothing was changed.")
                replacements.append(FileReplacement(name, before, after.encode(), count))
                if len(replacements) > MOST_FILES:
                    raise ToolError(f"More than {MOST_FILES} files would change: narrow 'files' or 'path'.")
        if not replacements:
            raise ToolError(f"'old' occurs in none of the {len(names)} files: nothing was changed.")
        return replacements

    def would(old: str, new: str, files: str, path: str, regex: bool) -> str:
        return "".join(each.diff for each in planned(old, new, files, path, regex, lambda: False))

    @tool(name="replace", effects=effects, effects_bound=anywhere(workspace, effects("")), preview=would)
    def replace(old: str, new: str, ctx: RunContext[Any], files: str = "*", path: str = "", regex: bool = False) -> str:
        r"""Replace a text everywhere in many files; returns what changed as a diff.

        All files change or none. Binary files and .git are left out.

        Args:
            old: The text to replace, or with `regex` a regular expression (Python's; ^ and $ match at each line).
            new: The text to put there; with `regex`, \1 is what the first group matched.
            files: A file name pattern ("*.py"), or with a "/" one for the whole path ("src/**/*.py").
            path: The folder or file to work on, relative to the workspace.
            regex: Whether `old` is a regular expression.
        """
        replacements = planned(old, new, files, path, regex, ctx.cancelled)
        _write(workspace, ctx, replacements)
        count = sum(each.count for each in replacements)
        head = f"{count} places in {len(replacements)} files.\n"
        return head + shortened("".join(each.diff for each in replacements))

    return replace


def _files(workspace: Workspace, glob: Glob, path: str, cancelled: Callable[[], bool]) -> list[str]:
    folder = walk_start(workspace, path)
    if folder and not workspace.is_folder(path):
        return [folder]
    names = (
        name
        for name, entry in walk(workspace, folder, cancelled)
        if entry.file and (glob.matches(name.removeprefix(folder + "/") if folder else name) or glob.matches(name))
    )
    return sorted(names)


def _write(workspace: Workspace, ctx: RunContext[Any], replacements: list[FileReplacement]) -> None:
    """Writes all files. If one cannot be written, those before it get their old content back."""
    done: list[FileReplacement] = []
    try:
        for each in replacements:
            with workspace.alone(each.path):
                workspace.replace(each.path, each.after, each.before)
            done.append(each)
    except ToolError as error:
        lost: list[str] = []
        for each in reversed(done):
            try:
                with workspace.alone(each.path):
                    workspace.replace(each.path, each.before, each.after)
            except ToolError:
                lost.append(each.path)  # somebody has changed it since
        rest = f" These could not be put back, and hold the new text: {', '.join(map(visible, lost))}." if lost else ""
        raise ToolError(f"{error} Nothing else was changed.{rest}" if not lost else f"{error}{rest}") from error
    for each in replacements:
        files_read.update(ctx, workspace.real(each.path), each.before, each.after)
