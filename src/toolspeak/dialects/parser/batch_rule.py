"""Which calls of a turn count: the batch rule, applied as the blocks of a turn are read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field

from toolspeak.data.deltas import BatchEnded, CallIgnored, Delta
from toolspeak.data.values import changed, quick
from toolspeak.dialects.turn_rules import BatchRule

LATE = "the turn's batch had ended already"
NOT_LAST = "only the last call of a turn counts"


@quick(frozen=False)
class Batch:
    """The batch of one turn. `begun`: a block was seen, so that the batch has an end; `open`: it is still to come."""

    rule: BatchRule
    begun: bool = False
    open: bool = True
    _candidates: list[int] = field(default_factory=list[int])  # what counts so far
    _ok: bool = True
    _notes: tuple[str, ...] = ()

    def add(
        self,
        indexes: Sequence[int],
        malformed: Collection[int],
        notes: Sequence[str],
        out: list[Delta],
        *,
        broken: bool,
    ) -> None:
        """A block ended. `broken`: it could not be read to its end, so none of its calls counts; else those but the
        `malformed` may."""
        if not self.open:
            out.extend(CallIgnored(index, LATE) for index in indexes)
        elif self.rule.counts == "last_call":
            out.extend(CallIgnored(index, NOT_LAST) for index in (*self._candidates, *indexes[:-1]))
            self._candidates, self._notes = [*indexes[-1:]], tuple(notes)
            self._ok = not broken and indexes[-1] not in malformed
        else:
            if not broken:
                self._candidates += [index for index in indexes if index not in malformed] if malformed else indexes
            self._ok = self._ok and not broken and not malformed
            if notes:
                self._notes = (*self._notes, *(note for note in notes if note not in self._notes))
            if self.rule.counts == "first_block":
                self.end(out)

    def take_over(self, later: BatchEnded, selected: Sequence[int], malformed: Sequence[int], out: list[Delta]) -> None:
        """What another reader made of the rest of the turn; `selected` and `malformed` are its indexes in this turn."""
        if not self.open:
            out.extend(CallIgnored(index, LATE) for index in sorted((*selected, *malformed)))
            return
        if self.rule.counts == "last_call":
            out.extend(CallIgnored(index, NOT_LAST) for index in self._candidates)
            self._candidates = []
        self._candidates += selected
        self._ok = self._ok and later.ok
        self._notes = (*self._notes, *later.notes)
        self.begun = True

    def close(self, out: list[Delta]) -> None:
        """No call from here on counts: the turn is over, or the model writes results itself."""
        if self.begun and self.open:
            self.end(out)

    def end(self, out: list[Delta]) -> None:
        self.open = False
        selected = tuple(self._candidates) if self._ok or self.rule.counts != "last_call" else ()
        out.append(BatchEnded(selected, self._ok, self._notes))

    def copy(self) -> Batch:
        """As it is now, whatever is added later."""
        return changed(self, _candidates=[*self._candidates])
