"""Results that were too long for the model, kept whole in the run's memory, so that it can page through them."""

from __future__ import annotations

from typing import Any, cast

KEY = "kept_results"
"""Their key in a run's memory: `memory["kept_results"]` maps handles to texts."""

READ_RESULT = "read_result"
"""The tool that pages through them."""

MAX_CHARACTERS = 64 * 1024 * 1024
"""The limit for all results of a run. The oldest are dropped first."""


def keep(memory: dict[str, Any], handle: str, text: str) -> str | None:
    """Stores a text and returns its handle: `handle`, with a number if another text has this handle. None if the text
    alone exceeds the limit."""
    if len(text) > MAX_CHARACTERS:
        return None
    texts, number, free = cast("dict[str, str]", memory.setdefault(KEY, {})), 1, handle
    while texts.get(free, text) != text:
        number += 1
        free = f"{handle}#{number}"
    texts.pop(free, None)
    texts[free] = text
    total = sum(map(len, texts.values()))
    for oldest in tuple(texts):
        if total <= MAX_CHARACTERS:
            break
        total -= len(texts.pop(oldest))
    return free


def stored_result(memory: dict[str, Any], handle: str) -> str | None:
    """The text under a handle; None if it does not exist or was dropped."""
    return cast("dict[str, str]", memory.get(KEY, {})).get(handle)
