"""Markdown as styled lines while it is written: what is finished is final, only the unfinished block may change. Pure.

Text goes in piece by piece. A line is read when its end has come, and a block is shown when it cannot change any more:
a line of code at once, a paragraph and a table at their ends. So the lines do not depend on where the text was cut.
Containers (lists, quotations) hold streams of their own, as CommonMark nests its blocks; the inline text is read by
markdown-it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from markdown_it import MarkdownIt
from pygments.lexer import Lexer

from toolspeak.chat.display.code_colours import CONTEXT_LINES, colour_line, lexer_of_language
from toolspeak.chat.display.markdown_table import DELIMITER_ROW, row_cells, table_lines
from toolspeak.chat.display.styled_text import Fragment, StyledLine, indent, wrap

LONGEST_BLOCK = 2_500
"""Characters after which a paragraph is shown although it has not ended: what is not final is read again and again."""

_LONGEST_WORD = 200

LONGEST_TABLE = 100
"""Rows after which a table is shown although it has not ended; the rows after them are a table of their own."""

MOST_COLUMNS = 40
"""Columns of a table; what has more is shown as text."""

_DEEPEST = 6
"""How deep lists and quotations nest. A deeper one is text."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,}) *([^`]*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?: +(.*?))?(?: +#+)? *$")
_RULE = re.compile(r" {0,3}([-*_])(?: *\1){2,} *$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+) *$")
_ITEM = re.compile(r"( {0,3})([-*+]|\d{1,9}[.)])(?: +|$)")
_QUOTE = re.compile(r" {0,3}> ?")
_TASK = re.compile(r"\[([ xX])\] +")


