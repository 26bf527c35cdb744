"""One event loop in a thread, for callers without an event loop or inside of one (Jupyter)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from toolspeak.errors import ConfigurationError

ResultT = TypeVar("ResultT")


class _LoopThread:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # After a fork the child has the parent's loop here, but not the thread that ran it.
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="toolspeak-loop", daemon=True)
                self._thread.start()
            return self._loop

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread


_THREAD = _LoopThread()


class _Job(Generic[ResultT]):
    """A coroutine that runs in the loop. `begin` and `stop` are called there: in this order, or `stop` alone."""

    def __init__(self, work: Coroutine[Any, Any, ResultT]) -> None:
        self.outcome: concurrent.futures.Future[ResultT] = concurrent.futures.Future()
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._perform())
        self._task.add_done_callback(lambda task: self._abandon())

    def stop(self) -> None:
        if self._task is None:
            self._abandon()
        else:
            self._task.cancel()

    async def _perform(self) -> None:
        try:
            result = await self._work
        except BaseException as error:  # noqa: BLE001 - a SystemExit that left the task would end the loop for all
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(result)

    def _abandon(self) -> None:
        """Cancels work that was stopped before its first step."""
        if not self.outcome.done():
            self._work.close()
            self.outcome.set_exception(asyncio.CancelledError())


def run_sync(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Runs a coroutine in the process-wide loop and waits for it. Ctrl-C cancels it and waits until it has ended.

    Raises ConfigurationError inside that loop (in an async tool, for example): it would wait for itself.
    """
    if _THREAD.is_current():
        work.close()
        raise ConfigurationError("run_sync cannot be called inside a run; use `await agent.run(…)`")
    loop, job = _THREAD.loop(), _Job(work)
    try:
        loop.call_soon_threadsafe(job.begin)
        return job.outcome.result()
    except BaseException:
        # The run's own error, or one of a signal handler, as for Ctrl-C. After the latter the run still continues.
        if not job.outcome.done():
            loop.call_soon_threadsafe(job.stop)
            concurrent.futures.wait([job.outcome])
        raise
