"""Calls that a model writes once more right behind their end marker, without the start marker: LFM2 does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from toolspeak.dialects.text.scan import MAX_CANDIDATE, Buffer


class Echo:
    """Knows the body of a block and its end marker again, byte for byte, white space in front of it aside. The first
    `MAX_CANDIDATE` characters of a longer one are enough to tell. `opens`: whether these are a call by themselves."""

    __slots__ = ("_body", "_end", "_opens", "_taken", "_whole")

    def __init__(self, body: Buffer, end: str, opens: Callable[[str], bool]) -> None:
        self._body = body
        self._end = end
        self._opens = opens
        self._whole = ""
        self._taken = 0

    def read(self, text: str, position: int) -> tuple[Literal["none", "undecided", "more", "over"], int]:
        """What text[position:] is of it, and where that ends."""
        if self._taken:
            return self._go_on(text, position, position)
        held = text[position : position + MAX_CANDIDATE]
        rest = held.lstrip()
        if not rest:
            return "undecided" if len(held) < MAX_CANDIDATE else "none", position
        self._whole = self._whole or self._body.value().lstrip() + self._end
        seen = min(len(rest), len(self._whole))
        if rest[:seen] != self._whole[:seen] or self._opens(self._whole[:MAX_CANDIDATE]):
            return "none", position
        if seen < len(self._whole) and len(held) < MAX_CANDIDATE:
            return "undecided", position
        return self._go_on(text, position, position + len(held) - len(rest))

    def _go_on(self, text: str, position: int, start: int) -> tuple[Literal["more", "over"], int]:
        left = len(self._whole) - self._taken
        piece = text[start : start + left]
        if not self._whole.startswith(piece, self._taken):
            return "over", position
        self._taken += len(piece)
        return "over" if len(piece) == left else "more", start + len(piece)
