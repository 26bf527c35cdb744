"""Tracks the place in Markdown where a text ends: code block, inline code, quotation, list item or sentence.

Fences are CommonMark's (https://spec.commonmark.org/0.31.2/#fenced-code-blocks). Three or more backticks or tildes
begin a block. As many of the same character, alone on the rest of their line, end it; so does the end of the block
quote around it. Models are less strict: here a fence may have any indentation, and may be at the end of a line.
"""

from __future__ import annotations

import re
from typing import Literal

MarkdownPlace = Literal["line", "item", "sentence", "quoted", "indented", "cited"]
"""A place in a text.

- `line`: a line begins, or a sentence after another one.
- `item`: a list item begins.
- `sentence`: in the middle of a sentence.
- `quoted`: right after a quotation mark, a bracket, an emphasis or a tag of HTML.
- `indented`: as far from the margin as code.
- `cited`: in a block quote or a table row.
"""

FENCE = re.compile(r"(?:`{3,}|~{3,})[\w+.-]{0,16}\s*")
FENCE_START = re.compile(r"`{1,2}|~{1,2}|(?:`{3,}|~{3,})[\w+.-]{0,16}\s*")
SENTENCE_ENDS = ".!?。．｡！？؟۔।"
_HTML = (
    "(?ai:a|b|big|blockquote|center|cite|dd|del|div|dt|em|font|h[1-6]|i|ins|kbd|li|mark|p|q|s|samp|small|span"
    "|strong|sub|summary|sup|td|th|tt|u|var)"
)
HTML_END = re.compile(rf"</{_HTML}\s*>")
"""The end tag of an HTML element with running text."""
HTML_END_START = re.compile(r"<(?:/[a-zA-Z1-6]{0,10}\s?)?")

_HTML_START = re.compile(rf"<{_HTML}(?:\s[^<>]*)?>\Z")
_ABBREVIATION = re.compile(r"\b[^\W\d_]\.\s*\Z")
_TICKS = re.compile(r"`+|~+")
_TOKEN = re.compile(r"`+|~+|</?(?ai:pre|code)\b[^<>]{0,64}>?|<[/a-zA-Z]{0,5}\Z")
_BLOCK = re.compile(r"```|~~~|<(?:(?ai:pre|code)\b)")
_MARK = re.compile(r"[`~<]")
_TAG = re.compile(r"<(/?)((?ai:pre|code))\b[^<>]*>")
_PREFIX = re.compile(r"[ \t>]*(?:(?:[-*+•]|\d{1,9}[.)])[ \t]+[ \t>]*)*")
_ITEM = re.compile(r"[ \t>]*(?:[-*+•]|\d{1,9}[.)])[ \t]+")
_REMNANT = re.compile(r"\|[\w:]{1,48}\|?>")  # of a special token without its first character: not a table row
_INFO = re.compile(r"[\w+.-]{0,16}[ \t]*")
_QUOTES = "\"'`“”„‟‘’‚‛«»‹›「『《〈【〔＂＇([{（［｛|*_~"
_INDENT = 4
_HEAD, _SINCE, _TAIL = 64, 24, 256
_LONGEST = 96  # characters of a run or a tag that are looked at
_BLANKS = " \t\r"


