"""The run around a batch of calls: its context, its pause, what its batches share; and the result of a batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from toolspeak.data.events import Event
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult, no_extra
from toolspeak.data.values import quick
from toolspeak.execute.approval.approvers import ApprovalRequest
from toolspeak.execute.calls.observe import NO_DETAILS, LocalDetails, Observer, ToolExecution
from toolspeak.execute.calls.prepare import key_of
from toolspeak.execute.calls.result_cache import ResultCache
from toolspeak.execute.concurrency.limits import Concurrency, Limiter, OrphanedCalls, Timers
from toolspeak.tools.context import RunContext, StateView
from toolspeak.tools.tool import Tool

Emit: TypeAlias = Callable[[Event], Awaitable[None]]
"""Records a fact; returns once it is durable."""


class BatchPaused(Exception):
    """The run was asked to pause: the calls that were under way have their results, the others were not started."""


class NotStarted(BaseException):
    """The run was asked to pause before this call was started."""


class Pause:
    """Whether a run is asked to pause; lives in the run's event loop."""

    def __init__(self) -> None:
        self.is_requested = False
        self._callbacks: list[Callable[[], None]] = []

    def ask(self) -> None:
        """From here on nothing is begun."""
        if not self.is_requested:
            self.is_requested = True
            for callback in tuple(self._callbacks):
                callback()

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Calls `told` when it is asked, until `untell`."""
        self._callbacks.append(callback)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks.remove(callback)

    @asynccontextmanager
    async def ends(self) -> AsyncGenerator[None]:
        """Cancels what is awaited in the block when it is asked. Raises BatchPaused then."""
        loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)
        self.add_callback(end := lambda: limit.reschedule(loop.time()))
        try:
            async with limit:
                if self.is_requested:
                    limit.reschedule(loop.time())
                yield
        except TimeoutError:
            if limit.expired():
                raise BatchPaused from None
            raise
        finally:
            self.remove_callback(end)


@quick(frozen=False, eq=False)
class RunScope:
    """Lives in one event loop, as long as its run: the slots for calls, the calls that were orphaned in their
    threads, the results of reads that still hold, what of the run's calls is in no record (`details`, by call id), and
    the `timers`, if somebody closes them at the run's end (else each batch has its own)."""

    orphans: OrphanedCalls = field(default_factory=OrphanedCalls)
    result_cache: ResultCache = field(default_factory=ResultCache)
    timers: Timers | None = None
    details: dict[str, LocalDetails] = field(default_factory=dict[str, LocalDetails])
    _run: Limiter | None = None
    _threads: Limiter | None = None
    _tools: dict[str, Limiter] = field(default_factory=dict[str, Limiter])

    def limiters(self, tool: Tool, limits: Concurrency) -> tuple[Limiter, ...]:
        """Where a call of this tool needs a slot before it runs, besides its batch's; the tool's own is last."""
        needed: tuple[Limiter, ...] = ()
        if tool.is_async and tool.max_concurrent is None and limits.run is None:
            return needed
        if limits.run is not None:
            if self._run is None:
                self._run = Limiter(limits.run)
            needed = (self._run,)
        if not tool.is_async:
            if self._threads is None:
                self._threads = Limiter(limits.threads)
            needed = (*needed, self._threads)
        own = self.own_limiter(tool)
        return needed if own is None else (*needed, own)

    def own_limiter(self, tool: Tool) -> Limiter | None:
        """The limiter of a tool that limits itself."""
        if tool.max_concurrent is None:
            return None
        if tool.name not in self._tools:
            self._tools[tool.name] = Limiter(tool.max_concurrent)
        return self._tools[tool.name]


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
