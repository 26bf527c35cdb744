"""Early start: a read whose arguments are complete begins while the model still writes the rest of its turn.

What it brings is a guess until the turn is recorded: nothing is emitted for it, and what its tool keeps in the run's
memory goes to a copy. The batch then takes it in place of entering the function; what it does not take is dropped.
"""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass, replace
from typing import Any, cast

from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import Effects
from toolspeak.errors import ToolDefinitionError
from toolspeak.execute.approval.approvers import approval_reason
from toolspeak.execute.batch_context import BatchContext
from toolspeak.execute.calls.prepare import PreparedCall, prepare
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.execute.concurrency.limits import Concurrency, Limiter
from toolspeak.execute.concurrency.schedule import Conflicts, ScheduleName
from toolspeak.execute.concurrency.threads import ThreadOutcome
from toolspeak.execute.concurrency.timers import Timers
from toolspeak.execute.invocation import Invocation, seconds_of
from toolspeak.tools.toolset import Toolset


@dataclass(slots=True, eq=False)
class EarlyCall:
    """A call whose function was entered before the turn was over."""

    prepared: PreparedCall
    invocation: Invocation
    memory: _MemoryCopy | None
    task: asyncio.Task[tuple[ThreadOutcome, bool]]
    is_taken: bool = False

    async def outcome(self) -> tuple[ThreadOutcome, bool]:
        """What came of it, as `Invocation.run` has it; cancelling this cancels the call."""
        outcome = await self.task
        if self.memory is not None:
            self.memory.merge()
        return outcome


class EarlyStart:
    """The calls of one turn, offered in their order as soon as each is complete; make it anew for each turn.

    A call begins if it is read-only, stays on this machine, needs no yes, and conflicts with no call before it.
    `drop` must be awaited in the end: it cancels what no batch has taken.
    """

    def __init__(
        self,
        tools: Toolset,
        *,
        context: BatchContext,
        schedule: ScheduleName,
        concurrency: Concurrency,
        secrets: Secrets,
        tool_timeout: float | None,
    ) -> None:
        self._tools = tools
        self._context = context
        self._schedule: ScheduleName = schedule
        self._concurrency = concurrency
        self._secrets = secrets
        self._tool_timeout = tool_timeout
        self._writes: Conflicts | None = None  # the calls offered that a read may have to wait for
        self._offered = 0
        self._calls: dict[str, EarlyCall] = {}
        self._memory: _MemoryCopy | None = None
        self._timers = context.scope.timers or Timers()
        self._batch = None if concurrency.batch is None else Limiter(concurrency.batch)

    def offer(self, call: ToolCall) -> None:
        """The next complete call of the turn; it begins at once, or not at all before the turn is over."""
        try:
            prepared = prepare(call, self._tools, self._secrets, self._context.run_id)
        except ToolDefinitionError:
            return  # who runs the batch is told
        if type(prepared) is not PreparedCall:
            return
        tool, effects, context = prepared.tool, prepared.effects, self._context
        may_start = self._may_start(call, effects)
        if effects.writes:
            if self._writes is None:
                self._writes = Conflicts()
            self._writes.add(self._offered, effects)
        self._offered += 1
        limiters = context.scope.limiters(tool, self._concurrency)
        if self._batch is not None:
            limiters = (*limiters, self._batch)
        if not may_start or not all(limiter.has_slot for limiter in limiters):
            return
        for limiter in limiters:
            limiter.acquire()
        if "context" in tool.injected.values():
            if self._memory is None:
                self._memory = _MemoryCopy(context.memory)
            context = replace(context, memory=self._memory.copy)
        invocation = Invocation(prepared, seconds_of(prepared, self._tool_timeout), context, self._secrets)
        task = asyncio.get_running_loop().create_task(invocation.run(self._timers))
        if limiters:  # not in the task's own code: a task that is cancelled before its first step never runs any
            task.add_done_callback(lambda _: _release(limiters))
        self._calls[call.id] = EarlyCall(prepared, invocation, self._memory, task)

    def prepared(self, call: ToolCall) -> PreparedCall | None:
        """What was made ready of this very call, if its effects are still the same."""
        early = self._of(call)
        if early is None:
            return None
        known = early.prepared
        effects = known.tool.effects_of(known.arguments)
        return known if effects is known.effects or effects == known.effects else None

    def take(self, prepared: PreparedCall) -> EarlyCall | None:
        """What has begun of this very call, for a batch that goes on with it."""
        early = self._of(prepared.call)
        if early is None or (early.prepared is not prepared and early.prepared.effects != prepared.effects):
            return None
        early.is_taken = True
        return early

    def _of(self, call: ToolCall) -> EarlyCall | None:
        early = self._calls.get(call.id)
        return None if early is None or (early.prepared.call is not call and early.prepared.call != call) else early

    @property
    def is_wanted(self) -> bool:
        """Whether all that has begun was taken. If not, nothing of it may be used: the calls share a memory."""
        return all(early.is_taken for early in self._calls.values())

    async def drop(self) -> None:
        """Cancels what is still going on, waits for its tasks, and forgets what they brought."""
        if self._timers is not self._context.scope.timers:
            self._timers.close()
        if not self._calls:
            return
        tasks = [early.task for early in self._calls.values()]
        self._calls.clear()
        running = [task for task in tasks if not task.done()]
        for task in running:
            task.cancel()
        if running:  # mostly none is: to wait for nothing costs a turn of the event loop
            await asyncio.wait(running)
        for task in tasks:
            if not task.cancelled():
                task.exception()

    def _may_start(self, call: ToolCall, effects: Effects) -> bool:
        if not effects.declared or not effects.read_only or effects.external or approval_reason(effects):
            return False
        scope = self._context.scope
        match self._schedule:
            case "parallel":
                return scope.result_cache.answer(call, effects) is None
            case "sequential":
                return not self._offered
            case "serializable":
                return (
                    not (self._writes is not None and self._writes.any_with(effects))
                    and not scope.orphans.conflicting_tool(effects)
                    and scope.result_cache.answer(call, effects) is None
                )


class _MemoryCopy:
    """A copy of the run's memory for the calls of one turn; `merge` brings over what they have changed in it."""

    def __init__(self, memory: dict[str, Any]) -> None:
        self._memory = memory
        self.copy = _copied(memory)
        self._known = _copied(memory)

    def merge(self) -> None:
        changed = {key: value for key, value in self.copy.items() if self._known.get(key, _MISSING) != value}
        for key, value in changed.items():
            if isinstance(value, dict) and isinstance(self._memory.get(key), dict):
                entries, known = cast("dict[Any, Any]", value), self._known.get(key)
                before = cast("dict[Any, Any]", known) if isinstance(known, dict) else {}
                here = cast("dict[Any, Any]", self._memory[key])
                here.update({name: entry for name, entry in entries.items() if before.get(name) != entry})
            else:
                self._memory[key] = copy.copy(cast("Any", value))
        self._known = _copied(self.copy)


_MISSING = object()


def _copied(memory: dict[str, Any]) -> dict[str, Any]:
    return {key: copy.copy(value) for key, value in memory.items()}


def _release(limiters: tuple[Limiter, ...]) -> None:
    for limiter in limiters:
        limiter.release()
