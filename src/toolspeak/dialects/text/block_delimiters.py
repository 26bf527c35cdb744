"""The two ends of a block: how the text after a marker must begin, which separates a block from a mention of its marker
in prose, and the marker that ends a block."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from toolspeak.data.values import quick
from toolspeak.dialects.text.candidates import beginning_of

OpeningMatch = Literal["text", "undecided", "opened"]
"""A verdict without a match.

- `text`: the candidate opens nothing.
- `undecided`: more characters are needed.
- `opened`: more characters are needed after a whole marker.
"""

_INNER_FENCE = re.compile(r"\s*(?:```[\w+.-]{0,16}\s*)?")
_INNER_FENCE_START = re.compile(r"\s*(?:`{0,2}|```[\w+.-]{0,16}\s*)")
_SPACE = re.compile(r"\s*")
_DISTINCTIVE = 5
"""How many parts of a signature distinguish it from nearly all prose and code."""
_REST_OF_TAG = re.compile(r"[^<>]*>\s*")


class Opening(Protocol):
    """How a block must begin.

    `Alone`, `AtEnd`, `Something`, `Starts`, `Texts`, `Matches` and `Follows` test the text after the marker. In
    `FirstTag` and `Signature` the marker is a part of the tested text.
    """

    @property
    def usual(self) -> str:
        """The source of a pattern of what usually follows the marker, so that one match decides.

        It has no groups and matches up to the body. Where it matches, `decide` gives the same result whatever follows.
        Empty if there is no such pattern.
        """
        ...

    def decide(self, text: str, start: int, stop: int) -> int | OpeningMatch:
        """The start of the body in `text`, or a verdict. The marker is text[start:stop]."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """The marker alone opens the block. In a code fence it is an example."""

    @property
    def usual(self) -> str:
        return ""

    def decide(self, text: str, start: int, stop: int) -> int | OpeningMatch:
        return "text" if start else stop


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Only white space follows the marker. Elsewhere the marker is prose."""

    or_line: bool = False
    """The end of the line is enough."""

    @property
    def usual(self) -> str:
        return ""

    def decide(self, text: str, start: int, stop: int) -> int | OpeningMatch:
        space = _SPACE.match(text, stop)
        after = space.end() if space else stop
        if self.or_line and "\n" in text[stop:after]:
            return stop
        return "undecided" if after == len(text) else "text"


@dataclass(frozen=True, slots=True)
class Something:
    """Any text follows the marker. At the end of a turn the marker is the token that ended the turn."""

    @property
    def usual(self) -> str:
        return ""

    def decide(self, text: str, start: int, stop: int) -> int | OpeningMatch:
        return "text" if start else "undecided" if not text[stop:].strip() else stop


@quick()
class Starts:
    """White space, an optional code fence, and one of these characters follow."""

    chars: str
    """'<' means an element, a line break means one directly after the marker."""
    or_end: str = ""
    """The end marker, if it may follow directly."""

    @property
    def usual(self) -> str:
        firsts = (f"{re.escape(char)}{'[A-Za-z_]' if char == '<' else ''}" for char in self.chars)
        return "" if "\n" in self.chars else rf"\s*+(?={'|'.join(firsts)})"

    def decide(self, text: str, start: int, stop: int) -> int | OpeningMatch:
        if "\n" in self.chars and text[stop : stop + 1] in ("\n", "\r"):
            return stop
        body = _after_fence(text, stop)
        if body is None:
            return "opened"
        end = _any_stands(text, body, (self.or_end,)) if self.or_end else "text"
        if end != "text":
            return end
        if text[body] not in self.chars:
            return "text"
        if text[body] == "<":
            if body + 1 == len(text):
                return "opened"
            if not (text[body + 1].isalpha() or text[body + 1] == "_"):
                return "text"
        return body


@quick()
class Texts:
    """White space, an optional code fence, and one of these texts follow."""

    texts: tuple[str, ...]

    @property
    def usual(self) -> str:
        return rf"\s*+(?={_any_of(self.texts)})"

    def decide(self, text: str, start: int, stop: int) -> int | OpeningMatch:
        body = _after_fence(text, stop)
        return "opened" if body is None else _any_stands(text, body, self.texts)


