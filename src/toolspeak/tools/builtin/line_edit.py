"""`line_edit`: replaces, inserts or deletes lines of a file by their numbers."""

from __future__ import annotations

from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.files.change import apply, changes, preview_change
from toolspeak.tools.files.text_format import BOM, encode, newline_style, split_lines, with_newlines
from toolspeak.tools.files.workspace import Workspace
from toolspeak.tools.files.workspace_folders import anywhere


def line_edit_tool(workspace: Workspace) -> Tool:
    """The tool `line_edit`: replaces lines of a file by their numbers."""

    def effects(path: str) -> Effects:
        return changes(workspace, path)

    # The specification defines the parameters' names (seed 003).
    def would(path: str, startLine: int, endLine: int, newContent: str) -> str:  # noqa: N803
        return preview_change(workspace, path, lambda text: lines_edited(text, startLine, endLine, newContent, path))

    @tool(
        name="line_edit",
        aliases={"file": "path"},
        effects=effects,
        effects_bound=anywhere(workspace, effects("")),
        preview=would,
    )
    def line_edit(path: str, startLine: int, endLine: int, newContent: str, ctx: RunContext[Any]) -> str:  # noqa: N803
        """Replace the lines from startLine to endLine, both included; returns what changed as a diff.

        endLine = startLine - 1 inserts before startLine; startLine one past the last line appends.

        Args:
            path: The file, relative to the workspace.
            startLine: The number of the first line to replace, from 1.
            endLine: The number of the last line to replace.
            newContent: The new lines; a newline at their end may be left out. Empty deletes the lines.
        """
        return apply(workspace, ctx, path, lambda text: lines_edited(text, startLine, endLine, newContent, path))

    return line_edit


def lines_edited(text: str, start: int, end: int, content: str, path: str) -> str:
    """The text with lines start..end (from 1, inclusive) replaced by the lines of `content`.

    Other lines do not change. New lines get the file's line ends. A missing final newline stays missing, unless the
    last line is blank. A byte order mark stays. Raises ToolError, with the number of lines, for any other range.
    """
    encode(content, "newContent")
    mark = BOM if text.startswith(BOM) else ""
    body = text[len(mark) :]
    lines = split_lines(body)
    _check_range(start, end, len(lines), path)
    if mark and start == 1:
        content = content.removeprefix(BOM)
    style = newline_style(body, newline_style(content))
    new = split_lines(with_newlines(content, style))
    result = _end_lines(lines[: start - 1], style) + _end_lines(new, style) + lines[end:]
    if result and body and not body.endswith("\n"):
        last = result[-1]
        bare = last.removesuffix("\r\n") if last.endswith("\r\n") else last.removesuffix("\n")
        result[-1] = bare or last  # a blank line without its newline would disappear
    return mark + "".join(result)


def _check_range(start: int, end: int, total: int, path: str) -> None:
    has = f"{path!r} has {total} line{'' if total == 1 else 's'}"
    if not 1 <= start <= total + 1:
        raise ToolError(f"startLine is {start}, but {has}: give 1 to {total + 1} ({total + 1} appends).")
    if not start - 1 <= end <= total:
        raise ToolError(f"endLine is {end}, but {has}: give {start - 1} (inserts before line {start}) to {total}.")


def _end_lines(lines: list[str], style: str) -> list[str]:
    """The lines, with a newline after the last one if it lacks one."""

    if lines and not lines[-1].endswith("\n"):
        return [*lines[:-1], lines[-1] + style]
    return lines
