"""What server-side tools did, carried in the id of the client's next call.

The client keeps the conversation, the gateway keeps nothing. The client does not see calls that the gateway ran itself.
So when it comes back with results of its own tools, the model would not know of those calls, and would make them again.
Every client sends an id back unchanged, with the call and with its result.
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
"""Stands between an id and its content; every API takes these characters in an id."""

MAX_ID = 32 * 1024
"""Characters: clients keep ids in databases and send them back twice with every request."""

_MAX_UNFOLDED = 1024 * 1024
"""Bytes of JSON that an id may unpack to: a client could send one that unpacks to gigabytes."""

_SHORTER = (None, 4096, 1024, 256)
"""The bytes of a result that stay, tried in turn until the id is short enough."""


def encode_in_call_id(call_id: str, messages: Sequence[Message]) -> str | None:
    """The id with these messages; None if they are too long. Results are shortened until the id fits, and then lose
    their images and files."""
    for most in _SHORTER:
        shorter = [message if most is None else _shorten(message, most) for message in messages]
        payload = json.dumps([dump(message) for message in shorter], separators=(",", ":")).encode()
        if len(payload) > _MAX_UNFOLDED:
            continue
        text = base64.urlsafe_b64encode(zlib.compress(payload, 9)).decode().rstrip("=")
        token = f"{call_id}{MARK}{text}"
        if len(token) <= MAX_ID:
            return token
    return None


def restore_messages(messages: Iterable[Message]) -> list[Message]:
    """The conversation with plain ids, and with the messages that the ids carried, each in front of its turn."""
    whole: list[Message] = []
    plain: dict[str, str] = {}
    for message in messages:
        for call in message.calls:
            own, carried_messages = _read(call.id)
            if own != call.id:
                plain[call.id] = own
                whole += carried_messages
        whole.append(_with_plain_ids(message, plain) if plain else message)
    return whole


def _shorten(message: Message, most: int) -> Message:
    parts = (replace(part, content=_short(part.content, most), structured=None) for part in message.results)
    return replace(message, parts=tuple(parts)) if message.role == "tool" else message


def _short(content: Sequence[ContentPart], most: int) -> tuple[ContentPart, ...]:
    parts = [TextPart("[left out]") if isinstance(part, ImagePart | FilePart) else part for part in content]
    return cap_parts(parts, most, "It is no longer kept.")[0]


def _read(call_id: str) -> tuple[str, list[Message]]:
    """The plain id and the messages in it. An id that cannot be read is a client's own, and stays as it is."""
    own, mark, text = call_id.partition(MARK)
    if not mark:
        return call_id, []
    try:
        compressed_data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        unpack = zlib.decompressobj()
        data = unpack.decompress(compressed_data, _MAX_UNFOLDED)
        if not unpack.eof:
            return call_id, []
        read: JSON = json.loads(data)
        messages = [load(each) for each in cast("list[JSON]", read)] if isinstance(read, list) else []
    except (binascii.Error, zlib.error, ValueError, RecursionError, FormatError):
        return call_id, []
    if not messages or not all(_is_of_a_run(message) for message in messages):
        return call_id, []
    return own, messages


def _is_of_a_run(message: object) -> bool:
    """Whether the message holds only calls or results, as every carried message does."""
    if not isinstance(message, Message):
        return False
    part_types = {"assistant": ToolCall | MalformedCall, "tool": ToolResult}.get(message.role)
    return part_types is not None and all(isinstance(part, part_types) for part in message.parts)


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
