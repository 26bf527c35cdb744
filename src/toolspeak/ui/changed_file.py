"""The file that a call of a file tool has changed, on one line. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.data.messages import JsonPart, ToolCall, ToolResult
from toolspeak.tools.files.text_format import quote_path, split_lines
from toolspeak.ui.format import count, is_diff

_FILE_TOOLS = ("write", "append", "edit", "line_edit")


def changed_file(call: ToolCall, result: ToolResult, preview: str = "") -> str:
    """`src/a.py  +18 -2`: the path and the number of lines, for a call that has changed a file; "" for any other.

    `preview`: the diff that its question showed, "" without one. Without any diff the lines of the text are counted.
    """
    path = call.arguments.get("path", call.arguments.get("file"))
    if call.name not in _FILE_TOOLS or result.status == "failure" or not isinstance(path, str):
        return ""
    diff = next((text for text in (preview, result.text) if is_diff(text)), "")
    content = call.arguments.get("content")
    if diff:
        lines = diff.split("\n")[2:]
        added_lines, removed_lines = (sum(line.startswith(sign) for line in lines) for sign in "+-")
        return f"{quote_path(path)}  +{added_lines:,}{f' -{removed_lines:,}' if removed_lines else ''}"
    if isinstance(content, str):
        values = [part.value for part in result.content if isinstance(part, JsonPart)]
        is_same = any(isinstance(value, Mapping) and "unchanged" in value for value in values)
        return f"{quote_path(path)}  {'unchanged' if is_same else count(len(split_lines(content)), 'line')}"
    return quote_path(path)


def is_counted(call: ToolCall) -> bool:
    """Whether the line of `changed_file` says all that a result does: what the call wrote is in its arguments."""
    return call.name in ("write", "append")
