"""The open value between two tags: the tags that matter in it, and its state."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from toolspeak.data.values import quick
from toolspeak.dialects.readers.body import skip_space
from toolspeak.dialects.readers.open_call import without
from toolspeak.dialects.readers.tagged_values import Explicit, Reading
from toolspeak.dialects.text.block_delimiters import begins
from toolspeak.dialects.text.scan import MAX_CANDIDATE, JsonScanner
from toolspeak.dialects.text.typed_text import Types

ValueEvent = Literal["call", "call_end", "argument", "argument_end", "block", "block_end", "content", "undecided"]
"""What a tag begins or ends. `undecided`: more characters are needed."""

_BRACKET = re.compile(r"\]")


@quick(kw_only=True)
class ValueRules:
    """How a dialect reads its values."""

    reading: Reading = "exact"
    """See `read_value`."""
    trims: bool = False
    """One line break on each side of a value is not part of it. Both are CRLF if the first is."""
    tears: Literal["never", "line", "word"] = "word"
    """When a value with an unmatched end tag may be two values, so that its call fails: if the tag ends its `line`, or
    also if a `word` follows it."""
    mends: bool = False
    """The call's end, or a missing argument, ends a value without an end tag."""


class ValueTags:
    """The tags that matter in a value.

    `end`: its own end tag.
    `around`: other tags, with the same first character.
    `start`: the beginning of its own start tag.
    `loose`: white space may precede the end tag's `>`.
    `trims`: see `ValueRules`.
    """

    __slots__ = (
        "_anchor",
        "_first",
        "_in_cdata",
        "_longest",
        "_loose",
        "_partial",
        "_trims",
        "end",
        "flow",
        "pattern",
        "start",
    )

    def __init__(
        self, end: str, around: tuple[str, ...], *, start: str, loose: bool = False, trims: bool = False
    ) -> None:
        self.end, self.start = end, start
        self._anchor = end[:-1] if loose else end
        self._loose, self._trims = loose, trims
        texts = (self._anchor, *(text for text in around if text))
        self._first, self._longest = end[0], max(map(len, texts))
        literals = "|".join(map(re.escape, texts))
        self.pattern, self._in_cdata = re.compile(literals), re.compile(rf"\]|{literals}")
        self._partial = re.compile(f"(?:{'|'.join(map(_beginning, texts))})\\Z")
        seconds = "".join(dict.fromkeys(text[1] for text in texts))
        self.flow: Callable[[str], object] = without(end[0], seconds, r"[\r\n]" if trims else "")

    def match_end(self, text: str, at: int) -> int:
        """Where the end tag at `at` ends; 0 if more characters are needed, -1 without an end tag there."""
        if not text.startswith(self._anchor, at):
            return 0 if begins(text, at, self._anchor) else -1
        stop = at + len(self._anchor)
        if not self._loose:
            return stop
        stop = skip_space(text, stop)
        if stop - at >= MAX_CANDIDATE:
            return -1
        return 0 if stop == len(text) else stop + 1 if text[stop] == ">" else -1

    def find(self, text: str, position: int, value: OpenValue) -> re.Match[str] | None:
        """The next tag. In a CDATA section only the section's end counts, and tags once an end was rejected."""
        pattern = self.pattern if not value.cdata else self._in_cdata if value.following_end else _BRACKET
        return pattern.search(text, position)

    def line_break(self, text: str, start: int, stop: int, crlf: bool) -> int:
        """The start of the line break after the value in text[start:stop]; `stop` without one."""
        mark = "\r\n" if crlf else "\n"
        return stop - len(mark) if self._trims and text.endswith(mark, start, stop) else stop

    def hold_from(self, text: str, start: int, value: OpenValue) -> int:
        """Where a tag or line break that may end the value begins at the text's end; else the text's end."""
        end = len(text)
        if value.cdata and not value.following_end:
            return end
        at = text.find(self._first, max(start, end - self._longest + 1))
        partial = self._partial.search(text, at) if at >= 0 else None
        end = partial.start() if partial else end
        if not self._trims:
            return end
        value_end = self.line_break(text, start, end, value.crlf)
        return value_end - (value.crlf and value_end == end and text.endswith("\r", start, end))


def _beginning(text: str) -> str:
    """The pattern of every beginning of a text."""
    return "(?:".join(map(re.escape, text[:-1])) + ")?" * (len(text) - 2)


@dataclass(slots=True)
class NestingCounts:
    """The numbers of open blocks and calls inside a value or after an unreadable part, and whether an argument is
    open."""

    blocks: int = 0
    calls: int = 0
    argument: bool = False

    def take(self, event: ValueEvent) -> bool:
        """Records a tag. Returns whether it begins something inside, or belongs to what began inside."""
        match event:
            case "call":
                self.calls, self.argument = self.calls + 1, False
            case "call_end" if self.calls:
                self.calls, self.argument = self.calls - 1, False
            case "argument" if self.calls:
                self.argument = True
            case "argument_end" if self.argument:
                self.argument = False
            case "block":
                self.blocks += 1
            case "block_end" if self.blocks:
                self.blocks, self.calls, self.argument = self.blocks - 1, 0, False
            case _:
                return False
        return True


@dataclass(slots=True)
class OpenValue:
    """The open value.

    `explicit`: the type in its tag.
    `buffered`: it is sent when it ends, as it may hold all arguments or is a part of an argument.
    `streams`: it is certainly text, and is sent as it arrives.
    `scanner`: set while the value may be text or JSON.
    `cdata`: it is in a CDATA section.
    `crlf`: its lines end in CRLF, as its first line does.
    `following_end`: the text after the first end tag that did not count.
    `may_be_torn`: the text after such an end tag may be another value.
    `inside`: what is open in it.
    """

    name: str
    tags: ValueTags
    types: Types
    explicit: Explicit = ""
    buffered: bool = False
    streams: bool = False
    scanner: JsonScanner | None = None
    cdata: bool = False
    crlf: bool = False
    following_end: str = ""
    may_be_torn: bool = False
    inside: NestingCounts = field(default_factory=NestingCounts)
