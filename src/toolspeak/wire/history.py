"""What wire formats that have calls of their own share in encoding a conversation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from toolspeak.data.messages import (
    ContentPart,
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    Part,
    TextMessage,
    TextPart,
    ToolCall,
)


def call_ids(messages: Iterable[Message | TextMessage]) -> dict[str, str]:
    """By a call's own id, the id it and its result are sent with: the one its API gave, if no other call has it."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for message in messages:
        if isinstance(message, Message) and message.role == "assistant":
            for part in message.parts:
                if isinstance(part, ToolCall):
                    given = part.provider_id
                    ids[part.id] = sent = given if given and given not in taken else part.id
                    taken.add(sent)
    return ids


def is_native(part: Part) -> bool:
    """Whether a part of an assistant's message goes back as it is.

    A malformed call cannot: no API takes arguments that are none. It goes back as text (`MalformedCall.raw`), and so
    does its result, in a message of the user.
    """
    return not isinstance(part, MalformedCall)


def text_of(parts: Sequence[ContentPart]) -> str:
    """Content as text alone: JSON as JSON, an image or a file by a line that says what it is."""
    return "\n".join(_text_of(part) for part in parts)


def _text_of(part: ContentPart) -> str:
    match part:
        case TextPart(text):
            return text
        case JsonPart(value):
            return json.dumps(value, ensure_ascii=False)
        case ImagePart():
            return f"[image: {part.media_type}]" if part.url is None else f"[image: {part.url}]"
        case FilePart():
            return f"[file {part.name}: {part.media_type}, {len(part.data)} bytes]"
