"""A Markdown table as styled lines that fit a width. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from toolspeak.chat.display.styled_text import Fragment, StyledLine, cells, indent, without_trailing_space, wrap

DELIMITER_ROW = re.compile(r" {0,3}\|?(?: *:?-+:? *\|)+(?: *:?-+:?)? *$| {0,3}\| *:?-+:? *\|? *$")
"""The row between a table's heading and its body."""

_NARROWEST = 4
"""Cells of a column. Where the columns would be narrower, each row is shown as a list of its values."""

_SEPARATOR = " │ "


def row_cells(line: str) -> list[str]:
    """The texts of a row's cells. A pipe after a backslash is text."""
    row = line.strip().removeprefix("|")
    parts = re.split(r"(?<!\\)\|", row)
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return [part.strip().replace("\\|", "|") for part in parts]


def table_lines(rows: Sequence[str], width: int, inline: Callable[[str], list[Fragment]]) -> Iterator[StyledLine]:
    """The lines of a table. `rows`: its lines, the first is its heading, the second the delimiter row. `inline` makes
    the fragments of a cell."""
    heading = [inline(text) for text in row_cells(rows[0])]
    alignments = [_alignment(text) for text in row_cells(rows[1])]
    count = len(heading)
    body: list[list[StyledLine]] = []
    for line in rows[2:]:
        texts = row_cells(line)
        if len(texts) > count:  # the last cell has a pipe, which its writer took for text
            texts = [*texts[: count - 1], " | ".join(texts[count - 1 :])]
        body.append([inline(text) for text in texts])
    for row in body:
        row += [[] for _ in range(count - len(row))]
    widths = _widths([heading, *body], count, width - len(_SEPARATOR) * (count - 1))
    if widths is None:
        yield from _as_lists(heading, body, width)
        return
    yield from _row_lines(
        [[(f"class:md.strong {style}".strip(), text) for style, text in cell] for cell in heading], widths, alignments
    )
    yield [("class:md.rule", "─┼─".join("─" * each for each in widths))]
    for row in body:
        yield from _row_lines(row, widths, alignments)


def _alignment(text: str) -> str:
    if text.endswith(":"):
        return "centre" if text.startswith(":") else "right"
    return "left"


def _widths(rows: Sequence[Sequence[StyledLine]], count: int, room: int) -> list[int] | None:
    """The cells of each column: as many as it needs, and less for the widest if there is not enough room. None if a
    column would be too narrow to read."""
    widths = [max(1, *(cells(row[i]) for row in rows)) for i in range(count)]
    if sum(widths) <= room:
        return widths
    # All columns up to some width stay as they are, and the others share the rest.
    order = sorted(range(count), key=lambda i: widths[i])
    for position, i in enumerate(order):
        share = room // (count - position)
        if widths[i] > share:
            if share < _NARROWEST:
                return None
            widths[i] = share
        room -= widths[i]
    return widths


def _row_lines(row: Sequence[StyledLine], widths: Sequence[int], alignments: Sequence[str]) -> Iterator[StyledLine]:
    columns = [wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, columns))):
        line: StyledLine = []
        for i, column in enumerate(columns):
            piece = column[number] if number < len(column) else []
            space = max(0, widths[i] - cells(piece))
            alignment = alignments[i] if i < len(alignments) else "left"
            before = space if alignment == "right" else space // 2 if alignment == "centre" else 0
            if i:
                line.append(("class:md.rule", _SEPARATOR))
            line += [("", " " * before), *piece, ("", " " * (space - before))]
        yield without_trailing_space([fragment for fragment in line if fragment[1]])


def _as_lists(heading: Sequence[StyledLine], body: Sequence[Sequence[StyledLine]], width: int) -> Iterator[StyledLine]:
    for row in body:
        for i, (name, value) in enumerate(zip(heading, row, strict=True)):
            bold = [(f"class:md.strong {style}".strip(), text) for style, text in name]
            front: StyledLine = [("class:md.marker", "• ")] if i == 0 else [("", "  ")]
            yield from indent(wrap([*bold, ("", ": "), *value], max(1, width - 2)), front, [("", "  ")])
