"""What a server over HTTP answers, unpacked here and ended where it is too long: the SDK holds a whole answer in
memory, and 4 MB of zeros packed by gzip are 4 GB."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import cast

import httpx2

MAX_ANSWER = 16 * 1024 * 1024
"""Bytes of one answer, and of one event of a stream. What a model gets of it is capped anyway."""

ENCODINGS = "gzip, deflate"
"""What a server may pack its answers with."""

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
        async for piece in self._pieces():
            size += len(piece)
            if self._longest is not None and size > self._longest:
                raise httpx2.DecodingError(f"the server's answer has more than {self._longest} bytes")
            yield piece

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
