"""A run's steps, read off its records: each model turn with its calls and what came of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

from toolspeak.agent.fold import apply
from toolspeak.agent.state import RunState
from toolspeak.data.events import ModelAnswered, ModelAsked, ModelTextReceived, Record, ToolFinished, ToolStarted
from toolspeak.data.messages import FinishReason, JsonPart, Message, TextPart, ToolCall, Usage
from toolspeak.data.values import changed, quick
from toolspeak.execute import NO_ASIDE, Aside, ToolExecution
from toolspeak.execute.ids import key_of


@quick()
class RunStep:
    """One model turn and its batch. `number` counts the run's turns from 1; `input` is the conversation that the model
    read, `message` what it wrote, with the calls that count. `executions` are its calls with their results, in call
    order; a call that waits has none yet. `cost` is in USD, None where it is not known; `started` and `completed` are
    Unix seconds, from when the turn was asked for until the last of its calls had its result."""

    number: int
    input: Sequence[Message]
    message: Message
    finish: FinishReason
    usage: Usage
    cost: float | None
    executions: tuple[ToolExecution, ...]
    started: float
    completed: float

    @property
    def output(self) -> tuple[Message, ...]:
        """What the step adds to the conversation: the model's message, and the results of its calls."""
        results = tuple(each.result for each in self.executions)
        return (self.message, Message("tool", results)) if results else (self.message,)


class Trail:
    """The records of one run, as far as they are known here, the first first; `before` are the messages of the runs it
    follows, `asides` what of its calls is in no record, by call id."""

    def __init__(self, records: Iterable[Record] = (), before: Sequence[Message] = ()) -> None:
        self._records = [record for record in records if type(record.event) is not ModelTextReceived]
        self._before = before
        self._steps: tuple[RunStep, ...] = ()
        self._read = 0
        self.asides: dict[str, Aside] = {}

    def add(self, record: Record) -> None:
        if type(record.event) is not ModelTextReceived:
            self._records.append(record)

    def goes_on(self, records: Iterable[Record], before: Sequence[Message]) -> None:
        """These records, behind these messages, come before all others."""
        self._records[:0] = [record for record in records if type(record.event) is not ModelTextReceived]
        self._before = before

    @property
    def steps(self) -> tuple[RunStep, ...]:
        """The run's steps until now."""
        if self._read != len(self._records):
            self._steps = steps_of(self._records, self._before, self.asides)
            self._read = len(self._records)
        return self._steps


def steps_of(
    records: Iterable[Record], before: Sequence[Message] = (), asides: Mapping[str, Aside] | None = None
) -> tuple[RunStep, ...]:
    """The steps of a run's records, which begin with its first, behind the messages `before` them."""
    steps: list[RunStep] = []
    state: RunState | None = None
    asked, read = 0.0, cast("Sequence[Message]", ())
    started: dict[str, tuple[float, ToolCall | None]] = {}
    for record in records:
        state = apply(state, record, before)
        event = record.event
        if isinstance(event, ModelAsked):
            asked, read = record.time, state.history
        elif isinstance(event, ModelAnswered):
            written = (event.message, event.finish, event.usage, event.cost)
            steps.append(RunStep(record.step, read, *written, (), asked, record.time))
            started = {}
        elif isinstance(event, ToolStarted):
            started[event.call_id] = (record.time, event.changed)
        elif isinstance(event, ToolFinished) and steps:
            step, result = steps[-1], event.result
            order = {call.id: place for place, call in enumerate(step.message.calls)}
            began, call = started.get(result.call_id, (record.time, None))
            call = call or step.message.calls[order[result.call_id]]
            aside = (asides or {}).get(result.call_id) or _aside(event)
            made = ToolExecution(key_of(record.run_id, result.call_id), call, result, began, record.time, aside)
            executions = sorted((*step.executions, made), key=lambda each: order[each.result.call_id])
            steps[-1] = changed(step, executions=tuple(executions), completed=record.time)
    return tuple(steps)


def _aside(event: ToolFinished) -> Aside:
    """The whole of a result that was recorded beside what the model got."""
    if event.whole is None:
        return NO_ASIDE
    part: TextPart | JsonPart = TextPart(event.whole)
    if event.result.content and isinstance(event.result.content[0], JsonPart):
        with suppress(ValueError):
            part = JsonPart(json.loads(event.whole))
    return Aside(whole=replace(event.result, content=(part,)))
