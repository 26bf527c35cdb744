"""What must hold at every step of a turn: of the deltas so far, and of what a parser keeps to itself.

    parser = CheckedParser(dialect.parser(tools))

reads like the parser it wraps, and raises AssertionError at the first step at which something is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
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
    ReasoningDelta,
    TextAside,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import JSON, FinishReason
from toolspeak.dialects.base import Parser
from toolspeak.dialects.text.scan import MAX_CANDIDATE


@dataclass(slots=True)
class _CallSeen:
    name: str | None
    id: str | None = None
    arguments: list[str] = field(default_factory=list[str])
    started: bool = False
    end: CallCompleted | CallMalformed | None = None
    ignored: bool = False


class TurnChecker:
    """The deltas of one turn make sense together; each is checked as it comes, the whole by `finish`.

    Of every call: started, then its arguments, then completed or malformed, then nothing more but at most one
    `CallIgnored`. Indexes count up from 0 in order of appearance. The argument fragments of a completed call
    join to JSON that equals its arguments. At most one `BatchEnded`; it selects completed calls that are not
    ignored, in order. When the turn is over every call has ended, a completed one is selected or ignored, and
    `ok` says whether a malformed one counts.
    """

    def __init__(self) -> None:
        self._calls: dict[int, _CallSeen] = {}
        self._batch: BatchEnded | None = None
        self._over = False

    def add(self, delta: Delta) -> None:
        calls = self._calls
        require(not self._over, f"{delta!r} comes after the turn ended")
        match delta:
            case TextDelta(text) | TextAside(text) | ReasoningDelta(text):
                require(text != "", f"an empty {type(delta).__name__}")
            case CallStarted(index, name, id):
                require(index == len(calls), f"call {index} starts, {len(calls)} is next")
                calls[index] = _CallSeen(name, id, started=True)
            case ArgumentsDelta(index, text):
                self._open_call(index, delta).arguments.append(text)
            case CallCompleted(index):
                _complete(self._open_call(index, delta), delta)
            case CallMalformed(index):
                self._check_malformed(index, delta)
            case CallIgnored(index, _):
                self._check_ignored(index)
            case BatchEnded():
                require(self._batch is None, "the batch ends twice")
                self._batch = delta
                self._check_batch(delta)
            case TurnEnded():
                self._over = True
            case _:
                pass

    def finish(self) -> None:
        """No more deltas come."""
        self._over = True
        calls, batch = self._calls, self._batch
        require(batch is not None or not calls, "there were calls and the batch did not end")
        selected_indexes = batch.selected if batch else ()
        wrong = False
        for index, call in calls.items():
            require(call.end is not None, f"call {index} never ended")
            if isinstance(call.end, CallCompleted):
                is_reported = index in selected_indexes or call.ignored
                require(is_reported, f"call {index} is completed, not selected and not ignored")
            else:
                wrong = wrong or not call.ignored
        if batch is not None:
            require(batch.ok != wrong, f"the batch says ok={batch.ok}, but malformed calls that count: {wrong}")

    def _open_call(self, index: int, delta: Delta) -> _CallSeen:
        call = self._calls.get(index)
        if call is None or not call.started:
            raise AssertionError(f"{delta!r} comes before the call started")
        require(call.end is None, f"{delta!r} comes after the call ended")
        return call

    def _check_malformed(self, index: int, delta: CallMalformed) -> None:
        call = self._calls.get(index)
        if call is None:
            require(index == len(self._calls), f"call {index} is malformed, {len(self._calls)} is next")
            call = self._calls[index] = _CallSeen(delta.name)
        require(call.end is None, f"call {index} is malformed after it ended")
        require(delta.code != "" and delta.reason != "", f"call {index} is malformed without a code or reason")
        require(delta.offset >= 0, f"call {index} is malformed at {delta.offset}")
        call.end = delta

    def _check_ignored(self, index: int) -> None:
        call = self._calls.get(index)
        if call is None or call.end is None:
            raise AssertionError(f"call {index} is ignored before it ended")
        require(not call.ignored, f"call {index} is ignored twice")
        is_selected = self._batch is not None and index in self._batch.selected
        require(not is_selected, f"call {index} is selected and ignored")
        call.ignored = True

    def _check_batch(self, batch: BatchEnded) -> None:
        require(list(batch.selected) == sorted(set(batch.selected)), f"selected out of order: {batch.selected}")
        for index in batch.selected:
            call = self._calls.get(index)
            is_complete = call is not None and isinstance(call.end, CallCompleted)
            require(is_complete, f"call {index} is selected and was not completed")
            require(call is None or not call.ignored, f"call {index} is selected and ignored")


def _complete(call: _CallSeen, delta: CallCompleted) -> None:
    require(call.name == delta.name, f"call {delta.index} started as {call.name!r}, completed as {delta.name!r}")
    require(call.id in (None, delta.id), f"call {delta.index} started as id {call.id!r}, completed as {delta.id!r}")
    text = "".join(call.arguments)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise AssertionError(f"the argument fragments of call {delta.index} are no JSON ({error}): {text!r}") from None
    same = exact(value) == exact(dict(delta.arguments))
    require(same, f"the argument fragments of call {delta.index} say {text!r}, its arguments {delta.arguments!r}")
    call.end = delta
    call.arguments.clear()


def check_deltas(deltas: Iterable[Delta], *, complete: bool = True) -> None:
    """The deltas of one turn pass `TurnChecker`; `complete=False` for a turn that is still running."""
    checker = TurnChecker()
    for delta in deltas:
        checker.add(delta)
    if complete:
        checker.finish()


class CheckedParser:
    """Implements `Parser` on top of another, and checks after every step what the contract says of it.

    - The deltas so far make sense together (`TurnChecker`), and the whole turn does when it is closed.
    - No step tells more text than arrived in it and `max_held` characters before: text is not held back longer. None
      if a dialect holds whole calls back.
    - Text and reasoning are pieces of what arrived, in its order: nothing is repeated, reordered or made up.
    """

    def __init__(self, parser: Parser, max_held: int | None = MAX_CANDIDATE) -> None:
        self._parser = parser
        self._turn = TurnChecker()
        self._max_held = max_held
        self._in_examples: int = 0
        self._chunks: list[str] = []
        self._texts: list[str] = []

    def keep_reasoning(self) -> None:
        self._parser.keep_reasoning()

    def feed(self, chunk: str) -> list[Delta]:
        self._chunks.append(chunk)
        return self._step(self._parser.feed(chunk), len(chunk))

    def close(self, reason: FinishReason) -> list[Delta]:
        deltas = self._step(self._parser.close(reason), 0)
        self._turn.finish()
        self._check_emitted()
        return deltas

    def _step(self, deltas: Iterable[Delta], chunk_length: int) -> list[Delta]:
        step = list(deltas)
        texts = [delta.text for delta in step if isinstance(delta, TextDelta | TextAside | ReasoningDelta)]
        for delta in step:
            self._turn.add(delta)
        held_back = sum(len(delta.text) for delta in step if isinstance(delta, TextDelta | TextAside)) - chunk_length
        in_examples = getattr(self._parser, "shown_chars", 0)  # an example is held back until it is known as one
        held_back, self._in_examples = held_back - (in_examples - self._in_examples), in_examples
        if self._max_held is not None and held_back > self._max_held:
            raise AssertionError(
                f"{held_back} characters of text were held back, more than {self._max_held}: {texts!r}"
            )
        self._texts += texts
        return step

    def _check_emitted(self) -> None:
        whole_text, position = "".join(self._chunks), 0
        for text in self._texts:
            at = whole_text.find(text, position)
            require(at >= 0, f"the text {text!r} did not arrive, or was told before", whole_text)
            position = at + len(text)


def words_in(delta: Delta) -> Iterable[str]:
    """Every text that a delta carries."""
    match delta:
        case TextDelta(text) | TextAside(text) | ReasoningDelta(text) | ForgedResults(text):
            yield text
        case CallStarted(_, name, id):
            yield from (name, id or "")
        case CallCompleted():
            yield from (delta.name, delta.id or "", exact(dict(delta.arguments)), *delta.notes)
        case CallMalformed():
            yield delta.raw
        case _:
            pass


def check_nothing_lost(words: Iterable[str], deltas: Iterable[Delta]) -> None:
    """Each of these words, which stand in what a model wrote, stands in what was read: as text, in a call, in the raw
    text of a malformed one or of forged results."""
    content = "\n".join(text for delta in deltas for text in words_in(delta))
    lost_words = [word for word in words if word not in content]
    require(not lost_words, f"lost: {lost_words!r}", content)


def exact(value: JSON) -> str:
    """A value as text in which 1, 1.0 and true differ, and the order of keys does not matter."""
    return json.dumps(value, sort_keys=True)


def require(condition: bool, message: str, text: str = "") -> None:
    if not condition:
        raise AssertionError(f"{message}\nin {text!r}" if text else message)
