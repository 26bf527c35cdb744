"""A dialect's blocks of calls: how a parser recognises and reads them, the open block, and a block that repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal

from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.text.block_delimiters import EndMarker
from toolspeak.dialects.text.markers import Marker, Table
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Buffer, Caps, Problem
from toolspeak.dialects.turn_rules import BatchRule

NewBody = Callable[[Marker, int, Caps, Mapping[str, ToolSpec]], Body]
"""Makes the reader of a block from its marker, the index of its first call, the limits, and the known tools by name."""


def no_example(_tools: Sequence[ToolSpec]) -> str:
    return ""


@quick()
class BlockFormat:
    """A dialect of marked blocks."""

    table: Table
    """Recognises the markers. A prompt may have opened the first reasoning marker."""
    batch: BatchRule
    new_body: NewBody
    tools: Mapping[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    """The known tools by name. Without any, every name may be a tool."""
    caps: Caps = Caps()
    text_aside: bool = False
    """The text after a block of calls is not part of the answer (`DialectInfo.text_aside`)."""
    thoughts_hide: bool = False
    """No call in reasoning runs, with or without an end of reasoning."""
    writes: Callable[[Sequence[ToolSpec]], str] = no_example
    """Writes a call of one of the tools: the example for a model whose call is unreadable."""

    @property
    def example(self) -> str:
        """A call of one of the tools, as the model should write it."""
        return self.writes(tuple(self.tools.values()))

    def without_frames(self, text: str) -> str:
        """The text without the special tokens that end a turn."""
        frames = self.table.markup.frames
        while ending := next((frame for frame in frames if text.rstrip().endswith(frame)), ""):
            text = text.rstrip().removesuffix(ending)
        return text


@quick(frozen=False)
class OpenBlock:
    """A block and the reader of its body."""

    marker: Marker
    end: EndMarker | None
    body: Body
    notes: tuple[str, ...]
    """Which deviations were accepted."""
    fence: str
    """The code fence around the block; empty without one."""
    problem: Problem | None = None
    """Why the block is unreadable. None of its calls counts then."""
    offset: int = 0
    """The offset of the problem in the turn."""


@quick(frozen=False, eq=False)
class Echo:
    """Recognises a block that the model repeats right after its end marker, without the start marker (LFM2).

    The repetition is the block's body and its end marker, byte for byte, after optional white space. Its first
    `MAX_CANDIDATE` characters decide.
    """

    body: Buffer
    end: str
    opens: Callable[[str], bool]
    """Whether a text begins a call by itself, so that it is no repetition."""
    _whole: str = ""
    _progress: int = 0  # how many characters of `_whole` were read

    def read(self, text: str, position: int) -> tuple[Literal["none", "undecided", "more", "over"], int]:
        """Which part of a repetition text[position:] is, and where that part ends."""
        if self._progress:
            return self._continue(text, position, position)
        window = text[position : position + MAX_CANDIDATE]
        rest = window.lstrip()
        if not rest:
            return "undecided" if len(window) < MAX_CANDIDATE else "none", position
        self._whole = self._whole or self.body.value().lstrip() + self.end
        length = min(len(rest), len(self._whole))
        if rest[:length] != self._whole[:length] or self.opens(self._whole[:MAX_CANDIDATE]):
            return "none", position
        if length < len(self._whole) and len(window) < MAX_CANDIDATE:
            return "undecided", position
        return self._continue(text, position, position + len(window) - len(rest))

    def _continue(self, text: str, position: int, start: int) -> tuple[Literal["more", "over"], int]:
        remaining = len(self._whole) - self._progress
        piece = text[start : start + remaining]
        if not self._whole.startswith(piece, self._progress):
            return "over", position
        self._progress += len(piece)
        return "over" if len(piece) == remaining else "more", start + len(piece)
