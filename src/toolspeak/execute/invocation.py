"""A tool's function is called: its context, its thread or coroutine, its time limit; at its turn, or early.

Early start: a read whose arguments are complete begins while the model still writes the rest of its turn. Its result is
speculative until the turn is recorded. No fact is emitted for it, and the tool changes a copy of the run's memory. The
batch takes the early call instead of calling the function; an early call that no batch takes is cancelled.
"""

from __future__ import annotations

import asyncio
import copy
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable
from typing import Any, cast

from toolspeak.data.messages import ToolCall
from toolspeak.data.values import evolve, quick
from toolspeak.errors import ToolDefinitionError
from toolspeak.execute.batch_context import BatchContext
from toolspeak.execute.calls.prepare import PreparedCall, prepare
from toolspeak.execute.calls.replay import CassetteResults, Replayer
from toolspeak.execute.calls.result_limits import ResultCap
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.execute.concurrency.limits import (
    Concurrency,
    Flag,
    Limiter,
    ThreadOutcome,
    Timers,
    call_in_loop,
    in_thread,
)
from toolspeak.execute.concurrency.schedule import Conflicts, ScheduleName
from toolspeak.execute.hooks import Interceptor
from toolspeak.execute.sub_runs import CURRENT_SUB_RUNS, SubRuns, WaitRequest
from toolspeak.tools.context import RunContext, injected_values
from toolspeak.tools.stored_results import READ_RESULT
from toolspeak.tools.toolset import Toolset

_MISSING = object()


@quick()
class ExecutorSettings:
    """The arguments of an `Executor`, which documents them."""

    tools: Toolset
    schedule: ScheduleName
    concurrency: Concurrency
    interceptors: Sequence[Interceptor]
    secrets: Secrets
    tool_timeout: float | None
    cap: ResultCap
    throw_on_failure: bool
    stop_on_block: bool
    cassette_results: CassetteResults | None
    replayer: Replayer | None
    of_turn: bool = False
    """Whether `tools` are those of one turn, and others those of the next."""

    def with_tools(self, tools: Toolset) -> ExecutorSettings:
        """The settings with the tools of a turn."""
        return evolve(self, tools=tools, cap=evolve(self.cap, pages=READ_RESULT in tools), of_turn=True)


@quick(frozen=False)
class Invocation:
    """One call of a tool's function.

    - `prepared_call`: the call.
    - `seconds`: its time limit, None without one. Before it runs, the limit of tools that have none of their own.
    - `context`, `secrets`: the run, and the secrets that its progress hides.
    - `is_over`: set once nothing waits for the function any more (`RunContext.is_cancelled`).
    - `end_flag`: set once a synchronous function has ended.
    - `on_end`: is called in the event loop when an orphaned function ends.
    - `sub_runs`: the runs that the function starts, of a tool that takes a RunContext.
    - `is_early`: the function is called before the turn is over.
    """

    prepared_call: PreparedCall
    seconds: float | None
    context: BatchContext
    secrets: Secrets
    is_over: Flag | None = None
    end_flag: Flag | None = None
    on_end: Callable[[], None] | None = None
    sub_runs: SubRuns | None = None
    is_early: bool = False

    async def run(self, timers: Timers) -> tuple[ThreadOutcome, bool]:
        """Calls the function. Returns what it returned or raised, and whether its time was over.

        At the end of its time an async function is cancelled, and has ended when this returns; a synchronous one is
        orphaned in its thread. Raises no exception but CancelledError, and what the tool's own function of its time
        limit raises.
        """
        tool, arguments, trace, token = self.prepared_call.tool, self.prepared_call.arguments, self.context.trace, None
        if tool.timeout is not None and (own_seconds := tool.seconds(arguments)) is not None:
            self.seconds = own_seconds
        with nullcontext() if trace is None else trace.call(self.prepared_call.call, early=self.is_early):
            if tool.injected_kinds:
                call_id = self.prepared_call.call.id
                self.sub_runs = SubRuns(self.context.run_id, call_id, self.context.ended_waits.get(call_id, ()))
                self.sub_runs.pause = self.context.pause
                token = CURRENT_SUB_RUNS.set(self.sub_runs)
                self.is_over = Flag()
                arguments = {**arguments, **injected_values(tool.injected_kinds, self._run_context(self.is_over))}
            limit = None if self.seconds is None or self.seconds == math.inf else timers.start(self.seconds)
            try:
                if tool.is_async:
                    outcome = ThreadOutcome(await tool.function(**arguments))
                else:
                    self.end_flag = Flag()
                    call = partial(tool.function, **arguments)
                    outcome = await in_thread(
                        call, lambda: None if self.on_end is None else self.on_end(), self.end_flag
                    )
                    if isawaitable(outcome.value):
                        outcome = ThreadOutcome(await outcome.value)
            except asyncio.CancelledError as error:
                if limit is None or not limit.stop():
                    raise
                outcome = ThreadOutcome(error=error)
            except BaseException as error:  # noqa: BLE001 - the executor decides what each exception means
                outcome = ThreadOutcome(error=error)
            finally:
                if token is not None:
                    CURRENT_SUB_RUNS.reset(token)
                if self.is_over is not None:
                    self.is_over.is_set = True
                if limit is not None:
                    limit.stop()
            return outcome, limit is not None and limit.expired

    def _run_context(self, is_over: Flag) -> RunContext[Any]:
        context = self.context
        return RunContext(
            deps=context.deps,
            call=self.prepared_call.call,
            idempotency_key=self.prepared_call.idempotency_key,
            state=context.state,
            memory=context.memory,
            progress=self._progress(is_over),
            is_cancelled=lambda: is_over.is_set,
            wait=self._wait,
        )

    def _wait(self, event: str, until: float | None, seconds: float | None) -> tuple[Any, bool]:
        assert self.sub_runs is not None, "made with the context"
        wait_end = self.sub_runs.wait_for(WaitRequest(event, until, seconds))
        return wait_end.payload, wait_end.expired

    def _progress(self, is_over: Flag) -> Callable[[str], None]:
        loop, home = asyncio.get_running_loop(), threading.get_ident()
        report, secrets, call_id = self.context.progress, self.secrets, self.prepared_call.call.id

        def progress(message: str) -> None:
            if is_over.is_set:
                return
            message = secrets.hide_text(message)
            if threading.get_ident() == home:
                report(call_id, message)
            else:
                call_in_loop(loop, report, call_id, message)

        return progress


