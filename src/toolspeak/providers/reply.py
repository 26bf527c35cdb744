"""A successful response: the kind of its body, and its events or lines as they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Literal, TypeAlias, cast

import httpx2
import msgspec

from toolspeak.data.messages import JSON
from toolspeak.errors import ProviderError
from toolspeak.providers.provider_failures import QUOTED_CHARACTERS
from toolspeak.wire.json_conversion import excerpt

LARGE = 64 * 1024
"""The size of a chunk, in bytes, from which other tasks get a turn: reading it may not have waited for the network."""

DRAIN_SECONDS = 0.5
"""Seconds to wait for the end of a response after its last event."""

MAX_EVENT_BYTES = 64 * 1024 * 1024  # a call's argument may have 64 MiB, and a server can send it in one event

MAX_UNPACKED = 64 * 1024 * 1024
MAX_RATIO = 100
"""An unpacked body may have MAX_UNPACKED bytes, and beyond them MAX_RATIO times its bytes on the network: gzip packs a
model's text to a twentieth, and 4 GB of zeros to 4 MB."""

MAX_BODY = 256 * 1024 * 1024
"""The most bytes of a whole answer in memory."""

_BEGINNING = 64 * 1024  # the most bytes to read for the kind of a body without a known content type
_AT_ONCE = 256  # the events of one chunk after which other tasks may run

BodyKind: TypeAlias = Literal["stream", "json", "other"]

_EVENTS = (b"data:", b"event:", b"id:", b"retry:", b":")
"""How a stream of server-sent events begins: with a field or a comment."""

_decode = msgspec.json.Decoder().decode


class Reply:
    """A successful response."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._body = unpacked_chunks(response)
        self._first = b""
        self.received_characters = 0
        """The characters that the provider has passed on."""
        self.completed: bool = False
        """Whether `events` or `raw_events` has read the last event."""

    @property
    def content_type(self) -> str:
        """The media type in small letters, without parameters; empty if the server sent none."""
        return self._response.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def content_header(self) -> str:
        """The header `content-type` unchanged; empty if the server sent none."""
        return self._response.headers.get("content-type", "")

    async def json(self) -> JSON:
        """The whole body. Raises ProviderError if it is not JSON."""
        return decode_json(await self.whole(), "a body")

    async def whole(self) -> bytes:
        """The bytes of the whole body. Raises ProviderError for more than `MAX_BODY`."""
        chunks: list[bytes] = []
        size = 0
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                chunks.append(piece)
                size += len(piece)
                if size > MAX_BODY:
                    raise ProviderError(
                        f"the server's answer has more than {MAX_BODY} bytes: check the base URL", code="ill_formed"
                    )
        return b"".join(chunks)

    async def kind(self, *, lines: bool = False) -> BodyKind:
        """The body's kind. `lines`: the API's streams are lines of JSON.

        Self-made servers send a stream without a content type, or with a wrong one, which other clients ignore. The
        first characters decide then.
        """
        content_type = self.content_type
        if content_type == ("application/x-ndjson" if lines else "text/event-stream"):
            return "stream"
        if content_type == "application/json" and lines:
            return "json"  # lines of JSON begin like JSON
        begins = b""
        while any(mark.startswith(begins) and mark != begins for mark in (*_EVENTS, BOM_UTF8)):
            chunk = await anext(self._body, None)
            if chunk is None or len(self._first) > _BEGINNING:
                self._first += chunk or b""
                break
            self._first += chunk
            begins = self._first.removeprefix(BOM_UTF8).lstrip()
        if not lines and begins.startswith(_EVENTS):
            return "stream"
        if begins.startswith(b"{"):
            return "stream" if lines else "json"
        return "json" if content_type == "application/json" else "other"

    async def events(self, last: str) -> AsyncGenerator[str]:
        """The data of each server-sent event, up to the event `last`, which is left out.

        Close the generator when you leave early (`aclosing`). Raises httpx2.HTTPError when the connection fails,
        ProviderError for an event of more than `MAX_EVENT_BYTES`.
        """
        data = EventData(MAX_EVENT_BYTES)
        async with aclosing(self.pieces()) as chunks:
            async for chunk in chunks:
                for number, event in enumerate(data.feed(chunk), 1):
                    if not number % _AT_ONCE:
                        await asyncio.sleep(0)
                    if event[:1] == last[0] and event.rstrip() == last:
                        self.completed = True
                        break
                    if event:
                        yield event
                if self.completed:
                    break
            if self.completed:
                await drain(chunks)
            elif rest := data.rest():
                self.completed = rest.rstrip() == last
                if not self.completed and _is_json(rest):
                    yield rest

    async def raw_events(self, last: bytes) -> AsyncGenerator[list[tuple[bytes, bytes]]]:
        """The unchanged events of each chunk of the body, with their data, up to the event whose data is `last`.

        Close the generator when you leave early (`aclosing`). Raises httpx2.HTTPError when the connection fails,
        ProviderError for an event of more than `MAX_EVENT_BYTES`.
        """
        events = RawEvents(MAX_EVENT_BYTES)
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                read_events = events.feed(piece)
                for number, (_, data) in enumerate(read_events, 1):
                    if data.rstrip() == last:
                        self.completed = True
                        del read_events[number:]
                        break
                if read_events:
                    yield read_events
                if self.completed:
                    await drain(pieces)
                    return
        raw, data = events.rest()
        self.completed = data.rstrip() == last
        if self.completed or (data and _is_json(data)):
            yield [(raw, data)]

    async def lines(self, longest: int = MAX_EVENT_BYTES) -> AsyncGenerator[bytes]:
        """Each line of newline-delimited JSON, without blank lines. The last line may lack its line feed.

        Close the generator when you leave early (`aclosing`). Raises httpx2.HTTPError when the connection fails,
        ProviderError for a line of more than `longest` bytes.
        """
        open_line: list[bytes] = []  # the chunks of the unfinished line
        size = 0
        async with aclosing(self.pieces()) as chunks:
            async for chunk in chunks:
                # Not str.splitlines: it splits inside JSON strings, at U+2028 for instance.
                first, *others = chunk.split(b"\n")
                open_line.append(first)
                size += len(first)
                if size > longest:
                    raise ProviderError(
                        f"the server sent a line of more than {longest} bytes: check the base URL", code="ill_formed"
                    )
                if others:
                    others.insert(0, b"".join(open_line))
                    open_line = [others.pop()]
                    size = len(open_line[0])
                    for number, line in enumerate(others, 1):
                        if not number % _AT_ONCE:
                            await asyncio.sleep(0)
                        if line and not line.isspace():
                            yield line
        if (line := b"".join(open_line)).strip():
            yield line

    def pieces(self) -> AsyncGenerator[bytes]:
        """The body's chunks, including those that `kind` has read."""
        first, self._first = self._first, b""
        return _with_first(first, self._body) if first else self._body


