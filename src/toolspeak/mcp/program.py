"""A server that is started: its standard input and output as streams of messages, and its end with all it started.

In place of the SDK's `stdio_client`, which Windows keeps: that one leaves alone what a server has started when the
server ends by itself, keeps a line of any length, and answers without end a server that asks and does not read.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Self

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc

from toolspeak.mcp.servers_file import StdioServer
from toolspeak.tools.builtin.processes import Group, finished, within

MAX_LINE = 16 * 1024 * 1024
"""Bytes of one message. What a model gets of it is capped anyway, but it has to be read first."""

_GRACE = 2.0
"""Seconds in which a server may end by itself once its input is closed, and again once it is told to."""

_DEATH = 0.3
"""Seconds in which what was killed closes its output."""

_UNREAD = 64
"""Answers that may wait for a server to read before nothing more of what it says is heard."""

_AT_ONCE = 64  # messages that are given before others have their turn


@asynccontextmanager
async def started(
    server: StdioServer, errors: int, broken: Callable[[str], None]
) -> AsyncGenerator[tuple[Received, Sent]]:
    """Starts the server, with standard error written to the descriptor `errors`; leaving ends it and its group, within
    5 seconds, however often it is cancelled. `broken` is told why nothing more is read. Raises OSError and ValueError
    where it cannot be started."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE)
    output = _ServerOutput(reader)
    group = Group(
        [server.command, *server.args],
        cwd=server.cwd,
        env=get_default_environment() | dict(server.env),
        input=subprocess.PIPE,
        output=subprocess.PIPE,
        errors=errors,
    )
    assert group.input is not None
    assert group.output is not None
    with ExitStack() as pipes:
        pipes.callback(group.input.close)
        pipes.callback(group.output.close)
        try:
            transport, _ = await loop.connect_read_pipe(lambda: output, group.output)
            pipes.callback(transport.close)
            stdin, protocol = await loop.connect_write_pipe(
                lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), group.input
            )
            pipes.callback(_closed, stdin)
            sent = Sent(asyncio.StreamWriter(stdin, protocol, None, loop), transport.close)
            try:
                yield Received(reader, sent, broken), sent
            finally:
                stdin.close()
                output.over = True
                transport.resume_reading()  # what waits to write may go on to its end
        finally:
            await finished(_ended(group, output.closed))


def _closed(pipe: asyncio.WriteTransport) -> None:
    if pipe.get_write_buffer_size():
        pipe.abort()  # nobody will read the rest
    pipe.close()


async def _ended(group: Group, closed: asyncio.Event) -> None:
    await within(_GRACE, group.exited.wait())
    await group.end(closed, grace=_GRACE, drain=_DEATH)


class _ServerOutput(asyncio.StreamReaderProtocol):
    """`closed` is set at the end of the pipe. Once it is `over`, nothing of it is kept."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.over = False
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        if not self.over:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.closed.set()


class _Stream:
    """What is open is closed with the server."""

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class Sent(_Stream):
    """Messages to the server. `end` ends what is received."""

    def __init__(self, writer: asyncio.StreamWriter, end: Callable[[], None]) -> None:
        self._writer = writer
        self._end = end
        self._waiting = 0
        self.few = asyncio.Event()
        """Set while few messages wait for the server to read."""
        self.few.set()

    async def send(self, item: SessionMessage, /) -> None:
        """Returns once there is room for more; a notification is not waited for. Raises anyio.BrokenResourceError."""
        self._writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        if isinstance(item.message, jsonrpc.JSONRPCNotification):
            return  # that a call is cancelled, say: whoever cancels must not wait for a server that does not read
        self._waiting += 1
        if self._waiting >= _UNREAD:
            self.few.clear()
        try:
            await self._writer.drain()
        except ConnectionError:
            self._end()  # it may live on: whoever waits for an answer must hear that none will come
            raise anyio.BrokenResourceError from None
        finally:
            self._waiting -= 1
            if self._waiting < _UNREAD:
                self.few.set()


class Received(_Stream):
    """Messages from the server; an exception for a line that is none."""

    def __init__(self, reader: asyncio.StreamReader, sent: Sent, broken: Callable[[str], None]) -> None:
        self._reader = reader
        self._sent = sent
        self._broken = broken
        self._lines_passed = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        self._lines_passed += 1
        if not self._lines_passed % _AT_ONCE:
            await asyncio.sleep(0)
        await self._sent.few.wait()
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            raise StopAsyncIteration from None
        except asyncio.LimitOverrunError:
            self._broken(f"it wrote a line of more than {MAX_LINE} bytes")
            raise StopAsyncIteration from None
        try:
            return SessionMessage(jsonrpc.jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            return error

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None
