"""What surrounds a batch of calls, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from toolspeak.data.events import Event
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult, no_extra
from toolspeak.data.values import quick
from toolspeak.execute.approval.approvers import ApprovalRequest
from toolspeak.execute.calls.ids import key_of
from toolspeak.execute.calls.observe import NO_DETAILS, LocalDetails, Observer, ToolExecution
from toolspeak.execute.concurrency.pause import Pause
from toolspeak.execute.scope import RunScope
from toolspeak.tools.context import RunContext, StateView

Emit: TypeAlias = Callable[[Event], Awaitable[None]]
"""Records a fact; returns once it is durable."""


def _no_progress(_call_id: str, _message: str) -> None:
    return None


def _no_memory() -> dict[str, Any]:
    return {}


@quick()
class BatchContext:
    """The run a batch belongs to; every call's RunContext is made from it.

    `progress` receives a call id and a line, in the event loop's thread. `scope` is what the batches of one run
    share; without it a batch knows of no other. `pause` asks the batch to stop before its next call. `observers` are
    told of its calls, beside those of the executor.
    """

    run_id: str
    step: int = 0
    deps: Any = None
    memory: dict[str, Any] = field(default_factory=_no_memory)
    state: StateView | None = None
    progress: Callable[[str, str], None] = _no_progress
    scope: RunScope = field(default_factory=RunScope)
    agent: str = "agent"
    parent_run_id: str | None = None
    pause: Pause = field(default_factory=Pause)
    observers: tuple[Observer, ...] = ()

    def run_context(self, call: ToolCall, key: str = "") -> RunContext[Any]:
        """What a tool's preview and its `verify` are told of the run."""
        return RunContext(self.deps, call, key, memory=self.memory, state=self.state)


@quick()
class Batch:
    """The results, complete and in call order; or no results and the calls that wait for a decision,
    in which case nothing was executed. `waited` are the seconds an approver took: they moved the deadline on.
    `orphaned` are the run's calls that were orphaned in their threads and have not ended yet, by id. `calls` are
    those of the results, as they ran; `times` when each started and completed, in Unix seconds; `details` what is in
    no result, by call id."""

    results: tuple[ToolResult, ...]
    pending: tuple[ApprovalRequest, ...] = ()
    waited: float = 0.0
    orphaned: tuple[str, ...] = ()
    run_id: str = ""
    calls: tuple[ToolCall | MalformedCall, ...] = ()
    times: tuple[tuple[float, float], ...] = ()
    details: Mapping[str, LocalDetails] = field(default_factory=no_extra)

    @property
    def executions(self) -> tuple[ToolExecution, ...]:
        """Each call with its result and times, in call order."""
        details = self.details
        return tuple(
            ToolExecution(
                key_of(self.run_id, result.call_id),
                call,
                result,
                started,
                completed,
                details.get(result.call_id, NO_DETAILS),
            )
            for call, result, (started, completed) in zip(self.calls, self.results, self.times, strict=True)
        )


class BatchExecutor(Protocol):
    """Runs a run's batches of calls: `Executor`, or one of your own around it or in its place (`Agent(execution=…)`).

    `run` is called with what `Executor.run` takes by name (`emit`, `context`, `approver`, …). A result it returns that
    it has not recorded (`await emit(ToolFinished(result))`) is recorded for it; a batch that waits for decisions lists
    them as `pending`. Where it has a method `early`, as `Executor` has, reads begin while the model still writes.
    """

    @property
    def run(self) -> Callable[..., Awaitable[Batch]]:
        """`await run(calls, emit=…, context=…, …)`: one result for each call, in call order."""
        ...


@quick(frozen=False)
class Deadline:
    """When the run's time is over, in the event loop's time; None is no limit."""

    at: float | None

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        at = None if seconds is None else asyncio.get_running_loop().time() + seconds
        return cls(at)

    def move_on(self, seconds: float) -> None:
        if self.at is not None:
            self.at += seconds

    def passed(self) -> bool:
        return self.at is not None and asyncio.get_running_loop().time() >= self.at

    def before_start(self) -> str:
        """What a call is told that was not started in time."""
        return "the run's time limit was reached before this call started"

    def before_end(self) -> str:
        """What a call is told that was started and not finished in time."""
        return "the run's time limit was reached before this call finished"
