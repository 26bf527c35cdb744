"""`replace`: replaces a text or a pattern in many files, with one diff to approve."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.files import files_read
from toolspeak.tools.files.diff import shorten_diff, unified_diff
from toolspeak.tools.files.glob import Glob
from toolspeak.tools.files.search import Searcher
from toolspeak.tools.files.text_format import decode, encode, visible
from toolspeak.tools.files.tree import join, walk
from toolspeak.tools.files.workspace import MAX_EDIT, Workspace
from toolspeak.tools.files.workspace_folders import Folders, anywhere, walk_start

MOST_FILES = 200
"""The most files that one call changes."""

_PLAN = re.compile(r"\.toolspeak-replace-[0-9a-f]{16}\.json")
"""The name of a file with the plan of one call. It exists while the call writes, so that the call can go on after a
crash. Unlike the temporary files of other changes, it is one of the files that the store of changes has, so an undo
removes it."""


class PlannedFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file that a call changes, with the SHA-256 of its content before and after."""

    path: str
    before: str
    after: str
    count: int


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

    def plan_of(
        old: str, new: str, files: str, path: str, regex: bool, is_cancelled: Callable[[], bool]
    ) -> list[FileReplacement]:
        encode(old, "old")
        encode(new, "new")
        if not old:
            raise ToolError("'old' is empty: give the text or the pattern to replace.")
        names = _files(workspace, Glob(files), path, is_cancelled)
        replacements = replacements_in(old, new, names, regex, is_cancelled)
        if not replacements:
            raise ToolError(f"'old' occurs in none of the {len(names)} files: nothing was changed.")
        return replacements

    def replacements_in(
        old: str, new: str, names: Collection[str], regex: bool, is_cancelled: Callable[[], bool]
    ) -> list[FileReplacement]:
        replacements: list[FileReplacement] = []
        with ExitStack() as process:
            searcher = None
            if regex:
                searcher = Searcher(f"(?m){old}", seconds=seconds_per_file, is_cancelled=is_cancelled, parameter="old")
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
        return replacements

    def would(old: str, new: str, files: str, path: str, regex: bool) -> str:
        return "".join(each.diff for each in plan_of(old, new, files, path, regex, lambda: False))

    def began(path: str, ctx: RunContext[Any]) -> bool | None:
        """Whether a call that a crash interrupted can go on: False, it runs again. None: it has ended, or not begun."""
        return None if _plan_data(workspace, _plan_path(workspace, path, ctx)) is None else False

    @tool(name="replace", effects=effects, effects_bound=anywhere(workspace, effects("")), preview=would, verify=began)
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
        plan_path = _plan_path(workspace, path, ctx)
        plan_data = _plan_data(workspace, plan_path)
        if plan_data is not None:
            # The plan is a file that others can write, so the call goes on with what it would have done itself.
            plan = _plan_from(plan_data, plan_path)
            names = set(_files(workspace, Glob(files), path, ctx.is_cancelled))
            unchanged_files = [
                each for each in plan if each.path in names and _digest_of(workspace, each.path) == each.before
            ]
            after_by_path = {each.path: each.after for each in unchanged_files}
            rest = replacements_in(old, new, [*after_by_path], regex, ctx.is_cancelled)
            rest = [each for each in rest if _digest(each.after) == after_by_path[each.path]]
            _write(workspace, ctx, rest)
            _remove(workspace, plan_path)
            return _report(plan, [each for each in plan if _digest_of(workspace, each.path) != each.after])
        replacements = plan_of(old, new, files, path, regex, ctx.is_cancelled)
        with ExitStack() as plan_file:
            if len(replacements) > 1 and ctx.idempotency_key:
                plan = [
                    PlannedFile(each.path, _digest(each.before), _digest(each.after), each.count)
                    for each in replacements
                ]
                workspace.replace(plan_path, msgspec.json.encode(plan), None)
                plan_file.callback(_remove, workspace, plan_path)
            _write(workspace, ctx, replacements)
        count = sum(each.count for each in replacements)
        head = f"{count} places in {len(replacements)} files.\n"
        return head + shorten_diff("".join(each.diff for each in replacements))

    return replace


