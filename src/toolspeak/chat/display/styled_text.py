"""Text with styles, wrapped to the cells of a terminal. Pure.

The styles are classes of `theme.py`. The text is printable: whoever makes a line has removed terminal controls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from prompt_toolkit.utils import get_cwidth

Fragment: TypeAlias = tuple[str, str]
"""A style and a text."""

StyledLine: TypeAlias = list[Fragment]

_NEAR_END = 12
"""The characters at the end of a row among which `pieces_of` looks for a space."""

_PIECES = re.compile(r" +|[^ ]+")


def _width(text: str) -> int:
    """The cells of a text, character by character: `get_cwidth` remembers every short text that it was asked about."""
    return len(text) if text.isascii() else sum(map(get_cwidth, text))


def cells(line: Iterable[Fragment]) -> int:
    """How many cells of a terminal the line takes."""
    return sum(_width(text) for _, text in line)


def text_of(line: Iterable[Fragment]) -> str:
    """The line's text alone."""
    return "".join(text for _, text in line)


def indent(lines: Iterable[StyledLine], first: StyledLine, rest: StyledLine) -> Iterator[StyledLine]:
    """The lines with `first` in front of the first one and `rest` in front of the others. An empty line stays empty
    unless its front is visible."""
    front = first
    for line in lines:
        yield [*front, *line] if line or text_of(front).strip() else []
        front = rest


def wrap(line: Iterable[Fragment], width: int) -> list[StyledLine]:
    """The line in pieces of at most `width` cells, at spaces where there are some. A newline begins a new piece."""
    rows: list[StyledLine] = [[]]
    room = width = max(1, width)
    for word in _words(line):
        if word is None:
            rows.append([])
            room = width
            continue
        is_space, size = word[0][1].startswith(" "), cells(word)
        if is_space and (not rows[-1] or size >= room):
            if rows[-1] or len(rows) > 1:
                if rows[-1]:
                    rows.append([])
                room = width
                continue
            word, size = [(word[0][0], word[0][1][: width - 1])], min(size, width - 1)
        if size <= room:
            rows[-1] += word
            room -= size
            continue
        # A word with wide characters may be cut between any two of them; another one only if it fits no row.
        if size > width or size > sum(len(text) for _, text in word):
            for style, text in word:
                for piece in _chop(text, room, width):
                    if piece is None:
                        rows.append([])
                        room = width
                        continue
                    rows[-1].append((style, piece))
                    room -= _width(piece)
            continue
        rows.append(list(word))
        room = width - size
    return [without_trailing_space(row) for row in rows]


def _words(line: Iterable[Fragment]) -> Iterator[StyledLine | None]:
    """Words and spaces. A word may have several styles. None is the end of a line."""
    word: StyledLine = []
    for style, text in line:
        for number, part in enumerate(text.split("\n")):
            if number:
                if word:
                    yield word
                word = []
                yield None
            for match in _PIECES.finditer(part):
                piece = match[0]
                if word and word[0][1].startswith(" ") != piece.startswith(" "):
                    yield word
                    word = []
                word.append((style, piece))
    if word:
        yield word


def _chop(text: str, room: int, width: int) -> Iterator[str | None]:
    """The text in pieces: the first fits into `room` cells, the others into `width`. None is the end of a row."""
    start = 0
    for i, character in enumerate(text):
        size = _width(character)
        if size > room and (room < width or i > start):
            if i > start:
                yield text[start:i]
            yield None
            start, room = i, width
        room -= size
    yield text[start:]


def without_trailing_space(row: StyledLine) -> StyledLine:
    """The row up to its last visible character. Changes the row itself."""
    while row and not row[-1][1].rstrip(" "):
        row.pop()
    if row:
        row[-1] = (row[-1][0], row[-1][1].rstrip(" "))
    return row


def truncate(line: StyledLine, width: int) -> StyledLine:
    """The line, shortened to `width` cells with an ellipsis."""
    if cells(line) <= width:
        return line
    result: StyledLine = []
    room = max(0, width - 1)
    for style, text in line:
        size = _width(text)
        if size > room:
            fits = next((piece for piece in _chop(text, room, room + 1)), "") if room else ""
            if fits and _width(fits) <= room:
                result.append((style, fits))
            break
        result.append((style, text))
        room -= size
    return [*result, ("", "…")]


def pieces_of(text: str, width: int, front: int) -> list[str]:
    """The text in pieces for rows of `width` cells, of which all but the first begin with `front` other cells. Unlike
    `wrap` it leaves nothing out: a piece ends behind a space, if there is one near its end."""
    pieces: list[str] = []
    start, room = 0, width
    while start < len(text):
        end, size = start, 0
        while end < len(text) and (end == start or size + _width(text[end]) <= room):
            size += _width(text[end])
            end += 1
        if end < len(text) and text[end] != " ":
            space = text.rfind(" ", max(start, end - _NEAR_END), end)
            end = space + 1 if text[start : space + 1].strip() else end
        pieces.append(text[start:end])
        start, room = end, max(1, width - front)
    return pieces


def rows_of(line: StyledLine, width: int, front: StyledLine) -> list[StyledLine]:
    """The line in rows of at most `width` cells, each a piece of `pieces_of`, with `front` before all but the first."""
    rows: list[StyledLine] = []
    start = 0
    for piece in pieces_of(text_of(line), width, cells(front)):
        rows.append([*(front if rows else []), *_cut(line, start, start + len(piece))])
        start += len(piece)
    return rows or [[]]


def _cut(line: StyledLine, start: int, end: int) -> Iterator[Fragment]:
    """The characters of a line from `start` to `end`."""
    at = 0
    for style, text in line:
        piece = text[max(0, start - at) : max(0, end - at)]
        at += len(text)
        if piece:
            yield style, piece
