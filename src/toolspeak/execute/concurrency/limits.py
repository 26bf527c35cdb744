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

    `batch` of one batch, `run` of all that goes on in a run (calls that start early, batches of the same scope),
    `threads` synchronous ones of a run: a batch of thousands must not become as many threads. A tool's own limit is
    `@tool(max_concurrent=…)`. Raises ConfigurationError for a limit below 1.
    """

    batch: int | None = None
    run: int | None = None
    threads: int = 128

    def __post_init__(self) -> None:
        for name in ("batch", "run", "threads"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, int) and limit >= 1):
                raise ConfigurationError(
                    f"Concurrency({name}={limit!r}): a number from 1 up, for one call must be able to run"
                )


class Limiter:
    """Lets `limit` calls run at a time: each holds a slot, the others wait in their order.

    A call that is orphaned in its thread may keep its slot. When orphaned calls hold all slots the limiter is
    `blocked`, and whoever waits is called to be told so: nobody knows when one of them ends.
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
        """Calls `start` when there may be a slot; it acquires one, or waits again."""
        self._waiting.append(start)

    def orphan(self) -> None:
        """The holder of a slot keeps it, although nobody waits for its call any more."""
        self._orphaned += 1
        if self.blocked:
            self._wake()

    def release_orphaned(self) -> None:
        """An orphaned call has ended after all."""
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
    """A synchronous call that nobody waits for any more; `ended` is set once its function has ended."""

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
        """The tool of one that may still change what a call with these effects touches, "" if there is none."""
        if not self.calls:
            return ""
        self._sweep()
        conflicts = Conflicts()
        for index, call in enumerate(self.calls):
            # What an orphaned read still finds is dropped: it may go on beside anything.
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
    """The time one call has: its `task`, cancelled so many times `before`, is cancelled when it is over. Without one
    the limit has ended."""

    due: float
    task: asyncio.Task[Any] | None
    before: int
    expired: bool = False

    def expire(self) -> None:
        if self.task is not None:
            self.expired = True
            self.task.cancel()

    def stop(self) -> bool:
        """Ends it. True if it cancelled its task and nobody else did: the task may go on."""
        task, self.task = self.task, None
        return self.expired and task is not None and task.uncancel() <= self.before


class Timers:
    """Starts limits, in one event loop; `close` it when none is needed any more."""

    __slots__ = ("_handles", "_limits")

    def __init__(self) -> None:
        self._limits: dict[float, deque[Limit]] = {}
        self._handles: dict[float, asyncio.TimerHandle] = {}

    def start(self, seconds: float) -> Limit:
        """A limit for the current task."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "calls run in tasks"
        limit = Limit(loop.time() + seconds, task, task.cancelling())
        limits = self._limits.get(seconds)
        if limits is None:
            limits = self._limits[seconds] = deque()
        while limits and limits[0].task is None:
            limits.popleft()
        limits.append(limit)  # later than those before it, for all are of one length
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
