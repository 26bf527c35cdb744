"""The base of all parsers: the loop over the states, the pending text, the fast path of a body, and the batch. Also
assembles a turn from a parser's deltas.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    Delta,
    ForgedResults,
    PartEnded,
    ReasoningDelta,
    TextAside,
    TextDelta,
    TextWasReasoning,
    TurnEnded,
    other_dialects,
)
from toolspeak.data.messages import (
    NORMAL_END,
    FinishReason,
    MalformedCall,
    Message,
    Opaque,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    Usage,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import changed, quick, value
from toolspeak.dialects.base import Dialect
from toolspeak.dialects.readers.body import Body, PassThrough
from toolspeak.dialects.turn_rules import BatchRule, Section

ParserState = Callable[[str, int, list[Delta]], int]

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
    """The state after the turn."""
    return len(text)


class TurnParser(ABC):
    """Implements `Parser` for states. Each state takes text from text[position:] and returns where the next one begins.

    A state that needs more characters puts the rest into `_pending`.
    """

    _state: ParserState
    _text_state: ParserState  # the state that `_plain` replaces
    # Few turns set these, so they are attributes of the class: each turn makes a parser.
    _reasoning_kind: type[TextDelta | ReasoningDelta] = ReasoningDelta
    _quoting: bool = False  # whether the text so far ends inside inline code

    def __init__(self, rule: BatchRule) -> None:
        self._batch: TurnBatch = TurnBatch(rule)
        # Instance attributes: they are read often, and reading a class attribute takes five times as long.
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
        """Ends the turn after the pending text. The caller closes the batch afterwards."""

    def _end_pass_through(self, pass_through: PassThrough) -> None:
        self._position += pass_through.end()
        self._pending, self._pass_through = pass_through.rest, None

    def _hold(self, text: str, position: int) -> int:
        self._pending = text[position:]
        return len(text)

    def _await_more(self, body: Body, text: str, stop: int) -> int:
        """Waits for more text after text[stop:], or lets the body's fast path take the next chunks."""
        if stop < len(text):
            return self._hold(text, stop)
        self._pass_through = body.pass_through()
        return stop


@dataclass(frozen=True, slots=True)
class IgnoredCall:
    """A call that does not count."""

    call: ToolCall | MalformedCall
    reason: str
    """Why it does not count."""


@value()
class ParsedTurn:
    """The parsed reply of a model."""

    text: str
    """The text, verbatim."""
    reasoning: str
    """The reasoning, verbatim."""
    message: Message
    """The text, reasoning and calls that count, in order. White space around blocks and reasoning is removed."""
    calls: tuple[ToolCall | MalformedCall, ...]
    """The calls that count, with malformed ones in their position."""
    ignored: tuple[IgnoredCall, ...]
    forged: tuple[str, ...]
    """Results that the model wrote itself."""
    notes: tuple[str, ...]
    """Which deviations around the calls were accepted."""
    finish: FinishReason
    usage: Usage
    model: str | None
    response_id: str | None = None
    aside: str = ""
    """Text after the calls, which is not part of the answer or of the message."""

    @property
    def dialect(self) -> str | None:
        """The dialect that `auto` recognised, if it is not the model's own."""
        others = other_dialects(self.notes)
        return others[-1] if others else None


@quick(frozen=False, eq=False)
class _OpenPart:
    """An unfinished part of text or reasoning."""

    kind: type[TextPart | ReasoningPart]
    pieces: list[str]
    opaque: Opaque | None = None