@quick()
class Matches:
    """White space, an optional code fence, and a match of `whole` follow."""

    whole: re.Pattern[str]
    beginning: re.Pattern[str]
    """Matches every beginning of a text that `whole` matches."""
    or_end: str = ""
    """The end marker, if it may follow directly."""
    within: bool = False
    """The marker is the body's first character, and no code fence follows it."""

    @property
    def beginning_within(self) -> str:
        """The source of a pattern of the text after a `within` marker, or of its beginning at the end of the text."""
        return rf"\s*+(?:{self.whole.pattern}|(?:{self.beginning.pattern})\Z)"

    @property
    def usual(self) -> str:
        return "" if self.within else rf"\s*+(?={self.whole.pattern})"

    def decide(self, text: str, start: int, stop: int) -> int | OpeningMatch:
        body = _after_fence(text, stop)
        if body is None:
            return "undecided" if self.within else "opened"
        end = _any_stands(text, body, (self.or_end,)) if self.or_end else "text"
        if end != "text":
            return end
        if self.within and "`" in text[stop:body]:
            return "text"
        if self.whole.match(text, body):
            return start if self.within else body
        if not self.beginning.fullmatch(text, body):
            return "text"
        return "undecided" if self.within else "opened"


@quick()
class Follows:
    """A text that `test` accepts follows. The body begins right after the marker."""

    test: Callable[[str], bool | None]
    """Returns None if it needs more text."""
    usual: str = ""
    """See `Opening.usual`."""

    def decide(self, text: str, start: int, stop: int) -> int | OpeningMatch:
        follows = self.test(text[stop:])
        return "opened" if follows is None else stop if follows else "text"


def _never(_rest: str) -> bool:
    return False


NEVER = Follows(_never)
"""The opening of a marker whose body is always in another dialect's format (`Marker.forms`)."""


def followed_by(*texts: str) -> Follows:
    """White space, which belongs to the body, and one of these texts follow."""

    def test(rest: str) -> bool | None:
        rest = rest.lstrip()
        if rest.startswith(texts):
            return True
        return None if any(text.startswith(rest) for text in texts) else False

    return Follows(test, rf"(?=\s*+{_any_of(texts)})")


@dataclass(frozen=True, slots=True)
class FirstTag:
    """The marker is the beginning of the body's first tag (`<function=name>`)."""

    texts: tuple[str, ...]
    """One of these must follow the tag."""

    @property
    def usual(self) -> str:
        return ""

    def decide(self, text: str, start: int, stop: int) -> int | OpeningMatch:
        tag = _REST_OF_TAG.match(text, stop)
        if tag is None:
            return "text" if "<" in text[stop:] else "undecided"
        answer = _any_stands(text, tag.end(), self.texts)
        return start if isinstance(answer, int) else answer


@dataclass(frozen=True, slots=True)
class Signature:
    """A block's start that is not a fixed text, such as that of a bare JSON call: a sequence of texts and patterns.

    It replaces the marker's own text, which then only names the block.
    """

    parts: tuple[str | re.Pattern[str], ...]
    """A pattern matches one run of characters, without backtracking."""
    before: int
    """The body begins after this number of parts; the rest is lookahead."""
    first: str
    """All characters that the start may begin with."""
    live: tuple[str, str]
    """What a result must escape: a character, and the pattern of the text after it that makes it live."""
    words: tuple[str, ...] = ()
    """The words that the start may begin with, if there are several."""
    fixed_part: str = ""
    """If the last part is a pattern: the part of its matches that no further text changes."""

    @property
    def starts(self) -> Sequence[str]:
        """The fixed texts that the start may begin with."""
        part = self.parts[0]
        return self.words or ((part,) if isinstance(part, str) else tuple(self.first))

    @property
    def beginning(self) -> str:
        """The source of a pattern of the first parts, or of their beginning at the end of the text."""
        pattern = ""
        for part in reversed(self.parts[:_DISTINCTIVE]):
            for each in [f"(?>{part.pattern})"] if isinstance(part, re.Pattern) else map(re.escape, reversed(part)):
                pattern = rf"{each}(?:\Z|{pattern})" if pattern else each
        return pattern

    @property
    def usual(self) -> str:
        parts = [re.escape(part) if isinstance(part, str) else f"(?>{part.pattern})" for part in self.parts]
        if self.fixed_part:
            parts[-1] = self.fixed_part
        elif not isinstance(self.parts[-1], str):
            return ""
        return f"{''.join(parts[: self.before])}(?={''.join(parts[self.before :])})"

    def decide(self, text: str, start: int, stop: int) -> int | OpeningMatch:
        position = body = start
        for i, part in enumerate(self.parts):
            if isinstance(part, str):
                if not text.startswith(part, position):
                    return "undecided" if part.startswith(text[position:]) else "text"
                position += len(part)
            else:
                match = part.match(text, position)
                if match is None:
                    return "undecided" if position == len(text) else "text"
                position = match.end()
                if position == len(text):
                    return "undecided"
            if i + 1 == self.before:
                body = position
        return body


