"""Syntax colours for lines of code, one line at a time. Pure."""

from __future__ import annotations

from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name as _by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.lexers import get_lexer_for_filename as _for_filename  # pyright: ignore[reportUnknownVariableType]
from pygments.token import Token
from pygments.util import ClassNotFound

from toolspeak.chat.display.styled_text import StyledLine, text_of

CONTEXT_LINES = 60
"""How many lines before a line decide about its colours: a text of several lines that is longer has wrong ones."""

_LONGEST = 2_000
"""Characters of a line that is coloured; a longer one is no code that a person reads."""

_CLASSES = {
    Token.Comment: "class:code.comment",
    Token.Keyword: "class:code.keyword",
    Token.Literal.String: "class:code.string",
    Token.Literal.Number: "class:code.number",
    Token.Name.Function: "class:code.function",
    Token.Name.Class: "class:code.function",
    Token.Name.Builtin: "class:code.builtin",
    Token.Name.Decorator: "class:code.builtin",
    Token.Name.Tag: "class:code.keyword",
    Token.Name.Attribute: "class:code.builtin",
    Token.Operator.Word: "class:code.keyword",
    Token.Generic.Deleted: "class:diff.removed",
    Token.Generic.Inserted: "class:diff.added",
    Token.Generic.Subheading: "class:diff.place",
    Token.Generic.Heading: "class:diff.heading",
    Token.Generic.Prompt: "class:code.comment",
}


@lru_cache(32)
def lexer_of_language(language: str) -> Lexer | None:
    """The lexer of a language, by the word behind a fence; None for an unknown one."""
    try:
        return _by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(32)
def lexer_of_file(name: str) -> Lexer | None:
    """The lexer of a file, by its name; None for an unknown kind."""
    try:
        return _for_filename(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def colour_line(line: str, context: list[str], lexer: Lexer | None) -> StyledLine:
    """The line with the colours of its code. `context` are the lines before it."""
    if lexer is None or len(line) > _LONGEST:
        return [("class:code", line)] if line else []
    before = context[-CONTEXT_LINES:]
    return colour_lines([*before, line], lexer)[len(before)]


def colour_lines(lines: list[str], lexer: Lexer | None) -> list[StyledLine]:
    """All lines of a piece of code with their colours. A line that the lexer changes has none: it is shown as it was
    written."""
    plain_rows: list[StyledLine] = [[("class:code", line)] if line else [] for line in lines]
    if lexer is None or any(len(line) > _LONGEST for line in lines):
        return plain_rows
    rows: list[StyledLine] = [[]]
    for kind, value in lexer.get_tokens("\n".join(lines) + "\n"):  # lexers of sessions drop a line without an end
        style = _class_of(kind)
        for number, part in enumerate(value.split("\n")):
            if number:
                rows.append([])
            if part:
                rows[-1].append((style, part))
    rows += [[] for _ in range(len(lines) - len(rows))]
    return [row if text_of(row) == line else plain for row, line, plain in zip(rows, lines, plain_rows, strict=False)]


@lru_cache(512)
def _class_of(kind: object) -> str:
    """The style of a token, which is that of the nearest kind above it."""
    current = kind
    while current is not None and current is not Token:
        style = _CLASSES.get(current)  # pyright: ignore[reportArgumentType, reportCallIssue] - pygments is not typed
        if style is not None:
            return style
        current = getattr(current, "parent", None)
    return "class:code"
