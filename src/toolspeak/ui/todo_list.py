"""The list of the tool `todo`, as lines with marks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.ui.format import one_line

_MARKS = {"completed": ("☑", "dim"), "in_progress": ("▶", "bold"), "pending": ("☐", "")}


def todo_lines(arguments: Mapping[str, JSON]) -> list[tuple[str, str]]:
    """A line for each item of the list, with its style. The arguments are those of a call that succeeded."""
    lines = list[tuple[str, str]]()
    for each in cast("Sequence[JSON]", arguments.get("items", arguments.get("todos", ()))):
        item = cast("Mapping[str, JSON]", each)
        mark, style = _MARKS.get(str(item.get("state")), _MARKS["pending"])
        lines.append((f"{mark} {one_line(str(item.get('text', '')))}", style))
    return lines
