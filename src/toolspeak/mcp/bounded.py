"""What a server over HTTP answers, unpacked here, ended where it is too long, and cut where it is nested too deep.

The SDK holds a whole answer in memory, and 4 MB of zeros packed by gzip are 4 GB. A message with JSON of more than 200
levels it drops, so that whoever asked waits for ever.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator
from typing import cast

import httpx2

MAX_ANSWER = 16 * 1024 * 1024
"""Bytes of one answer, and of one event of a stream. What a model gets of it is capped anyway."""

ENCODINGS = "gzip, deflate"
"""What a server may pack its answers with."""

DEEPEST = 190
"""Levels of JSON that pass, the message's own among them. A tool's schema may have `incoming.MAX_DEPTH`."""

TOO_DEEP = b'"(what stood here was nested too deep)"'

_PIECE = 64 * 1024
_EITHER = 32 + zlib.MAX_WBITS  # gzip and zlib are told from their first bytes


async def bound(response: httpx2.Response) -> None:
    """Has the response's body read in pieces, and its length watched."""
    packed = response.headers.pop("content-encoding", "identity").strip().lower()
    stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    longest = None if stream else MAX_ANSWER  # of streams the SDK limits each event
    response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream), packed, longest)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, packed: str, longest: int | None) -> None:
        self._stream = stream
        self._packed = packed
        self._longest = longest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        cutter = Cutter()
        async for piece in self._pieces():
            size += len(piece)
            if self._longest is not None and size > self._longest:
                raise httpx2.DecodingError(f"the server's answer has more than {self._longest} bytes")
            yield cutter.cut(piece)

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._packed == "identity":
            async for chunk in self._stream:
                yield chunk
            return
        if self._packed not in ("gzip", "x-gzip", "deflate"):
            raise httpx2.DecodingError(f"the server's answer is packed with {self._packed!r}, which was not asked for")
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
                await asyncio.sleep(0)  # others have their turn: nothing is waited for between the pieces

    async def aclose(self) -> None:
        await self._stream.aclose()


_OUTSIDE = re.compile(rb'["\[\]{}\n]')
_IN_TEXT = re.compile(rb'["\\\n]')


class Cutter:
    """Puts `TOO_DEEP` in the place of each value of JSON below `DEEPEST` levels, in a text that comes in pieces.

    A blank line begins anew: it ends an event of a stream, whose other lines need not be JSON.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = False
        self._escaped = False  # the next byte of a text means nothing
        self._blank = True  # the line has no byte so far

    def cut(self, piece: bytes) -> bytes:
        pieces: list[bytes] = []
        at = start = 0  # from `start` on nothing of the piece has left
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
