"""A streamed answer: pieces that came together leave together, a slow reader holds them up, a client that left ends
them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Self

from toolspeak.gateway.http import ClientGone, Headers, Receive, Send
from toolspeak.gateway.sse import PING

MOST_WAITING = 64 * 1024
"""Bytes that may wait to leave before whoever writes has to."""


class EventStream:
    """A streamed answer. Its head leaves with the first event, so that what fails before has a status of its own.

    What is written waits for `flush`, which `watched` calls before whoever writes waits for anything: a send costs as
    much as all else that is done for a chunk.
    """

    def __init__(self, send: Send, headers: Headers) -> None:
        self.begun: float | None = None
        """When the first event was written (the event loop's time)."""
        self.chunks = 0
        self._send = send
        self._headers = headers
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._size = 0
        self._head_left = self._ended = False
        self._leaving: asyncio.Task[None] | None = None
        self._failed: Exception | None = None
        self._sending: float | None = None
        self._sent = self._loop.time()

    async def write(self, data: bytes) -> None:
        """Returns once there is room for more: a slow reader makes its writer wait."""
        if self.begun is None:
            self.begun = self._loop.time()
        self.chunks += 1
        self._waiting.append(data)
        self._size += len(data)
        if self._size > MOST_WAITING or self._failed is not None:
            self.flush()
            await self._settled()

    def flush(self) -> None:
        """What was written leaves; a task has the rest leave that the server does not take at once."""
        if self._leaving is not None or not self._waiting or self._ended or self._failed is not None:
            return
        steps = self._leave()
        try:
            waits_for = steps.send(None)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - raised where the next piece is written: here somebody else waits
            self._failed = error
            return
        self._leaving = self._loop.create_task(_resumed(steps, waits_for))
        self._leaving.add_done_callback(self._left)

    @property
    def failed(self) -> bool:
        """Whether the server took no more of it: nothing can be said there any more."""
        return self._failed is not None

    async def end(self) -> None:
        """The last of what was written leaves, and with it the end of the answer."""
        await self._settled()
        self._ended = True
        await self._leave(more=False)

    def close(self) -> None:
        """Nothing more leaves."""
        self._ended = True
        if self._leaving is not None:
            self._leaving.cancel()

    async def tick(self, silence: float, stall: float) -> None:
        """Called now and then: says that the stream is alive if it said nothing for `silence` seconds.

        Raises ClientGone if nothing of what waits was read for `stall` seconds."""
        now = self._loop.time()
        if self._sending is not None:
            if now - self._sending > stall:
                raise ClientGone
        elif now - self._sent >= silence:
            await self.write(PING)
            self.flush()

    async def _leave(self, *, more: bool = True) -> None:
        if not self._head_left:
            self._head_left = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._head()})
        while self._waiting or not more:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            self._sending = self._loop.time()
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
            self._sent, self._sending = self._sending, None
            if not more:
                return

    def _head(self) -> Headers:
        return [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),  # nginx would hold events back
            *self._headers,
        ]

    async def _settled(self) -> None:
        """Returns once nothing is leaving; raises what went wrong there."""
        if self._leaving is not None:
            await self._leaving
        if self._failed is not None:
            raise self._failed

    def _left(self, task: asyncio.Task[None]) -> None:
        self._leaving = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failed = error
        self.flush()  # what was written since the task looked last


class BeforeWaits:
    """Awaits `work`, and calls `then` whenever that has to wait: what came together is known by that.

    `then` must not raise: the work is in the midst of a step. `waits_for` is where a coroutine stands that has begun
    elsewhere.
    """

    __slots__ = ("_steps", "_then", "_waits_for")

    def __init__(
        self, work: Coroutine[Any, Any, None], then: Callable[[], None] | None = None, waits_for: object = None
    ) -> None:
        self._steps = work
        self._then = then
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        return self  # pyright: ignore[reportReturnType] - the interpreter asks for no more than is here (PEP 380)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> object:
        waits_for, self._waits_for = self._waits_for, None
        if waits_for is None:
            waits_for = self._steps.send(None)
        if self._then is not None:
            self._then()
        return waits_for

    def throw(self, *error: Any) -> object:
        return self._steps.throw(*error)

    def close(self) -> None:
        self._steps.close()


async def _resumed(steps: Coroutine[Any, Any, None], waits_for: object) -> None:
    """Goes on with a coroutine that has begun elsewhere, and waits."""
    await BeforeWaits(steps, waits_for=waits_for)


async def watched(
    work: Coroutine[Any, Any, None], receive: Receive, stream: EventStream | None, silence: float, stall: float
) -> None:
    """Does the work while the client is there; raises ClientGone if it leaves before, with the work cancelled.

    What was written to `stream` leaves whenever the work waits, and it is kept alive in a silence of so many seconds. A
    client that reads nothing for `stall` seconds has left.
    """
    task = asyncio.current_task()
    assert task is not None
    gone = False

    async def watch() -> None:
        nonlocal gone
        while True:
            try:
                async with asyncio.timeout(silence):
                    while (await receive())["type"] != "http.disconnect":
                        pass
            except TimeoutError:
                if stream is None:
                    continue
                try:
                    await stream.tick(silence, stall)
                    continue
                except ClientGone:
                    pass
            gone = True
            task.cancel()
            return

    watcher = asyncio.get_running_loop().create_task(watch())
    try:
        await (work if stream is None else BeforeWaits(work, stream.flush))
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
        raise ClientGone from None
    finally:
        watcher.cancel()
