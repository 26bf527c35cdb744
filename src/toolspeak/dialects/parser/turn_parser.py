"""The base of all parsers: the loop over the states, the pending text, the fast path of a body, and the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import field

from toolspeak.data.deltas import BatchEnded, CallIgnored, Delta, ReasoningDelta, TextDelta
from toolspeak.data.messages import NORMAL_END, FinishReason
from toolspeak.data.values import changed, quick
from toolspeak.dialects.readers.body import Body, PassThrough
from toolspeak.dialects.turn_rules import BatchRule

State = Callable[[str, int, list[Delta]], int]

LATE = "the turn's batch had ended already"
NOT_LAST = "only the last call of a turn counts"


@quick(frozen=False)
class TurnBatch:
    """The batch of one turn."""

    rule: BatchRule
    has_block: bool = False
    """A block began, so the batch has an end."""
    open: bool = True
    """The batch has not ended."""
    _candidates: list[int] = field(default_factory=list[int])  # the indexes of the calls that count so far
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
        """Adds the calls of a block that ended.

        `indexes`: all calls of the block; those in `malformed` do not count.
        `notes`: which deviations were accepted.
        `broken`: the block's end could not be read, so none of its calls counts.
        """
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
                self.close(out)

    def take_over(self, later: BatchEnded, selected: Sequence[int], malformed: Sequence[int], out: list[Delta]) -> None:
        """Adds the batch of another parser, which read the rest of the turn.

        `selected` and `malformed` are the indexes of its calls in this turn.
        """
        if not self.open:
            out.extend(CallIgnored(index, LATE) for index in sorted((*selected, *malformed)))
            return
        if self.rule.counts == "last_call":
            out.extend(CallIgnored(index, NOT_LAST) for index in self._candidates)
            self._candidates = []
        self._candidates += selected
        self._ok = self._ok and later.ok
        self._notes = (*self._notes, *later.notes)
        self.has_block = True

    def close(self, out: list[Delta]) -> None:
        """Ends the batch: the turn is over, or the model writes results itself. Later calls do not count."""
        if self.has_block and self.open:
            self.open = False
            selected = tuple(self._candidates) if self._ok or self.rule.counts != "last_call" else ()
            out.append(BatchEnded(selected, self._ok, self._notes))

    def copy(self) -> TurnBatch:
        """A copy that later additions do not change."""
        return changed(self, _candidates=[*self._candidates])


def _over(text: str, _position: int, _out: list[Delta]) -> int:
    """The state behind the turn."""
    return len(text)


class TurnParser(ABC):
    """Implements `Parser` for states. Each state takes text from text[position:] and returns where the next one begins.

    A state that needs more characters puts the rest into `_pending`.
    """

    _state: State
    _text_state: State  # the state that `_plain` replaces
    # Few turns set these, so they are attributes of the class: each turn makes a parser.
    _reasoning_kind: type[TextDelta | ReasoningDelta] = ReasoningDelta
    _quoting: bool = False  # whether the text so far ends inside inline code

    def __init__(self, rule: BatchRule) -> None:
        self._batch: TurnBatch = TurnBatch(rule)
        # These are read often, and reading an attribute of the class takes five times as long.
        self._calls: int = 0
        self._pass_through: PassThrough | None = None
        self._pending: str = ""  # an undecided candidate of at most MAX_CANDIDATE characters
        self._position: int = 0  # the offset in the turn of the pending text, or else of the next chunk

    def feed(self, chunk: str) -> list[Delta]:
        if self._pass_through is not None:
            deltas = self._pass_through.take(chunk)
            if deltas is not None:
                return deltas
            self._end_pass_through(self._pass_through)
        plain = self._plain(chunk)
        if plain is not None:
            return plain
        out: list[Delta] = []
        text = self._pending + chunk if self._pending else chunk
        position, end = 0, len(text)
        self._pending = ""
        while position < end and not self._pending:
            position = self._state(text, position, out)
        self._position += end - len(self._pending)
        return out

    def close(self, reason: FinishReason) -> list[Delta]:
        out: list[Delta] = []
        if self._pass_through is not None:
            self._end_pass_through(self._pass_through)
            out += self.feed("")
        self._end(out, reason in NORMAL_END)
        self._pending = ""
        self._batch.close(out)
        # A bound method is a reference cycle, which would keep the turn's text until the garbage collector runs.
        self._state = self._text_state = _over
        return out

    def keep_reasoning(self) -> None:
        self._reasoning_kind = TextDelta

    def _plain(self, chunk: str) -> list[Delta] | None:
        """The deltas of a chunk of plain text; None if the states must read the chunk."""
        return None

    @abstractmethod
    def _end(self, out: list[Delta], normal: bool) -> None:
        """Ends the turn behind the pending text. The caller closes the batch afterwards."""

    def _end_pass_through(self, pass_through: PassThrough) -> None:
        self._position += pass_through.end()
        self._pending, self._pass_through = pass_through.rest, None

    def _hold(self, text: str, position: int) -> int:
        self._pending = text[position:]
        return len(text)

    def _go_on(self, body: Body, text: str, stop: int) -> int:
        """Waits for more text behind text[stop:], or lets the body's fast path take the next chunks."""
        if stop < len(text):
            return self._hold(text, stop)
        self._pass_through = body.pass_through()
        return stop
