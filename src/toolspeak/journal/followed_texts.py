"""What is published of a run, on its way to one reader."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class FollowedTexts:
    """The texts that wait for a slow reader, at most so many: what comes beyond is lost."""

    def __init__(self, most: int) -> None:
        self._queue: asyncio.Queue[str] = asyncio.Queue(most)

    def offer(self, text: str) -> None:
        """Adds a text, unless the reader lags too far behind."""
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(text)

    async def next(self, seconds: float) -> str:
        """Returns the next text, or "" after so many seconds without one."""
        try:
            async with asyncio.timeout(seconds):
                return await self._queue.get()
        except TimeoutError:
            return ""
