"""The list of the tool `todo`, as lines with marks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.ui.format import one_line

_MARKS = {"completed": ("☑", "dim"), "in_progress": ("▶", "bold"), "pending": ("☐", "")}


def todo_lines(arguments: Mapping[str, JSON]) -> list[tuple[str, str]]:
    """A line for each item of the list, with its style. No lines for arguments that the tool refuses."""
    lines, items = list[tuple[str, str]](), arguments.get("items", arguments.get("todos", ()))
    for each in cast("Sequence[JSON]", items) if isinstance(items, list | tuple) else ():
        if not isinstance(each, Mapping):
            return []
        item = cast("Mapping[str, JSON]", each)
        mark, style = _MARKS.get(str(item.get("state")), _MARKS["pending"])
        lines.append((f"{mark} {one_line(str(item.get('text', '')))}", style))
    return lines
