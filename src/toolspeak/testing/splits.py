"""Cuts a text into chunks, and joins the deltas of a chunked text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextAside, TextDelta


def join_deltas(deltas: Iterable[Delta]) -> list[Delta]:
    """The deltas with neighbouring pieces of text, of reasoning and of one call's arguments merged.

    Two streams that say the same are equal after it, however they were cut.
    """
    result: list[Delta] = []
    pieces: list[str] = []

    def flush() -> None:
        if len(pieces) > 1:
            text, last = "".join(pieces), result[-1]
            match last:
                case ArgumentsDelta(index):
                    result[-1] = ArgumentsDelta(index, text)
                case TextDelta() | TextAside() | ReasoningDelta():
                    result[-1] = replace(last, text=text)
                case _:
                    pass
        pieces.clear()

    for delta in deltas:
        last = result[-1] if pieces else None
        if isinstance(delta, TextDelta | TextAside | ReasoningDelta | ArgumentsDelta):
            if last is not None and _continues(last, delta):
                pieces.append(delta.text)
                continue
            flush()
            pieces.append(delta.text)
        else:
            flush()
        result.append(delta)
    flush()
    return result


def _continues(last: Delta, delta: Delta) -> bool:
    if isinstance(last, ArgumentsDelta) and isinstance(delta, ArgumentsDelta):
        return last.index == delta.index
    return type(last) is type(delta)


def every_split(text: str, max_pieces: int = 2) -> Iterator[tuple[str, ...]]:
    """Every way to cut a text into at most `max_pieces` pieces that are not empty, the whole text first."""
    for cuts in range(min(max_pieces, max(len(text), 1))):
        for places in itertools.combinations(range(1, len(text)), cuts):
            edges = (0, *places, len(text))
            yield tuple(text[start:stop] for start, stop in itertools.pairwise(edges))


def chunks(text: str, size: int) -> Iterator[str]:
    """The text in pieces of `size` characters."""
    for start in range(0, len(text), size):
        yield text[start : start + size]