class MarkdownStream:
    """Turns Markdown into lines for `width` cells. The text must be printable.

    `width` may change between two calls: lines that are out stay as they are.
    """

    def __init__(self, width: int, depth: int = 0) -> None:
        self.width = width
        self._depth = depth
        self._partial = ""  # the last line, whose end has not come
        self._paragraph: list[str] = []
        self._size = 0  # characters of the paragraph
        self._table: list[str] = []
        self._fence: _Fence | None = None
        self._child: _Child | None = None
        self._gap = False  # an empty line came since the last block
        self._has_lines = False

    def feed(self, text: str) -> list[StyledLine]:
        """Takes the next piece of text. Returns the lines that are final."""
        lines: list[StyledLine] = []
        *whole, rest = text.split("\n")
        for part in whole:
            lines += self._shorten(part)
            lines += self._read(self._partial)
            self._partial = ""
        lines += self._shorten(rest)
        return lines

    def _shorten(self, more: str) -> Iterator[StyledLine]:
        """Adds to the last line. A line that no person wrote is read in parts, always at the same places."""
        self._partial += more
        start = 0
        while len(self._partial) - start > LONGEST_BLOCK:
            end = start + LONGEST_BLOCK
            end = max(end - _LONGEST_WORD, self._partial.rfind(" ", start, end) + 1)
            yield from self._read(self._partial[start:end])
            start = end
        self._partial = self._partial[start:] if start else self._partial

    def end(self) -> list[StyledLine]:
        """Ends the text. Returns the last lines. Another text may follow."""
        lines = [*self._read(self._partial)] if self._partial else []
        self._partial = ""
        lines += self._flush()
        self._fence, self._gap, self._has_lines = None, False, False
        return lines

    def tail(self, rows: int) -> list[StyledLine]:
        """The last `rows` lines of what is not final, as it looks if the text ends here."""
        copy = self._copy(rows)
        return copy.end()[-rows:]

    def _copy(self, rows: int) -> MarkdownStream:
        copy = MarkdownStream(self.width, self._depth)
        copy._partial, copy._paragraph, copy._size = self._partial, list(self._paragraph), self._size
        # A table is drawn anew for each piece of its text: only as much of it as is seen.
        copy._table = [*self._table[:2], *self._table[2:][-rows:]]
        copy._fence = None if self._fence is None else self._fence.copy()
        if self._child is not None:
            copy._child = _Child(self._child.stream._copy(rows), self._child.kind, self._child.first, self._child.rest)
            copy._child.indentation, copy._child.has_lines = self._child.indentation, self._child.has_lines
        copy._gap, copy._has_lines = self._gap, self._has_lines
        return copy

    # --- one line ------------------------------------------------------------------------------------------------

    def _read(self, line: str) -> Iterator[StyledLine]:
        line = line.expandtabs(4)
        if self._fence is not None:
            yield from self._read_code(line, self._fence)
            return
        if not line.strip():
            if self._child is not None and self._child.kind == "item":
                yield from self._of_child(self._child.stream._read(line))
            yield from self._flush_own()
            if self._child is not None and self._child.kind == "quote":
                yield from self._flush()
            self._gap = True
            return
        if self._child is not None:
            inner = self._child.content_of(line)
            if inner is None and self._child.stream._is_open_paragraph() and not self._begins_block(line):
                inner = line.strip()  # the paragraph of the item goes on, without its indentation
            if inner is not None:
                yield from self._of_child(self._child.stream._read(inner))
                return
            yield from self._flush()
        yield from self._read_block(line)

    def _read_block(self, line: str) -> Iterator[StyledLine]:
        """Reads a line that belongs to no container that is open."""
        underline = _UNDERLINE.match(line)
        if underline and self._paragraph and not self._table:
            heading, self._paragraph, self._size = " ".join(map(str.strip, self._paragraph)), [], 0
            yield from self._emit(self._heading(heading, 1 if underline[1][0] == "=" else 2))
        elif self._table and not self._begins_block(line):
            self._table.append(line)
            if len(self._table) >= LONGEST_TABLE:
                head = self._table[:2]
                yield from self._flush_own()
                self._table = head
        elif (fence := _FENCE.match(line)) is not None:
            yield from self._flush()
            self._fence = _Fence(fence[1], len(line) - len(line.lstrip()), fence[2])
            if self._gap and self._has_lines:
                yield []
            self._gap, self._has_lines = False, True
            if self._fence.title:
                yield from indent(wrap([("class:note", self._fence.title)], self.width - 2), [("", "  ")], [("", "  ")])
        elif (heading_match := _HEADING.match(line)) is not None:
            yield from self._flush()
            yield from self._emit(self._heading(heading_match[2] or "", len(heading_match[1])))
        elif _RULE.match(line):
            yield from self._flush()
            yield from self._emit([[("class:md.rule", "─" * min(self.width, 40))]])
        elif (item := self._item(line)) is not None:
            yield from self._flush()
            yield from self._open_item(item, line)
        elif (quote := _QUOTE.match(line)) is not None and self._depth < _DEEPEST:
            yield from self._flush()
            bar: StyledLine = [("class:md.quote", "▌ ")]
            self._child = _Child(MarkdownStream(max(10, self.width - 2), self._depth + 1), "quote", bar, bar)
            yield from self._of_child(self._child.stream._read(line[quote.end() :]))
        elif line.startswith("    ") and not self._paragraph:
            yield from self._emit([[("class:code", line)]])
        else:
            yield from self._add_to_paragraph(line)

    def _add_to_paragraph(self, line: str) -> Iterator[StyledLine]:
        head = self._paragraph
        is_delimiter = len(head) == 1 and "|" in head[0] and DELIMITER_ROW.match(line) is not None
        if is_delimiter and len(row_cells(head[0])) == len(row_cells(line)) <= MOST_COLUMNS:
            self._table, self._paragraph, self._size = [head[0], line], [], 0
            return
        self._paragraph.append(line.lstrip())
        self._size += len(line) + 1
        if self._size > LONGEST_BLOCK:
            yield from self._flush_own()

    def _begins_block(self, line: str) -> bool:
        return any(form.match(line) for form in (_FENCE, _HEADING, _RULE, _QUOTE)) or self._item(line) is not None

    def _item(self, line: str) -> re.Match[str] | None:
        """The marker of a list's item. In the middle of a paragraph only a number 1 begins a list: any other number may
        be one of its words."""
        item = _ITEM.match(line)
        if item is None or self._depth >= _DEEPEST:
            return None
        within = bool(self._paragraph) or (self._child is not None and self._child.kind == "quote")
        if within and (item.end() == len(line) or (item[2][0].isdigit() and item[2][:-1] != "1")):
            return None
        return item

    def _open_item(self, item: re.Match[str], line: str) -> Iterator[StyledLine]:
        marker = item[2] if item[2][0].isdigit() else "•"
        content = line[item.end() :]
        after_marker = item.end() - item.end(2)
        indentation = item.end() if 1 <= after_marker <= 4 else item.end(2) + 1
        if after_marker > 4:
            content = line[indentation:]
        task = _TASK.match(content)
        if task is not None:
            marker, content = ("☐" if task[1] == " " else "☑"), content[task.end() :]
        front: StyledLine = [("class:md.marker", marker + " ")]
        space: StyledLine = [("", " " * (len(marker) + 1))]
        stream = MarkdownStream(max(10, self.width - len(marker) - 1), self._depth + 1)
        self._child = _Child(stream, "item", front, space)
        self._child.indentation = indentation
        yield from self._of_child(stream._read(content) if content.strip() else ())

    def _read_code(self, line: str, fence: _Fence) -> Iterator[StyledLine]:
        if fence.is_end(line):
            self._fence = None
            return
        yield [("", "  "), *row] if (row := fence.colour(line)) else []

    def _is_open_paragraph(self) -> bool:
        if self._child is not None:
            return self._child.stream._is_open_paragraph()
        return bool(self._paragraph) and self._fence is None

    # --- what is out ---------------------------------------------------------------------------------------------

    def _emit(self, lines: Iterable[StyledLine]) -> Iterator[StyledLine]:
        """The lines of a block, after the empty line that came before it."""
        if self._gap and self._has_lines:
            yield []
        self._gap, self._has_lines = False, True
        yield from lines

    def _of_child(self, lines: Iterable[StyledLine]) -> Iterator[StyledLine]:
        child = self._child
        assert child is not None, "only an open container has lines"
        for line in lines:
            if not child.has_lines:
                child.has_lines = True
                yield from self._emit(indent([line], child.first, child.rest))
                continue
            self._gap = False
            yield from indent([line], child.rest, child.rest)

    def _flush(self) -> Iterator[StyledLine]:
        """The lines of the open blocks, which end here."""
        if self._child is not None:
            child = self._child
            yield from self._of_child([*child.stream._flush()])
            if not child.has_lines:
                yield from self._emit([child.first])  # an item without text
            self._child = None
        yield from self._flush_own()

    def _flush_own(self) -> Iterator[StyledLine]:
        if self._table:
            rows, self._table = self._table, []
            yield from self._emit(table_lines(rows, self.width, inline))
        if self._paragraph:
            text, self._paragraph, self._size = "\n".join(self._paragraph), [], 0
            yield from self._emit(wrap(inline(text), self.width))

    def _heading(self, text: str, level: int) -> Iterator[StyledLine]:
        style = "class:md.h1" if level == 1 else "class:md.h2" if level == 2 else "class:md.h3"
        yield from wrap([(f"{style} {each}".strip(), part) for each, part in inline(text)], self.width)


