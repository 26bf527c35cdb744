"""A bounded queue from a run to its reader, who drives the run in a task."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Generic, TypeVar

ItemT = TypeVar("ItemT")

_MOST = 256  # items that a slow reader may lag behind before the model has to wait


class Channel(Generic[ItemT]):
    """A queue of one event loop, with one reader and any number of writers. `read` runs the work that writes into it.

    A `lossless` channel has no bound. An `asyncio.Queue` takes three times as long for an item, and a model's turn has
    thousands.
    """

    def __init__(self, *, lossless: bool = False) -> None:
        self._most = sys.maxsize if lossless else _MOST
        self._items: deque[ItemT] = deque()
        self._news: asyncio.Future[None] | None = None  # the reader waits for it, while there is nothing to read
        self._room: deque[asyncio.Future[None]] = deque()  # the writers wait for these, while there is no room

    def put(self, item: ItemT) -> bool:
        """Adds the item, even to a full channel. Returns whether the channel is full: the writer must await `drain`."""
        items = self._items
        items.append(item)
        if self._news is not None:
            self._wake()
        return len(items) >= self._most

    def offer(self, item: ItemT) -> bool:
        """Adds the item unless the channel is full: a line of progress may be lost. Returns whether there was room."""
        if len(self._items) >= self._most:
            return False
        self.put(item)
        return True

    async def drain(self) -> None:
        """Waits until there is room."""
        while len(self._items) >= self._most:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(waiting)
            await waiting

    async def read(self, work: Callable[[], Coroutine[Any, Any, object]]) -> AsyncGenerator[ItemT]:
        """Yields the items until the work is done. Raises what the work raises. Leaving the loop early cancels it."""
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
            self._items = deque(maxlen=0)  # drops what is still written
            task.cancel()
            while self._room:
                _resolve(self._room)
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # otherwise asyncio logs the error as never retrieved

    def _wake(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)


def _resolve(waiting: deque[asyncio.Future[None]]) -> None:
    first = waiting.popleft()
    if not first.done():
        first.set_result(None)
