"""What makes a dialect of marked blocks, and the block that is being read: what becomes of its calls when it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from toolspeak.data.deltas import CallIgnored, CallMalformed, Delta
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.text.end_marker import EndMarker
from toolspeak.dialects.text.markers import Marker, Table
from toolspeak.dialects.text.scan import Caps, Problem
from toolspeak.dialects.turn_rules import BatchRule

NewBody = Callable[[Marker, int, Caps, Mapping[str, ToolSpec]], Body]
"""Makes the reader of one block, given its marker, the index of its first call, and the known tools by name."""

CUT_VALUE = "an end tag that nothing opened follows it, so its last value may have been cut at a tag in it"


def no_example(_tools: Sequence[ToolSpec]) -> str:
    return ""


@quick()
class BlockFormat:
    """What makes a dialect of this family. The first reasoning marker is the one a prompt may have opened.
    `tools` are the known ones by name, none if every name may be one. `text_aside`: the text behind a block of calls
    is none of the answer (`DialectInfo.text_aside`). `thoughts_hide`: no call in reasoning runs, whether it has an end
    or not. `writes` a call of one of the tools: an example for a model that wrote what nobody can read."""

    table: Table
    batch: BatchRule
    new_body: NewBody
    tools: Mapping[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    caps: Caps = Caps()
    text_aside: bool = False
    thoughts_hide: bool = False
    writes: Callable[[Sequence[ToolSpec]], str] = no_example

    @property
    def example(self) -> str:
        """A call of one of the tools, as the model should write it."""
        return self.writes(tuple(self.tools.values()))


@quick(frozen=False)
class OpenBlock:
    """A block's body. With a `problem`, at the turn's `offset`, none of its calls counts."""

    marker: Marker
    end: EndMarker | None
    body: Body
    notes: tuple[str, ...]
    fence: str
    problem: Problem | None = None
    offset: int = 0

    @property
    def count(self) -> int:
        """The indexes that the block takes: one for each call, and one for what could not be read."""
        return len(self.body.calls) + (self.problem is not None)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """With those of its body."""
        notes = self.notes
        return (*notes, *(note for note in self.body.notes if note not in notes)) if self.body.notes else notes

    def settle(self, first_index: int, out: list[Delta]) -> set[int]:
        """The block is over; which of its calls are malformed."""
        calls, problem = self.body.calls, self.problem
        if problem is not None:
            out.extend(CallIgnored(call.index, "its block could not be read to the end") for call in calls)
            index, raw = first_index + len(calls), self.body.raw.value()
            out.append(CallMalformed(index, raw, problem.code, problem.reason, self.offset, None, True))
        malformed = {call.index for call in calls if type(call) is CallMalformed}
        doubted = self.body.doubted
        if not doubted:
            return malformed
        if problem is None:
            out.extend(CallIgnored(index, CUT_VALUE) for index in sorted(doubted))
        return malformed | doubted
