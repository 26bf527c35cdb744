"""The run around a batch of calls: its context, its pause, what its batches share (such as the result cache); and the
result of a batch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from typing import Any, NoReturn, Protocol, TypeAlias

from toolspeak.data.events import CallSuspended, Event, StopRequested, WaitEnded
from toolspeak.data.messages import MalformedCall, TextPart, ToolCall, ToolResult, no_extra
from toolspeak.data.run_values import PauseReason
from toolspeak.data.tools import EVERYTHING, NO_VERSION, Effects
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop, ToolFailed
from toolspeak.execute.approval.approvers import ApprovalRequest
from toolspeak.execute.calls.observe import NO_DETAILS, CallTrace, LocalDetails, Observer, ToolExecution
from toolspeak.execute.calls.prepare import key_of, new_id
from toolspeak.execute.concurrency.limits import Concurrency, Limiter, OrphanedCalls, Timers
from toolspeak.execute.concurrency.schedule import Conflicts
from toolspeak.tools.context import RunContext, StateView
from toolspeak.tools.tool import Tool
from toolspeak.tools.toolset import Toolset

_MOST_RESULTS = 256  # results of a run; the oldest go first
_NOTE = (
    "[This is the result of the same call made before ({earlier}): nothing has changed it since. "
    "Use it, or do something else.]\n"
)
ANSWERED_FROM = "answered_from"
"""The key in a result's `extra` that names the call it was taken from."""


Emit: TypeAlias = Callable[[Event], Awaitable[None]]
"""Records a fact; returns once it is durable."""


class BatchPaused(Exception):
    """The run is to pause. The calls that were under way have their results, the others were not started."""


class NotStarted(BaseException):
    """The run is to pause, and this call was not started."""


class Pause:
    """A request to pause the run at a point where no call is running, so that it can continue later. It belongs to the
    run's event loop."""

    def __init__(self) -> None:
        self.is_requested = False
        self.reason: PauseReason = "suspended"
        """Why the run pauses: a person suspends it, or its worker ends and another one goes on (`queued`)."""
        self.callbacks: list[Callable[[], None]] = []
        """Called when the pause is requested."""

    def request(self, reason: PauseReason = "suspended") -> None:
        """Requests the pause: no further call starts. The first reason counts."""
        if not self.is_requested:
            self.is_requested, self.reason = True, reason
            for callback in tuple(self.callbacks):
                callback()

    @asynccontextmanager
    async def interrupts(self) -> AsyncGenerator[None]:
        """Cancels the block when the pause is requested, and raises BatchPaused."""
        loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)
        self.callbacks.append(end := lambda: limit.reschedule(loop.time()))
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
            self.callbacks.remove(end)


class ResultCache:
    """The last results of a run's read-only calls that declare which resources they read.

    A repeated read is answered from here while nothing has changed what it reads.
    """

    __slots__ = ("results",)

    def __init__(self) -> None:
        self.results: dict[str, tuple[Effects, ToolResult]] = {}

    def answer(self, call: ToolCall, effects: Effects) -> ToolResult | None:
        """Returns the result of an earlier equal call, with a note for the model, if it still holds; else None."""
        if not is_cacheable(effects):
            return None
        earlier = self.results.get(_key(call))
        if earlier is None or earlier[0] != effects:  # its `version` included
            return None
        result = earlier[1]
        note = TextPart(_NOTE.format(earlier=result.call_id))
        extra = {**result.extra, ANSWERED_FROM: result.call_id}
        return replace(result, call_id=call.id, content=(note, *result.content), extra=extra)

    def learn(self, calls: Sequence[tuple[ToolCall, Effects, ToolResult | None]], *, ordered: bool) -> None:
        """Takes the results of a batch's calls, in call order; None for a call that began and has no result.

        `ordered`: calls that conflict ran one after the other, so a read holds unless a later call changed what it
        read.
        """
        if not self.results and not any(is_cacheable(effects) for _, effects, _ in calls):
            return
        changes = Conflicts()
        fresh: dict[str, tuple[Effects, ToolResult]] = {}
        if not ordered:
            for index, (_, effects, _) in enumerate(calls):
                if effects.writes:
                    changes.add(index, effects)
        for index in range(len(calls) - 1, -1, -1):
            call, effects, result = calls[index]
            if ordered and effects.writes:
                changes.add(index, effects)
            if (
                result is None
                or result.status != "success"
                or not is_cacheable(effects)
                or ANSWERED_FROM in result.extra
            ):
                continue
            key = _key(call)
            if key not in fresh and not changes.any_with(effects):
                fresh[key] = (effects, result)
        valid = {
            key: earlier
            for key, earlier in self.results.items()
            if key not in fresh and not changes.any_with(earlier[0])
        }
        self.results = {**valid, **fresh}
        while len(self.results) > _MOST_RESULTS:
            del self.results[next(iter(self.results))]


