"""Lines over standard input and output, which belong to the protocol alone."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import deque
from contextlib import suppress

from toolspeak.acp.json_rpc import INVALID_REQUEST, PeerGone, RpcError

MOST_LINE = 64 * 1024 * 1024
"""The longest message in bytes."""

_CHUNK = 256 * 1024
_HIGH_WATER = 256 * 1024
"""Bytes that may wait for the editor before a sender has to wait."""


class StandardStreams:
    """Implements `Lines` over the process's standard input and output.

    While it is open, what the program or its children print to standard output goes to standard error. At most 64 MiB
    of a line that comes, and 256 KiB of what is sent, are held; a message that is sent alone may be longer.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._skips = False  # inside a line that is too long
        self._ready: deque[bytes | RpcError] = deque()
        self._is_over = False
        self._input: asyncio.StreamReader | None = None  # None: a file, which never blocks
        self._output: asyncio.StreamWriter | None = None
        self._output_descriptor = -1

    @classmethod
    async def open(cls) -> StandardStreams:
        """Takes the standard streams over."""
        streams = cls()
        loop = asyncio.get_running_loop()
        sys.stdout.flush()
        streams._output_descriptor = os.dup(1)
        os.dup2(2, 1)
        if _can_wait_for(0):
            reader = streams._input = asyncio.StreamReader(limit=_CHUNK)
            pipe = os.fdopen(os.dup(0), "rb", buffering=0)
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        if _can_wait_for(streams._output_descriptor):
            transport, protocol = await loop.connect_write_pipe(
                lambda: _OutputProtocol(streams._input), os.fdopen(streams._output_descriptor, "wb", buffering=0)
            )
            transport.set_write_buffer_limits(_HIGH_WATER)
            streams._output = asyncio.StreamWriter(transport, protocol, None, loop)
        return streams

    async def read(self) -> bytes | None:
        """See `Lines`."""
        while not self._ready:
            if self._is_over:
                return None
            chunk = os.read(0, _CHUNK) if self._input is None else await self._input.read(_CHUNK)
            if chunk:
                self._add(chunk)
            else:
                self._is_over = True
                self._end_line(b"")
        line = self._ready.popleft()
        if isinstance(line, RpcError):
            raise line
        return line

    def _add(self, chunk: bytes) -> None:
        *ends, rest = chunk.split(b"\n")
        for piece in ends:
            self._end_line(piece)
        if self._skips or self._size + len(rest) > MOST_LINE:
            self._skips, self._pieces = True, []
        elif rest:
            self._pieces.append(rest)
        self._size += len(rest)

    def _end_line(self, piece: bytes) -> None:
        if self._skips or self._size + len(piece) > MOST_LINE:
            text = f"a message has more than {MOST_LINE:,} bytes: it was not read; send less at once"
            self._ready.append(RpcError(text, INVALID_REQUEST))
        elif self._size + len(piece):
            self._ready.append(b"".join([*self._pieces, piece]))
        self._pieces, self._size, self._skips = [], 0, False

    async def write(self, line: bytes) -> None:
        """See `Lines`."""
        try:
            if self._output is None:
                self._write_to_file(line)
                return
            if self._output.is_closing():
                raise PeerGone("the editor closed the connection")
            self._output.write(line)
            await self._output.drain()
        except OSError as error:
            raise PeerGone(f"the editor closed the connection: {error}") from None

    def _write_to_file(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._output_descriptor, rest) :]

    async def aclose(self, seconds: float = 2.0) -> None:
        """Sends what waits, for at most so long, and ends."""
        if self._output is not None:
            self._output.transport.set_write_buffer_limits(0)
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(seconds):
                    await self._output.drain()
            if not self._output.is_closing():
                self._output.transport.abort()
        for descriptor in (0, 1, 2):  # whoever shares them, such as a shell, expects them so
            os.set_blocking(descriptor, True)


class _OutputProtocol(asyncio.streams.FlowControlMixin):
    """The protocol of the output. An editor that no longer reads has left, though it may not have closed the input."""

    def __init__(self, input_reader: asyncio.StreamReader | None) -> None:
        super().__init__()
        self._input_reader = input_reader

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._input_reader is not None:
            self._input_reader.feed_eof()


def _can_wait_for(descriptor: int) -> bool:
    """Whether an event loop can wait for the descriptor. It cannot for a file, which is always ready."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and os.isatty(descriptor))