class Markdown:
    """Reads a text in pieces of any length and knows the place where it ends. `tail` is the end of the text."""

    __slots__ = (
        *(
            "_at",
            "_begins",
            "_fence_in_quote",
            "_closing",
            "_column",
            "_fence",
            "_continues",
            "_head",
            "_html",
            "_opener",
        ),
        *("_since", "_after_blank", "_ticks", "_token", "last", "tail"),
    )

    def __init__(self) -> None:
        self.tail = ""
        self.last = ""  # the last character that is not white space
        self._fence = ""  # the fence that opened the code block
        self._fence_in_quote = False  # the fence is in a block quote
        self._html = ""  # the HTML element that opened code
        self._continues = False  # the fence is in an earlier message
        self._begin_line()

    def _begin_line(self) -> None:
        self._head = ""  # the beginning of the line
        self._column = 0
        self._after_blank = False  # a blank follows the last character
        self._ticks = 0  # the number of backticks that opened the inline code
        self._opener = ""  # a fence that opens a block if the rest of the line allows it
        self._closing = False  # a fence that closes the block if nothing follows on its line
        self._begins = False  # that fence begins the line
        self._since = ""  # the text after that fence
        self._token = ""  # a token that may continue in the next piece
        self._at = 0  # the column of `_token`

    def copy(self) -> Markdown:
        new = object.__new__(Markdown)
        for name in Markdown.__slots__:  # `copy.copy` takes four times as long
            setattr(new, name, getattr(self, name))
        return new

    def continues(self, char: str) -> bool:
        """Whether the text ends in a run of this character, which may continue."""
        return self._token[-1:] == char

    def add(self, text: str) -> None:
        first, last = text.find("\n"), text.rfind("\n")
        if first < 0:
            self._add_to_line(text)
        else:
            self._add_to_line(text[:first])
            self._end_line()
            self._add_lines(text[first + 1 : last + 1])
            self._add_to_line(text[last + 1 :])
        self.tail = text[-_TAIL:] if len(text) >= _TAIL else (self.tail + text)[-_TAIL:]

    def _add_lines(self, lines: str) -> None:
        """Reads whole lines. It skips those that neither begin nor end a code block: they have no lasting effect."""
        at = 0
        while at < len(lines):
            if not (self._html or self._fence_in_quote):
                block = _BLOCK.search(lines, at)
                if block is None:
                    break
                at = max(at, lines.rfind("\n", at, block.start()) + 1)
            stop = lines.index("\n", at)
            self._add_to_line(lines[at:stop])
            self._end_line()
            at = stop + 1
        self.last = lines.rstrip(" \t\r\n")[-1:] or self.last

    def end_message(self) -> None:
        """Ends a message: the text that follows belongs to another message of the turn."""
        self._end_line()
        self._continues = self._fence != ""

    @property
    def in_block(self) -> bool:
        """Whether the text ends in a code block."""
        self._settle()
        if self._html:
            return True
        is_closed = self._closing and self._begins and not self._since.strip()
        return self._fence != "" and not is_closed and not self._has_left_quote()

    @property
    def fence(self) -> str:
        """The fence of the code block; empty outside of fenced blocks."""
        return self._fence if self.in_block else ""

    @property
    def fence_continues(self) -> bool:
        """Whether the code block began in an earlier message."""
        return self._continues and self.in_block

    @property
    def in_inline_code(self) -> bool:
        self._settle()
        return self._ticks > 0

    @property
    def is_new(self) -> bool:
        """Whether no text was added."""
        return self.tail == "" and not self._continues

    @property
    def is_cut(self) -> bool:
        """Whether `tail` may be shorter than the text."""
        return len(self.tail) == _TAIL

    @property
    def line(self) -> str:
        """The end of the current line."""
        return self.tail[self.tail.rfind("\n") + 1 :]

    @property
    def place(self) -> MarkdownPlace:
        head = self._head.lstrip(_BLANKS)
        if not head:
            return "indented" if len(self._head.expandtabs(_INDENT)) >= _INDENT else "line"
        if head[0] in ">|" and not _REMNANT.match(head):
            return "cited"
        if self._column <= _HEAD and _ITEM.fullmatch(self._head):
            return "item"
        if self.last in _QUOTES or (self.last == ">" and _HTML_START.search(self.line)):
            return "sentence" if self._after_blank else "quoted"
        ends_sentence = self.last in SENTENCE_ENDS and not (self.last == "." and _ABBREVIATION.search(self.line))
        return "sentence" if self._after_blank and not ends_sentence else "line"

    @property
    def joined(self) -> bool:
        """Whether the text ends in a letter of a script that needs no blanks between words."""
        return not self._after_blank and self._column > 0 and is_uncased(self.last)

    def _add_to_line(self, piece: str) -> None:
        if not piece:
            return
        if self._column < _HEAD:
            self._head += piece[: _HEAD - self._column]
        content = piece.rstrip(_BLANKS)
        self._after_blank = len(content) < len(piece)
        self.last = content[-1] if content else self.last
        if self._token or _MARK.search(piece):
            self._read(piece)
        elif len(self._since) < _SINCE:
            self._since = (self._since + piece)[:_SINCE]
        self._column += len(piece)

    def _read(self, piece: str) -> None:
        old_length = len(self._token)
        text = self._token + piece
        position, self._token = 0, ""
        for match in _TOKEN.finditer(text):
            self._since = (self._since + text[position : match.start()])[:_SINCE]
            position = match.end()
            column = self._at if match.start() < old_length else self._column + match.start() - old_length
            if position == len(text) and text[-1] != ">":
                self._token, self._at = match[0][:_LONGEST], column
                return
            self._take(match[0][:_LONGEST], column)
        self._since = (self._since + text[position:])[:_SINCE]

    def _settle(self) -> None:
        """Takes the token at the end as complete."""
        token, self._token = self._token, ""
        if token:
            self._take(token, self._at)

    def _take(self, token: str, column: int) -> None:
        if token[0] == "<":
            self._since = (self._since + token)[:_SINCE]
            tag = _TAG.fullmatch(token)
            if tag and not self._ticks and not self._fence:
                name = tag[2].lower()
                if tag[1]:
                    self._html = "" if self._html in (name, "line " + name) else self._html
                elif not self._html:
                    self._html = f"line {name}" if name == "pre" and self._begins_line(column) else name
            return
        if self._html:
            return
        if self._fence:
            if token[0] == self._fence[0] and len(token) >= len(self._fence):
                self._closing, self._begins, self._since = True, self._begins_line(column), ""
            else:
                self._since = (self._since + token)[:_SINCE]
        elif token[0] == "~":
            if len(token) >= 3 and not self._ticks and self._begins_line(column):
                self._opener, self._begins, self._since = token, True, ""
            else:
                self._since = (self._since + token)[:_SINCE]
        elif self._opener and self._opener[0] == "~":
            pass  # the info string of a fence of tildes
        elif self._ticks:
            self._ticks = 0 if len(token) == self._ticks else self._ticks
            self._opener = ""  # an info string holds no backtick
        else:
            self._ticks = len(token)
            self._opener, self._begins, self._since = token if len(token) >= 3 else "", self._begins_line(column), ""

    def _begins_line(self, column: int) -> bool:
        return column <= _HEAD and _PREFIX.fullmatch(self._head[:column]) is not None

    def _has_left_quote(self) -> bool:
        return self._fence_in_quote and self._column > 0 and not self._head.lstrip(_BLANKS).startswith(">")

    def _end_line(self) -> None:
        self._settle()
        blank = not self._head.strip(_BLANKS)
        if self._fence:
            ends_fence = self._closing and not self._since.strip(_BLANKS)
            if ends_fence or self._has_left_quote() or (self._fence_in_quote and blank):
                self._fence, self._fence_in_quote = "", False
        elif self._opener and (self._begins or _INFO.fullmatch(self._since)):
            self._continues = False
            self._fence, self._fence_in_quote = self._opener, self._head.lstrip(_BLANKS).startswith(">")
        if blank and not self._html.startswith("line"):
            self._html = ""  # an element in a line ends with its paragraph
        self._begin_line()


def run_end(text: str, at: int) -> int:
    """The end of the run of backticks or tildes at text[at]."""
    run = _TICKS.match(text, at)
    return run.end() if run else at


def is_uncased(char: str) -> bool:
    """Whether the character is a letter of a script without capitals."""
    return char.isalpha() and not char.isupper() and not char.islower()