class TurnCollector:
    """Collects deltas and builds the turn. `call_id` gives the call of an index an id that is unique in the run."""

    def __init__(self, call_id: Callable[[int], str]) -> None:
        self._call_id = call_id
        self._parts: list[_OpenPart | int] = []
        self._open: _OpenPart | None = None  # the last part, if it may continue
        self._calls: dict[int, ToolCall | MalformedCall] = {}
        self._ignored: dict[int, str] = {}
        self._forged: tuple[str, ...] = ()
        self._aside: list[str] = []
        self._notes: tuple[str, ...] = ()
        self._end = TurnEnded("stop")
        self.batch_ended = False

    def add(self, delta: Delta) -> None:
        # Most deltas are pieces of text, or of arguments, which the complete call repeats.
        if type(delta) is TextDelta:
            part = self._open
            if part is None or part.kind is not TextPart:
                part = self._begin(TextPart)
            part.pieces.append(delta.text)
        elif type(delta) is ArgumentsDelta or type(delta) is CallStarted:
            pass
        elif type(delta) is ReasoningDelta:
            part = self._open
            if part is None or part.kind is not ReasoningPart:
                part = self._begin(ReasoningPart)
            part.pieces.append(delta.text)
        elif type(delta) is CallCompleted or type(delta) is CallMalformed:
            index = delta.index
            call_id = self._call_id(index)
            if index not in self._calls:
                self._parts.append(index)
                self._open = None
            if isinstance(delta, CallCompleted):
                self._calls[index] = ToolCall(
                    call_id,
                    delta.name,
                    delta.arguments,
                    delta.id,
                    delta.notes,
                    delta.opaque,
                    repaired_from=delta.repaired_from,
                )
            else:
                malformed = MalformedCall(call_id, delta.raw, delta.code, delta.reason, delta.name, delta.whole_block)
                self._calls[index] = malformed
        elif type(delta) is TurnEnded:
            self._end = delta
        elif type(delta) is BatchEnded:
            self._notes, self.batch_ended = delta.notes, True
        else:
            self._add_other(delta)

    def _add_other(self, delta: Delta) -> None:
        match delta:
            case PartEnded(part, opaque):
                self._end_part(TextPart if part == "text" else ReasoningPart, opaque)
            case CallIgnored(index, reason):
                self._ignored[index] = reason
            case ForgedResults(raw):
                self._forged = (*self._forged, raw)
            case TextAside(text):
                self._aside.append(text)
            case TextWasReasoning():
                self._end_part(TextPart, None)
                for part in self._parts:
                    if isinstance(part, _OpenPart) and part.kind is TextPart and part.opaque is None:
                        part.kind = ReasoningPart
            case _:
                pass

    def completed(self, first: int) -> Sequence[ToolCall | MalformedCall]:
        """The complete calls from the position `first` on, in the order in which they ended."""
        return [*self._calls.values()][first:]

    def _begin(self, kind: type[TextPart | ReasoningPart]) -> _OpenPart:
        part = self._open = _OpenPart(kind, [])
        self._parts.append(part)
        return part

    def _end_part(self, kind: type[TextPart | ReasoningPart], opaque: Opaque | None) -> None:
        part = self._open
        if part is None or part.kind is not kind:
            if opaque is None:
                return
            part = _OpenPart(kind, [])
            self._parts.append(part)
        part.opaque, self._open = opaque, None

    def turn(self) -> ParsedTurn:
        counting = self._calls
        ignored: tuple[IgnoredCall, ...] = ()
        if self._ignored:
            counting = {index: call for index, call in self._calls.items() if index not in self._ignored}
            ignored = tuple(IgnoredCall(self._calls[i], why) for i, why in self._ignored.items() if i in self._calls)
        parts: list[Part] = []
        texts: list[str] = []
        thoughts: list[str] = []
        for entry in self._parts:
            if isinstance(entry, int):
                if entry in counting:
                    parts.append(counting[entry])
                continue
            text = "".join(entry.pieces)
            (texts if entry.kind is TextPart else thoughts).append(text)
            if entry.kind is TextPart and entry.opaque is None:
                text = text.strip()  # blocks, reasoning or the turn's ends are its neighbours
            if text or entry.opaque is not None:
                parts.append(entry.kind(text, entry.opaque))
        calls = counting.values() if len(counting) < 2 else [counting[index] for index in sorted(counting)]
        return ParsedTurn(
            text="".join(texts),
            reasoning="".join(thoughts),
            message=Message("assistant", tuple(parts)),
            calls=tuple(calls),
            ignored=ignored,
            forged=self._forged,
            notes=self._notes,
            finish=self._end.finish,
            usage=self._end.usage,
            model=self._end.model,
            response_id=self._end.response_id,
            aside="".join(self._aside),
        )


def with_reasoning(deltas: Iterable[Delta]) -> list[Delta]:
    """The deltas of an unpublished turn, with text that turned out to be reasoning as `ReasoningDelta`."""
    out: list[Delta] = []
    for delta in deltas:
        if isinstance(delta, TextWasReasoning):
            out = [ReasoningDelta(each.text) if isinstance(each, TextDelta) else each for each in out]
        else:
            out.append(delta)
    return out


def read_turn(
    dialect: Dialect,
    text: str,
    tools: Sequence[ToolSpec] = (),
    *,
    finish: FinishReason = "stop",
    starts_in: Section = "text",
    call_id: Callable[[int], str] = lambda index: f"call_{index}",
) -> ParsedTurn:
    """Parses a whole reply with the parser of streams."""
    parser = dialect.parser(tools, starts_in)
    collector = TurnCollector(call_id)
    deltas: Iterable[Delta] = (*parser.feed(text), *parser.close(finish), TurnEnded(finish))
    for delta in deltas:
        collector.add(delta)
    return collector.turn()