async def _with_first(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(rest):
        yield first
        async for chunk in rest:
            yield chunk


async def drain(frames: AsyncIterator[object]) -> None:
    """Reads the rest of a response after its last event, so that the next turn can use its connection."""
    with contextlib.suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in frames:
                pass


def unpacked_chunks(response: httpx2.Response) -> AsyncGenerator[bytes]:
    """The unpacked body (gzip, …) in chunks, as they arrive. Other tasks can run between large chunks.

    Raises httpx2.HTTPError when the connection fails, ProviderError for a body that unpacks to far more than was sent.
    """
    if "content-encoding" in response.headers:
        return _decompress(response)
    # Nearly all model servers send uncompressed bodies, and httpx2's iterator costs more for each chunk.
    return cast("AsyncGenerator[bytes]", aiter(cast("httpx2.AsyncByteStream", response.stream)))


async def _decompress(response: httpx2.Response) -> AsyncGenerator[bytes]:
    size = 0
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > MAX_UNPACKED + MAX_RATIO * response.num_bytes_downloaded:
                raise ProviderError(
                    f"the server sent {response.num_bytes_downloaded} bytes that unpack to more than {size}, which no"
                    " model's text does: check the base URL",
                    code="ill_formed",
                )
            if len(chunk) >= LARGE:
                await asyncio.sleep(0)
            yield chunk


def decode_json(data: str | bytes, what: str) -> JSON:
    """JSON from a server. Raises ProviderError with a quote from `data` if it is not JSON."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # msgspec is ten times as fast as json, and refuses lone surrogates, NaN and deep nesting
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        raise ProviderError(
            f"the server sent {what} that is not JSON: {excerpt(text, QUOTED_CHARACTERS)!r}. Check the base URL.",
            code="ill_formed",
        ) from error


def _is_json(data: str | bytes) -> bool:
    try:
        decode_json(data, "an event")
    except ProviderError:
        return False
    return True


# --- server-sent events, from chunks of bytes (sans-IO) --------------------------------------------------------------

_LF, _CR = b"\n\r"  # numbers: bytes search for one in a sixth of the time that they take for a text of one
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r){2}")


class EventData:
    """Reads the data of events (WHATWG HTML, 9.2.6). It ignores their names and ids: the data repeat them.

    httpx2's `EventSource` takes two more generators and a value for each event: a tenth of the whole cost of a chunk.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._open_line: list[bytes] = []  # the chunks of the unfinished line
        self._data: list[bytes] = []  # the lines of the unfinished event
        self._open_line_size = self._size = 0
        self._after_cr = False
        self._began = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that end in `chunk`; `rest` returns an unfinished event at the end of the stream.
        Raises ProviderError for an event of more than `longest` bytes."""
        if self._began and chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") and not self._data:
            line = chunk[6:-2]
            if _LF not in line and _CR not in line and not self._open_line and not self._after_cr:
                return [line.decode("utf-8", "replace")]  # the ordinary chunk is one event of one line
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")  # the other half of a line break
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # splits bytes at line feeds and carriage returns only
        rest = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        if self._open_line and lines:
            lines[0] = b"".join([*self._open_line, lines[0]])
            self._open_line.clear()
            self._open_line_size = 0
        if lines and not self._began:
            self._began = True
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        data_lines: list[str] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    data_lines.append((data[0] if len(data) == 1 else b"\n".join(data)).decode("utf-8", "replace"))
                    data.clear()
                self._size = 0
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._size += len(line)
            elif line == b"data":
                data.append(b"")
        if rest:
            self._open_line.append(rest)
            self._open_line_size += len(rest)
        if self._size + self._open_line_size > self._longest:
            raise ProviderError(
                f"the server sent an event of more than {self._longest} bytes: check the base URL", code="ill_formed"
            )
        return data_lines

    def rest(self) -> str:
        """The data of an unfinished event at the end of the stream: servers forget the blank line after it."""
        if self._open_line:
            self.feed(b"\n")
        return b"\n".join(self._data).decode("utf-8", "replace")


class RawEvents:
    """Cuts a stream into its events: the unchanged bytes of each, and its data ("" for a comment)."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._open_line: list[bytes] = []
        self._size = 0
        self._end = b""
        self._began = False

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes]]:
        """The events that end in `chunk`. Raises ProviderError for an event of more than `longest` bytes."""
        if not self._open_line and self._began and chunk.startswith(b"data: ") and chunk.endswith(b"\n\n"):
            line = chunk[6:-2]
            if _LF not in line and _CR not in line:  # the ordinary chunk is one event of one line
                return [(chunk, line)]
        text = self._end + chunk  # a blank line may span chunks
        self._end = text[-3:]
        if _BLANK_LINE.search(text) is None:
            self._open_line.append(chunk)
            self._size += len(chunk)
            if self._size > self._longest:
                raise ProviderError(
                    f"the server sent an event of more than {self._longest} bytes: check the base URL",
                    code="ill_formed",
                )
            return []
        data = b"".join([*self._open_line, chunk]) if self._open_line else chunk
        data_lines: list[tuple[bytes, bytes]] = []
        start = 0
        for blank in _BLANK_LINE.finditer(data):
            raw = data[start : blank.end()]
            start = blank.end()
            data_lines.append((raw, self._data(raw)))
        rest = data[start:]
        self._open_line, self._size, self._end = ([rest] if rest else []), len(rest), rest[-3:]
        return data_lines

    def rest(self) -> tuple[bytes, bytes]:
        """The unfinished event at the end of the stream, with the blank line that servers forget."""
        raw = b"".join(self._open_line)
        self._open_line.clear()
        return raw.rstrip(b"\r\n") + b"\n\n", self._data(raw)

    def _data(self, raw: bytes) -> bytes:
        if not self._began:
            self._began = True
            raw = raw.removeprefix(BOM_UTF8)
        if raw.startswith(b"data: "):  # the ordinary event is one line
            line = raw[6:].rstrip(b"\r\n")
            if _LF not in line and _CR not in line:
                return line
        data_lines: list[bytes] = []
        for line in raw.splitlines():
            if line.startswith(b"data:"):
                data_lines.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                data_lines.append(b"")
        return b"\n".join(data_lines)
