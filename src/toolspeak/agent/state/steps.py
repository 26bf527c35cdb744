"""What a run's records hold: its steps, each a model turn with its calls and their results; and its tools' memory.

What a call changes of the memory is recorded with the call's result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from toolspeak.agent.state.fold import apply, fold
from toolspeak.agent.state.state import RunState
from toolspeak.data.events import (
    MemoryChanged,
    ModelAnswered,
    ModelAsked,
    ModelTextReceived,
    Record,
    ToolFinished,
    ToolStarted,
)
from toolspeak.data.messages import JSON, FinishReason, JsonPart, Message, TextPart, ToolCall, Usage
from toolspeak.data.values import evolve, quick
from toolspeak.execute import NO_DETAILS, LocalDetails, Secrets, ToolExecution
from toolspeak.execute.calls.observe import EventOrigin
from toolspeak.execute.calls.prepare import key_of
from toolspeak.tools.returned_values import Unserialisable, jsonable
from toolspeak.tools.stored_results import KEY

_PLAIN = frozenset({str, int, bool, float, type(None)})
_MISSING = object()


@quick()
class RunStep:
    """One model turn and its batch."""

    number: int
    """Counted from 1 in each run."""
    input: Sequence[Message]
    """The conversation that the model read."""
    message: Message
    """What the model wrote, with the calls that count."""
    finish: FinishReason
    usage: Usage
    cost: float | None
    """USD; None if the price is not known."""
    executions: tuple[ToolExecution, ...]
    """The calls that have a result, in call order."""
    started_at: float
    """Unix seconds of the request to the model."""
    completed_at: float
    """Unix seconds of the last result, or of the turn if it has no call."""

    @property
    def output(self) -> tuple[Message, ...]:
        """What the step adds to the conversation: the model's message, and the results of its calls."""
        results = tuple(each.result for each in self.executions)
        return (self.message, Message("tool", results)) if results else (self.message,)


@quick()
class StepEnded:
    """An event for observers: a step is over. The turn is read, and each of its calls has a result."""

    step: RunStep
    run: EventOrigin


class RunRecords:
    """The records of one run in order, and its steps. `before` are the messages of the runs that it follows."""

    def __init__(self, records: Sequence[Record] = (), before: Sequence[Message] = ()) -> None:
        self.records: list[Record] = []
        """Without `ModelTextReceived`: the record of the turn has the same text."""
        self.prepend(records, before)
        self._reading: _Reading | None = None  # steps are made when they are first read
        self.details: dict[str, LocalDetails] = {}
        """What of the run's calls is not recorded, by call id."""

    def prepend(self, records: Sequence[Record], before: Sequence[Message]) -> None:
        """Puts the run's earlier records in front. `before` as in the constructor."""
        if records:
            self.records[:0] = [record for record in records if type(record.event) is not ModelTextReceived]
        self._before = before

    def before_turn(self) -> RunState:
        """The run's state before its last model turn was asked for."""
        at = max(place for place, record in enumerate(self.records) if type(record.event) is ModelAsked)
        return fold(self.records[:at], self._before)

    @property
    def steps(self) -> tuple[RunStep, ...]:
        """The run's steps until now."""
        if self._reading is None:
            self._reading = _Reading(self._before, self.details)
        return self._reading.steps(self.records)


class _Reading:
    """Makes the steps of a growing list of records. `before` and `details` as in `RunRecords`."""

    def __init__(self, before: Sequence[Message], details: Mapping[str, LocalDetails]) -> None:
        self._before = before
        self._details = details
        self._read = 0  # the number of records that are in the steps
        self._state: RunState | None = None
        self._steps: list[RunStep] = []
        self._turn_start: tuple[float, Sequence[Message]] = (0.0, ())
        self._starts: dict[str, tuple[float, ToolCall | None]] = {}

    def steps(self, records: Sequence[Record]) -> tuple[RunStep, ...]:
        """The steps of these records, which begin with the records of the last call."""
        for record in records[self._read :]:
            self._take(record)
        self._read = len(records)
        return tuple(self._steps)

    def _take(self, record: Record) -> None:
        self._state = apply(self._state, record, self._before)
        event, steps = record.event, self._steps
        if isinstance(event, ModelAsked):
            self._turn_start = record.time, self._state.history
        elif isinstance(event, ModelAnswered):
            asked_at, read = self._turn_start
            answer = (event.message, event.finish, event.usage, event.cost)
            steps.append(RunStep(record.step, read, *answer, (), asked_at, record.time))
            self._starts = {}
        elif isinstance(event, ToolStarted):
            self._starts[event.call_id] = (record.time, event.changed)
        elif isinstance(event, ToolFinished) and steps:
            step, result = steps[-1], event.result
            order = {call.id: place for place, call in enumerate(step.message.calls)}
            began, call = self._starts.get(result.call_id, (record.time, None))
            call = call or step.message.calls[order[result.call_id]]
            details = self._details.get(result.call_id) or _details_of(event)
            execution = ToolExecution(key_of(record.run_id, result.call_id), call, result, began, record.time, details)
            executions = sorted((*step.executions, execution), key=lambda each: order[each.result.call_id])
            steps[-1] = evolve(step, executions=tuple(executions), completed_at=record.time)


