"""One admitted call on its way, and which of a batch it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from toolspeak.data.events import ToolStarted
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.execute.batch import BatchContext
from toolspeak.execute.calls.ids import key_of
from toolspeak.execute.calls.observe import NO_DETAILS, Observed, Observer, ToolCallStarted, ToolExecution, ended, tell
from toolspeak.execute.calls.secrets import Secrets, hide_effects
from toolspeak.execute.concurrency.limits import Limiter
from toolspeak.execute.concurrency.schedule import ScheduleName, plan
from toolspeak.execute.entries import Ready, Settled
from toolspeak.execute.hooks import HookNotes
from toolspeak.execute.scope import RunScope


@quick(frozen=False, eq=False)
class Turn:
    """One call on its way, `call` as it runs or would have; `returned` is what its function brought, `error` what it
    raised, `result` what was recorded. `started` and `completed` are Unix seconds, 0 where there is none yet."""

    call: ToolCall | MalformedCall
    entry: Ready | Settled
    waits: int = 0
    waited_for: tuple[str, ...] = ()
    followers: list[Turn] | None = None
    phase: Literal["new", "queued", "waiting", "starting", "running", "settling", "recording", "done"] = "new"
    limiters: tuple[Limiter, ...] = ()
    returned: ToolResult | None = None
    result: ToolResult | None = None
    task: asyncio.Task[None] | None = None
    notes: HookNotes | None = None
    error: Exception | None = None
    started: float = 0.0
    completed: float = 0.0

    def release(self) -> None:
        """Gives the slots back."""
        limiters, self.limiters = self.limiters, ()
        for limiter in limiters:
            limiter.release()


def chain(calls: Sequence[tuple[Turn, Ready]], schedule: ScheduleName) -> None:
    """Sets what each call waits for, and who waits for it."""
    waits: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    for (turn, _), found in zip(calls, plan([entry.effects for _, entry in calls], schedule), strict=True):
        if found is not waits:
            waits, names = found, tuple(calls[index][1].call.id for index in found)
        turn.waits, turn.waited_for = len(waits), names
        for index in waits:
            before = calls[index][0]
            if before.followers is None:
                before.followers = []
            before.followers.append(turn)


def obstacle_of(scope: RunScope, schedule: ScheduleName, turn: Turn, entry: Ready) -> str:
    """Which calls that go on after their timeout keep this one from starting, "" if none does."""
    name = entry.tool.name
    if schedule != "parallel":
        running = scope.orphans.conflicting_tool(entry.effects)
        if running:
            return f"it depends on {running}, which is still running after its timeout"
    own = scope.own_limiter(entry.tool) if entry.tool.max_concurrent is not None else None
    if own is not None and own not in turn.limiters and entry.begun is None:
        return f"earlier calls of {name} are still running after their timeout, and no more may run at once"
    return ""


def started_fact(turn: Turn, entry: Ready, secrets: Secrets) -> ToolStarted:
    effects, early = hide_effects(entry.effects, secrets), entry.begun is not None
    changed = entry.call if entry.changed else None
    name = entry.tool.spec.name
    return ToolStarted(entry.call.id, name, entry.idempotency_key, turn.waited_for, effects, early, changed)


def forget_cancellations() -> None:
    """Lets the current task go on after a cancellation that was meant for its tool."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


class Watch:
    """Tells a batch's observers what becomes of its calls."""

    def __init__(self, observers: Sequence[Observer], context: BatchContext) -> None:
        self._observers = observers
        self._details = context.scope.details
        self._run = Observed(context.run_id, context.step, context.agent, context.parent_run_id)

    def started(self, turn: Turn, call: ToolCall) -> None:
        tell(self._observers, ToolCallStarted(call.name, call.arguments, turn.started, call.id, self._run))

    def ended(self, turn: Turn, result: ToolResult) -> None:
        entry = turn.entry
        if isinstance(entry, Settled) and entry.recorded:
            return
        key = key_of(self._run.run_id, result.call_id)
        details = self._details.get(result.call_id, NO_DETAILS)
        execution = ToolExecution(key, turn.call, result, turn.started or turn.completed, turn.completed, details)
        tell(self._observers, ended(execution, entry.by if isinstance(entry, Settled) else "", self._run))
