"""Observer events about calls, and a call with its result as one value.

Observer events are for logs, metrics and user interfaces. They are not facts of the journal: no state follows from
them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeAlias

from toolspeak.data.events import Record
from toolspeak.data.messages import JSON, JsonPart, MalformedCall, TextPart, ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.tools.context import StateView

_LOG = logging.getLogger("toolspeak.execute")


@quick()
class LocalDetails:
    """What no fact holds of a call. It lives as long as its process.

    - `exception`: the exception that the tool raised.
    - `whole`: the whole of a result that the model got shortened.
    """

    exception: Exception | None = None
    whole: ToolResult | None = None


NO_DETAILS = LocalDetails()
"""The details of a call whose function did not run in this process."""


@quick()
class ToolExecution:
    """One call and its result.

    - `id`: stays the same when the call continues after a pause.
    - `result`: the result that the model gets.
    - `started_at`, `completed_at`: Unix seconds; equal for a call whose function was not called.
    """

    id: str
    call: ToolCall | MalformedCall
    result: ToolResult
    started_at: float
    completed_at: float
    details: LocalDetails = NO_DETAILS

    @property
    def name(self) -> str:
        return self.call.name or ""

    @property
    def args(self) -> Mapping[str, JSON]:
        """The arguments the tool was given, with secrets as placeholders."""
        return self.call.arguments if isinstance(self.call, ToolCall) else {}

    @property
    def value(self) -> JSON:
        """What the tool returned, text or JSON; None for a failure.

        It is whole although the model's copy may be shortened, as long as the process that ran the call lives.
        """
        if self.has_error:
            return None
        whole = self.details.whole or self.result
        if whole.structured is not None:
            return whole.structured
        if len(whole.content) == 1 and isinstance(whole.content[0], JsonPart):
            return whole.content[0].value
        texts = [part.text for part in whole.content if isinstance(part, TextPart)]
        return "".join(texts) if texts else None

    @property
    def exception(self) -> Exception | None:
        """The exception that the tool raised, with its traceback; None if it raised none, or in another process."""
        return self.details.exception

    @property
    def has_error(self) -> bool:
        return self.result.status == "failure"

    @property
    def error_message(self) -> str:
        """The error as the model reads it; "" for a success."""
        return self.result.text if self.has_error else ""

    @property
    def was_blocked(self) -> bool:
        """Whether an interceptor or an approval kept the call from running."""
        return self.result.code in ("blocked", "rejected")


@quick()
class EventOrigin:
    """The origin of an observer event: the run, its step, its agent, the run whose tool started it, and the person or
    key on whose behalf it acts (`Agent.run(principal=…)`)."""

    run_id: str
    step: int
    agent: str
    parent_run_id: str | None
    principal: str | None = None


@quick()
class ToolCallStarted:
    """The tool's function is about to be called. `at` is in Unix seconds."""

    tool: str
    args: Mapping[str, JSON]
    at: float
    tool_call_id: str
    run: EventOrigin


@quick()
class ToolCallCompleted:
    """The call has its result, as the model gets it, and the result is recorded.

    - `tool`: its name; "" for a call that cannot be read and names no tool.
    - `args`: the arguments, with secrets as placeholders; empty for a call that cannot be read.
    - `error`: the error as the model reads it; "" for a success.
    - `raw`: what the model wrote, of a call that cannot be read; "" for the others.
    - `started_at`, `completed_at`: Unix seconds; the same for a call that did not run.
    """

    tool: str
    args: Mapping[str, JSON]
    success: bool
    error: str
    result: ToolResult
    started_at: float
    completed_at: float
    tool_call_id: str
    run: EventOrigin
    raw: str = ""

    @property
    def duration_ms(self) -> float:
        return 1000 * (self.completed_at - self.started_at)


@quick()
class ToolCallBlocked:
    """The call was kept from running.

    - `hook`: the class of the interceptor, or the author of the decision.
    - `reason`: the reason, as the model reads it.
    """

    tool: str
    args: Mapping[str, JSON]
    reason: str
    hook: str
    tool_call_id: str
    run: EventOrigin


@quick()
class DecisionExtractionFailed:
    """A reply held no decision. `raw` is the reply. The model is asked again while `attempt` is below
    `max_attempts`."""

    error: str
    raw: str
    attempt: int
    max_attempts: int


@quick()
class DecisionValidationFailed:
    """A decision cannot be carried out: it names an unknown tool, for example."""

    errors: tuple[str, ...]
    raw: str
    attempt: int
    max_attempts: int


@quick()
class DecisionTaken:
    """A ReAct driver read a decision that can be carried out. `decision` is the model's JSON object."""

    thought: str
    type: Literal["call_tool", "final_answer"]
    tool: str
    decision: Mapping[str, JSON]
    attempt: int


ToolEvent: TypeAlias = ToolCallStarted | ToolCallCompleted | ToolCallBlocked
ObserverEvent: TypeAlias = ToolEvent | DecisionTaken | DecisionExtractionFailed | DecisionValidationFailed
"""The events of an executor and a ReAct driver. An agent's observers get more (`agent.RunEvent`)."""

Observer: TypeAlias = Callable[[Any], object]
"""Is called in the event loop and must return soon. Its exceptions are logged (logger `toolspeak.execute`) and change
nothing."""


class CallTrace(Protocol):
    """Takes a run's records, and surrounds the functions of its calls, so that they show in a trace."""

    traceparent: str | None
    """Stands in the run's records from here on (`Record.traceparent`); None leaves it as it is."""

    def __call__(self, record: Record, state: StateView, /) -> object:
        """Takes a record once it is durable, with the state after it. Raises nothing."""
        ...

    def call(self, call: ToolCall, /, *, early: bool) -> AbstractContextManager[None]:
        """Makes the call the current context while its function runs. `early`: its turn is not over yet, and its result
        may be dropped. Raises nothing."""
        ...


class Observation:
    """Passes the events of a batch's calls to its observers."""

    def __init__(self, observers: Sequence[Observer], run: EventOrigin) -> None:
        self._observers = observers
        self.run = run

    def report_start(self, call: ToolCall, at: float) -> None:
        tell(self._observers, ToolCallStarted(call.name, call.arguments, at, call.id, self.run))

    def report_end(self, execution: ToolExecution, refused_by: str) -> None:
        """Reports the call's result. `refused_by`: the interceptor or the decision's author that kept it from
        running."""
        call_id, error = execution.result.call_id, execution.error_message
        event: ToolEvent
        if execution.was_blocked:
            event = ToolCallBlocked(execution.name, execution.args, error, refused_by, call_id, self.run)
        else:
            event = ToolCallCompleted(
                execution.name,
                execution.args,
                not execution.has_error,
                error,
                execution.result,
                execution.started_at,
                execution.completed_at,
                call_id,
                self.run,
                execution.call.raw if isinstance(execution.call, MalformedCall) else "",
            )
        tell(self._observers, event)


def tell(observers: Sequence[Observer], event: object) -> None:
    """Passes the event to every observer. An exception of one is logged."""
    for observer in observers:
        try:
            observer(event)
        except Exception:  # noqa: BLE001 - foreign code, and a log is no reason to fail a call
            _LOG.exception("the observer %r failed at %s", observer, event)
