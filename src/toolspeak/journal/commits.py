"""Records that come at the same time, committed together, and what waits for a disk in a thread of its own.

One event loop at a time uses a `Commits`; what it writes to is touched by its thread or by the loop, never by both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from toolspeak.data.events import Record
from toolspeak.journal.base import Lease
from toolspeak.journal.stored import Stored

ResultT = TypeVar("ResultT")

FIRST_WAIT, LONGEST_WAIT = 0.001, 0.05
"""Seconds between two tries at a locked file."""

SHORT = 0.001
"""Seconds that an event loop may stand still: to hand a sync over to a thread and back costs up to a tenth of that, and
much more where the cores are busy."""

_SHARE = 1 / 8  # what the last sync counts for in the mean
_UNKNOWN = 0.02  # as a disk that turns: some 25 short ones are seen before the loop waits for one


class Waiting:
    """A record on its way into the file.

    `done` is what its `append` waits for. `begun`: it can no longer be taken back, it is written or refused.
    `cancelled`: nobody wants it any more, but what became of it. That is `outcome`, once it is `settled`: None, or why
    it was not written.
    """

    __slots__ = ("cancelled", "done", "lease", "outcome", "record", "settled", "stored", "writing")

    def __init__(self, record: Record, stored: Stored, lease: Lease | None, done: asyncio.Future[None]) -> None:
        self.record = record
        self.stored = stored
        self.lease = lease
        self.done = done
        self.writing = self.cancelled = self.settled = False
        self.outcome: BaseException | None = None

    def settle(self, outcome: BaseException | None) -> None:
        self.settled, self.outcome = True, outcome
        if self.done.done():
            return  # cancelled: its task asks for the outcome
        if outcome is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(outcome)


class Commits:
    """Calls `write(group)` with what came since the last group: it says what became of each, and raises when none of
    it was written. `may_wait(group)`: that may take as long as a disk does, so it is called in the thread.

    An error that `is_busy` is tried again for `seconds`; `problem(error)` is what those who wait are told then.
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

    async def add(self, record: Record, stored: Stored, lease: Lease | None) -> None:
        """Returns once the record is written, and raises what it was refused for. A cancellation either keeps it from
        being written, or is met at the caller's next `await`."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        waiting = Waiting(record, stored, lease, loop.create_future())
        self._waiting.append(waiting)
        if not self._due:
            self._due = True
            # Behind whatever else is ready to run: its records are committed together with this one.
            loop.call_soon(self._flush, loop.time(), FIRST_WAIT)
        try:
            await waiting.done
        except asyncio.CancelledError:
            await self._after_cancellation(waiting, loop)

    async def _after_cancellation(self, waiting: Waiting, loop: asyncio.AbstractEventLoop) -> None:
        while not waiting.settled:
            if not waiting.writing:
                raise asyncio.CancelledError
            waiting.cancelled, waiting.done = True, loop.create_future()
            with suppress(asyncio.CancelledError, Exception):  # cancelled again, or the outcome
                await waiting.done
        if waiting.outcome is not None:
            raise asyncio.CancelledError from waiting.outcome
        _cancel_later()

    async def idle(self) -> None:
        """Returns when the thread has nothing to do: until the next `await`, nothing is given to it."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        while self._work is not None:
            idler = loop.create_future()
            self._idlers.append(idler)
            await idler

    async def in_thread(self, call: Callable[[], ResultT]) -> ResultT:
        """What a call comes to that may wait for a disk; to be begun while `idle`, and `unbroken`."""
        work = self._start(call)
        work.add_done_callback(lambda _: self._go_on())
        return await unbroken(work)

    async def drain(self) -> None:
        """Returns when everything is written, or refused, that was added until now."""
        loop = asyncio.get_running_loop()
        while self._due and self._loop is loop:
            idler = loop.create_future()
            self._idlers.append(idler)
            await idler

    def stop(self) -> None:
        """Ends the thread and what it does, and writes what waits."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None
        group = [waiting for waiting in self._waiting if not waiting.done.done()]
        self._waiting.clear()
        if self._loop is None or self._loop.is_closed() or not group:
            return
        try:
            self._settle(group, self._write(group))
        except Exception as error:  # noqa: BLE001 - those who wait are told
            self._settle(group, [self._problem(error)] * len(group))

    def stop_if_idle(self) -> None:
        """Ends the thread, unless somebody has meanwhile come who needs it."""
        if not self._due and self._work is None:
            self.stop()

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Forgets what another loop left behind: nobody waits for it any more."""
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
        except Exception as error:  # noqa: BLE001 - told as the thread's would be
            work.set_exception(error)
        return work

    def _flush(self, since: float, wait: float) -> None:
        if self._work is not None:
            return  # what it does is followed by another flush
        group = [waiting for waiting in self._waiting if not waiting.done.done()]
        self._waiting.clear()
        if group and self._may_wait(group):
            for waiting in group:
                waiting.writing = True
            work = self._start(partial(self._write, group))
            work.add_done_callback(partial(self._written, group, since, wait))
            return
        try:
            self._settle(group, self._write(group) if group else [])
        except Exception as error:  # noqa: BLE001 - those who wait are told; a callback's own error would be lost
            self._failed(group, error, since, wait)
        else:
            self._go_on()

    def _written(
        self, group: Sequence[Waiting], since: float, wait: float, work: asyncio.Future[Sequence[Exception | None]]
    ) -> None:
        error = work.exception()
        if error is not None:
            self._failed(group, error, since, wait)
            return
        self._settle(group, work.result())
        self._go_on()

    def _settle(self, group: Sequence[Waiting], outcomes: Sequence[BaseException | None]) -> None:
        for waiting, outcome in zip(group, outcomes, strict=True):
            waiting.settle(outcome)

    def _failed(self, group: Sequence[Waiting], error: BaseException, since: float, wait: float) -> None:
        """Nothing of the group was written."""
        assert self._loop is not None
        stopped = group[0].writing and self._thread is None
        if stopped or not self._is_busy(error) or self._loop.time() - since >= self._seconds:
            self._settle(group, [self._problem(error)] * len(group))
            self._go_on()
            return
        for waiting in group:
            waiting.writing = False
            if waiting.cancelled or waiting.done.done():
                waiting.settle(error)
        self._waiting[:0] = [waiting for waiting in group if not waiting.settled]
        self._work = None
        self._wake()
        self._loop.call_later(wait, self._flush, since, min(2 * wait, LONGEST_WAIT))

    def _go_on(self) -> None:
        self._work = None
        if not self._waiting:
            self._due = False
        self._wake()  # before what waits to be written: it would keep the thread at work for ever
        if self._waiting and self._loop is not None:
            self._due = True
            self._loop.call_soon(self._flush, self._loop.time(), FIRST_WAIT)

    def _wake(self) -> None:
        idlers, self._idlers = self._idlers, []
        for idler in idlers:
            if not idler.done():
                idler.set_result(None)


async def unbroken(work: asyncio.Future[ResultT]) -> ResultT:
    """What some work comes to, which goes on to its end when the caller is cancelled. If it fails the cancellation is
    raised then; else there is a result, and the caller meets the cancellation at its next `await`."""
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
    """Knows how long the last syncs took, as a mean in which the newest counts most: one that was long is felt for
    the next ten or so, a disk that has become slow at once."""

    __slots__ = ("_mean",)

    def __init__(self) -> None:
        self._mean = _UNKNOWN

    @property
    def short(self) -> bool:
        """Whether the event loop can wait for the next one."""
        return self._mean < SHORT

    def took(self, seconds: float) -> None:
        self._mean += (seconds - self._mean) * _SHARE
