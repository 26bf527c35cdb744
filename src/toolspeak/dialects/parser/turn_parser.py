"""What the parsers of turns share: the loop over the states, what is held back, the run of a body, and the batch."""

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
    """The batch of one turn. `has_block`: a block began, so the batch has an end. `open`: that end is still to come."""

    rule: BatchRule
    has_block: bool = False
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
                self.close(out)

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
        self.has_block = True

    def close(self, out: list[Delta]) -> None:
        """No call from here on counts: the turn is over, or the model writes results itself."""
        if self.has_block and self.open:
            self.open = False
            selected = tuple(self._candidates) if self._ok or self.rule.counts != "last_call" else ()
            out.append(BatchEnded(selected, self._ok, self._notes))

    def copy(self) -> TurnBatch:
        """As it is now, whatever is added later."""
        return changed(self, _candidates=[*self._candidates])


def _over(text: str, _position: int, _out: list[Delta]) -> int:
    """The state behind the turn."""
    return len(text)


class TurnParser(ABC):
    """Implements `Parser` for states: each takes what it can from text[position:] and returns where the next begins;
    one that needs more characters puts the rest into `_pending`."""

    _state: State
    _text_state: State  # what `_plain` reads in place of
    # Of the class until they are set, as some are in few turns: it is made for each.
    _reasoning_kind: type[TextDelta | ReasoningDelta] = ReasoningDelta
    _quoting: bool = False  # whether the text so far ends inside inline code

    def __init__(self, rule: BatchRule) -> None:
        self._batch: TurnBatch = TurnBatch(rule)
        # Asked for again and again, and an attribute of the class takes five times as long.
        self._calls: int = 0
        self._pass_through: PassThrough | None = None
        self._pending: str = ""  # a candidate not yet decided; at most MAX_CANDIDATE characters
        self._position: int = 0  # of the turn, at the start of held + chunk

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
        # A method of its own holds the parser: all it knows would stay until the garbage collector comes.
        self._state = self._text_state = _over
        return out

    def keep_reasoning(self) -> None:
        self._reasoning_kind = TextDelta

    def _plain(self, chunk: str) -> list[Delta] | None:
        """The deltas of a chunk in which nothing can begin, if the states need not see it."""
        return None

    @abstractmethod
    def _end(self, out: list[Delta], normal: bool) -> None:
        """Nothing follows what is held; the batch is closed then."""

    def _end_pass_through(self, pass_through: PassThrough) -> None:
        self._position += pass_through.end()
        self._pending, self._pass_through = pass_through.rest, None

    def _hold(self, text: str, position: int) -> int:
        self._pending = text[position:]
        return len(text)

    def _go_on(self, body: Body, text: str, stop: int) -> int:
        """The body wants more than the text up to `stop`: the rest comes again, or a run takes the next chunks."""
        if stop < len(text):
            return self._hold(text, stop)
        self._pass_through = body.pass_through()
        return stop
