"""Markers, and the table that decides by the text after a marker whether it opens a block.

`parser/running_text.py` decides whether the place of the marker allows a block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, cast

from toolspeak.data.values import evolve, quick
from toolspeak.dialects.text.block_delimiters import (
    Alone,
    AtEnd,
    EndMarker,
    FirstTag,
    Matches,
    Opening,
    OpeningMatch,
    Signature,
    beginning_of_ends,
    beginnings,
)
from toolspeak.dialects.text.candidates import Beginnings, candidate_pattern
from toolspeak.dialects.text.markdown import FENCE, FENCE_START, run_end
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Problem

T = TypeVar("T")

MarkerKind = Literal["calls", "reasoning", "results", "noise"]
"""What a marker opens. `noise` opens nothing: it is a special token around the text, and is dropped."""


@quick()
class Marker:
    """One start marker and the block that it opens.

    An element (`<name>`) also matches in another case and with attributes. Any other marker matches literally.

    `kind`: what the block holds.
    `end`: the end marker; None if the body knows its own end.
    `opening`: how the body must begin, which separates a marker from its mention in prose.
    `plain`: the body is text without structure, up to `end`.
    `ends_reasoning`: the marker also opens its block inside reasoning.
    `also_ends`: other texts that end reasoning.
    `tails`: texts dropped directly after the block, such as the end marker of a wrapper that never began.
    `label`: a text dropped at the beginning of reasoning.
    `nested`: reasoning may hold its own marker; without it the marker inside is text.
    `form`: the name of another dialect's format that the body is in; empty for the dialect's own.
    `forms`: the same marker with bodies in other formats.
    `place`: where a marker that is not a token may be: anywhere, or where a word or the turn begins.
    `ends_turn`: nothing after the marker is part of the answer.
    `ends_message`: a code block without an end does not continue after the marker.
    `spare`: the marker is a special token, dropped where it opens nothing.
    """

    kind: MarkerKind
    text: str
    end: str | None
    opening: Opening = Alone()
    plain: bool = False
    ends_reasoning: bool = False
    also_ends: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()
    label: str = ""
    nested: bool = True
    form: str = ""
    forms: tuple[Marker, ...] = ()
    place: Literal["anywhere", "word", "start"] = "anywhere"
    ends_turn: bool = False
    ends_message: bool = False
    spare: bool = False

    def __hash__(self) -> int:
        return hash(self.text)  # runs for each block, where a hash of all fields would cost more than everything else

    @property
    def begins_tag(self) -> bool:
        """Whether the marker is the beginning of a tag, in which a name follows."""
        return self.text[-1] == "=" or self.text[-1].isalnum()

    @property
    def element(self) -> str:
        """The element's name if the marker is an element; else empty."""
        match = None if isinstance(self.opening, Signature) or self.kind == "noise" else _ELEMENT.fullmatch(self.text)
        return match[1] if match else ""


@quick()
class MarkerMatch:
    """A start marker at the beginning of a text.

    `length`: in characters; the block's body begins after them.
    `fence`: the code fence before the marker.
    `notes`: which deviations were accepted.
    `reader`: the dialect that reads the block, if there are several.
    `problem`: why the call that begins here is unreadable.
    """

    marker: Marker
    length: int
    fence: str = ""
    notes: tuple[str, ...] = ()
    reader: object = None
    problem: Problem | None = None


MarkerDecision = MarkerMatch | OpeningMatch

_ELEMENT = re.compile(r"<([A-Za-z_][\w:.-]*)>")
_ATTRIBUTES_START = re.compile(r"\s[^<>]*")
NO_REASONING = Marker("reasoning", "", None)


@quick()
class Markup:
    """What a parser knows of its markers besides their starts.

    `ends`: the end marker of each marker.
    `thought`: the first marker of reasoning.
    `thought_ends`: the end markers of reasoning.
    `inside`: finds candidates for markers inside reasoning.
    `thought_end_starts`: matches where one of `thought_ends` may begin.
    `call_ends`: the end markers of calls, by their text.
    `call_end_starts`: matches where one of `call_ends` may begin.
    `frames`: the special tokens around turns.
    `common_start`: how all markers begin that are several tokens each. Half a marker at a turn's end is not text.
    `fenced`: a code fence ends calls.
    """

    ends: Mapping[Marker, EndMarker]
    thought: Marker
    thought_ends: tuple[EndMarker, ...]
    inside: re.Pattern[str]
    thought_end_starts: re.Pattern[str]
    call_ends: Mapping[str, EndMarker]
    call_end_starts: re.Pattern[str]
    frames: tuple[str, ...]
    common_start: str = ""
    fenced: bool = False

    @property
    def lone_beginning(self) -> str:
        """The source of a pattern of the beginnings of end markers that nothing opened; empty without such markers."""
        return beginning_of_ends((*self.thought_ends, *self.call_ends.values()))

    def is_cut(self, candidate: str) -> bool:
        """Whether a candidate at the turn's end is certainly half a marker."""
        return self.common_start != "" and candidate.startswith(self.common_start)


