"""`todo`: the list of what is to do, which the user sees."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import Tool, tool

TODO = "todo"

MOST_ITEMS = 100
MOST_CHARACTERS = 500
"""Of the text of one item."""

_NOTHING = Effects(idempotent=True, destructive=False)


@dataclass(frozen=True, slots=True)
class TodoItem:
    """A thing to do."""

    text: str
    state: Literal["pending", "in_progress", "completed"]


def todo_tool() -> Tool:
    """The tool `todo`. It keeps nothing: the list is the arguments of its last call."""

    @tool(name=TODO, aliases={"todos": "items"}, effects=_NOTHING)
    def todo(items: list[TodoItem]) -> str:
        """Show the user what you will do, and how far you are.

        Use it for a task of three or more steps: at the beginning, and whenever an item changes.

        Args:
            items: The whole list, in order. It replaces the list before. Work on one item at a time.
        """
        if len(items) > MOST_ITEMS:
            raise ToolError(f"'items' has {len(items)} items: give at most {MOST_ITEMS}.")
        for number, item in enumerate(items):
            if not item.text.strip():
                raise ToolError(f"'items[{number}].text' is empty: say what is to do.")
            if (length := len(item.text)) > MOST_CHARACTERS:
                raise ToolError(f"'items[{number}].text' has {length:,} characters: give at most {MOST_CHARACTERS}.")
        counts = Counter(item.state for item in items)
        return (
            f"{len(items)} items: {counts['completed']} completed, {counts['in_progress']} in progress, "
            f"{counts['pending']} pending."
        )

    return todo
