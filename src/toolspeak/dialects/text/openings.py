"""What tells a block's start from prose that merely mentions its marker: how what the marker opens must begin."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from toolspeak.data.values import quick
from toolspeak.dialects.text.end_marker import stands

Answer = Literal["text", "undecided", "opened"]
"""`text`: this opens nothing. `undecided`: more characters are needed; `opened`: so too, but a whole marker is already
there."""

_INNER_FENCE = re.compile(r"\s*(?:```[\w+.-]{0,16}\s*)?")
_INNER_FENCE_START = re.compile(r"\s*(?:`{0,2}|```[\w+.-]{0,16}\s*)")
_SPACE = re.compile(r"\s*")
_TOLD = 5
"""Parts of a signature that tell it from nearly all of prose and code."""
_REST_OF_TAG = re.compile(r"[^<>]*>\s*")


class Opening(Protocol):
    """How what a marker opens must begin, so that its marker is one.

    One of: `Alone`, `AtEnd`, `Something`, `Starts`, `Texts`, `Matches`, `Follows` (what stands behind the marker),
    `Tag` and `Signature` (the marker is a part of it).
    """

    @property
    def usual(self) -> str:
        """A pattern, without groups, that matches up to the body only where `decide` would say the same whatever comes:
        what nearly every marker is followed by, told in one step. Empty: there is none."""
        ...

    def decide(self, held: str, start: int, stop: int) -> int | Answer:
        """Where in `held` the body begins whose marker is held[start:stop]."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """The marker is enough; but in a code fence it stands as an example."""

    @property
    def usual(self) -> str:
        return ""

    def decide(self, held: str, start: int, stop: int) -> int | Answer:
        return "text" if start else stop


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Nothing but white space stands behind the marker, which may be prose elsewhere; `or_line`: on its line."""

    or_line: bool = False

    @property
    def usual(self) -> str:
        return ""

    def decide(self, held: str, start: int, stop: int) -> int | Answer:
        space = _SPACE.match(held, stop)
        behind = space.end() if space else stop
        if self.or_line and "\n" in held[stop:behind]:
            return stop
        return "undecided" if behind == len(held) else "text"


@dataclass(frozen=True, slots=True)
class Something:
    """Anything stands behind the marker: at the end of a turn it is the token that ended it."""

    @property
    def usual(self) -> str:
        return ""

    def decide(self, held: str, start: int, stop: int) -> int | Answer:
        return "text" if start else "undecided" if not held[stop:].strip() else stop


@quick()
class Starts:
    """White space, maybe a code fence, and one of these characters.

    '<' stands for an element, a line break for one right behind the marker. `or_end`: the end marker, where it may
    follow right away.
    """

    chars: str
    or_end: str = ""

    @property
    def usual(self) -> str:
        firsts = (f"{re.escape(char)}{'[A-Za-z_]' if char == '<' else ''}" for char in self.chars)
        return "" if "\n" in self.chars else rf"\s*+(?={'|'.join(firsts)})"

    def decide(self, held: str, start: int, stop: int) -> int | Answer:
        if "\n" in self.chars and held[stop : stop + 1] in ("\n", "\r"):
            return stop
        body = _behind_fence(held, stop)
        if body is None:
            return "opened"
        ended = _any_stands(held, body, (self.or_end,)) if self.or_end else "text"
        if ended != "text":
            return ended
        if held[body] not in self.chars:
            return "text"
        if held[body] == "<":
            if body + 1 == len(held):
                return "opened"
            if not (held[body + 1].isalpha() or held[body + 1] == "_"):
                return "text"
        return body


@quick()
class Texts:
    """White space, maybe a code fence, and one of these texts."""

    texts: tuple[str, ...]

    @property
    def usual(self) -> str:
        return rf"\s*+(?={_any_of(self.texts)})"

    def decide(self, held: str, start: int, stop: int) -> int | Answer:
        body = _behind_fence(held, stop)
        return "opened" if body is None else _any_stands(held, body, self.texts)


@quick()
class Matches:
    """White space, maybe a code fence, and what `whole` matches, of which `beginning` matches every beginning.

    `or_end`: the end marker, where it may follow right away. `within`: the marker is the body's own first character,
    and no code fence stands behind it.
    """

    whole: re.Pattern[str]
    beginning: re.Pattern[str]
    or_end: str = ""
    within: bool = False

    @property
    def beginning_within(self) -> str:
        """A pattern that matches the text behind a marker that is the body's own first character, whole or cut."""
        return rf"\s*+(?:{self.whole.pattern}|(?:{self.beginning.pattern})\Z)"

    @property
    def usual(self) -> str:
        return "" if self.within else rf"\s*+(?={self.whole.pattern})"

    def decide(self, held: str, start: int, stop: int) -> int | Answer:
        body = _behind_fence(held, stop)
        if body is None:
            return "undecided" if self.within else "opened"
        ended = _any_stands(held, body, (self.or_end,)) if self.or_end else "text"
        if ended != "text":
            return ended
        if self.within and "`" in held[stop:body]:
            return "text"
        if self.whole.match(held, body):
            return start if self.within else body
        if not self.beginning.fullmatch(held, body):
            return "text"
        return "undecided" if self.within else "opened"