@dataclass(slots=True, eq=False)
class EarlyCall:
    """A call whose function was called before the turn was over."""

    prepared_call: PreparedCall
    invocation: Invocation
    memory: _MemoryCopy | None
    task: asyncio.Task[tuple[ThreadOutcome, bool]]


class EarlyStart:
    """Starts the calls of one turn that may begin before it is over. Make a new one for each turn.

    A call begins if it is read-only, stays on this machine, needs no approval, and conflicts with no call before it.
    `drop` must be awaited in the end: it cancels the calls that no batch takes.
    """

    def __init__(self, settings: ExecutorSettings, context: BatchContext) -> None:
        self._settings = settings
        self._context = context
        self._writes: Conflicts | None = None  # the calls offered that a read may have to wait for
        self._offer_count = 0
        self.calls: dict[str, EarlyCall] = {}
        """The calls that have begun, by id. The batch must use all of them or none: they share a memory."""
        self._memory: _MemoryCopy | None = None
        self._timers = context.scope.timers or Timers()
        self._batch = None if settings.concurrency.batch is None else Limiter(settings.concurrency.batch)

    def offer(self, call: ToolCall) -> None:
        """Takes the next complete call of the turn. It begins now, or not before the turn is over."""
        settings, secrets = self._settings, self._settings.secrets
        try:
            prepared_call = prepare(call, settings.tools, secrets, self._context.run_id)
        except ToolDefinitionError:
            return  # the batch raises it
        if type(prepared_call) is not PreparedCall:
            return
        tool, effects, context = prepared_call.tool, prepared_call.effects, self._context
        scope = context.scope
        if effects.needs_approval or effects.delegates:
            may_start = False
        elif settings.schedule == "sequential":
            may_start = not self._offer_count
        else:
            cache = scope.result_cache
            may_start = not cache.results or cache.answer(call, effects) is None
            if may_start and settings.schedule == "serializable":
                after_a_write = self._writes is not None and self._writes.any_with(effects)
                may_start = not after_a_write and not (scope.orphans.calls and scope.orphans.conflicting_tool(effects))
        if effects.writes:
            if self._writes is None:
                self._writes = Conflicts()
            self._writes.add(self._offer_count, effects)
        self._offer_count += 1
        limiters = scope.limiters(tool, settings.concurrency)
        if self._batch is not None:
            limiters = (*limiters, self._batch)
        if not may_start or not all(limiter.free_slots > 0 for limiter in limiters):
            return
        if "context" in tool.injected_kinds.values():
            if self._memory is None:
                self._memory = _MemoryCopy(context.memory)
            context = replace(context, memory=self._memory.copy)
        invocation = Invocation(prepared_call, settings.tool_timeout, context, secrets, is_early=True)
        task = asyncio.get_running_loop().create_task(invocation.run(self._timers))
        for limiter in limiters:
            limiter.free_slots -= 1
            # Not in the task's own code: a task that is cancelled before its first step never runs any.
            task.add_done_callback(limiter.release)
        self.calls[call.id] = EarlyCall(prepared_call, invocation, self._memory, task)

    async def drop(self) -> None:
        """Cancels the early calls that still run, waits for their tasks, and drops their outcomes."""
        if self._timers is not self._context.scope.timers:
            self._timers.close()
        if not self.calls:
            return
        tasks = [early.task for early in self.calls.values()]
        self.calls.clear()
        running = [task for task in tasks if not task.done()]
        for task in running:
            task.cancel()
        if running:  # mostly none: an empty wait costs a turn of the event loop
            await asyncio.wait(running)
        for task in tasks:
            if not task.cancelled():
                task.exception()


class _MemoryCopy:
    """A copy of the run's memory for the early calls of a turn. `merge` copies their changes back."""

    def __init__(self, memory: dict[str, Any]) -> None:
        self._memory = memory
        self.copy = _copy(memory)
        self._base = _copy(memory)

    def merge(self) -> None:
        new_values = {key: value for key, value in self.copy.items() if self._base.get(key, _MISSING) != value}
        for key, value in new_values.items():
            if isinstance(value, dict) and isinstance(self._memory.get(key), dict):
                entries, base = cast("dict[Any, Any]", value), self._base.get(key)
                before = cast("dict[Any, Any]", base) if isinstance(base, dict) else {}
                here = cast("dict[Any, Any]", self._memory[key])
                here.update({name: entry for name, entry in entries.items() if before.get(name) != entry})
            else:
                self._memory[key] = copy.copy(cast("Any", value))
        self._base = _copy(self.copy)


def _copy(memory: dict[str, Any]) -> dict[str, Any]:
    return {key: copy.copy(value) for key, value in memory.items()}
