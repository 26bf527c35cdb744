"""What an observer is told of calls as they happen, and a call with what came of it as one value.

Observer events are for logs, metrics and user interfaces. They are no journal facts: nothing is folded from them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from toolspeak.data.messages import JSON, JsonPart, MalformedCall, TextPart, ToolCall, ToolResult
from toolspeak.data.values import quick

_LOG = logging.getLogger("toolspeak.execute")


@quick()
class LocalDetails:
    """What of a call is no fact, and lives as long as its process: the exception its tool raised, and the whole of a
    result that the model got shortened."""

    exception: Exception | None = None
    whole: ToolResult | None = None


NO_DETAILS = LocalDetails()


@quick()
class ToolExecution:
    """One call and what came of it. `id` is the same when the call is taken up again after a pause; `started` and
    `completed` are Unix seconds, equal for a call whose function was not entered. `result` is what the model gets."""

    id: str
    call: ToolCall | MalformedCall
    result: ToolResult
    started: float
    completed: float
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
        """What the tool returned: text or JSON, whole also where the model's copy was shortened (as long as this is the
        process that ran it); None for a failure."""
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
        """What the tool's function raised, with its traceback; None if it did not, or did in another process."""
        return self.details.exception

    @property
    def has_error(self) -> bool:
        return self.result.status == "failure"

    @property
    def error_message(self) -> str:
        """What went wrong, as the model reads it; "" for a success."""
        return self.result.text if self.has_error else ""

    @property
    def was_blocked(self) -> bool:
        """Whether the call was not let run, by an interceptor or by an approval."""
        return self.result.code in ("blocked", "rejected")


@quick()
class Observed:
    """What every observer event says: which run, which step, on whose part."""

    run_id: str
    step: int
    agent: str
    parent_run_id: str | None


@quick()
class ToolCallStarted:
    """The tool's function is about to be entered. `at` is Unix seconds."""

    tool: str
    args: Mapping[str, JSON]
    at: float
    tool_call_id: str
    run: Observed


@quick()
class ToolCallCompleted:
    """The call has its result, as the model gets it: interceptors have seen it, and it is recorded."""

    tool: str
    success: bool
    error: str
    result: ToolResult
    started: float
    completed: float
    tool_call_id: str
    run: Observed

    @property
    def duration_ms(self) -> float:
        return 1000 * (self.completed - self.started)


@quick()
class ToolCallBlocked:
    """The call was not let run. `hook` is the interceptor's class or who decided; the model is told `reason`."""

    tool: str
    args: Mapping[str, JSON]
    reason: str
    hook: str
    tool_call_id: str
    run: Observed


@quick()
class DecisionExtractionFailed:
    """A reply held no decision; `raw` is the reply. It is asked for again while `attempt` is below `max_attempts`."""

    error: str
    raw: str
    attempt: int
    max_attempts: int


@quick()
class DecisionValidationFailed:
    """A decision cannot be carried out: it names no known tool, say."""

    errors: tuple[str, ...]
    raw: str
    attempt: int
    max_attempts: int


@quick()
class DecisionTaken:
    """A ReAct driver read a decision that can be carried out: `decision` is the model's JSON object."""

    thought: str
    type: Literal["call_tool", "final_answer"]
    tool: str
    decision: Mapping[str, JSON]
    attempt: int


ToolEvent: TypeAlias = ToolCallStarted | ToolCallCompleted | ToolCallBlocked
ObserverEvent: TypeAlias = ToolEvent | DecisionTaken | DecisionExtractionFailed | DecisionValidationFailed
"""What an executor and a ReAct driver tell; an agent's observers are told of more (`agent.RunEvent`)."""

Observer: TypeAlias = Callable[[Any], object]
"""Is called in the event loop and must not take long; what it raises is logged (logger `toolspeak.execute`) and changes
nothing."""


class Observation:
    """Tells a batch's observers what becomes of its calls."""

    def __init__(self, observers: Sequence[Observer], run: Observed) -> None:
        self._observers = observers
        self.run = run

    def started(self, call: ToolCall, at: float) -> None:
        tell(self._observers, ToolCallStarted(call.name, call.arguments, at, call.id, self.run))

    def ended(self, execution: ToolExecution, refused_by: str) -> None:
        """A call has its result. `refused_by`: what did not let it run, an interceptor's name or who decided."""
        call_id, error = execution.result.call_id, execution.error_message
        event: ToolEvent
        if execution.was_blocked:
            event = ToolCallBlocked(execution.name, execution.args, error, refused_by, call_id, self.run)
        else:
            success, times = not execution.has_error, (execution.started, execution.completed)
            event = ToolCallCompleted(execution.name, success, error, execution.result, *times, call_id, self.run)
        tell(self._observers, event)


def tell(observers: Sequence[Observer], event: object) -> None:
    """Hands the event to all observers, whatever some of them do with it."""
    for observer in observers:
        try:
            observer(event)
        except Exception:  # noqa: BLE001 - foreign code, and a log is no reason to fail a call
            _LOG.exception("the observer %r failed at %s", observer, event)
