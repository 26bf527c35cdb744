"""Synchronous tools run beside the event loop, in threads that the interpreter does not wait for at its end.

`asyncio.to_thread` does not fit: its pool is bounded, so a few tools that hang would stop all others, and the
interpreter joins its threads at its end.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from toolspeak.data.values import quick

_IDLE_SECONDS = 10.0
"""How long an idle worker waits for another job before its thread ends."""


@quick(frozen=False)
class ThreadOutcome:
    """The value that a function returned, or the exception that it raised."""

    value: Any = None
    error: BaseException | None = None


async def in_thread(function: Callable[[], Any], orphan_ended: Callable[[], None] | None = None) -> ThreadOutcome:
    """Runs the function in a daemon worker thread, in a copy of the current context.

    Cancelling the wait orphans the thread: it goes on to its own end, its outcome is dropped, and the event loop calls
    `orphan_ended` then. A thread that never ends keeps neither the event loop nor the interpreter from ending.
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
        call_in_loop(loop, deliver, outcome)

    _hand_over(job)
    return await waiting


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> None:
    """Schedules the function in the loop's thread. Nothing happens if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise


_Job: TypeAlias = Callable[[], None]


class _Worker:
    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
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
        """Leaves the idle workers. False if `_hand_over` has just taken this one: then a job is coming."""
        try:
            _idle.remove(self)
        except ValueError:
            return False
        return True


# No lock: a deque's own methods are atomic, and a lock could be held in another thread during a fork.
_idle: deque[_Worker] = deque()


def _hand_over(job: _Job) -> None:
    while True:
        try:
            worker = _idle.pop()
        except IndexError:
            worker = _Worker()
            worker.jobs.put(job)
            worker.thread.start()
            return
        # After a fork the child finds its parent's workers here, without their threads.
        if worker.thread.is_alive():
            worker.jobs.put(job)
            return
