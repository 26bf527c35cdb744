"""What a dialect's parser made of each character of a reply: of its deltas, and not of how calls look. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Literal, TypeAlias

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    Delta,
    ReasoningDelta,
    TextAside,
    TextDelta,
    TextWasReasoning,
    other_dialects,
)
from toolspeak.data.values import quick
from toolspeak.dialects import Dialect, get_dialect
from toolspeak.dialects.text.markers import MarkerTable
from toolspeak.errors import UnknownDialect

SpanKind: TypeAlias = Literal["text", "thoughts", "aside", "arguments", "marker", "frame"]


@quick()
class TextSpan:
    """Characters of a reply from `start` to before `end`.

    `kind`: text, thoughts, text after the calls (`aside`) or arguments, as the parser gave them out; a `marker` that
    the dialect declares; or other characters that it took as the form of calls (`frame`).
    """

    start: int
    end: int
    kind: SpanKind


def text_spans(dialect: Dialect, text: str, steps: Iterable[tuple[int, Delta]]) -> tuple[TextSpan, ...]:
    """The spans of a reply, all its characters in order. `steps`: its deltas, each with the number of characters after
    which the parser gave it out."""
    kinds: list[SpanKind] = ["frame" for _ in text]
    end, names = 0, list[str]()
    for offset, delta in steps:
        match delta:
            case TextDelta(piece):
                kind: SpanKind = "text"
            case TextAside(piece):
                kind = "aside"
            case ReasoningDelta(piece):
                kind = "thoughts"
            case ArgumentsDelta(_, piece):
                kind = "arguments"
            case TextWasReasoning():
                for at, each in enumerate(kinds):
                    kinds[at] = "thoughts" if each == "text" else each
                continue
            case BatchEnded():
                names += other_dialects(delta.notes)
                continue
            case _:
                continue
        start = _place_of(piece, text, end, offset)
        if start >= 0:
            end = start + len(piece)
            _set(kinds, start, end, kind)
    _mark(kinds, text, [dialect, *_dialects(names)])
    position, spans = 0, list[TextSpan]()
    for kind, group in groupby(kinds):
        length = len([*group])
        spans.append(TextSpan(position, position + length, kind))
        position += length
    return tuple(spans)


def _set(kinds: list[SpanKind], start: int, end: int, kind: SpanKind) -> None:
    for at in range(start, end):
        kinds[at] = kind


def _place_of(piece: str, text: str, end: int, offset: int) -> int:
    """Where a piece is in the text: directly after the last one, or else as late as it can be. A parser gives a piece
    out as soon as it is certain, so what it left out comes before. -1: arguments that it wrote anew."""
    if not piece or text.startswith(piece, end):
        return end if piece else -1
    return text.rfind(piece, end, offset)


def _dialects(names: Iterable[str]) -> Iterator[Dialect]:
    for name in names:
        try:
            yield get_dialect(name)
        except UnknownDialect:
            continue


def _mark(kinds: list[SpanKind], text: str, dialects: Iterable[Dialect]) -> None:
    """Says `marker` for what the dialects declare, in what the parser took as the form of calls or of thoughts."""
    literals = sorted({each for dialect in dialects for each in _literals(dialect)}, key=len, reverse=True)
    for literal in literals:
        start = text.find(literal)
        while start >= 0:
            end = start + len(literal)
            if all(kind == "frame" for kind in kinds[start:end]):
                _set(kinds, start, end, "marker")
            start = text.find(literal, end)


def _literals(dialect: Dialect) -> Iterator[str]:
    """The texts of the dialect's markers and of their ends."""
    for part in (dialect, getattr(dialect, "own", None), getattr(dialect, "prompt_dialect", None)):
        table = getattr(part, "table", None)
        if isinstance(table, MarkerTable):
            for marker in (form for each in table.markers for form in (each, *each.forms)):
                yield from filter(None, (marker.text, marker.end, *marker.also_ends, *marker.tails))
