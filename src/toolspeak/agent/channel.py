"""From a run to whoever watches it: a bounded queue, and the run in a task behind it."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Generic, TypeVar

ItemT = TypeVar("ItemT")

_MOST = 256  # pieces a slow reader may lag behind before the model is made to wait


class Channel(Generic[ItemT]):
    """What is put into it comes out of `read`, which does the work.

    Of one event loop, one reader and any number of writers; a `lossless` one takes all that is offered. An
    `asyncio.Queue` takes three times as long a piece, and a model's turn is thousands of them.
    """

    def __init__(self, *, lossless: bool = False) -> None:
        self._most = sys.maxsize if lossless else _MOST
        self._items: deque[ItemT] = deque()
        self._news: asyncio.Future[None] | None = None  # of the reader, while there is nothing to read
        self._room: deque[asyncio.Future[None]] = deque()  # of the writers, while there is no room

    @property
    def is_full(self) -> bool:
        """Whether the reader lags behind: a writer awaits `drain` then."""
        return len(self._items) >= self._most

    def put(self, item: ItemT) -> None:
        """Takes the item, full or not."""
        self._items.append(item)
        if self._news is not None:
            self._wake()

    def offer(self, item: ItemT) -> bool:
        """Takes the item unless the reader lags behind: a progress line may be lost, a fact may not. Whether there was
        room; nobody wants anything any more once the reader has left."""
        if self.is_full:
            return False
        self.put(item)
        return True

    async def drain(self) -> None:
        """Waits until there is room."""
        while self.is_full:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(waiting)
            await waiting

    async def read(self, work: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[ItemT]:
        """The items until the work is done; raises what it raises. Leaving the loop early cancels it."""
        items = self._items
        task = asyncio.create_task(work())
        task.add_done_callback(lambda _: self._wake())
        try:
            while True:
                while items:
                    item = items.popleft()
                    if self._room:
                        _resolve(self._room)
                    yield item
                if task.done():
                    break
                self._news = asyncio.get_running_loop().create_future()
                await self._news
            await task
        finally:
            self._items = deque(maxlen=0)  # what still comes is dropped
            task.cancel()
            while self._room:
                _resolve(self._room)
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # a reader who left early does not want it, and asyncio would complain

    def _wake(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)


def _resolve(waiting: deque[asyncio.Future[None]]) -> None:
    first = waiting.popleft()
    if not first.done():
        first.set_result(None)
