"""ASGI as the gateway uses it: requests read within bounds, answers sent whole or streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from contextlib import suppress
from email.utils import formatdate
from typing import Any, TypeAlias, cast

import msgspec
from pydantic_core import from_json

from toolspeak.data.messages import JSON
from toolspeak.gateway.http.error_responses import Failure
from toolspeak.gateway.turns.turn_gate import Note
from toolspeak.providers.http_client import json_bytes
from toolspeak.wire.base import StreamFrame
from toolspeak.wire.json_conversion import depth_beyond

AsgiMessage: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Coroutine[Any, Any, None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]
Fields: TypeAlias = Mapping[str, JSON]
"""A JSON object of a client's or a server's."""

BODY_SECONDS = 60.0
"""How long a request's body may take to arrive."""

_DISCARD_BYTES = 16 * 1024 * 1024
_DISCARD_SECONDS = 2.0
"""How much of a request that is too large is read and dropped before the refusal."""

_BETWEEN = (b",", b"[", b"{")
"""The characters before each JSON value but the first."""

_JSON_DEPTH = 200
"""pydantic_core's own bound for what it reads."""

_encode = msgspec.json.Encoder().encode


class ClientGone(Exception):
    """The client has closed the connection, or no longer reads."""


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """The body of a request. Raises Failure if it has more than `most` bytes or does not come, ClientGone."""
    length = header(scope, b"content-length")
    if length.isdigit() and int(length) > most:
        await _discard(receive)
        raise _too_large(most)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                piece: bytes = message.get("body", b"")
                size += len(piece)
                if size > most:
                    await _discard(receive)
                    raise _too_large(most)
                pieces.append(piece)
                if not message.get("more_body"):
                    return b"".join(pieces)
    except TimeoutError:
        raise Failure(408, f"the request did not arrive within {BODY_SECONDS:g} seconds", "request_timeout") from None


async def _discard(receive: Receive) -> None:
    """Reads on for a while: a client that still sends would see a closed connection and no answer."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while size < _DISCARD_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return


def _too_large(most: int) -> Failure:
    return Failure(413, f"the request is larger than {most} bytes: send less of the conversation", "request_too_large")


def header(scope: Scope, header_name: bytes) -> str:
    """The value of a header; empty without one."""
    for name, value in scope["headers"]:
        if name == header_name:
            return value.decode("latin-1")
    return ""


def check_values(body: bytes, most: int) -> None:
    """Raises Failure for JSON of more than `most` values. Counts them without parsing: millions of values take seconds,
    and a hundred bytes each. Says nothing about a body that is not JSON."""
    quotes = body.count(b'"') - body.count(b'\\"')
    if quotes <= 4 * most:  # a key and a value for each
        if sum(map(body.count, _BETWEEN)) <= most:
            return  # also those in texts
        bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
        outside = b"".join(bare.split(b'"')[::2])
        if sum(map(outside.count, _BETWEEN)) <= most:
            return
    raise Failure(
        413, f"the request's JSON has more than {most} values: send less of the conversation", "request_too_large"
    )


def decode_body(body: bytes, depth: int) -> JSON:
    """The JSON of a body, nested `depth` deep at most. Raises Failure."""
    try:
        value: JSON = from_json(body, allow_inf_nan=False)
        if depth >= _JSON_DEPTH:
            return value
    except ValueError:
        # What this reader refuses, json may take: a lone surrogate, as clients that cut text by UTF-16 send them.
        try:
            value = json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise Failure(400, f"the request's body is not JSON: {why}", "invalid_json") from None
    if depth_beyond(value, depth):
        raise Failure(400, f"the request's JSON is nested more than {depth} deep", "invalid_json")
    return value


def _no_constant(name: str) -> JSON:
    raise ValueError(f"{name} is not JSON")


def date_header() -> tuple[bytes, bytes]:
    """The header `Date` of an answer that begins now (RFC 9110, 6.6.1)."""
    return b"date", formatdate(usegmt=True).encode()


async def send_whole(send: Send, status: int, body: bytes, headers: Headers, content_type: bytes) -> None:
    """Sends a whole answer."""
    head = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), date_header(), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


# --- streamed answers ----------------------------------------------------------------------------------------------

MOST_WAITING = 64 * 1024
"""Bytes that may wait to leave before the writer has to wait."""

EVENTS = "text/event-stream"

PING = b": ping\n\n"
"""A comment, which every reader of event streams passes over (WHATWG HTML, 9.2.6)."""

ALONE_SECONDS = 0.002
"""Seconds after the last piece from which on a piece is sent by its writer."""


class EventStream:
    """A streamed answer. Its head leaves with the first event, so that an earlier failure has a status of its own.

    A sender task sends pieces that come together in one send, which costs as much as all other work on a chunk: the
    task runs when the writer waits for the upstream. A piece that comes alone, as most do, is sent by its writer, which
    saves a turn of the event loop.
    """

    def __init__(self, send: Send, headers: Headers, kind: str | None = EVENTS) -> None:
        self.kind = kind
        """The content type; None while it is not known. Only a stream of events gets pings."""
        self.began_at: float | None = None
        """When the first event was written (the event loop's time)."""
        self.chunks = 0
        self.has_left = False
        """Whether anything but pings was written."""
        self.over = False
        """Whether the end of the stream has left."""
        self._send = send
        self._headers = headers
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._size = 0
        self._is_ending = False
        self._sender: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        """The sender waits for it while there is nothing to send."""
        self._room: asyncio.Future[None] | None = None
        """The writer waits for it while more than `MOST_WAITING` bytes wait to leave."""
        self._send_error: Exception | None = None
        self._sending: float | None = None
        self._sent_at = self._loop.time()

    async def write(self, data: bytes, chunks: int = 1) -> None:
        """Sends a piece. Returns once there is room for more: a slow reader makes the writer wait."""
        now = self._loop.time()
        if self.began_at is None:
            self.began_at = now
        self.chunks += chunks
        self.has_left = self.has_left or data is not PING
        if self._idle is not None and not self._idle.done() and now - self._sent_at > ALONE_SECONDS:
            self._sending = now
            try:
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
            except Exception as error:
                self._send_error = error
                raise
            self._sent_at, self._sending = now, None
            return
        self._waiting.append(data)
        self._size += len(data)
        self._wake()
        while self._size > MOST_WAITING and self._send_error is None:
            if self._room is None:
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)
        if self._send_error is not None:
            raise self._send_error

    @property
    def failed(self) -> bool:
        """Whether a send has failed, so that nothing more can leave."""
        return self._send_error is not None

    async def end(self) -> None:
        """Sends the rest and the end of the answer."""
        self._is_ending = True
        self._wake()
        assert self._sender is not None
        await self._sender
        if self._send_error is not None:
            raise self._send_error

    def close(self) -> None:
        """Stops sending."""
        if self._sender is not None:
            self._sender.cancel()

    async def tick(self, silence: float, stall: float) -> None:
        """Sends a ping after `silence` seconds without a piece. Call it again and again.

        Raises ClientGone if the client has read nothing for `stall` seconds, or if a send has failed.
        """
        now = self._loop.time()
        if self._send_error is not None:
            raise ClientGone
        if self._sending is not None:
            if now - self._sending > stall:
                raise ClientGone
        elif self.kind == EVENTS and now - self._sent_at >= silence:
            await self.write(PING)

    def _wake(self) -> None:
        if self._sender is None:
            self._sender = self._loop.create_task(self._leave())
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _leave(self) -> None:
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": self._head()})
            while True:
                data, more = b"".join(self._waiting), not self._is_ending
                self._waiting.clear()
                self._size = 0
                self._sending = self._loop.time()
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
                self._sent_at, self._sending = self._sending, None
                if not more:
                    self.over = True
                    return
                self._make_room()
                if not self._waiting and not self._is_ending:
                    self._idle = self._loop.create_future()
                    await self._idle
        except Exception as error:  # noqa: BLE001 - raised where the next piece is written
            self._send_error = error
            self._make_room()

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def _head(self) -> Headers:
        kind = "text/event-stream; charset=utf-8" if self.kind == EVENTS else self.kind or ""
        return [
            (b"content-type", kind.encode("latin-1")),
            date_header(),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),  # nginx would hold events back
            *self._headers,
        ]


