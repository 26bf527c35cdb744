"""Assembles a turn from a parser's deltas: its text, its calls, and the message for the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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
from toolspeak.data.values import quick, value
from toolspeak.dialects.base import Dialect
from toolspeak.dialects.turn_rules import Section


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
    ignored_calls: tuple[IgnoredCall, ...]
    forged_results: tuple[str, ...]
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
        self._ignored_reasons: dict[int, str] = {}
        self._forged_results: tuple[str, ...] = ()
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
                malformed_call = MalformedCall(
                    call_id, delta.raw, delta.code, delta.reason, delta.name, delta.whole_block
                )
                self._calls[index] = malformed_call
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
                self._ignored_reasons[index] = reason
            case ForgedResults(raw):
                self._forged_results = (*self._forged_results, raw)
            case TextAside(text):
                self._aside.append(text)
            case TextWasReasoning():
                self._end_part(TextPart, None)
                for part in self._parts:
                    if isinstance(part, _OpenPart) and part.kind is TextPart and part.opaque is None:
                        part.kind = ReasoningPart
            case _:
                pass

    def complete_calls(self, first: int) -> Sequence[ToolCall | MalformedCall]:
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
        ignored_calls: tuple[IgnoredCall, ...] = ()
        if self._ignored_reasons:
            counting = {index: call for index, call in self._calls.items() if index not in self._ignored_reasons}
            ignored_calls = tuple(
                IgnoredCall(self._calls[i], why) for i, why in self._ignored_reasons.items() if i in self._calls
            )
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
            ignored_calls=ignored_calls,
            forged_results=self._forged_results,
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
