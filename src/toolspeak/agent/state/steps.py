"""A run's records, and the steps that they make: each model turn with its calls and their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from toolspeak.agent.state.fold import apply
from toolspeak.agent.state.state import RunState
from toolspeak.data.events import ModelAnswered, ModelAsked, ModelTextReceived, Record, ToolFinished, ToolStarted
from toolspeak.data.messages import FinishReason, JsonPart, Message, TextPart, ToolCall, Usage
from toolspeak.data.values import changed, quick
from toolspeak.execute import NO_DETAILS, LocalDetails, ToolExecution
from toolspeak.execute.calls.observe import Observed
from toolspeak.execute.calls.prepare import key_of


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
    started: float
    """Unix seconds of the request to the model."""
    completed: float
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
    run: Observed


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
        self._started: dict[str, tuple[float, ToolCall | None]] = {}

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
            written = (event.message, event.finish, event.usage, event.cost)
            steps.append(RunStep(record.step, read, *written, (), asked_at, record.time))
            self._started = {}
        elif isinstance(event, ToolStarted):
            self._started[event.call_id] = (record.time, event.changed)
        elif isinstance(event, ToolFinished) and steps:
            step, result = steps[-1], event.result
            order = {call.id: place for place, call in enumerate(step.message.calls)}
            began, call = self._started.get(result.call_id, (record.time, None))
            call = call or step.message.calls[order[result.call_id]]
            details = self._details.get(result.call_id) or _details_of(event)
            execution = ToolExecution(key_of(record.run_id, result.call_id), call, result, began, record.time, details)
            executions = sorted((*step.executions, execution), key=lambda each: order[each.result.call_id])
            steps[-1] = changed(step, executions=tuple(executions), completed=record.time)


def _details_of(event: ToolFinished) -> LocalDetails:
    """The whole result, if it was recorded beside the shortened one for the model."""
    if event.whole is None:
        return NO_DETAILS
    part: TextPart | JsonPart = TextPart(event.whole)
    if event.result.content and isinstance(event.result.content[0], JsonPart):
        with suppress(ValueError):
            part = JsonPart(json.loads(event.whole))
    return LocalDetails(whole=replace(event.result, content=(part,)))
