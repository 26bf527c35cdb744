"""The time limits of many calls: one timer of the event loop for all limits of a length, where
`asyncio.timeout` takes one for each."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from toolspeak.data.values import quick


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
