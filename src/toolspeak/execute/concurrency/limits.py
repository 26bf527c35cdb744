"""How many calls run at once, how long each may take, and the threads of synchronous calls.

A thread cannot be stopped, so a synchronous call may continue after its time: it is orphaned. The interpreter does not
wait for these threads at its end. `asyncio.to_thread` does not fit: its pool is bounded, so a few tools that hang would
stop all others, and the interpreter joins its threads at its end.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import field
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

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
    `blocked`, and the waiting calls start anyway, to be skipped, because it is unknown when an orphaned call ends.
    """

    __slots__ = ("_limit", "_slots_orphaned", "_waiting", "free_slots")

    def __init__(self, limit: int) -> None:
        self.free_slots = self._limit = limit
        """Whoever starts a call takes one, also where none is free: then this is below 0 until a slot is released."""
        self._slots_orphaned = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def blocked(self) -> bool:
        return self._slots_orphaned >= self._limit

    def release(self, _task: object = None) -> None:
        """Gives a slot back. It may be the callback of a task that has ended."""
        self.free_slots += 1
        if self._waiting:
            self._wake()

    def wait(self, start: Callable[[], None]) -> None:
        """Calls `start` when a slot may be free. It acquires one, or waits again."""
        self._waiting.append(start)

    def orphan(self) -> None:
        """Marks one slot as held by an orphaned call."""
        self._slots_orphaned += 1
        if self.blocked:
            self._wake()

    def release_orphaned(self) -> None:
        """Releases the slot of an orphaned call that has ended."""
        self._slots_orphaned -= 1
        self.release()

    def _wake(self) -> None:
        while self._waiting and (self.free_slots > 0 or self.blocked):
            self._waiting.popleft()()


@quick(frozen=False, eq=False)
class Flag:
    """Set once, in one thread, and read in others."""

    is_set: bool = False


@quick()
class OrphanedCall:
    """A synchronous call that continued after its time. `end_flag` is set once its function has ended."""

    call_id: str
    tool: str
    effects: Effects
    end_flag: Flag


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
        if any(call.end_flag.is_set for call in self.calls):
            self.calls = [call for call in self.calls if not call.end_flag.is_set]


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
        """Ends the limit. True if only the limit cancelled its task: then the task may continue."""
        task, self.task = self.task, None
        return self.expired and task is not None and task.uncancel() <= self.before


class Timers:
    """Starts time limits, in one event loop. All limits of one length share one timer of the loop; `asyncio.timeout`
    takes one for each. `close` it when none is needed any more.
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


_IDLE_SECONDS = 10.0
"""How long an idle worker waits for another job before its thread ends."""


@quick(frozen=False)
class ThreadOutcome:
    """The value that a function returned, or the exception that it raised."""

    value: Any = None
    error: BaseException | None = None


async def in_thread(
    function: Callable[[], Any], orphan_ended: Callable[[], None] | None = None, end_flag: Flag | None = None
) -> ThreadOutcome:
    """Runs the function in a daemon worker thread, in a copy of the current context. Sets `end_flag` when it ends.

    Cancelling the wait orphans the thread: it runs to its end, its outcome is dropped, and the event loop then calls
    `orphan_ended`. A thread that never ends keeps neither the event loop nor the interpreter from ending.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    waiting: asyncio.Future[ThreadOutcome] = loop.create_future()

    def deliver(outcome: ThreadOutcome) -> None:
        if not waiting.done():
            waiting.set_result(outcome)
        elif orphan_ended is not None:
            orphan_ended()

    def job() -> None:
        try:
            outcome = ThreadOutcome(value=context.run(function))
        except BaseException as error:  # noqa: BLE001 - carried to the caller, whatever it is
            outcome = ThreadOutcome(error=error)
        if end_flag is not None:
            end_flag.is_set = True
        call_in_loop(loop, deliver, outcome)

    while True:
        try:
            worker = _idle.pop()
        except IndexError:
            worker = _Worker()
            worker.jobs.put(job)
            worker.thread.start()
            break
        # After a fork the child finds its parent's workers here, without their threads.
        if worker.thread.is_alive():
            worker.jobs.put(job)
            break
    return await waiting


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> None:
    """Schedules the function in the loop's thread. Nothing happens if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise


_ThreadJob: TypeAlias = Callable[[], None]


class _Worker:
    def __init__(self) -> None:
        self.jobs: SimpleQueue[_ThreadJob] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="toolspeak-tool", daemon=True)

    def _work(self) -> None:
        while True:
            try:
                job = self.jobs.get(timeout=_IDLE_SECONDS)
            except Empty:
                if self._retire():
                    return
                job = self.jobs.get()
            job()
            # Else an idle thread would keep the last call's arguments alive.
            del job
            _idle.append(self)

    def _retire(self) -> bool:
        """Leaves the idle workers. False if `in_thread` has just taken this one: then a job is coming."""
        try:
            _idle.remove(self)
        except ValueError:
            return False
        return True


# No lock: a deque's own methods are atomic, and a lock could be held in another thread during a fork.
_idle: deque[_Worker] = deque()
