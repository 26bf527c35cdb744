"""The value that is being read between two tags: the tags that matter in it, and what of it is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from toolspeak.data.values import quick
from toolspeak.dialects.readers.reader_states import skip_space, without
from toolspeak.dialects.readers.tagged_values import Explicit, Reading
from toolspeak.dialects.text.end_marker import begins
from toolspeak.dialects.text.scan import MAX_CANDIDATE, JsonScanner
from toolspeak.dialects.text.typed_text import Types

Event = Literal["call", "call_end", "argument", "argument_end", "block", "block_end", "content", "undecided"]
"""What stands at a tag; `undecided` asks for more characters."""

_BRACKET = re.compile(r"\]")


@quick(kw_only=True)
class ValueRules:
    """How a dialect reads its values. `reading`: see `read_value`. `trims`: one line break on each side of a value is
    no part of it (CRLF, where the value begins so). `tears`: a value that holds an end tag which nothing in it opened
    may be two values, and its call fails, if the tag ends its `line`, or if a `word` follows it. `mends`: the call's
    end, or a missing argument, ends a value that was left open."""

    reading: Reading = "exact"
    trims: bool = False
    tears: Literal["never", "line", "word"] = "word"
    mends: bool = False


class ValueTags:
    """The tags that matter in a value: its own end tag, and those `around` it, which begin with the same character.
    `start` is how its own start tag begins. `loose`: white space may stand in front of the end tag's `>`."""

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
        """Where the end tag that begins at `at` ends; 0 if more characters are needed to tell, -1 if there is none."""
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
        """The next tag; in a CDATA section its end alone, and once that was passed over tags too."""
        pattern = self.pattern if not value.cdata else self._in_cdata if value.rejected else _BRACKET
        return pattern.search(text, position)

    def line_break(self, text: str, start: int, stop: int, crlf: bool) -> int:
        """Where the line break begins that stands behind the value in text[start:stop]; `stop` if there is none."""
        mark = "\r\n" if crlf else "\n"
        return stop - len(mark) if self._trims and text.endswith(mark, start, stop) else stop

    def hold_from(self, text: str, start: int, value: OpenValue) -> int:
        """Where the end of this text may turn out to be the beginning of what ends a value."""
        end = len(text)
        if value.cdata and not value.rejected:
            return end
        at = text.find(self._first, max(start, end - self._longest + 1))
        partial = self._partial.search(text, at) if at >= 0 else None
        end = partial.start() if partial else end
        if not self._trims:
            return end
        value_end = self.line_break(text, start, end, value.crlf)
        return value_end - (value.crlf and value_end == end and text.endswith("\r", start, end))


def _beginning(text: str) -> str:
    """The pattern of a text that more characters may make this one."""
    return "(?:".join(map(re.escape, text[:-1])) + ")?" * (len(text) - 2)


@dataclass(slots=True)
class Inside:
    """What began in a value, or behind something unreadable, and has not ended: blocks, calls, an argument of these."""

    blocks: int = 0
    calls: int = 0
    argument: bool = False

    def take(self, event: Event) -> bool:
        """Whether the tag belongs to what began inside, or begins something there."""
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
    """The value being read. `streams`: it is text for certain, and leaves as it comes; `scanner` is there while it may
    be text or JSON; else it is held to its end, and so it is for certain if it is `held`: it may hold all arguments, or
    is a part of one. `explicit`: what its tag says of it. `crlf`: its lines end so, as its first does. `rejected`: what
    followed an end tag that was passed over; it is `torn` if what stands behind that may be another value."""

    name: str
    tags: ValueTags
    types: Types
    explicit: Explicit = ""
    buffered: bool = False
    streams: bool = False
    scanner: JsonScanner | None = None
    cdata: bool = False
    crlf: bool = False
    rejected: str = ""
    torn: bool = False
    inside: Inside = field(default_factory=Inside)
