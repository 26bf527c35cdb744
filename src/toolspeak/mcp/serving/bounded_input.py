"""Standard input and output of a server: messages of a bounded length."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, BinaryIO, Generic, TypeVar, cast

from mcp.server.stdio import stdio_server

_T = TypeVar("_T")


@asynccontextmanager
async def bounded_streams(most: int) -> AsyncGenerator[tuple[Any, Any]]:
    """The messages of a client over standard input and output, for `Server.run`.

    A line of more than `most` bytes is dropped: no call comes of it. While it serves, descriptor 0 is the null device
    and 1 is standard error, so that what a tool prints or reads does not touch the messages.
    """
    sys.stdout.flush()
    wire_in, wire_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    # The descriptors stay open: a thread may still wait for one of them when the server ends.
    source, target = os.fdopen(wire_in, "rb", closefd=False), os.fdopen(wire_out, "wb", closefd=False)
    try:
        async with stdio_server(cast("Any", _Lines(source, most)), cast("Any", _Target(target))) as streams:
            yield streams
    finally:
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)


class _StreamThread(Generic[_T]):
    """Calls a function in a thread that does not keep the process alive: a client may never send or read again."""

    def __init__(self, function: Callable[[Any], _T], name: str) -> None:
        self._function = function
        self._work: queue.SimpleQueue[tuple[Any, asyncio.Future[_T]]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def call(self, argument: Any = None) -> _T:
        result: asyncio.Future[_T] = self._loop.create_future()
        self._work.put((argument, result))
        return await result

    def _run(self) -> None:
        while True:
            argument, result = self._work.get()
            try:
                settle = partial(_settle, result, self._function(argument), None)
            except Exception as error:  # noqa: BLE001 - the caller raises it
                settle = partial(_settle, result, None, error)
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(settle)


def _settle(result: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if result.done():
        return
    if error is None:
        result.set_result(value)
    else:
        result.set_exception(error)


class _Lines:
    """The lines of a file. One that is too long is empty: no message."""

    def __init__(self, source: BinaryIO, most: int) -> None:
        self._source = source
        self._most = most
        self._reader = _StreamThread(self._line, "mcp-stdin")

    def __aiter__(self) -> AsyncIterator[str]:
        return self._read()

    async def _read(self) -> AsyncIterator[str]:
        while line := await self._reader.call():
            yield line

    def _line(self, _: None) -> str:
        line = self._source.readline(self._most + 1)
        if len(line) <= self._most:
            return line.decode("utf-8", "replace")
        while line and not line.endswith(b"\n"):
            line = self._source.readline(self._most + 1)
        return "\n"


class _Target:
    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._writer = _StreamThread(self._write, "mcp-stdout")

    async def write(self, text: str) -> None:
        await self._writer.call(text.encode())

    async def flush(self) -> None:
        """Every write is flushed."""

    def _write(self, data: bytes) -> None:
        self._target.write(data)
        self._target.flush()
