"""Recognising a block's start in running text, and telling it from prose that merely mentions it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from toolspeak.dialects.scan import MAX_CANDIDATE

MarkerKind = Literal["calls", "reasoning", "results", "stray"]


@dataclass(frozen=True, slots=True)
class Head:
    """How a body must begin, where its first character says too little: the pattern, and its every beginning."""

    whole: re.Pattern[str]
    beginning: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Marker:
    """One start marker and what it opens, up to `end` (None: the body knows its own end).

    A block starts only where the marker is followed by white space and one of the characters `starts` ('<' stands
    for an element, a line break for one right behind the marker); with `starts` empty the marker alone decides. An
    element (`<name>`) is also known in another case and with attributes; any other marker is taken literally.
    `plain`: the body is text without structure, read up to `end`. `ends_reasoning`: it starts inside reasoning too.
    `head` says more exactly than `starts` how a body begins; with a head and no `end` the marker is the body's own
    first character. `may_be_empty`: `end` may follow right away. `label` is dropped where reasoning begins. Reasoning
    that is not `nested` holds its own marker as text. A marker of kind `stray` opens nothing and is dropped.
    """

    kind: MarkerKind
    text: str
    end: str | None
    starts: str = ""
    plain: bool = False
    ends_reasoning: bool = False
    head: Head | None = None
    may_be_empty: bool = False
    label: str = ""
    nested: bool = True

    @property
    def element(self) -> str:
        """The name of an element marker, else empty."""
        found = _ELEMENT.fullmatch(self.text)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Found:
    """A start marker of `length` characters; for a block the body's first character follows it."""

    marker: Marker
    length: int
    fenced: bool = False
    notes: tuple[str, ...] = ()


Verdict = Found | Literal["text", "undecided", "opened"]
"""`undecided`: more characters are needed; `opened`: so too, but a whole block marker is already there."""

_ELEMENT = re.compile(r"<([A-Za-z_][\w:.-]*)>")
_FENCE = re.compile(r"```[\w+.-]{0,16}\s*")
_FENCE_START = re.compile(r"`{1,2}|```[\w+.-]{0,16}\s*")
_ATTRIBUTES_START = re.compile(r"\s[^<>]*")
_INNER_FENCE = re.compile(r"\s*(?:```[\w+.-]{0,16}\s*)?")
_INNER_FENCE_START = re.compile(r"\s*(?:`{0,2}|```[\w+.-]{0,16}\s*)")


class MarkerTable:
    """Decides candidates: texts that begin with a marker's first character or a backtick and may grow into a marker.

    A block may stand in a code fence, and a code fence may stand in a block.
    """

    def __init__(self, markers: Sequence[Marker]) -> None:
        self.markers = tuple(markers)
        self._elements = {marker.element.lower(): marker for marker in markers if marker.element}
        literal = [marker for marker in markers if not marker.element]
        self._literals = sorted(literal, key=lambda marker: len(marker.text), reverse=True)
        names = "|".join(re.escape(name) for name in sorted(self._elements, key=len, reverse=True))
        # ASCII: else 'ı' and 'ſ' would match 'i' and 's', and the name would be unknown below.
        self._marker = re.compile(rf"<((?ai:{names}))(\s[^<>]*)?>") if names else None
        first = {marker.text[0] for marker in markers}
        self.candidate = re.compile("[" + "".join(re.escape(char) for char in sorted(first | {"`"})) + "]")

    def decide(self, held: str, in_code: bool) -> Verdict:
        """`in_code`: the candidate stands in inline code, where a marker is a mention."""
        verdict = self._decide(held, in_code)
        return "text" if verdict in ("undecided", "opened") and len(held) >= MAX_CANDIDATE else verdict

    def _decide(self, held: str, in_code: bool) -> Verdict:
        start = 0
        if held[0] == "`":
            fence = _FENCE.match(held)
            if fence is None or fence.end() == len(held):
                return "undecided" if _FENCE_START.fullmatch(held) else "text"
            start = fence.end()
        elif in_code:
            return "text"
        marker, stop, notes = self._match(held, start)
        if marker is None:
            return "undecided" if self._may_become_marker(held[start:]) else "text"
        if marker.kind == "reasoning":
            return "text" if start else Found(marker, stop)
        if not marker.starts and marker.head is None:
            return "text" if start else Found(marker, stop)
        if "\n" in marker.starts and stop < len(held) and held[stop] in "\r\n":
            return Found(marker, stop, start > 0)
        return self._body(held, start > 0, marker, stop, notes)

    def _match(self, held: str, start: int) -> tuple[Marker | None, int, list[str]]:
        """The whole marker at `start`, where it ends, and what was accepted leniently."""
        for marker in self._literals:
            if held.startswith(marker.text, start):
                return marker, start + len(marker.text), []
        found = self._marker.match(held, start) if self._marker else None
        if found is None:
            return None, start, []
        marker = self._elements[found[1].lower()]
        notes = ["marker_attributes"] if found[2] and found[2].strip() else []
        if found[1] != marker.element:
            notes.append("marker_case")
        return marker, found.end(), notes

    def _body(self, held: str, fenced: bool, marker: Marker, stop: int, notes: list[str]) -> Verdict:
        waiting: Verdict = "opened" if marker.kind == "calls" else "undecided"
        inner = _INNER_FENCE.match(held, stop)
        position = inner.end() if inner else stop
        if position == len(held) or (held[position] == "`" and _INNER_FENCE_START.fullmatch(held, stop)):
            return waiting
        if marker.may_be_empty and marker.end and held[position] == marker.end[0]:
            if held.startswith(marker.end, position):
                return Found(marker, position, fenced, tuple(notes))
            if marker.end.startswith(held[position:]):
                return waiting
        if marker.head is not None:
            return self._head(held, fenced, marker, marker.head, stop, position)
        if held[position] not in marker.starts:
            return "text"
        if held[position] == "<":
            if position + 1 == len(held):
                return waiting
            if not (held[position + 1].isalpha() or held[position + 1] == "_"):
                return "text"
        if fenced or "`" in held[stop:position]:
            notes.append("code_fence")
        return Found(marker, position, fenced, tuple(notes))

    def _head(self, held: str, fenced: bool, marker: Marker, head: Head, stop: int, position: int) -> Verdict:
        if not marker.end and "`" in held[stop:position]:
            return "text"
        if head.whole.match(held, position):
            notes = ("code_fence",) if fenced or "`" in held[stop:position] else ()
            return Found(marker, position if marker.end else stop - len(marker.text), fenced, notes)
        if not head.beginning.fullmatch(held, position):
            return "text"
        return "opened" if marker.end and marker.kind == "calls" else "undecided"

    def _may_become_marker(self, text: str) -> bool:
        if any(marker.text.startswith(text) for marker in self._literals):
            return True
        lowered = text.lower()
        for name in self._elements:
            start = f"<{name}"
            if start.startswith(lowered) or (
                lowered.startswith(start) and _ATTRIBUTES_START.fullmatch(lowered, len(start))
            ):
                return True
        return False