def _plan_path(workspace: Workspace, path: str, ctx: RunContext[Any]) -> str:
    """Where the plan of a call is: beside the files that it changes."""
    folder = walk_start(workspace, path)
    name = f".toolspeak-replace-{hashlib.sha256(ctx.idempotency_key.encode()).hexdigest()[:16]}.json"
    return join(folder, name)


def _plan_data(workspace: Workspace, path: str) -> bytes | None:
    """The plan that an interrupted call has left; None if there is none."""
    try:
        return workspace.read_if_exists(path)
    except ToolError:
        return None  # the call works on one file, which is no folder for a plan


def _plan_from(data: bytes, path: str) -> list[PlannedFile]:
    try:
        return msgspec.json.decode(data, type=list[PlannedFile])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ToolError(
            f"The run was interrupted in the middle of this call, and {path!r}, which says how to go on, was changed"
            f" ({error}): some files may have the new text and some the old one. Look at them, and remove that file."
        ) from None


def _report(plan: Sequence[PlannedFile], others: Sequence[PlannedFile]) -> str:
    """What the model reads of a call that went on after a crash."""
    new_files = [each for each in plan if each not in others]
    count = sum(each.count for each in new_files)
    lines = [
        f"{count} places in {len(new_files)} files.",
        "The run was interrupted in the middle of this call, which went on when the run was resumed:",
        *(visible(each.path) for each in new_files),
    ]
    if others:
        lines.append("Somebody has changed these since, so they were left as they are: read them.")
        lines += [visible(each.path) for each in others]
    return "\n".join(lines)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest_of(workspace: Workspace, path: str) -> str:
    """The digest of a file's content; "" if it cannot be read."""
    try:
        return _digest(workspace.read(path))
    except ToolError:
        return ""


def _remove(workspace: Workspace, path: str) -> None:
    """Removes the plan. If somebody else has, it is gone."""
    place, rest = workspace.at(path) if isinstance(workspace, Folders) else (workspace, path)
    *above, name = place.resolve(rest)
    with suppress(OSError), place.folder(tuple(above)) as folder:
        folder.unlink(name)
        folder.sync()


def _files(workspace: Workspace, glob: Glob, path: str, is_cancelled: Callable[[], bool]) -> list[str]:
    folder = walk_start(workspace, path)
    if folder and not workspace.is_folder(path):
        return [folder]
    names = (
        name
        for name, entry in walk(workspace, folder, is_cancelled)
        if entry.file
        and not _PLAN.fullmatch(entry.name)
        and (glob.matches(name.removeprefix(folder + "/") if folder else name) or glob.matches(name))
    )
    return sorted(names)


def _write(workspace: Workspace, ctx: RunContext[Any], replacements: list[FileReplacement]) -> None:
    """Writes all files. If one cannot be written, those before it get their old content back."""
    written_files: list[FileReplacement] = []
    try:
        for each in replacements:
            with workspace.alone(each.path):
                workspace.replace(each.path, each.after, each.before)
            written_files.append(each)
    except ToolError as error:
        changed_paths: list[str] = []
        for each in reversed(written_files):
            try:
                with workspace.alone(each.path):
                    workspace.replace(each.path, each.before, each.after)
            except ToolError:
                changed_paths.append(each.path)  # somebody has changed it since
        rest = (
            f" These could not be put back, and hold the new text: {', '.join(map(visible, changed_paths))}."
            if changed_paths
            else ""
        )
        raise ToolError(
            f"{error} Nothing else was changed.{rest}" if not changed_paths else f"{error}{rest}"
        ) from error
    for each in replacements:
        files_read.update(ctx, workspace.real(each.path), each.before, each.after)
