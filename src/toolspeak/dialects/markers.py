"""Recognising a block's start in running text, and telling it from prose that merely mentions it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from toolspeak.dialects.scan import MAX_CANDIDATE

MarkerKind = Literal["calls", "reasoning", "results"]


@dataclass(frozen=True, slots=True)
class Markers:
    """A dialect's element names, and the characters with which a block's body may start ('<': an element).

    `results_text`: results are plain text, so that a line break behind the marker starts them too.
    """

    calls: str
    results: str
    reasoning: str = "think"
    calls_start: str = "[{"
    results_start: str = "[{"
    results_text: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A start marker of `length` characters; for a block the body's first character follows it."""

    kind: MarkerKind
    length: int
    fenced: bool = False
    notes: tuple[str, ...] = ()


Verdict = Found | Literal["text", "undecided", "opened"]
"""`undecided`: more characters are needed; `opened`: so too, but a whole block marker is already there."""

_FENCE = re.compile(r"```[\w+.-]{0,16}\s*")
_FENCE_START = re.compile(r"`{1,2}|```[\w+.-]{0,16}\s*")
_ATTRIBUTES_START = re.compile(r"\s[^<>]*")
_INNER_FENCE = re.compile(r"\s*(?:```[\w+.-]{0,16}\s*)?")
_INNER_FENCE_START = re.compile(r"\s*(?:`{0,2}|```[\w+.-]{0,16}\s*)")


class MarkerTable:
    """Decides candidates: texts that begin with '<' or a backtick and may grow into a start marker.

    A block starts where its marker is followed by white space and a character with which its body may
    start, optionally behind a code fence; anything else is text. Reasoning needs its marker alone.
    """

    def __init__(self, markers: Markers) -> None:
        kinds: dict[str, MarkerKind] = {
            markers.calls: "calls",
            markers.results: "results",
            markers.reasoning: "reasoning",
        }
        self._kinds: dict[str, MarkerKind] = {name.lower(): kind for name, kind in kinds.items()}
        self._calls_start, self._results_start = markers.calls_start, markers.results_start
        self._results_text = markers.results_text
        names = "|".join(re.escape(name) for name in sorted(self._kinds, key=len, reverse=True))
        # ASCII: else 'ı' and 'ſ' would match 'i' and 's', and the name would be unknown below.
        self._marker = re.compile(rf"<((?ai:{names}))(\s[^<>]*)?>")
        self._exact = frozenset(f"<{name}>" for name in kinds)

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
            if held[start] != "<":
                return "text"
        elif in_code:
            return "text"
        marker = self._marker.match(held, start)
        if marker is None:
            return "undecided" if self._may_become_marker(held[start:].lower()) else "text"
        kind = self._kinds[marker[1].lower()]
        if kind not in ("calls", "results"):
            return "text" if start else Found(kind, marker.end())
        if kind == "results" and self._results_text and marker.end() < len(held) and held[marker.end()] in "\r\n":
            return Found(kind, marker.end(), start > 0)
        return self._body(held, start > 0, marker, kind)

    def _body(self, held: str, fenced: bool, marker: re.Match[str], kind: Literal["calls", "results"]) -> Verdict:
        inner = _INNER_FENCE.match(held, marker.end())
        position = inner.end() if inner else marker.end()
        if position == len(held) or (held[position] == "`" and _INNER_FENCE_START.fullmatch(held, marker.end())):
            return "opened" if kind == "calls" else "undecided"
        if held[position] not in (self._calls_start if kind == "calls" else self._results_start):
            return "text"
        if held[position] == "<":
            if position + 1 == len(held):
                return "opened" if kind == "calls" else "undecided"
            if not (held[position + 1].isalpha() or held[position + 1] == "_"):
                return "text"
        notes: list[str] = []
        if marker[2] and marker[2].strip():
            notes.append("marker_attributes")
        if f"<{marker[1]}>" not in self._exact:
            notes.append("marker_case")
        fence_inside = "`" in held[marker.end() : position]
        if fenced or fence_inside:
            notes.append("code_fence")
        return Found(kind, position, fenced, tuple(notes))

    def _may_become_marker(self, lowered: str) -> bool:
        for name in self._kinds:
            start = f"<{name}"
            if start.startswith(lowered) or (
                lowered.startswith(start) and _ATTRIBUTES_START.fullmatch(lowered, len(start))
            ):
                return True
        return False