def markup_of(markers: Sequence[Marker], frames: tuple[str, ...] = (), common_start: str = "") -> Markup:
    """Computes the `Markup` of these markers, once for all turns that a table reads."""
    every = (each for marker in markers for each in (marker, *marker.forms))
    ends = {marker: EndMarker(marker.end, marker.also_ends) for marker in every if marker.end}
    thought = next((marker for marker in markers if marker.kind == "reasoning"), NO_REASONING)
    thought_ends = tuple(end for marker, end in ends.items() if marker.kind == "reasoning")
    call_markers = (marker for marker in markers if marker.kind == "calls" and marker.end not in (None, "```"))
    call_ends = {end.text: end for end in map(ends.__getitem__, call_markers)}
    first = {marker.text[0] for marker in markers if marker.place == "anywhere"} | {(thought.end or " ")[0]}
    first |= {end[0] for marker in markers for end in marker.also_ends}
    inside = re.compile("[" + "".join(re.escape(char) for char in sorted(first)) + "]")
    fenced = any(marker.kind == "calls" and marker.end == "```" for marker in markers)
    starts, call_starts = beginnings(thought_ends), beginnings(call_ends.values())
    return Markup(ends, thought, thought_ends, inside, starts, call_ends, call_starts, frames, common_start, fenced)


class Table(Protocol):
    """Decides where blocks start."""

    @property
    def markers(self) -> Sequence[Marker]: ...

    @property
    def markup(self) -> Markup: ...

    @property
    def candidate(self) -> re.Pattern[str]: ...

    def for_turn(self, has_text: bool) -> Table:
        """The table for a turn that already has text, or for the beginning of a turn, where more markers count."""
        ...

    def decide(self, text: str, final: bool = False, forms: bool = True) -> MarkerDecision:
        """The verdict on the marker at the start of `text`. `final`: no text follows. `forms`: `Marker.forms` count."""
        ...

    def marker_at(self, text: str, at: int) -> MarkerMatch | None:
        """The marker of calls at text[at], whatever follows it; None without a marker."""
        ...


def computed_once(function: Callable[[Any], T]) -> T:
    """`cached_property` with the type of its value, which type checkers take for a protocol's property."""
    return cast("T", cached_property(function))


