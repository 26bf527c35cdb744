"""Limits the number of requests under way, queues the others, and orders their first steps."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

from toolspeak.gateway.http.error_responses import Failure, draining, stopped
from toolspeak.gateway.settings.gateway_settings import Bounds

STARTING = 4
"""Requests that are read and sent to model servers at the same time."""

START_SECONDS = 0.02
"""Seconds after which a request that is not sent yet waits for the network, and blocks no other."""


class Admission:
    """Places for requests, in the order of arrival. For one event loop."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.active = 0
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._starting = asyncio.Semaphore(STARTING)
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_stopped = False

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def resize(self, bounds: Bounds) -> None:
        """Applies other bounds. Requests keep their places, and waiting requests their time limit."""
        self._bounds = bounds
        while self._waiting and self.active < bounds.streams:
            turn = self._waiting.popleft()
            if not turn.done():
                self.active += 1
                turn.set_result(None)

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """A place during the context. Raises Failure if there is none, or if `stop` ends the request."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        has_place = False
        try:
            await self._enter()
            has_place = True
            yield
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            task.uncancel()
            raise (stopped() if has_place else draining()) from None
        finally:
            self._tasks.discard(task)
            if has_place:
                self._leave()

    async def _enter(self) -> None:
        if self.active < self._bounds.streams and not self._waiting:
            self.active += 1
            self._emptied.clear()
            return
        if len(self._waiting) >= self._bounds.queue:
            raise Failure(429, "too many requests are waiting; try again later", "gateway_busy", 1)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._bounds.queue_seconds):
                await turn
        except TimeoutError:
            raise Failure(
                503,
                f"no place became free within {self._bounds.queue_seconds:g} seconds; try again later",
                "gateway_busy",
                max(1.0, self._bounds.queue_seconds / 2),
            ) from None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the place came together with the cancellation
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _leave(self) -> None:
        """Gives the place to the request that waits longest."""
        while self._waiting and self.active <= self._bounds.streams:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.active -= 1
        if not self.active:
            self._emptied.set()

    async def start(self) -> Callable[[], None]:
        """Waits until earlier requests are sent to their model servers. Returns a function to call once this one is
        sent.

        Without it, an event loop with 100 requests takes a step of each in turn, so that none is sent before all others
        are nearly sent. In order, half of them get their first word in half the time, and the last one gets it later.
        """
        await self._starting.acquire()
        started = False

        def end() -> None:
            nonlocal started
            if not started:
                started = True
                overdue.cancel()
                self._starting.release()

        overdue = asyncio.get_running_loop().call_later(START_SECONDS, end)
        return end

    def is_stopped(self) -> bool:
        """Whether `stop` was called: then a cancelled request sends its client an error."""
        return self._is_stopped

    async def stop(self, seconds: float) -> int:
        """Cancels all requests, also those that wait, and returns their number. Waits for their end, at most so many
        seconds."""
        self._is_stopped = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await self.emptied(seconds)
        return len(tasks)

    async def emptied(self, seconds: float) -> None:
        """Returns once no request has a place, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._emptied.wait()