async def run_while_connected(
    work: Coroutine[Any, Any, None], receive: Receive, stream: EventStream | None, silence: float, stall: float
) -> None:
    """Runs `work` while the client is connected. Cancels it and raises ClientGone if the client leaves.

    Sends a comment on `stream` after `silence` seconds without a piece. A client that reads nothing for `stall` seconds
    counts as gone. The work has a task of its own: each piece of a stream resumes all coroutines of its task, so the
    task leaves out those above this one.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    cancelling, client_is_gone = task.cancelling(), False
    working = loop.create_task(work)

    async def watch() -> None:
        nonlocal client_is_gone
        while True:
            try:
                async with asyncio.timeout(silence):
                    while (await receive())["type"] != "http.disconnect":
                        pass
            except TimeoutError:
                if stream is None:
                    continue
                try:
                    await stream.tick(silence, stall)
                    continue
                except ClientGone:
                    pass
            if stream is None or not stream.over:  # a server also reports it after the end of an answer
                client_is_gone = True
                working.cancel()
            return

    watcher = loop.create_task(watch())
    try:
        await working
    except asyncio.CancelledError:
        if client_is_gone and working.cancelled():
            raise ClientGone from None
        if working.cancelled() or not working.done():
            raise
        working.result()  # it ended at the moment of the cancellation
    finally:
        watcher.cancel()
    while task.cancelling() > cancelling:  # the work has answered the cancellation, or ended before it
        task.uncancel()


# --- frames as events --------------------------------------------------------------------------------------------


def event(frame: StreamFrame, encode: Callable[[JSON], bytes] = json_bytes) -> bytes:
    """A frame as a server-sent event."""
    name, data = frame
    body = data.encode() if isinstance(data, str) else encode(data)
    if name is None:
        return b"data: %b\n\n" % body
    return b"event: %b\ndata: %b\n\n" % (name.encode(), body)


def text_event(frame: StreamFrame) -> bytes:
    """As `event`, in half the time, for a frame with a piece of text. (msgspec writes infinity as null.)"""
    try:
        return event(frame, _encode)
    except UnicodeEncodeError:  # a lone surrogate
        return event(frame)


def add_notes(frames: list[StreamFrame], notes: Sequence[Note]) -> list[StreamFrame]:
    """The last frames of an answer, with its notes in the field `toolspeak` of the frame with the finish reason."""
    if not notes:
        return frames
    return [(name, with_notes(data, notes) if _tells_the_end(data) else data) for name, data in frames]


def with_notes(body: JSON, notes: Sequence[Note]) -> JSON:
    """The object, with the notes in its field `toolspeak` if there are any."""
    if not notes:
        return body
    extension = {"warnings": [{"code": note.code, "message": note.message} for note in notes]}
    return {**cast("dict[str, Any]", body), "toolspeak": extension}


def _tells_the_end(data: JSON) -> bool:
    if not isinstance(data, dict):
        return False
    fields = cast("dict[str, Any]", data)
    choices = fields.get("choices")
    if choices:
        return choices[0].get("finish_reason") is not None
    kind = fields.get("type")
    return kind in ("message_delta", "response.completed", "response.incomplete", "response.failed")
