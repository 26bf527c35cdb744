"""What is held back until it is known what it is: in few and long pieces, as a short one takes fifty times its text."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby

from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextAside, TextDelta
from toolspeak.data.values import changed
from toolspeak.dialects.text.scan import Buffer

MOST_PIECES = 128
"""Deltas that are held as they came."""


def unlimited() -> Buffer:
    """Holds text of any length."""
    return Buffer(sys.maxsize)


def join_pieces(deltas: list[Delta], start: int) -> int:
    """Joins neighbouring pieces of one text from deltas[start] on, once there are many; returns where the next ones
    begin."""
    if len(deltas) - start < MOST_PIECES:
        return start
    deltas[start:] = [_joined(list(group)) for _, group in groupby(deltas[start:], _text_of)]
    return len(deltas)


def _text_of(delta: Delta) -> object:
    """Equal for pieces of one text, and for nothing else that follows each other."""
    if isinstance(delta, ArgumentsDelta):
        return delta.index
    return type(delta) if isinstance(delta, TextDelta | TextAside | ReasoningDelta) else id(delta)


def _joined(pieces: list[Delta]) -> Delta:
    first = pieces[0]
    if len(pieces) == 1 or not isinstance(first, ArgumentsDelta | TextDelta | TextAside | ReasoningDelta):
        return first
    return changed(first, text="".join(_texts(pieces)))


def _texts(pieces: Iterable[Delta]) -> Iterable[str]:
    return (each.text for each in pieces if isinstance(each, ArgumentsDelta | TextDelta | TextAside | ReasoningDelta))