@quick()
class Follows:
    """What `test` says of the text behind the marker, at which the body begins; None asks for more of it."""

    test: Callable[[str], bool | None]
    usual: str = ""

    def decide(self, held: str, start: int, stop: int) -> int | Answer:
        follows = self.test(held[stop:])
        return "opened" if follows is None else stop if follows else "text"


def _never(_rest: str) -> bool:
    return False


NEVER = Follows(_never)
"""Of a marker that a dialect knows, of whose body it reads other forms alone."""


def followed_by(*texts: str) -> Follows:
    """White space, which is the body's own, then one of these texts."""

    def test(rest: str) -> bool | None:
        rest = rest.lstrip()
        if rest.startswith(texts):
            return True
        return None if any(text.startswith(rest) for text in texts) else False

    return Follows(test, rf"(?=\s*+{_any_of(texts)})")


@dataclass(frozen=True, slots=True)
class Tag:
    """The marker is the beginning of the body's first tag (`<function=name>`), and one of `texts` must follow that."""

    texts: tuple[str, ...]

    @property
    def usual(self) -> str:
        return ""

    def decide(self, held: str, start: int, stop: int) -> int | Answer:
        tag = _REST_OF_TAG.match(held, stop)
        if tag is None:
            return "text" if "<" in held[stop:] else "undecided"
        answer = _any_stands(held, tag.end(), self.texts)
        return start if isinstance(answer, int) else answer


@dataclass(frozen=True, slots=True)
class Signature:
    """A start that is no fixed text, as that of a bare JSON call: fixed texts and patterns that follow each other.

    It stands in place of the marker's own text, which then only says what the block is. A pattern takes one run of
    characters and never gives one back. The body begins behind the first `before` parts, of which the others are only
    looked at. `first` holds every character it may begin with, `words` the words, if it is one of several. `live`
    is what a result escapes of it: a character, and the pattern of what follows where it would be live. `settled` is
    what the last part says yes to, whatever comes, where that is a pattern.
    """

    parts: tuple[str | re.Pattern[str], ...]
    before: int
    first: str
    live: tuple[str, str]
    words: tuple[str, ...] = ()
    settled: str = ""

    @property
    def starts(self) -> Sequence[str]:
        """The texts it may begin with, each as far as it is known."""
        part = self.parts[0]
        return self.words or ((part,) if isinstance(part, str) else tuple(self.first))

    @property
    def beginning(self) -> str:
        """A pattern that matches where it may begin, whole or cut by the end of the text, as its first parts tell."""
        pattern = ""
        for part in reversed(self.parts[:_TOLD]):
            for each in [f"(?>{part.pattern})"] if isinstance(part, re.Pattern) else map(re.escape, reversed(part)):
                pattern = rf"{each}(?:\Z|{pattern})" if pattern else each
        return pattern

    @property
    def usual(self) -> str:
        parts = [re.escape(part) if isinstance(part, str) else f"(?>{part.pattern})" for part in self.parts]
        if self.settled:
            parts[-1] = self.settled
        elif not isinstance(self.parts[-1], str):
            return ""
        return f"{''.join(parts[: self.before])}(?={''.join(parts[self.before :])})"

    def decide(self, held: str, start: int, stop: int) -> int | Answer:
        position = body = start
        for i, part in enumerate(self.parts):
            if isinstance(part, str):
                if not held.startswith(part, position):
                    return "undecided" if part.startswith(held[position:]) else "text"
                position += len(part)
            else:
                match = part.match(held, position)
                if match is None:
                    return "undecided" if position == len(held) else "text"
                position = match.end()
                if position == len(held):
                    return "undecided"
            if i + 1 == self.before:
                body = position
        return body


def _behind_fence(held: str, stop: int) -> int | None:
    """Behind white space and a code fence; None asks for more."""
    inner = _INNER_FENCE.match(held, stop)
    position = inner.end() if inner else stop
    if position == len(held) or (held[position] == "`" and _INNER_FENCE_START.fullmatch(held, stop)):
        return None
    return position


def _any_of(texts: tuple[str, ...]) -> str:
    return f"(?:{'|'.join(map(re.escape, texts))})"


def _any_stands(held: str, position: int, texts: tuple[str, ...]) -> int | Answer:
    found = stands(held, position, texts)
    return "opened" if found is None else position if found else "text"