class MarkerTable:
    """Decides candidates: texts that begin like a marker or a code fence and may grow into a marker.

    A block may be in a code fence, and a code fence in a block.

    `specials`: the model's special tokens around a turn. An engine drops them, so they are noise.
    `common_start`: see `Markup`.
    `stops`: markers that end a turn and are dropped there.
    """

    def __init__(
        self, markers: Sequence[Marker], specials: Iterable[str] = (), common_start: str = "", stops: Sequence[str] = ()
    ) -> None:
        self._specials = tuple(specials)
        self._own_markers, self._stops = markers, stops
        # `</s>` is an end tag of HTML too: it is a special token only at the end of a turn.
        tokens = (Marker("noise", each, None, AtEnd() if each == "</s>" else Alone()) for each in self._specials)
        self.markers = (*markers, *tokens)
        self._frames = (*self._specials, *(each.text for each in markers if isinstance(each.opening, AtEnd)), *stops)
        self._common_start = common_start
        self._elements = {marker.element.lower(): marker for marker in self.markers if marker.element}
        self._signatures = [(each, each.opening) for each in self.markers if isinstance(each.opening, Signature)]
        literal = [each for each in self.markers if not each.element and not isinstance(each.opening, Signature)]
        self._literals = sorted(literal, key=lambda marker: len(marker.text), reverse=True)
        self.starts = {"`", "~"}
        for marker in self.markers:
            self.starts |= set(marker.opening.starts if isinstance(marker.opening, Signature) else (marker.text,))

    # The patterns compile on first use: a program reads only the dialects of its models.

    def for_turn(self, has_text: bool) -> MarkerTable:
        return self._table_after_text if has_text else self

    @cached_property
    def _table_after_text(self) -> MarkerTable:
        """The table without the markers that only begin a turn: elsewhere these are ordinary brackets."""
        later = [marker for marker in self._own_markers if marker.place != "start"]
        if len(later) == len(self._own_markers):
            return self
        return MarkerTable(later, self._specials, self._common_start, self._stops)

    @computed_once
    def candidate(self) -> re.Pattern[str]:
        return candidate_pattern([self.beginnings], self.markup.lone_beginning)

    @cached_property
    def beginnings(self) -> Beginnings:
        """The beginnings of all markers."""
        texts, words, patterns = {"``", "~~"}, set[str](), set[str]()  # a fence has three
        for marker in self.markers:
            opening = marker.opening
            if isinstance(opening, Matches) and opening.within and len(marker.text) == 1:
                patterns.add(re.escape(marker.text) + opening.beginning_within)
            elif marker.element:
                texts |= {marker.text[:2].lower(), marker.text[:2].upper()}
            elif not isinstance(opening, Signature):
                texts.add(marker.text)
            elif marker.place == "word":
                words |= set(opening.starts)
            elif len(opening.first) == len(opening.starts[0]) == 1:
                patterns.add(opening.beginning)
            else:
                texts |= set(opening.starts)
        return Beginnings(texts, words, patterns)

    @computed_once
    def markup(self) -> Markup:
        return markup_of(self.markers, self._frames, self._common_start)

    @cached_property
    def _marker(self) -> re.Pattern[str] | None:
        names = "|".join(re.escape(name) for name in sorted(self._elements, key=len, reverse=True))
        # ASCII: otherwise 'ı' and 'ſ' would match 'i' and 's', and the name would be unknown below.
        return re.compile(rf"<((?ai:{names}))(\s[^<>]*)?>") if names else None

    @cached_property
    def _any_start(self) -> re.Pattern[str]:
        literals = [each for each in self.markers if each.kind == "calls" and not isinstance(each.opening, Signature)]
        elements = [rf"<(?ai:{re.escape(each.element)})(?:\s[^<>]*)?>" for each in literals if each.element]
        literal = [
            re.escape(each.text) + (r"(?!\w)" if each.text[-1].isalnum() else "")
            for each in literals
            if not each.element and not each.text[0].isalpha() and (each.end or len(each.text) > 1)
        ]
        return re.compile("|".join([*elements, *literal]) or "(?!)")

    @cached_property
    def _twos(self) -> Container[str]:
        """The first two characters, in lower case, of candidates that may be markers."""
        return {text[:2].lower() for text in self.starts} | {"``", "~~"}

    @cached_property
    def _ones(self) -> Container[str]:
        """First characters with which a candidate may be a marker whatever follows."""
        return {text for text in self.starts if len(text) == 1} - {"`", "~"}

    @cached_property
    def _beginning(self) -> Mapping[str, Sequence[Marker]]:
        """The markers that match literally, by their first character and by their first two."""
        by_start: dict[str, list[Marker]] = {}
        for marker in self._literals:
            for start in {marker.text[:1], marker.text[:2]}:
                by_start.setdefault(start, []).append(marker)
        return {
            start: [*each, *(m for m in by_start[start[0]] if len(m.text) < len(start))]
            for start, each in by_start.items()
        }

    @cached_property
    def _signature(self) -> re.Pattern[str]:
        """A pattern that matches where one of the signatures may begin."""
        return re.compile("|".join(dict.fromkeys(each.beginning for _, each in self._signatures)) or "(?!)")

    @cached_property
    def _usual_markers(self) -> Sequence[Marker]:
        return [each for each in self.markers if self._is_usual(each)]

    @cached_property
    def _usual(self) -> re.Pattern[str]:
        return re.compile("|".join(map(self._usual_start, self._usual_markers)) or "(?!)")

    def _is_usual(self, marker: Marker) -> bool:
        """Whether the marker followed by its usual body always gets the same verdict from `decide`."""
        if marker.opening.usual == "":
            return False
        if isinstance(marker.opening, Signature):
            return marker is self._signatures[0][0]  # an earlier signature takes precedence
        others = [each.text for each in self.markers if each is not marker and not isinstance(each.opening, Signature)]
        return not self._signature.match(marker.text) and not any(text.startswith(marker.text) for text in others)

    def _usual_start(self, marker: Marker) -> str:
        if isinstance(marker.opening, Signature):
            return f"(){marker.opening.usual}"
        return f"({re.escape(marker.text)}){marker.opening.usual}"

    def decide(self, text: str, final: bool = False, forms: bool = True) -> MarkerDecision:
        if text[:2].lower() not in self._twos and text[0] not in self._ones and len(text) > 1:
            return "text"  # most candidates
        usual = self._usual.match(text)
        if usual is not None and usual.lastindex is not None:
            return MarkerMatch(self._usual_markers[usual.lastindex - 1], usual.end())
        whole = len(text) >= MAX_CANDIDATE
        verdict = self._decide(text, final or whole, forms)
        return "text" if whole and verdict in ("undecided", "opened") else verdict

    def _decide(self, text: str, final: bool, forms: bool) -> MarkerDecision:
        start, run = 0, ""
        if text[0] in "`~":
            fence = FENCE.match(text)
            if fence is None or fence.end() == len(text):
                return "undecided" if FENCE_START.fullmatch(text) else "text"
            start, run = fence.end(), text[: run_end(text, 0)]
        for marker, signature in self._signatures if self._signatures and self._signature.match(text, start) else ():
            body = signature.decide(text, start, start)
            if isinstance(body, int):
                return MarkerMatch(marker, body, run, ("code_fence",) if start else ())
            if body == "undecided" and not final:
                return "undecided"
        marker, stop, notes = self._match(text, start)
        if marker is None:
            return "undecided" if self._may_become_marker(text[start:]) else "text"
        body = marker.opening.decide(text, start, stop)
        for form in marker.forms if forms and body == "text" else ():
            marker, body = form, form.opening.decide(text, start, stop)
            if body != "text":
                break
        if marker.spare and not start and (body == "text" or (final and body == "opened")):
            return MarkerMatch(evolve(marker, kind="noise"), stop)
        if not isinstance(body, int):
            return "undecided" if body == "opened" and marker.kind != "calls" else body
        fenced = start > 0 or "`" in text[stop:body]
        return MarkerMatch(marker, body, run, (*notes, *(("code_fence",) if fenced else ())))

    def marker_at(self, text: str, at: int) -> MarkerMatch | None:
        if self._any_start.match(text, at, at + MAX_CANDIDATE) is None:
            return None
        window = text[at : at + MAX_CANDIDATE]
        marker, stop, notes = self._match(window, 0)
        if marker is not None and marker.begins_tag:
            tag_stop = window.find(">", stop) + 1 or len(window)
            if "<" in window[stop:tag_stop]:
                return None
            stop = tag_stop
        calls = marker is not None and marker.kind == "calls" and stop > 0
        return MarkerMatch(marker, stop, "", tuple(notes)) if marker is not None and calls else None

    def _match(self, text: str, start: int) -> tuple[Marker | None, int, list[str]]:
        """The whole marker at `start`, its end, and which deviations were accepted."""
        beginning = self._beginning
        for marker in beginning.get(text[start : start + 2]) or beginning.get(text[start : start + 1], ()):
            if text.startswith(marker.text, start) and not _in_longer_name(marker, text, start + len(marker.text)):
                return marker, start + len(marker.text), []
        match = self._marker.match(text, start) if self._marker else None
        if match is None:
            return None, start, []
        marker = self._elements[match[1].lower()]
        notes = ["marker_attributes"] if match[2] and match[2].strip() else []
        if not marker.text.startswith(match[1], 1):
            notes.append("marker_case")
        return marker, match.end(), notes

    def _may_become_marker(self, text: str) -> bool:
        for marker in self._beginning.get(text[:2], ()):
            if marker.text.startswith(text):
                return True
        lowercase = text.lower()
        for name in self._elements:
            start = f"<{name}"
            if start.startswith(lowercase) or (
                lowercase.startswith(start) and _ATTRIBUTES_START.fullmatch(lowercase, len(start))
            ):
                return True
        return False


def _in_longer_name(marker: Marker, text: str, stop: int) -> bool:
    """Whether the tag at the marker has a longer name than the marker: `<function` in `<function_calls>`."""
    return isinstance(marker.opening, FirstTag) and marker.text[-1].isalnum() and text.startswith("_", stop)
