"""A response's body with limits on how long its bytes may be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, cast

import httpx2

from toolspeak.providers.provider_failures import SilentServer

LARGE = 64 * 1024
"""A piece of so many bytes may not have waited for the network, nor may those after it: others have their turn."""


class TimedStream(httpx2.AsyncByteStream):
    """A response's body whose first byte comes until `deadline` (the event loop's time), `first_byte` seconds after the
    request, and later ones with at most `silence` seconds in between; None is for ever. Raises SilentServer."""

    def __init__(
        self, stream: httpx2.AsyncByteStream, deadline: float | None, first_byte: float | None, silence: float | None
    ) -> None:
        self._stream = stream
        self._deadline = deadline
        self._first_byte = first_byte
        self._silence = silence

    async def __aiter__(self) -> AsyncIterator[bytes]:
        silence, seconds = self._silence, self._first_byte
        source = cast("AsyncGenerator[bytes]", aiter(self._stream))
        watch = _Watch(self._deadline)
        suspended = False
        try:
            while True:
                watch.begin()
                try:
                    chunk = await anext(source, None)
                except asyncio.CancelledError as error:
                    if watch.expired():
                        raise SilentServer(seconds or 0) from TimeoutError(*error.args)
                    raise
                watch.end(silence)
                if chunk is None:
                    return
                suspended = True
                if len(chunk) >= LARGE:
                    await asyncio.sleep(0)
                yield chunk
                suspended = False
                seconds = silence
        finally:
            watch.close()
            if suspended:
                await _to_its_end(source.aclose())

    async def aclose(self) -> None:
        """The connection is closed, or free for the next request, even if whoever waits for it is cancelled."""
        await _to_its_end(self._stream.aclose())


_closing: set[asyncio.Task[None]] = set()


async def _to_its_end(closing: Coroutine[Any, Any, None]) -> None:
    """httpcore2 forgets a request behind several waits, and is never asked again: one that is cancelled there stays in
    the pool for ever, with its connection. (It shields itself with anyio, which `Task.cancel` does not know of.)"""
    task = asyncio.get_running_loop().create_task(closing)
    _closing.add(task)
    task.add_done_callback(_closing.discard)
    await asyncio.shield(task)


class _Watch:
    """A deadline (the event loop's time) for each of many waits, with one timer for all of them.

    `asyncio.timeout` makes a timer for each wait, which costs as much as reading what comes.
    """

    def __init__(self, deadline: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = deadline
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._fired = False

    def begin(self) -> None:
        """A wait begins, in the current task."""
        self._waiting = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        if self._timer is None and self._deadline is not None:
            self._timer = self._loop.call_at(self._deadline, self._due)

    def end(self, seconds: float | None) -> None:
        """It is over; the next may last `seconds` from now."""
        task, self._waiting = self._waiting, None
        if self._fired and task is not None:  # and the cancellation was swallowed on its way
            self._fired = False
            task.uncancel()
        self._deadline = None if seconds is None else self._loop.time() + seconds
        if self._timer is not None and (self._deadline is None or self._deadline < self._timer.when()):
            self._timer.cancel()  # the first byte may take longer than any other
            self._timer = None

    def expired(self) -> bool:
        """Whether it was this watch that cancelled the wait, and nobody else besides."""
        task, self._waiting = self._waiting, None
        return self._fired and task is not None and task.uncancel() <= self._cancelling

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self._timer = None
        if self._waiting is None or self._deadline is None:
            return  # the next wait sets a timer of its own
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._due)
            return
        self._fired = True
        self._waiting.cancel()
