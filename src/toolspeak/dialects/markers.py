"""Recognising a block's start in running text, and telling it from prose that merely mentions it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from toolspeak.dialects.scan import MAX_CANDIDATE

MarkerKind = Literal["calls", "reasoning", "results", "noise"]
"""`noise` opens nothing: a special token around the text, dropped from it."""

ENGINE_TOKENS = ("<bos>", "<eos>")
"""What vLLM's tests have an engine parser drop wherever it stands, whatever the model's own special tokens."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A start that is no fixed text, as that of a bare JSON call: fixed texts and patterns that follow each other.

    A pattern takes one run of characters and never gives one back. The body begins behind the first `before` parts, of
    which the others are only looked at. `first` holds every character it may begin with. `live` is what a result
    escapes of it: a character, and the pattern of what follows where it would be live.
    """

    parts: tuple[str | re.Pattern[str], ...]
    before: int
    first: str
    live: tuple[str, str]

    def match(self, held: str, start: int) -> int | Literal["text", "undecided"]:
        """Where the body begins in `held`."""
        position = body = start
        for i, part in enumerate(self.parts):
            if isinstance(part, str):
                if not held.startswith(part, position):
                    return "undecided" if part.startswith(held[position:]) else "text"
                position += len(part)
            else:
                found = part.match(held, position)
                if found is None:
                    return "undecided" if position == len(held) else "text"
                position = found.end()
                if position == len(held):
                    return "undecided"
            if i + 1 == self.before:
                body = position
        return body


Answer = Literal["yes", "no", "undecided"]
Follows = Callable[[str, int], Answer]
"""Whether what stands in a text at a position may follow a marker."""


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
    `also_ends` are other texts that end reasoning.
    `signature`: how the start is recognised instead of by `text`, which then only says what the block is.
    `follows` decides in place of `starts` where a character is not enough; the body starts right behind the marker.

    `first`, in place of `starts`: the texts one of which must follow. `bare`: the marker is the beginning of the body's
    first tag (`<function=name>`), and `first` must follow that tag. `tails`: texts that are dropped right behind the
    block, such as the end marker of a wrapper that was never opened.
    `head` says more exactly than `starts` how a body begins; with a head and no `end` the marker is the body's own
    first character. `may_be_empty`: `end` may follow right away. `label` is dropped where reasoning begins. Reasoning
    that is not `nested` holds its own marker as text.
    """

    kind: MarkerKind
    text: str
    end: str | None
    starts: str = ""
    plain: bool = False
    ends_reasoning: bool = False
    also_ends: tuple[str, ...] = ()
    signature: Signature | None = None
    follows: Follows | None = None
    first: tuple[str, ...] = ()
    bare: bool = False
    tails: tuple[str, ...] = ()
    head: Head | None = None
    may_be_empty: bool = False
    label: str = ""
    nested: bool = True

    @property
    def element(self) -> str:
        """The name of an element marker, else empty."""
        found = None if self.signature or self.kind == "noise" else _ELEMENT.fullmatch(self.text)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Found:
    """A start marker of `length` characters; for a block the body's first character follows it."""

    marker: Marker
    length: int
    fenced: bool = False
    notes: tuple[str, ...] = ()


def behind(decide: Callable[[str], bool | None]) -> Follows:
    """Decides by the text behind the marker alone; None asks for more of it."""

    def follows(held: str, position: int) -> Answer:
        decided = decide(held[position:])
        return "undecided" if decided is None else "yes" if decided else "no"

    return follows


def followed_by(*texts: str) -> Follows:
    """White space, then one of these texts."""

    def decide(rest: str) -> bool | None:
        rest = rest.lstrip()
        if rest.startswith(texts):
            return True
        return None if any(text.startswith(rest) for text in texts) else False

    return behind(decide)


Verdict = Found | Literal["text", "undecided", "opened"]
"""`undecided`: more characters are needed; `opened`: so too, but a whole block marker is already there."""

_ELEMENT = re.compile(r"<([A-Za-z_][\w:.-]*)>")
_FENCE = re.compile(r"```[\w+.-]{0,16}\s*")
_FENCE_START = re.compile(r"`{1,2}|```[\w+.-]{0,16}\s*")
_ATTRIBUTES_START = re.compile(r"\s[^<>]*")
_INNER_FENCE = re.compile(r"\s*(?:```[\w+.-]{0,16}\s*)?")
_INNER_FENCE_START = re.compile(r"\s*(?:`{0,2}|```[\w+.-]{0,16}\s*)")
_REST_OF_TAG = re.compile(r"[^<>]*>\s*")


def _follows(held: str, position: int, texts: Sequence[str]) -> Literal["yes", "no", "undecided"]:
    if any(held.startswith(text, position) for text in texts):
        return "yes"
    rest = held[position:]
    return "undecided" if any(text.startswith(rest) for text in texts) else "no"


