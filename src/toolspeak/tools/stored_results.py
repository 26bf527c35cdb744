"""Results that were too long for the model, kept whole in the run's memory, so that it can page through them."""

from __future__ import annotations

from typing import Any, cast

KEY = "kept_results"
"""Their key in a run's memory: `memory["kept_results"]` maps handles to texts."""

READ_RESULT = "read_result"
"""The tool that pages through them."""

MAX_CHARACTERS = 64 * 1024 * 1024
"""The limit for all results of a run. The oldest are dropped first."""


def keep(memory: dict[str, Any], handle: str, text: str) -> bool:
    """Keeps a text under a handle. False if it alone exceeds the limit."""
    if len(text) > MAX_CHARACTERS:
        return False
    texts = cast("dict[str, str]", memory.setdefault(KEY, {}))
    texts.pop(handle, None)
    texts[handle] = text
    total = sum(map(len, texts.values()))
    for oldest in tuple(texts):
        if total <= MAX_CHARACTERS:
            break
        total -= len(texts.pop(oldest))
    return True


def stored_result(memory: dict[str, Any], handle: str) -> str | None:
    """The text under a handle, None if there is none or it was dropped."""
    return cast("dict[str, str]", memory.get(KEY, {})).get(handle)