def is_cacheable(effects: Effects) -> bool:
    """Whether an earlier result of the call may answer it: it declares what it reads, with a version, writes nothing,
    stays on this machine, and does not poll."""
    return (
        bool(effects.reads)
        and EVERYTHING not in effects.reads
        and effects.declared
        and effects.read_only
        and not effects.external
        and not effects.polls
        and effects.version != NO_VERSION
    )


def _key(call: ToolCall) -> str:
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"


@quick(frozen=False, eq=False)
class RunScope:
    """What the batches of one run share. It lives in one event loop, as long as its run.

    - `orphans`: the calls that continue in their threads after their time.
    - `result_cache`: the results of reads that still hold.
    - `timers`: the calls' time limits, if the caller closes them at the run's end; else each batch has its own.
    - `details`: what no record of a call holds, by call id.
    """

    orphans: OrphanedCalls = field(default_factory=OrphanedCalls)
    result_cache: ResultCache = field(default_factory=ResultCache)
    timers: Timers | None = None
    details: dict[str, LocalDetails] = field(default_factory=dict[str, LocalDetails])
    _run: Limiter | None = None
    _threads: Limiter | None = None
    _tools: dict[str, Limiter] = field(default_factory=dict[str, Limiter])

    def limiters(self, tool: Tool, limits: Concurrency) -> tuple[Limiter, ...]:
        """The limiters in which a call of this tool needs a slot, besides its batch's. The tool's own is last."""
        limiters_needed: tuple[Limiter, ...] = ()
        if tool.is_async and tool.max_concurrent is None and limits.run is None:
            return limiters_needed
        if limits.run is not None:
            if self._run is None:
                self._run = Limiter(limits.run)
            limiters_needed = (self._run,)
        if not tool.is_async:
            if self._threads is None:
                self._threads = Limiter(limits.threads)
            limiters_needed = (*limiters_needed, self._threads)
        own = None if tool.max_concurrent is None else self.own_limiter(tool)
        return limiters_needed if own is None else (*limiters_needed, own)

    def own_limiter(self, tool: Tool) -> Limiter | None:
        """The tool's own limiter, None without `max_concurrent`."""
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
    """The run that a batch belongs to. Every call's RunContext is made from it.

    - `run_id`, `step`, `agent`, `parent_run_id`: the run (a new id without one), its step, its agent, and the run whose
      tool started it.
    - `deps`: the caller's own dependencies.
    - `memory`: the memory of the run's tools.
    - `state`: the run before the batch.
    - `progress`: is called with a call id and a line of text, in the event loop's thread.
    - `scope`: what the batches of one run share. Without it a batch knows no other.
    - `pause`: requests that the batch stops before its next call.
    - `observers`: observers of this run, beside those of the executor.
    - `trace`: surrounds the calls' functions.
    - `tools`: the tools of this turn, in place of the executor's. None: the executor's.
    - `waits`: what calls wait for that has not come yet, by call id. Their functions are not called.
    - `ended_waits`: what has come for calls that waited, by call id.
    """

    run_id: str = field(default_factory=new_id)
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
    trace: CallTrace | None = None
    tools: Toolset | None = None
    waits: Mapping[str, CallSuspended] = field(default_factory=no_extra)
    ended_waits: Mapping[str, Sequence[WaitEnded]] = field(default_factory=no_extra)

    def run_context(self, call: ToolCall, key: str = "") -> RunContext[Any]:
        """Makes the context of a tool's preview and its `verify`."""
        return RunContext(self.deps, call, key, memory=self.memory, state=self.state)