class MarkerTable:
    """Decides candidates: texts that begin with a marker's first character or a backtick and may grow into a marker.

    A block may stand in a code fence, and a code fence may stand in a block. `specials` are the model's special
    tokens that frame a turn: an engine drops them, so they are noise, also between a block's marker and its body.
    """

    def __init__(self, markers: Sequence[Marker], specials: Sequence[str] = ()) -> None:
        self._specials = tuple(specials)
        self._framing = re.compile(rf"(?:\s*(?:{'|'.join(map(re.escape, specials))}))+") if specials else None
        markers = (*markers, *(Marker("noise", text, None) for text in specials))
        self.markers = markers
        self._elements = {marker.element.lower(): marker for marker in markers if marker.element}
        literal = [marker for marker in markers if not marker.element and not marker.signature]
        self._signed = [(marker, marker.signature) for marker in markers if marker.signature]
        self._literals = sorted(literal, key=lambda marker: len(marker.text), reverse=True)
        names = "|".join(re.escape(name) for name in sorted(self._elements, key=len, reverse=True))
        # ASCII: else 'ı' and 'ſ' would match 'i' and 's', and the name would be unknown below.
        self._marker = re.compile(rf"<((?ai:{names}))(\s[^<>]*)?>") if names else None
        first = {"`", *(marker.text[0] for marker in self.markers if not marker.signature)}
        first.update(*(signature.first for _, signature in self._signed))
        letters = {char for char in first if char.isalpha()}
        words = [marker.text for marker in literal if marker.text[0] in letters]
        words += [part for _, signature in self._signed for part in signature.parts[:1] if isinstance(part, str)]
        starts = ["[" + "".join(re.escape(char) for char in sorted(first - letters)) + "]"]
        starts += sorted({_word_start(word) for word in words if word[0] in letters})
        self.candidate = re.compile("|".join(starts))

    def decide(self, held: str, in_code: bool, final: bool = False) -> Verdict:
        """`in_code`: the candidate stands in inline code, where a marker is a mention. `final`: nothing follows."""
        verdict = self._decide(held, in_code, final or len(held) >= MAX_CANDIDATE)
        return "text" if verdict in ("undecided", "opened") and len(held) >= MAX_CANDIDATE else verdict

    def _decide(self, held: str, in_code: bool, final: bool) -> Verdict:
        start = 0
        if held[0] == "`":
            fence = _FENCE.match(held)
            if fence is None or fence.end() == len(held):
                return "undecided" if _FENCE_START.fullmatch(held) else "text"
            start = fence.end()
        elif in_code:
            return "text"
        for marker, signature in self._signed:
            body = signature.match(held, start)
            if isinstance(body, int):
                return Found(marker, body, start > 0, ("code_fence",) if start else ())
            if body == "undecided" and not final:
                return "undecided"
        marker, stop, notes = self._match(held, start)
        if marker is None:
            return "undecided" if self._may_become_marker(held[start:]) else "text"
        if marker.kind == "reasoning":
            return "text" if start else Found(marker, stop)
        if marker.kind == "calls" and not marker.bare and self._framing is not None:
            framed = self._framing.match(held, stop)
            stop = framed.end() if framed else stop
            rest = held[stop:].lstrip()
            if rest and any(text.startswith(rest) and text != rest for text in self._specials):
                return "opened"
        if marker.follows is not None:
            return self._follows(held, start > 0, marker, marker.follows, stop, notes)
        if marker.bare:
            return self._bare(held, start, marker)
        if not (marker.starts or marker.first or marker.head):
            return "text" if start else Found(marker, stop)
        if "\n" in marker.starts and stop < len(held) and held[stop] in "\r\n":
            return Found(marker, stop, start > 0)
        return self._body(held, start > 0, marker, stop, notes)

    def _follows(
        self, held: str, fenced: bool, marker: Marker, follows: Follows, stop: int, notes: list[str]
    ) -> Verdict:
        answer = follows(held, stop)
        if answer == "undecided":
            return "opened" if marker.kind == "calls" else "undecided"
        if answer == "no":
            return "text"
        return Found(marker, stop, fenced, tuple([*notes, "code_fence"] if fenced else notes))

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
        if marker.first:
            followed = _follows(held, position, marker.first)
            if followed != "yes":
                return waiting if followed == "undecided" else "text"
        elif held[position] not in marker.starts:
            return "text"
        if held[position] == "<" and not marker.first:
            if position + 1 == len(held):
                return waiting
            if not (held[position + 1].isalpha() or held[position + 1] == "_"):
                return "text"
        if fenced or "`" in held[stop:position]:
            notes.append("code_fence")
        return Found(marker, position, fenced, tuple(notes))

    def _bare(self, held: str, start: int, marker: Marker) -> Verdict:
        tag = _REST_OF_TAG.match(held, start + len(marker.text))
        if tag is None:
            return "undecided" if "<" not in held[start + 1 :] else "text"
        followed = _follows(held, tag.end(), marker.first)
        if followed == "yes":
            return Found(marker, start, start > 0, ("code_fence",) if start else ())
        return "opened" if followed == "undecided" else "text"

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


def _word_start(word: str) -> str:
    """Finds a word by its first four letters, or what there is of them at the end of the text: a letter alone is
    everywhere in prose."""
    pattern = ""
    for char in reversed(word[1:4]):
        pattern = rf"(?=\Z|{re.escape(char)}{pattern})"
    return re.escape(word[0]) + pattern


def in_code(quoting: bool, text: str, start: int, stop: int) -> bool:
    """Whether text[stop] stands in inline code: an odd number of backticks lies before it on its line.

    `quoting` says the same of text[start].
    """
    line = text.rfind("\n", start, stop)
    if line >= 0:
        return text.count("`", line, stop) % 2 == 1
    return quoting ^ (text.count("`", start, stop) % 2 == 1)
