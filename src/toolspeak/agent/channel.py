"""From a run to whoever watches it: a bounded queue, and the run in a task behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Generic, TypeVar

ItemT = TypeVar("ItemT")

_QUEUE = 256  # pieces a slow reader may lag behind before the model is made to wait


class Channel(Generic[ItemT]):
    """What is put into it comes out of `read`, which does the work."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ItemT | None] = asyncio.Queue(_QUEUE)
        self._closed = False

    async def put(self, item: ItemT) -> None:
        """Waits while the reader lags behind."""
        if not self._closed:
            await self._queue.put(item)

    def offer(self, item: ItemT) -> None:
        """Drops the item if the reader lags behind: a progress line may be lost, a fact may not."""
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(item)

    async def read(self, work: Coroutine[Any, Any, None]) -> AsyncGenerator[ItemT]:
        """The items until the work is done; raises what it raises. Leaving the loop early cancels it."""

        async def run() -> None:
            try:
                await work
            finally:
                if not self._closed:
                    await self._queue.put(None)

        task = asyncio.create_task(run())
        try:
            while (item := await self._queue.get()) is not None:
                yield item
            await task
        finally:
            self._closed = True
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # a reader who left early does not want it, and asyncio would complain
