"""Hears what other processes publish of runs in PostgreSQL (`NOTIFY`), on one connection for all runs that are
followed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it has none

from toolspeak.journal.followed_texts import FollowedTexts

_MOST = 256  # texts of one run that wait for a slow reader; the next are lost
_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


def channel_of(schema: str, run_id: str) -> str:
    """The channel of a run: a name of at most 63 bytes, as PostgreSQL takes it."""
    return "toolspeak_" + hashlib.sha256(f"{schema}\n{run_id}".encode()).hexdigest()[:32]


class PostgresListener:
    """One connection that listens, for one event loop. It is opened for the first reader and closed after the last.

    - `connect`: opens a connection.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect
        self._connection: Any = None
        self._channels: set[str] = set()
        self._lock = asyncio.Lock()
        self._readers: dict[str, set[FollowedTexts]] = {}

    async def texts(self, channel: str, seconds: float) -> AsyncGenerator[str]:
        """Yields the texts of a channel, and "" after so many seconds without one. A connection that breaks is opened
        again; what was published meanwhile is lost."""
        reader = FollowedTexts(_MOST)
        self._readers.setdefault(channel, set()).add(reader)
        try:
            while True:
                await self._listen(channel)
                yield await reader.next(seconds)
        finally:
            await self._leave(channel, reader)

    async def _listen(self, channel: str) -> None:
        async with self._lock:
            with suppress(*_FAILURES):  # records are read all the same, and say what is wrong
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._connect()
                    self._channels = set()
                if channel not in self._channels:
                    self._channels.add(channel)
                    await self._connection.add_listener(channel, self._hear)

    def _hear(self, _connection: Any, _pid: int, channel: str, text: str) -> None:
        for reader in self._readers.get(channel, ()):
            reader.offer(text)

    async def _leave(self, channel: str, reader: FollowedTexts) -> None:
        readers = self._readers[channel]
        readers.discard(reader)
        if readers:
            return
        del self._readers[channel]
        async with self._lock:
            connection = self._connection
            if connection is None:
                return
            with suppress(*_FAILURES):
                if self._readers:
                    self._channels.discard(channel)
                    await connection.remove_listener(channel, self._hear)
                else:
                    self._connection = None
                    await connection.close(timeout=5)
