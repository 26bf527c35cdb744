"""Group commits: commits records that arrive at the same time together, and waits for the disk in a thread.

One event loop at a time uses a `Commits`. Either its thread or the loop uses the database, never both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from toolspeak.data.events import Record
from toolspeak.data.values import quick
from toolspeak.journal.base import Lease
from toolspeak.journal.records import RecordRow

ResultT = TypeVar("ResultT")

FIRST_WAIT, LONGEST_WAIT = 0.001, 0.05
"""Seconds between two attempts at a locked file."""

SHORT = 0.001
"""Seconds that the event loop may block. To run a sync in a thread costs up to a tenth of that, and much more on busy
cores."""

_SHARE = 1 / 8  # the weight of the last sync in the mean
_FIRST_MEAN = 0.02  # as on a rotating disk: the loop waits for a sync only after about 25 short ones


@quick(frozen=False, eq=False)
class Waiting:
    """A record that waits to be written to the file.

    - `synced`: the record must be on the disk before its `append` returns.
    - `future`: the future that its `append` waits for.
    - `writing`: the record can no longer be withdrawn: it is written or refused.
    - `cancelled`: the caller was cancelled; only the outcome matters.
    - `settled`: whether the outcome is known.
    - `outcome`: None if the record was written, else the error.
    """

    record: Record
    row: RecordRow
    lease: Lease | None
    synced: bool
    future: asyncio.Future[None]
    writing: bool = False
    cancelled: bool = False
    settled: bool = False
    outcome: BaseException | None = None

    def settle(self, outcome: BaseException | None) -> None:
        self.settled, self.outcome = True, outcome
        if self.future.done():
            return  # cancelled: its task reads the outcome
        if outcome is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(outcome)


class Commits:
    """Commits the records that arrived since the last commit, as a group.

    - `write(group)`: writes a group. It returns an error or None for each record, and raises if it wrote none.
    - `may_wait(group)`: whether `write` may wait for the disk. If so, `write` runs in the thread.
    - `is_busy(error)`: whether the error may be temporary. If so, the group is written again.
    - `problem(error)`: the error that callers get after `seconds` of such errors.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Waiting]], Sequence[Exception | None]],
        may_wait: Callable[[Sequence[Waiting]], bool],
        is_busy: Callable[[BaseException], bool],
        problem: Callable[[BaseException], BaseException],
        seconds: float,
    ) -> None:
        self._write = write
        self._may_wait = may_wait
        self._is_busy = is_busy
        self._problem = problem
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: list[Waiting] = []
        self._due = False  # a flush is under way, or will come
        self._work: asyncio.Future[Any] | None = None
        self._idlers: list[asyncio.Future[None]] = []

    async def add(self, record: Record, row: RecordRow, lease: Lease | None, *, synced: bool) -> None:
        """Writes a record. Returns once it is written, or raises the error that prevented it.

        A cancellation either withdraws the record, or is raised at the caller's next `await`.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        waiting = Waiting(record, row, lease, synced, loop.create_future())
        self._waiting.append(waiting)
        if not self._due:
            self._due = True
            # Runs after all tasks that are ready, so that their records join this group.
            loop.call_soon(self._flush, loop.time(), FIRST_WAIT)
        try:
            await waiting.future
        except asyncio.CancelledError:
            await self._after_cancellation(waiting, loop)

    async def _after_cancellation(self, waiting: Waiting, loop: asyncio.AbstractEventLoop) -> None:
        while not waiting.settled:
            if not waiting.writing:
                raise asyncio.CancelledError
            waiting.cancelled, waiting.future = True, loop.create_future()
            with suppress(asyncio.CancelledError, Exception):  # cancelled again, or the outcome
                await waiting.future
        if waiting.outcome is not None:
            raise asyncio.CancelledError from waiting.outcome
        _cancel_later()

    async def idle(self) -> None:
        """Returns when the thread is idle. The thread stays idle until the caller's next `await`."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        while self._work is not None:
            idler = loop.create_future()
            self._idlers.append(idler)
            await idler

    async def in_thread(self, call: Callable[[], ResultT]) -> ResultT:
        """Runs a call that may wait for a disk in the thread, and returns its result. The thread must be `idle`. Pass
        the future to `unbroken`."""
        work = self._start(call)
        work.add_done_callback(lambda _: self._go_on())
        return await unbroken(work)

    async def drain(self) -> None:
        """Returns when all records that were added so far are written or refused."""
        loop = asyncio.get_running_loop()
        while self._due and self._loop is loop:
            idler = loop.create_future()
            self._idlers.append(idler)
            await idler

    def stop(self) -> None:
        """Finishes the thread's work, ends the thread, and writes the records that wait."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None
        group = [waiting for waiting in self._waiting if not waiting.future.done()]
        self._waiting.clear()
        if self._loop is None or self._loop.is_closed() or not group:
            return
        outcomes: Sequence[BaseException | None]
        try:
            outcomes = self._write(group)
        except Exception as error:  # noqa: BLE001 - every waiting caller raises it
            outcomes = [self._problem(error)] * len(group)
        for waiting, outcome in zip(group, outcomes, strict=True):
            waiting.settle(outcome)

    def stop_if_idle(self) -> None:
        """Ends the thread, unless a caller needs it by now."""
        if not self._due and self._work is None:
            self.stop()

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Discards the state of another event loop, since none of that loop's tasks waits any more."""
        self._loop, self._waiting, self._due, self._work, self._idlers = loop, [], False, None, []

    def _start(self, call: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        assert self._loop is not None
        try:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "toolspeak-journal")
            work = self._loop.run_in_executor(self._thread, call)
        except RuntimeError:  # the interpreter is ending, or the system has no thread left
            work = self._done_here(call)
        self._work = work
        return work

    def _done_here(self, call: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        work: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        try:
            work.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised as the thread's would be
            work.set_exception(error)
        return work

    def _flush(self, since: float, wait: float) -> None:
        if self._work is not None:
            return  # another flush follows its work
        group = [waiting for waiting in self._waiting if not waiting.future.done()]
        self._waiting.clear()
        if group and self._may_wait(group):
            for waiting in group:
                waiting.writing = True
            work = self._start(partial(self._write, group))
            work.add_done_callback(partial(self._on_written, group, since, wait))
            return
        try:
            outcomes = self._write(group) if group else ()
        except Exception as error:  # noqa: BLE001 - raised in the callers; an error of a callback would be lost
            self._on_failure(group, error, since, wait)
        else:
            self._go_on(group, outcomes)

    def _on_written(
        self, group: Sequence[Waiting], since: float, wait: float, work: asyncio.Future[Sequence[Exception | None]]
    ) -> None:
        error = work.exception()
        if error is not None:
            self._on_failure(group, error, since, wait)
            return
        self._go_on(group, work.result())

    def _on_failure(self, group: Sequence[Waiting], error: BaseException, since: float, wait: float) -> None:
        """Handles an error that left the whole group unwritten."""
        assert self._loop is not None
        is_stopped = group[0].writing and self._thread is None
        if is_stopped or not self._is_busy(error) or self._loop.time() - since >= self._seconds:
            self._go_on(group, [self._problem(error)] * len(group))
            return
        for waiting in group:
            waiting.writing = False
            if waiting.cancelled or waiting.future.done():
                waiting.settle(error)
        self._waiting[:0] = [waiting for waiting in group if not waiting.settled]
        self._work = None
        if self._idlers:
            self._wake()
        self._loop.call_later(wait, self._flush, since, min(2 * wait, LONGEST_WAIT))

    def _go_on(self, group: Sequence[Waiting] = (), outcomes: Sequence[BaseException | None] = ()) -> None:
        """Settles the group that is done, and begins the next one."""
        for waiting, outcome in zip(group, outcomes, strict=True):
            waiting.settle(outcome)
        self._work = None
        if not self._waiting:
            self._due = False
        if self._idlers:
            self._wake()  # before the next group, which could keep the thread busy for ever
        if self._waiting and self._loop is not None:
            self._due = True
            self._loop.call_soon(self._flush, self._loop.time(), FIRST_WAIT)

    def _wake(self) -> None:
        idlers, self._idlers = self._idlers, []
        for idler in idlers:
            if not idler.done():
                idler.set_result(None)


async def unbroken(work: asyncio.Future[ResultT]) -> ResultT:
    """Returns the result of the work. The work runs to its end even if the caller is cancelled.

    After a cancellation: if the work fails, this raises the cancellation. Otherwise it returns the result, and the
    caller's next `await` raises the cancellation.
    """
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and (work.cancelled() or work.exception() is not None):
        raise asyncio.CancelledError from None if work.cancelled() else work.exception()
    if cancelled:
        _cancel_later()
    return work.result()


def _cancel_later() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
        task.cancel()


class Syncs:
    """The duration of syncs: a mean in which the newest sync has the greatest weight.

    A slow sync affects about the next ten decisions. A disk that becomes slow is noticed at once.
    """

    __slots__ = ("_mean", "short")

    def __init__(self) -> None:
        self._mean = _FIRST_MEAN
        self.short = False
        """Whether the event loop can wait for the next sync."""

    def took(self, seconds: float) -> None:
        """Counts a sync that took so long."""
        self._mean += (seconds - self._mean) * _SHARE
        self.short = self._mean < SHORT
