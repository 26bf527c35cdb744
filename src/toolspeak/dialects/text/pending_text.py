"""Text and deltas that wait for a decision. They are joined, because a short piece takes fifty times its length in
memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby

from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextAside, TextDelta
from toolspeak.data.values import evolve
from toolspeak.dialects.text.scan import Buffer

MOST_PIECES = 128
"""How many deltas are stored before neighbours are joined."""


def unlimited_buffer() -> Buffer:
    """A buffer without a length limit."""
    return Buffer(sys.maxsize)


def join_pieces(deltas: list[Delta], start: int) -> int:
    """Joins neighbouring pieces of one text in deltas[start:], once there are `MOST_PIECES`.

    Returns the `start` for the next call.
    """
    if len(deltas) - start < MOST_PIECES:
        return start
    deltas[start:] = [_join(list(group)) for _, group in groupby(deltas[start:], _text_of)]
    return len(deltas)


def _text_of(delta: Delta) -> object:
    """A key that is equal for neighbours that are pieces of one text, and for no other neighbours."""
    if isinstance(delta, ArgumentsDelta):
        return delta.index
    return type(delta) if isinstance(delta, TextDelta | TextAside | ReasoningDelta) else id(delta)


def _join(pieces: list[Delta]) -> Delta:
    first = pieces[0]
    if len(pieces) == 1 or not isinstance(first, ArgumentsDelta | TextDelta | TextAside | ReasoningDelta):
        return first
    return evolve(first, text="".join(_texts(pieces)))


def _texts(pieces: Iterable[Delta]) -> Iterable[str]:
    return (each.text for each in pieces if isinstance(each, ArgumentsDelta | TextDelta | TextAside | ReasoningDelta))
