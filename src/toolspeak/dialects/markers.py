"""Recognising a block's start in running text, and telling it from prose that merely mentions it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal, Protocol

from toolspeak.data.values import quick
from toolspeak.dialects.openings import Alone, Answer, Opening, Signature, Tag
from toolspeak.dialects.scan import MAX_CANDIDATE, EndMarker

MarkerKind = Literal["calls", "reasoning", "results", "noise"]
"""`noise` opens nothing: a special token around the text, dropped from it."""

ENGINE_TOKENS = ("<bos>", "<eos>")
"""What vLLM's tests have an engine parser drop wherever it stands, whatever the model's own special tokens."""


@quick()
class Marker:
    """One start marker and what it opens, up to `end` (None: the body knows its own end).

    `opening` is how that must begin, which tells a marker from its mention in prose. An element (`<name>`) is also
    known in another case and with attributes; any other marker is taken literally.
    `plain`: the body is text without structure, read up to `end`. `ends_reasoning`: it starts inside reasoning too.
    `also_ends` are other texts that end reasoning. `tails`: texts that are dropped right behind the block, such as the
    end marker of a wrapper that was never opened. `label` is dropped where reasoning begins. Reasoning that is not
    `nested` holds its own marker as text.
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

    def __hash__(self) -> int:
        return hash(self.text)  # asked for at each block, where the hash of all fields would cost more than the rest

    @property
    def element(self) -> str:
        """The name of an element marker, else empty."""
        found = None if isinstance(self.opening, Signature) or self.kind == "noise" else _ELEMENT.fullmatch(self.text)
        return found[1] if found else ""


@quick()
class Found:
    """A start marker of `length` characters; for a block the body's first character follows it. `reader` is who reads
    what it opens, where there are several."""

    marker: Marker
    length: int
    fenced: bool = False
    notes: tuple[str, ...] = ()
    reader: object = None


Verdict = Found | Answer

_ELEMENT = re.compile(r"<([A-Za-z_][\w:.-]*)>")
FENCE = re.compile(r"```[\w+.-]{0,16}\s*")
FENCE_START = re.compile(r"`{1,2}|```[\w+.-]{0,16}\s*")
_ATTRIBUTES_START = re.compile(r"\s[^<>]*")


NO_REASONING = Marker("reasoning", "", None)


@quick()
class Markup:
    """What a parser needs of its markers behind their start. `thought` is the first of reasoning, `thought_ends` how
    any reasoning ends, `inside` finds what may be a marker in it. `frames` are the special tokens around turns.
    `severed` is how all markers begin where they are several tokens each: half of one at a turn's end is no text."""

    ends: Mapping[Marker, EndMarker]
    thought: Marker
    thought_ends: tuple[EndMarker, ...]
    inside: re.Pattern[str]
    frames: tuple[str, ...]
    severed: str = ""

    def is_cut(self, held: str) -> bool:
        """Whether what may become a marker is half of one, and can be nothing else."""
        return self.severed != "" and held.startswith(self.severed)


def markup_of(markers: Sequence[Marker], frames: tuple[str, ...] = (), severed: str = "") -> Markup:
    """Put together once for all the turns that a table reads."""
    ends = {marker: EndMarker(marker.end, marker.also_ends) for marker in markers if marker.end}
    thought = next((marker for marker in markers if marker.kind == "reasoning"), NO_REASONING)
    thought_ends = tuple(end for marker, end in ends.items() if marker.kind == "reasoning")
    first = {marker.text[0] for marker in markers} | {(thought.end or " ")[0]}
    first |= {end[0] for marker in markers for end in marker.also_ends}
    inside = re.compile("[" + "".join(re.escape(char) for char in sorted(first)) + "]")
    return Markup(ends, thought, thought_ends, inside, frames, severed)


class Table(Protocol):
    """What tells where blocks start."""

    @property
    def markers(self) -> Sequence[Marker]: ...

    @property
    def markup(self) -> Markup: ...

    @property
    def candidate(self) -> re.Pattern[str]: ...

    def decide(self, held: str, in_code: bool, final: bool = False) -> Verdict: ...