def _after_fence(text: str, stop: int) -> int | None:
    """The position after white space and a code fence; None if more characters are needed."""
    inner = _INNER_FENCE.match(text, stop)
    position = inner.end() if inner else stop
    if position == len(text) or (text[position] == "`" and _INNER_FENCE_START.fullmatch(text, stop)):
        return None
    return position


def _any_of(texts: tuple[str, ...]) -> str:
    return f"(?:{'|'.join(map(re.escape, texts))})"


def _any_stands(text: str, position: int, texts: tuple[str, ...]) -> int | OpeningMatch:
    literal = stands(text, position, texts)
    return "opened" if literal is None else position if literal else "text"


# --- end markers ---------------------------------------------------------------------------------------------------

MAX_END = 64
"""The length limit of an end marker, in characters, with white space."""

_HEAD = 4
"""How many characters of a marker, or of an element's name, distinguish it from most other text."""

_END_ELEMENT = re.compile(r"</([A-Za-z_][\w:.-]*)>")


class EndMarker:
    """Recognises an end marker.

    `</name>` matches in any case and with white space inside, up to `MAX_END` characters. Any other marker matches
    literally. `others` are further texts that end the same block.
    """

    __slots__ = ("_first", "_others", "_pattern", "_target", "text")

    def __init__(self, text: str, others: Sequence[str] = ()) -> None:
        self._others = [EndMarker(other) for other in others]
        element = _END_ELEMENT.fullmatch(text)
        self.text = text
        self._target = text.lower() if element else text
        self._pattern = re.compile(rf"<\s*/\s*(?ai:{re.escape(element[1])})\s*>") if element else None
        self._first = text[0]

    @property
    def first(self) -> frozenset[str]:
        """The characters that the marker may begin with."""
        return frozenset(self._first).union(*(other.first for other in self._others))

    @property
    def heads(self) -> list[tuple[bool, str]]:
        """The beginning of the marker and of each of `others`, with whether it is the name of an element."""
        text = self.text[2:-1] if self._pattern else self.text
        return [(self._pattern is not None, text[:_HEAD]), *(head for other in self._others for head in other.heads)]

    def find_candidate(self, text: str, at: int) -> int:
        """Where the marker may begin next, from `at` on; -1 if it begins nowhere in this text."""
        return text.find(self._first, at)

    def match(self, text: str, at: int) -> int:
        """Where the marker that begins at `at` ends; -1 without a whole marker there."""
        if text.startswith(self.text, at):
            return at + len(self.text)
        match = self._pattern.match(text, at, at + MAX_END) if self._pattern else None
        stop = match.end() if match else -1
        return stop if stop > 0 or not self._others else max(other.match(text, at) for other in self._others)

    def viable(self, text: str, at: int) -> bool:
        """Whether text[at:] is the beginning of a marker, so that more characters are needed."""
        if any(other.viable(text, at) for other in self._others):
            return True
        if self._pattern is None:
            return len(text) - at < len(self.text) and self.text.startswith(text[at:])
        rest = text[at : at + MAX_END]
        return len(rest) < MAX_END and self._target.startswith("".join(rest.split()).lower())


def beginnings(ends: Iterable[EndMarker]) -> re.Pattern[str]:
    """A pattern that matches where one of these ends may begin, and at few other places."""
    return re.compile(beginning_of_ends(ends) or "(?!)")


def beginning_of_ends(ends: Iterable[EndMarker]) -> str:
    """The source of a pattern that matches where one of these ends may begin; empty without ends.

    The text may end before the marker does.
    """
    heads = {head for end in ends for head in end.heads}
    names, texts = ({text for is_name, text in heads if is_name is kind} for kind in (True, False))
    name_pattern = rf"<\s*(?:/\s*(?:(?ai:{beginning_of(names)})|\Z)|\Z)" if names else ""
    return "|".join(filter(None, (name_pattern, beginning_of(texts))))


def begins(text: str, position: int, *literals: str) -> bool:
    """Whether text[position:] is the beginning of one of these, so that more characters are needed."""
    remaining = len(text) - position
    for literal in literals:  # noqa: SIM110 - runs at every tag, and twice as fast as `any`
        if remaining < len(literal) and literal.startswith(text[position:]):
            return True
    return False


def stands(text: str, position: int, literals: tuple[str, ...]) -> str | None:
    """The literal at `position`; empty if none of these is there, None if more characters are needed."""
    for literal in literals:
        if text.startswith(literal, position):
            return literal
    return None if begins(text, position, *literals) else ""