def _details_of(event: ToolFinished) -> LocalDetails:
    """The whole result, if it was recorded beside the shortened one for the model."""
    if event.whole is None:
        return NO_DETAILS
    part: TextPart | JsonPart = TextPart(event.whole)
    if event.result.content and isinstance(event.result.content[0], JsonPart):
        with suppress(ValueError):
            part = JsonPart(json.loads(event.whole))
    return LocalDetails(whole=replace(event.result, content=(part,)))


class Memory:
    """Finds the changes of `values`, the mapping that the run's tools share.

    `recorded_changes`: the changes in the run's records.

    A value that is a mapping with string keys is compared entry by entry, so that one that grows with the run (the
    files it has read) is not recorded anew with every call. Results for `read_result` are left out: they are recorded
    as such.
    """

    def __init__(self, values: dict[str, Any], recorded_changes: Iterable[MemoryChanged], secrets: Secrets) -> None:
        self.values = values
        self._secrets = secrets
        # Not from `values`: the caller may have changed those since they were recorded.
        self._recorded_values = cast("dict[str, Any]", secrets.reveal(memory_after(recorded_changes)))

    def changes(self) -> tuple[tuple[MemoryChanged, ...], dict[str, str]]:
        """The changes since the last call, and the keys whose value is not JSON, with the reason."""
        changes: list[MemoryChanged] = []
        problems: dict[str, str] = {}
        now = {key: value for key, value in dict(self.values).items() if key != KEY}
        for key in self._recorded_values.keys() - now.keys():
            del self._recorded_values[key]
            changes.append(self._change(key, forgotten=True))
        for key, value in now.items():
            try:
                changes += self._of(key, value)
            except Unserialisable as error:
                problems[key] = str(error)
        return tuple(changes), problems

    def _of(self, key: str, value: object) -> Iterable[MemoryChanged]:
        recorded_value = self._recorded_values.get(key, _MISSING)
        entries = _entries(value)
        if entries is None or (recorded_value is not _MISSING and type(recorded_value) is not dict):
            plain = _differs(value, recorded_value)
            if plain is not _MISSING:
                self._recorded_values[key] = plain
                yield self._change(key, value=plain)
            return
        if recorded_value is _MISSING and entries:
            recorded_value = self._recorded_values[key] = {}
        here = cast("dict[str, Any]", recorded_value if recorded_value is not _MISSING else {})
        for name in here.keys() - entries.keys():
            del here[name]
            yield self._change(key, name, forgotten=True)
        for name, item in entries.items():
            plain = _differs(item, here.get(name, _MISSING))
            if plain is not _MISSING:
                here[name] = plain
                yield self._change(key, name, value=plain)

    def _change(self, *path: str, value: Any = None, forgotten: bool = False) -> MemoryChanged:
        return MemoryChanged(tuple(map(self._secrets.hide_text, path)), self._secrets.hide(value), forgotten)


def memory_after(changes: Iterable[MemoryChanged]) -> dict[str, JSON]:
    """The memory after these changes."""
    memory: dict[str, Any] = {}
    for change in changes:
        *inner, last = change.path
        place = memory
        for key in inner:
            place = place.setdefault(key, {})
        if change.forgotten:
            place.pop(last, None)
        else:
            place[last] = change.value
    return memory


def _entries(value: object) -> dict[str, Any] | None:
    """A copy of the entries of a mapping with string keys, else None. A tool in a thread may continue writing."""
    if type(value) is not dict:
        return None
    entries = dict(cast("dict[Any, Any]", value))
    return entries if all(type(name) is str for name in entries) else None


def _differs(value: Any, recorded_value: Any) -> Any:
    """A copy of the value in the types of JSON, if it differs from the recorded one; else `_MISSING`."""
    if value is recorded_value and type(value) in _PLAIN:
        return _MISSING
    plain = value if type(value) in _PLAIN - {float} else jsonable(value)
    return _MISSING if type(plain) is type(recorded_value) and plain == recorded_value else plain
