"""A response's body with a time limit for each wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, cast

import httpx2

from toolspeak.providers.provider_failures import SilentServer

LARGE = 64 * 1024
"""The size of a chunk, in bytes, from which other tasks get a turn: reading it may not have waited for the network."""


class TimedStream(httpx2.AsyncByteStream):
    """A response's body with time limits.

    `deadline`: the event loop's time of the limit for the first byte, which is `first_byte` seconds after the request.
    `silence`: the most seconds between two later bytes. None is no limit.

    Iterating raises SilentServer.
    """

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
                await _finish_closing(source.aclose())

    async def aclose(self) -> None:
        """Closes the connection or frees it for the next request, even if the caller's task is cancelled."""
        await _finish_closing(self._stream.aclose())


_closing: set[asyncio.Task[None]] = set()


async def _finish_closing(closing: Coroutine[Any, Any, None]) -> None:
    """Closes although the caller is cancelled. httpcore2 removes a request from its pool after several waits, and does
    not try again: a cancelled request would stay there for ever with its connection. (It shields itself with anyio,
    which does not stop `Task.cancel`.)"""
    task = asyncio.get_running_loop().create_task(closing)
    _closing.add(task)
    task.add_done_callback(_closing.discard)
    await asyncio.shield(task)


class _Watch:
    """A time limit for each of many waits, with one timer for all of them.

    `asyncio.timeout` makes a timer for each wait, which costs as much as reading the bytes.
    """

    def __init__(self, deadline: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = deadline
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._fired = False

    def begin(self) -> None:
        """Starts a wait of the current task."""
        self._waiting = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        if self._timer is None and self._deadline is not None:
            self._timer = self._loop.call_at(self._deadline, self._due)

    def end(self, seconds: float | None) -> None:
        """Ends the wait. The next wait has to end within `seconds` from now."""
        task, self._waiting = self._waiting, None
        if self._fired and task is not None:  # the cancellation was swallowed on its way
            self._fired = False
            task.uncancel()
        self._deadline = None if seconds is None else self._loop.time() + seconds
        if self._timer is not None and (self._deadline is None or self._deadline < self._timer.when()):
            self._timer.cancel()  # the limit for the first byte may be longer than the others
            self._timer = None

    def expired(self) -> bool:
        """Whether this watch, and nothing else, cancelled the wait."""
        task, self._waiting = self._waiting, None
        return self._fired and task is not None and task.uncancel() <= self._cancelling

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self._timer = None
        if self._waiting is None or self._deadline is None:
            return  # the next wait sets its own timer
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._due)
            return
        self._fired = True
        self._waiting.cancel()
