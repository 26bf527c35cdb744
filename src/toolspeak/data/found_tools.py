"""The names of the tools that a call found, as its result has them.

A model may read the names alone of many tools, and find their definitions (`tools.deferred_tools`). What it found is a
fact of the results, so that a run knows it in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from toolspeak.data.messages import JSON, Message, ToolChoice, ToolResult

FOUND_TOOLS = "found_tools"
"""The key in a result's `extra`."""

MOST_FOUND = 64
"""How many tools that were found a model reads. The oldest leave first, and can be found again."""


def found_in(result: ToolResult) -> Sequence[str]:
    """The names of the tools that the result's call found."""
    if not result.extra:
        return ()
    names: JSON = result.extra.get(FOUND_TOOLS)
    entries = cast("Sequence[JSON]", names) if isinstance(names, list | tuple) else ()
    return [name for name in entries if isinstance(name, str)]


def found_in_messages(messages: Iterable[Message]) -> tuple[str, ...]:
    """The names of the tools that calls of a conversation found, in the order in which they were found."""
    names: tuple[str, ...] = ()
    for message in messages:
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult) and (more := found_in(part)):
                    names = with_more(names, more)
    return names


def with_more(names: Sequence[str], more: Iterable[str]) -> tuple[str, ...]:
    """The names with those of `more` that are not among them at the end, at most `MOST_FOUND`: a list of tools that
    only grows at its end keeps a server's prompt cache valid."""
    return tuple(dict.fromkeys((*names, *more)))[-MOST_FOUND:]


def with_choice(names: tuple[str, ...], choice: ToolChoice) -> tuple[str, ...]:
    """The names with the tool that the model must call, which may be a deferred one."""
    return with_more(names, (choice.name,)) if choice.mode == "specific" and choice.name else names
