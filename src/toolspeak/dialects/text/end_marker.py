"""End markers of blocks, and the test whether a text may be the beginning of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from toolspeak.dialects.text.candidates import beginning_of

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
