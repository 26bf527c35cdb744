"""What server-side tools did, carried by the client: in the id of the call that it is given.

A client keeps the conversation and the gateway nothing. Calls that the gateway ran itself are no part of what the
client was told, so the model would not know of them any more once the client comes back with results of its own tools,
and would make them again. An id is what every client sends back as it got it, with the call and with its result.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

from toolspeak.data.codec import dump, load
from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    MalformedCall,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.errors import FormatError
from toolspeak.execute.calls.result_limits import cap_parts

MARK = "__ran_"
"""Between an id and what it carries; of characters that every API takes in an id."""

MAX_ID = 32 * 1024
"""Characters: clients keep ids in databases and send them back twice with every request."""

_MAX_UNFOLDED = 1024 * 1024
"""Bytes of JSON that an id may unfold to: who asks could send one that unfolds to gigabytes."""

_SHORTER = (None, 4096, 1024, 256)
"""How much of a result is kept, in bytes, until the id is short enough."""


def carrying(call_id: str, ran: Sequence[Message]) -> str | None:
    """The id with the messages that tell what ran; None if they are too long for one. Results are shortened as far as
    needed, images and files left out then."""
    for most in _SHORTER:
        messages = [message if most is None else _shortened(message, most) for message in ran]
        packed = json.dumps([dump(message) for message in messages], separators=(",", ":")).encode()
        if len(packed) > _MAX_UNFOLDED:
            continue
        text = base64.urlsafe_b64encode(zlib.compress(packed, 9)).decode().rstrip("=")
        token = f"{call_id}{MARK}{text}"
        if len(token) <= MAX_ID:
            return token
    return None


def restored(messages: Iterable[Message]) -> list[Message]:
    """The conversation with what its ids carry in front of the turns they are in, and with plain ids."""
    whole: list[Message] = []
    plain: dict[str, str] = {}
    for message in messages:
        for call in message.calls:
            own, ran = _read(call.id)
            if own != call.id:
                plain[call.id] = own
                whole += ran
        whole.append(_with_plain_ids(message, plain) if plain else message)
    return whole


def _shortened(message: Message, most: int) -> Message:
    parts = (replace(part, content=_short(part.content, most), structured=None) for part in message.results)
    return replace(message, parts=tuple(parts)) if message.role == "tool" else message


def _short(content: Sequence[ContentPart], most: int) -> tuple[ContentPart, ...]:
    parts = [TextPart("[left out]") if isinstance(part, ImagePart | FilePart) else part for part in content]
    return cap_parts(parts, most, "It is no longer kept.")[0]


def _read(call_id: str) -> tuple[str, list[Message]]:
    """The plain id and what it carries. What cannot be read, a client has made up: then it is an id like any other."""
    own, mark, text = call_id.partition(MARK)
    if not mark:
        return call_id, []
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        unpack = zlib.decompressobj()
        data = unpack.decompress(packed, _MAX_UNFOLDED)
        if not unpack.eof:
            return call_id, []
        read: JSON = json.loads(data)
        carried = [load(each) for each in cast("list[JSON]", read)] if isinstance(read, list) else []
    except (binascii.Error, zlib.error, ValueError, RecursionError, FormatError):
        return call_id, []
    if not carried or not all(_is_of_a_run(message) for message in carried):
        return call_id, []
    return own, carried


def _is_of_a_run(message: object) -> bool:
    """Whether it is calls or results: nothing else is ever carried."""
    if not isinstance(message, Message):
        return False
    allowed = {"assistant": ToolCall | MalformedCall, "tool": ToolResult}.get(message.role)
    return allowed is not None and all(isinstance(part, allowed) for part in message.parts)


def _with_plain_ids(message: Message, plain: dict[str, str]) -> Message:
    parts = list(message.parts)
    for index, part in enumerate(parts):
        if isinstance(part, ToolCall) and part.id in plain:
            parts[index] = replace(part, id=plain[part.id], provider_id=plain[part.id])
        elif isinstance(part, MalformedCall) and part.id in plain:
            parts[index] = replace(part, id=plain[part.id])
        elif isinstance(part, ToolResult) and part.call_id in plain:
            parts[index] = replace(part, call_id=plain[part.call_id])
    return replace(message, parts=tuple(parts))
