"""How many calls run at once, and how long each may take.

A thread cannot be stopped, so a synchronous call may go on after its time: it is orphaned.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.execute.concurrency.schedule import Conflicts


@quick()
class Concurrency:
    """How many calls run at once; None is no limit.

    - `batch`: the calls of one batch.
    - `run`: all calls of a run: early calls, and those of batches with the same scope.
    - `threads`: the synchronous calls of a run, for a batch of thousands must not start as many threads.

    A tool has a limit of its own with `@tool(max_concurrent=…)`. Raises ConfigurationError for a limit below 1.
    """

    batch: int | None = None
    run: int | None = None
    threads: int = 128

    def __post_init__(self) -> None:
        for name in ("batch", "run", "threads"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, int) and limit >= 1):
                raise ConfigurationError(f"Concurrency({name}={limit!r}): expected a number from 1 up")


class Limiter:
    """Lets `limit` calls run at a time. Each holds a slot, the others wait in order.

    A call that is orphaned in its thread may keep its slot. When orphaned calls hold all slots the limiter is
    `blocked`,
    and the waiting calls are started all the same, to be skipped: nobody knows when an orphaned call ends.
    """

    __slots__ = ("_limit", "_orphaned", "_used", "_waiting")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = self._orphaned = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def has_slot(self) -> bool:
        return self._used < self._limit

    @property
    def blocked(self) -> bool:
        return self._orphaned >= self._limit

    def acquire(self) -> None:
        self._used += 1

    def release(self) -> None:
        self._used -= 1
        self._wake()

    def wait(self, start: Callable[[], None]) -> None:
        """Calls `start` when a slot may be free. It acquires one, or waits again."""
        self._waiting.append(start)

    def orphan(self) -> None:
        """Marks one slot as held by an orphaned call."""
        self._orphaned += 1
        if self.blocked:
            self._wake()

    def release_orphaned(self) -> None:
        """Releases the slot of an orphaned call that has ended."""
        self._orphaned -= 1
        self.release()

    def _wake(self) -> None:
        while self._waiting and (self.has_slot or self.blocked):
            self._waiting.popleft()()


class Flag:
    """Set once, in one thread, and read in others."""

    __slots__ = ("_on",)

    def __init__(self) -> None:
        self._on = False

    def set(self) -> None:
        self._on = True

    def is_set(self) -> bool:
        return self._on


@quick()
class OrphanedCall:
    """A synchronous call that went on after its time. `ended` is set once its function has ended."""

    call_id: str
    tool: str
    effects: Effects
    ended: Flag


@quick(frozen=False, eq=False)
class OrphanedCalls:
    """The orphaned calls of a run, across its batches."""

    calls: list[OrphanedCall] = field(default_factory=list[OrphanedCall])

    def add(self, call: OrphanedCall) -> None:
        self._sweep()
        self.calls.append(call)

    def conflicting_tool(self, effects: Effects) -> str:
        """The tool of an orphaned call that may still change what a call with these effects touches; "" without one."""
        if not self.calls:
            return ""
        self._sweep()
        conflicts = Conflicts()
        for index, call in enumerate(self.calls):
            # The result of an orphaned read is dropped, so it conflicts with nothing.
            if not call.effects.read_only or call.effects.external:
                conflicts.add(index, call.effects)
        conflicting = conflicts.with_(effects)
        return self.calls[min(conflicting)].tool if conflicting else ""

    def running(self) -> tuple[OrphanedCall, ...]:
        self._sweep()
        return tuple(self.calls)

    def _sweep(self) -> None:
        if any(call.ended.is_set() for call in self.calls):
            self.calls = [call for call in self.calls if not call.ended.is_set()]


@quick(frozen=False, eq=False)
class Limit:
    """The time limit of one call.

    - `due`: when it ends, in the event loop's time.
    - `task`: the task that it cancels then; None once the limit has ended.
    - `before`: how often the task was cancelled before the limit began.
    - `expired`: whether the limit has cancelled its task.
    """

    due: float
    task: asyncio.Task[Any] | None
    before: int
    expired: bool = False

    def expire(self) -> None:
        if self.task is not None:
            self.expired = True
            self.task.cancel()

    def stop(self) -> bool:
        """Ends the limit. True if the limit cancelled its task and nobody else did: then the task may go on."""
        task, self.task = self.task, None
        return self.expired and task is not None and task.uncancel() <= self.before


class Timers:
    """Starts time limits, in one event loop. All limits of one length share one timer of the loop; `asyncio.timeout`
    takes one
    for each. `close` it when none is needed any more.
    """

    __slots__ = ("_handles", "_limits")

    def __init__(self) -> None:
        self._limits: dict[float, deque[Limit]] = {}
        self._handles: dict[float, asyncio.TimerHandle] = {}

    def start(self, seconds: float) -> Limit:
        """Starts a limit of so many seconds for the current task."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "calls run in tasks"
        limit = Limit(loop.time() + seconds, task, task.cancelling())
        limits = self._limits.get(seconds)
        if limits is None:
            limits = self._limits[seconds] = deque()
        while limits and limits[0].task is None:
            limits.popleft()
        limits.append(limit)  # due after those before it, for all have one length
        if seconds not in self._handles:
            self._handles[seconds] = loop.call_at(limit.due, self._fire, seconds)
        return limit

    def close(self) -> None:
        if self._handles:
            for handle in self._handles.values():
                handle.cancel()
            self._handles.clear()

    def _fire(self, seconds: float) -> None:
        loop, limits = asyncio.get_running_loop(), self._limits[seconds]
        # The loop fires timers that are due within its clock's resolution.
        now = max(loop.time(), self._handles.pop(seconds).when())
        while limits and (limits[0].task is None or limits[0].due <= now):
            limits.popleft().expire()
        if limits:
            self._handles[seconds] = loop.call_at(limits[0].due, self._fire, seconds)