class _Child:
    """An open container with the stream of its content."""

    def __init__(self, stream: MarkdownStream, kind: str, first: StyledLine, rest: StyledLine) -> None:
        self.stream = stream
        self.kind = kind
        self.first = first
        self.rest = rest
        self.indentation = 0
        self.has_lines = False

    def content_of(self, line: str) -> str | None:
        """The part of a line that belongs to the container; None if the line does not."""
        if self.kind == "quote":
            quote = _QUOTE.match(line)
            return None if quote is None else line[quote.end() :]
        is_inside = len(line) - len(line.lstrip(" ")) >= self.indentation
        return line[self.indentation :] if is_inside else None


class _Fence:
    """Code between two fences."""

    def __init__(self, marks: str, indentation: int, info: str) -> None:
        self._marks = marks
        self._indentation = indentation
        language = (info.split() or [""])[0].strip("{}.").lower()
        self._lexer: Lexer | None = lexer_of_language(language) if language else None
        self.title = "" if self._lexer is not None and language == info.strip().lower() else info.strip()
        """What the fence says besides the name of a language, such as a file's name."""
        self._context: list[str] = []

    def copy(self) -> _Fence:
        copy = _Fence(self._marks, self._indentation, "")
        copy._lexer, copy._context = self._lexer, list(self._context)
        return copy

    def is_end(self, line: str) -> bool:
        text = line.strip()
        indentation = len(line) - len(line.lstrip())
        return indentation < 4 and len(text) >= len(self._marks) and set(text) == {self._marks[0]}

    def colour(self, line: str) -> StyledLine:
        code = line[min(self._indentation, len(line) - len(line.lstrip())) :]
        row = colour_line(code, self._context, self._lexer)
        self._context = [*self._context[1 - CONTEXT_LINES :], code]
        return row


@lru_cache(1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("strikethrough")


_OPENING = {"strong_open": "class:md.strong", "em_open": "class:md.emphasis", "s_open": "class:md.strike"}


def inline(text: str) -> list[Fragment]:
    """The fragments of a paragraph's text. A link shows its address: what is seen is where it leads."""
    fragments: list[Fragment] = []
    styles: list[str] = []
    links: list[tuple[str, int]] = []
    for token in _parser().parseInline(text)[0].children or ():
        match token.type:
            case "text" | "html_inline" | "text_special":
                fragments.append((" ".join(styles), token.content))
            case "code_inline":
                fragments.append((" ".join([*styles, "class:md.code"]), token.content))
            case "softbreak":
                fragments.append(("", " "))
            case "hardbreak":
                fragments.append(("", "\n"))
            case "strong_open" | "em_open" | "s_open":
                styles.append(_OPENING[token.type])
            case "link_open":
                links.append((str(token.attrGet("href") or ""), len(fragments)))
                styles.append("class:md.link")
            case "strong_close" | "em_close" | "s_close":
                styles.pop()
            case "link_close":
                styles.pop()
                address, start = links.pop()
                if address.removeprefix("mailto:") != "".join(part for _, part in fragments[start:]):
                    fragments.append(("class:md.address", f" ({address})"))
            case "image":
                fragments.append(("class:md.link", f"[{token.content or 'image'}]"))
                fragments.append(("class:md.address", f" ({token.attrGet('src') or ''})"))
            case _:
                fragments.append((" ".join(styles), token.content))
    return [(style, part) for style, part in fragments if part]
