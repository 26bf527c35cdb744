"""ASGI as the gateway uses it: requests read within bounds, answers in one piece (streamed_answer.py: streams)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextlib import suppress
from email.utils import formatdate
from typing import Any, TypeAlias

from pydantic_core import from_json

from toolspeak.data.messages import JSON
from toolspeak.gateway.http.error_responses import Failure
from toolspeak.wire.call_assembler import depth_beyond

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Coroutine[Any, Any, None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]
Fields: TypeAlias = Mapping[str, JSON]
"""A JSON object of a client's or a server's."""

BODY_SECONDS = 60.0
"""How long a request's body may take to arrive."""

_DISCARD_BYTES = 16 * 1024 * 1024
_DISCARD_SECONDS = 2.0
"""How much of a request that is too large is read, and thrown away, before it is refused."""

_BETWEEN = (b",", b"[", b"{")
"""What stands in front of each value of JSON but the first of all."""

_JSON_DEPTH = 200
"""pydantic_core's own bound for what it reads."""


class ClientGone(Exception):
    """The client has closed the connection, or reads no more."""


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """The body of a request. Raises Failure for one of more than `most` bytes or that does not come, ClientGone."""
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
    """Reads on for a while: a client that is still sending would meet a closed connection in place of the answer."""
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


def header(scope: Scope, wanted: bytes) -> str:
    """The value of a header, empty if there is none."""
    for name, value in scope["headers"]:
        if name == wanted:
            return value.decode("latin-1")
    return ""


def check_values(body: bytes, most: int) -> None:
    """Raises Failure for JSON of more than `most` values. They are counted without being built: millions of them take
    seconds, and a hundred bytes each. A body that is no JSON passes, or does not."""
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


def decoded(body: bytes, depth: int) -> JSON:
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
            raise Failure(400, f"the request's body is no JSON: {why}", "invalid_json") from None
    if depth_beyond(value, depth):
        raise Failure(400, f"the request's JSON is nested more than {depth} deep", "invalid_json")
    return value


def _no_constant(name: str) -> JSON:
    raise ValueError(f"{name} is no JSON")


def date_header() -> tuple[bytes, bytes]:
    """`Date` of an answer that begins now (RFC 9110, 6.6.1)."""
    return b"date", formatdate(usegmt=True).encode()


async def send_whole(send: Send, status: int, body: bytes, headers: Headers, content_type: bytes) -> None:
    """An answer in one piece."""
    head = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), date_header(), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
