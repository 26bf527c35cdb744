"""Limits for the answers of servers over HTTP: unpacked here, refused if too long, and cut where nested too deep.

The SDK holds a whole answer in memory, and 4 GB of zeros are 4 MB when packed by gzip. It drops a message with JSON of
more than 200 levels, so that the caller would wait for ever.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator
from typing import cast

import httpx2

MAX_ANSWER = 16 * 1024 * 1024
"""The most bytes of an answer, or of an event of a stream. The model always gets less."""

ENCODINGS = "gzip, deflate"
"""The accepted encodings of answers."""

DEEPEST = 190
"""The most levels of JSON, including the message's own. A tool's schema may have `incoming.MAX_DEPTH`."""

TOO_DEEP = b'"(what stood here was nested too deep)"'

_PIECE = 64 * 1024
_EITHER = 32 + zlib.MAX_WBITS  # zlib detects gzip or zlib from the first bytes


async def limit_body(response: httpx2.Response) -> None:
    """Limits the response's body: replaces its stream with one that checks it in pieces."""
    encoding = response.headers.pop("content-encoding", "identity").strip().lower()
    stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    longest = None if stream else MAX_ANSWER  # the SDK limits each event of a stream
    response.stream = _LimitedBody(cast("httpx2.AsyncByteStream", response.stream), encoding, longest)


class _LimitedBody(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, encoding: str, longest: int | None) -> None:
        self._stream = stream
        self._encoding = encoding
        self._longest = longest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        cutter = DepthLimiter()
        async for piece in self._pieces():
            size += len(piece)
            if self._longest is not None and size > self._longest:
                raise httpx2.DecodingError(f"the server's answer has more than {self._longest} bytes")
            yield cutter.cut(piece)

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._encoding == "identity":
            async for chunk in self._stream:
                yield chunk
            return
        if self._encoding not in ("gzip", "x-gzip", "deflate"):
            raise httpx2.DecodingError(
                f"the server compressed its answer with {self._encoding!r}, which was not requested"
            )
        unpacker = zlib.decompressobj(_EITHER)
        async for chunk in self._stream:
            rest = chunk
            while rest:
                try:
                    piece = unpacker.decompress(rest, _PIECE)
                except zlib.error as error:
                    raise httpx2.DecodingError(f"the server's answer cannot be unpacked: {error}") from error
                rest = unpacker.unconsumed_tail
                yield piece
                await asyncio.sleep(0)  # lets other tasks run, since nothing else here waits

    async def aclose(self) -> None:
        await self._stream.aclose()


_OUTSIDE = re.compile(rb'["\[\]{}\n]')
_IN_TEXT = re.compile(rb'["\\\n]')


class DepthLimiter:
    """Replaces each JSON value below `DEEPEST` levels with `TOO_DEEP`, in a text that arrives in pieces.

    A blank line resets it: it ends an event of a stream, whose other lines need not be JSON.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = False
        self._escaped: bool = False  # the next byte of a string is escaped
        self._blank = True  # the line is empty so far

    def cut(self, piece: bytes) -> bytes:
        pieces: list[bytes] = []
        at = start = 0  # the piece before `start` is done
        while at < len(piece):
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            match = (_IN_TEXT if self._in_text else _OUTSIDE).search(piece, at)
            stop = match.start() if match else len(piece)
            self._blank = self._blank and not piece[at:stop].strip(b"\r")
            if match is None:
                break
            byte, at = match[0], match.end()
            if byte == b"\n":
                if self._blank:
                    if self._depth > DEEPEST:
                        start = stop
                    self._depth, self._in_text = 0, False
                self._blank = True
                continue
            self._blank = False
            if self._in_text or byte == b'"':
                self._escaped = byte == b"\\"
                self._in_text = self._in_text != (byte == b'"')
            elif byte in b"[{":
                self._depth += 1
                if self._depth == DEEPEST + 1:
                    pieces += (piece[start:stop], TOO_DEEP)
            else:
                self._depth = max(self._depth - 1, 0)
                if self._depth == DEEPEST:
                    start = at
        if self._depth <= DEEPEST:
            pieces.append(piece[start:])
        return b"".join(pieces)