@quick()
class BatchResult:
    """The result of a batch: all results, or the pending calls of a batch that did not run.

    - `results`: the results in call order, one for each call; empty if calls are pending.
    - `pending`: the unanswered questions.
    - `approval_seconds`: how long approvers took. The deadline moved by as much.
    - `orphan_ids`: the ids of the run's orphaned calls that have not ended.
    - `run_id`: the run of the batch.
    - `calls`: the calls of the results, as they ran.
    - `times`: when each call started and completed, in Unix seconds.
    - `details`: what no result holds, by call id.
    """

    results: tuple[ToolResult, ...]
    pending: tuple[ApprovalRequest, ...] = ()
    approval_seconds: float = 0.0
    orphan_ids: tuple[str, ...] = ()
    run_id: str = ""
    calls: tuple[ToolCall | MalformedCall, ...] = ()
    times: tuple[tuple[float, float], ...] = ()
    details: Mapping[str, LocalDetails] = field(default_factory=no_extra)

    def raise_stop(self, stop: StopRequested) -> NoReturn:
        """Raises ToolFailed for a batch that a call's failure ended, otherwise AgentStop; each with this result."""
        if stop.reason != "tool_failure":
            agent_stop = AgentStop(stop.message, answer=stop.answer)
            agent_stop.batch = self
            raise agent_stop
        failure = ToolFailed(f"the call {stop.call_id} failed: {stop.message}")
        failure.batch = self
        failure.execution = next((each for each in self.executions if each.result.call_id == stop.call_id), None)
        raise failure from (failure.execution.exception if failure.execution else None)

    @property
    def executions(self) -> tuple[ToolExecution, ...]:
        """Each call with its result and times, in call order."""
        details = self.details
        return tuple(
            ToolExecution(
                key_of(self.run_id, result.call_id),
                call,
                result,
                started_at,
                completed_at,
                details.get(result.call_id, NO_DETAILS),
            )
            for call, result, (started_at, completed_at) in zip(self.calls, self.results, self.times, strict=True)
        )


class BatchExecutor(Protocol):
    """Runs a run's batches of calls: `Executor`, or one of your own around it or instead (`Agent(execution=…)`).
    If the agent computes its tools for each turn, the calls name those of `context.tools`.

    `run` is called with the keyword arguments of `Executor.run` (`emit`, `context`, `approver`, …). A result that it
    returns without having recorded it (`await emit(ToolFinished(result))`) is recorded for it. A batch that waits for
    decisions lists them as `pending`. With a method `early`, as `Executor` has, reads begin while the model still
    writes.
    """

    @property
    def run(self) -> Callable[..., Awaitable[BatchResult]]:
        """`await run(calls, emit=…, context=…, …)`: one result for each call, in call order."""
        ...


@quick(frozen=False)
class Deadline:
    """When the run's time is over. `at` is in the event loop's time; None is no limit."""

    at: float | None

    def move_on(self, seconds: float) -> None:
        if self.at is not None:
            self.at += seconds

    def before_start(self) -> str:
        """Why a call did not start, for the model."""
        return "the run's time limit was reached before this call started"

    def before_end(self) -> str:
        """Why a call did not finish, for the model."""
        return "the run's time limit was reached before this call finished"