class MarkerTable:
    """Decides candidates: texts that begin with a marker's first character or a backtick and may grow into a marker.

    A block may stand in a code fence, and a code fence may stand in a block. `specials` are the model's special
    tokens that frame a turn: an engine drops them, so they are noise, also between a block's marker and its body.
    `severed`: see `Markup`.
    """

    def __init__(self, markers: Sequence[Marker], specials: Sequence[str] = (), severed: str = "") -> None:
        self._specials = tuple(specials)
        self._longest = max(map(len, self._specials), default=0)
        self.markers = (*markers, *(Marker("noise", text, None) for text in specials))
        self._severed = severed
        self._elements = {marker.element.lower(): marker for marker in self.markers if marker.element}
        self._signed = [(each, each.opening) for each in self.markers if isinstance(each.opening, Signature)]
        literal = [each for each in self.markers if not each.element and not isinstance(each.opening, Signature)]
        self._literals = sorted(literal, key=lambda marker: len(marker.text), reverse=True)
        starts = {"`", *(each.text for each in self.markers if not isinstance(each.opening, Signature))}
        starts |= {char for _, signature in self._signed for char in signature.first if not char.isalpha()}
        starts |= {part for _, signature in self._signed for part in signature.parts[:1] if isinstance(part, str)}
        self.starts = frozenset(starts)

    # Compiled when asked for: of all dialects a program reads one, or those that its models write.

    @property
    def candidate(self) -> re.Pattern[str]:
        return self._candidate

    @property
    def markup(self) -> Markup:
        return self._markup

    @cached_property
    def _candidate(self) -> re.Pattern[str]:
        return candidate_pattern(self.starts)

    @cached_property
    def _markup(self) -> Markup:
        return markup_of(self.markers, self._specials, self._severed)

    @cached_property
    def _framing(self) -> re.Pattern[str] | None:
        return re.compile(rf"(?:\s*(?:{'|'.join(map(re.escape, self._specials))}))+") if self._specials else None

    @cached_property
    def _marker(self) -> re.Pattern[str] | None:
        names = "|".join(re.escape(name) for name in sorted(self._elements, key=len, reverse=True))
        # ASCII: else 'ı' and 'ſ' would match 'i' and 's', and the name would be unknown below.
        return re.compile(rf"<((?ai:{names}))(\s[^<>]*)?>") if names else None

    @cached_property
    def _usual_markers(self) -> Sequence[Marker]:
        return [each for each in self.markers if self._is_usual(each)]

    @cached_property
    def _usual(self) -> re.Pattern[str]:
        return re.compile("|".join(map(self._usual_start, self._usual_markers)) or "(?!)")

    def _is_usual(self, marker: Marker) -> bool:
        """Whether `decide` says the same of this marker, as it should be written, wherever what must follow follows."""
        if marker.opening.usual == "":
            return False
        if isinstance(marker.opening, Signature):
            return marker is self._signed[0][0]  # the others have to wait for what this one says
        others = [each.text for each in self.markers if each is not marker and not isinstance(each.opening, Signature)]
        signed = any(marker.text[0] in signature.first for _, signature in self._signed)
        return not signed and not any(text.startswith(marker.text) for text in others)

    def _usual_start(self, marker: Marker) -> str:
        if isinstance(marker.opening, Signature):
            return f"(){marker.opening.usual}"
        # Special tokens may stand in between, whole or cut by the end of the text.
        specials = "|".join(map(_start_of, self._specials))
        return f"({re.escape(marker.text)})" + (rf"(?!\s*+(?:{specials}))" if specials else "") + marker.opening.usual

    def decide(self, held: str, in_code: bool, final: bool = False) -> Verdict:
        """`in_code`: the candidate stands in inline code, where a marker is a mention. `final`: nothing follows."""
        usual = None if in_code else self._usual.match(held)
        if usual is not None and usual.lastindex is not None:
            return Found(self._usual_markers[usual.lastindex - 1], usual.end())
        whole = len(held) >= MAX_CANDIDATE
        verdict = self._decide(held, in_code, final or whole)
        return "text" if whole and verdict in ("undecided", "opened") else verdict

    def _decide(self, held: str, in_code: bool, final: bool) -> Verdict:
        start = 0
        if held[0] == "`":
            fence = FENCE.match(held)
            if fence is None or fence.end() == len(held):
                return "undecided" if FENCE_START.fullmatch(held) else "text"
            start = fence.end()
        elif in_code:
            return "text"
        for marker, signature in self._signed:
            body = signature.decide(held, start, start)
            if isinstance(body, int):
                return Found(marker, body, start > 0, ("code_fence",) if start else ())
            if body == "undecided" and not final:
                return "undecided"
        marker, stop, notes = self._match(held, start)
        if marker is None:
            return "undecided" if self._may_become_marker(held[start:]) else "text"
        if marker.kind == "calls" and not isinstance(marker.opening, Alone | Tag) and self._framing is not None:
            framed = self._framing.match(held, stop)
            stop = framed.end() if framed else stop
            rest = held[stop:].lstrip()
            if 0 < len(rest) < self._longest and any(text.startswith(rest) for text in self._specials if text != rest):
                return "opened"
        body = marker.opening.decide(held, start, stop)
        if not isinstance(body, int):
            return "undecided" if body == "opened" and marker.kind != "calls" else body
        fenced = start > 0 or "`" in held[stop:body]
        return Found(marker, body, start > 0, (*notes, *(("code_fence",) if fenced else ())))

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
        if not marker.text.startswith(found[1], 1):
            notes.append("marker_case")
        return marker, found.end(), notes

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


def candidate_pattern(starts: Iterable[str]) -> re.Pattern[str]:
    """Finds where one of these texts may begin: by its first character, or by its first letters."""
    chars = {text[0] for text in starts if not text[0].isalpha()}
    patterns = ["[" + "".join(re.escape(char) for char in sorted(chars)) + "]"]
    patterns += sorted({_word_start(text) for text in starts if text[0].isalpha()})
    return re.compile("|".join(patterns))


def _word_start(word: str) -> str:
    """Finds a word by its first four letters: a letter alone is everywhere in prose."""
    return _start_of(word[:4])


def _start_of(text: str) -> str:
    """Finds a text, or what there is of it at the end."""
    pattern = ""
    for char in reversed(text[1:]):
        pattern = rf"(?=\Z|{re.escape(char)}{pattern})"
    return re.escape(text[0]) + pattern


def in_code(quoting: bool, text: str, start: int, stop: int) -> bool:
    """Whether text[stop] stands in inline code: an odd number of backticks lies before it on its line.

    `quoting` says the same of text[start].
    """
    if start == stop:
        return quoting
    line = text.rfind("\n", start, stop)
    if line >= 0:
        return text.count("`", line, stop) % 2 == 1
    return quoting ^ (text.count("`", start, stop) % 2 == 1)


def without_frames(text: str, frames: Sequence[str]) -> str:
    """Text that ends where a marker opened nothing, without the special tokens behind that."""
    while ending := next((frame for frame in frames if text.endswith(frame)), ""):
        text = text.removesuffix(ending)
    return text
