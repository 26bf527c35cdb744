"""Starts a server as a program: streams of messages over its standard input and output, and the end of all its
processes.

It replaces the SDK's `stdio_client`, which is still used on Windows. That one does not end the server's children if the
server ends by itself, accepts a line of any length, and keeps answering a server that sends requests and does not read.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Self

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc

from toolspeak.errors import SandboxError
from toolspeak.mcp.servers_file import ServerSandbox, StdioServer
from toolspeak.sandbox.base import Confinement, ProcessCommand
from toolspeak.sandbox.no_sandbox import NoSandbox
from toolspeak.sandbox.opening import open_sandbox
from toolspeak.sandbox.processes import Group, finish_work, within
from toolspeak.sandbox.protected_places import hidden_places, read_only_places

MAX_LINE = 16 * 1024 * 1024
"""The most bytes of one message. The model gets less of it in any case, but it has to be read first."""

_GRACE = 2.0
"""Seconds that a server has to end by itself after its input is closed, and again after SIGTERM."""

_DEATH = 0.3
"""Seconds to wait until killed processes have closed their output."""

_UNREAD = 64
"""How many answers may wait until the server reads them. With more, its messages are not read."""

_AT_ONCE = 64  # the messages after which other tasks may run


@asynccontextmanager
async def start_program(
    server: StdioServer, errors: int, on_failure: Callable[[str], None], report_level: Callable[[str], None]
) -> AsyncGenerator[tuple[IncomingMessages, OutgoingMessages]]:
    """Starts the server. Leaving the context ends it and its process group within 5 seconds, in spite of cancellation.

    `errors`: the descriptor for its standard error.
    `on_failure`: called with the reason when no more messages are read.
    `report_level`: called with the name of the boundary that holds it.

    Raises OSError and ValueError if it cannot be started, and ConfigurationError and SandboxError if it needs a sandbox
    and there is none.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE)
    output = _ServerOutput(reader)
    async with _server_processes(server, errors, report_level) as group:
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
                pipes.callback(_close_pipe, stdin)
                outgoing = OutgoingMessages(asyncio.StreamWriter(stdin, protocol, None, loop), transport.close)
                try:
                    yield IncomingMessages(reader, outgoing, on_failure), outgoing
                finally:
                    stdin.close()
                    output.over = True
                    transport.resume_reading()  # a process that waits to write can end
            finally:
                await finish_work(_end_group(group, output.end))


@asynccontextmanager
async def _server_processes(
    server: StdioServer, errors: int, report_level: Callable[[str], None]
) -> AsyncGenerator[Group]:
    """The server's processes, in the sandbox that its entry asks for."""
    command = ProcessCommand(
        (server.command, *server.args),
        server.cwd or os.getcwd(),
        get_default_environment() | dict(server.env),
        output=subprocess.PIPE,
        errors=errors,
        input=subprocess.PIPE,
    )
    if not isinstance(server.sandbox, ServerSandbox):
        report_level("none")
        async with NoSandbox().start(command, Confinement()) as process:
            yield process.group
        return
    places, sandbox = server.sandbox, (await open_sandbox("required")).sandbox
    report_level(sandbox.level)
    try:
        if places.hosts and not sandbox.filters_hosts:
            raise SandboxError(f"{sandbox.level} cannot keep it to a list of hosts: install bubblewrap")
        readable = (command.cwd, *places.writable, *places.readable)
        confinement = Confinement(
            places.writable, read_only_places(places.writable), hidden_places(places.readable), readable, places.hosts
        )
        async with sandbox.start(command, confinement) as process:
            yield process.group
    finally:
        await sandbox.aclose()


def _close_pipe(pipe: asyncio.WriteTransport) -> None:
    if pipe.get_write_buffer_size():
        pipe.abort()  # the server will not read the rest
    pipe.close()


async def _end_group(group: Group, output_end: asyncio.Event) -> None:
    await within(_GRACE, group.exit_event.wait())
    await group.end(output_end, grace=_GRACE, drain=_DEATH)


class _ServerOutput(asyncio.StreamReaderProtocol):
    """The server's standard output. `end` is set at the pipe's end. After `over` is set, it drops all data."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.over = False
        self.end = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        if not self.over:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.end.set()


class _Stream:
    """A stream without its own end: `start_program` closes it with the server."""

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class OutgoingMessages(_Stream):
    """The stream of messages to the server. `end` ends the stream of messages from it."""

    def __init__(self, writer: asyncio.StreamWriter, end: Callable[[], None]) -> None:
        self._writer = writer
        self._end = end
        self._waiting = 0
        self.few = asyncio.Event()
        """Set while few messages wait for the server to read."""
        self.few.set()

    async def send(self, item: SessionMessage, /) -> None:
        """Sends a message, and waits until there is room for more. It does not wait after a notification. Raises
        anyio.BrokenResourceError."""
        self._writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        if isinstance(item.message, jsonrpc.JSONRPCNotification):
            return  # the cancellation of a call, for example, must not wait for a server that does not read
        self._waiting += 1
        if self._waiting >= _UNREAD:
            self.few.clear()
        try:
            await self._writer.drain()
        except ConnectionError:
            self._end()  # the server may still run: callers that wait for an answer must not wait for ever
            raise anyio.BrokenResourceError from None
        finally:
            self._waiting -= 1
            if self._waiting < _UNREAD:
                self.few.set()


class IncomingMessages(_Stream):
    """The stream of messages from the server, with an exception for each line that is not a message."""

    def __init__(
        self, reader: asyncio.StreamReader, outgoing: OutgoingMessages, on_failure: Callable[[str], None]
    ) -> None:
        self._reader = reader
        self._outgoing = outgoing
        self._on_failure = on_failure
        self._lines_passed = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        self._lines_passed += 1
        if not self._lines_passed % _AT_ONCE:
            await asyncio.sleep(0)
        await self._outgoing.few.wait()
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            raise StopAsyncIteration from None
        except asyncio.LimitOverrunError:
            self._on_failure(f"it wrote a line of more than {MAX_LINE} bytes")
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
