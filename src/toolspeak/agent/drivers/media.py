"""Images and files in a conversation that a dialect renders as text: they pass through it as marks in the text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from toolspeak.data.messages import FilePart, ImagePart, Message, Part, TextMessage, TextPart

Media = ImagePart | FilePart

_MARK = re.compile("\ue0f1\u2063(\\d+)\u2063\ue0f1")
"""Private-use characters, which no keyboard writes. Who writes a mark all the same gets an image that is there."""


def marked(message: Message, media: list[Media]) -> Message:
    """A user's message with a mark in the place of each image and file, which are added to `media`."""
    if message.role != "user" or not any(isinstance(part, Media) for part in message.parts):
        return message
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Media):
            parts.append(TextPart(f"\ue0f1\u2063{len(media)}\u2063\ue0f1"))
            media.append(part)
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts))


def restored(messages: Sequence[TextMessage], media: Sequence[Media]) -> list[Message | TextMessage]:
    """The rendered messages with images and files where their marks stand."""
    return [_restored(message, media) if "\ue0f1" in message.text else message for message in messages]


def _restored(message: TextMessage, media: Sequence[Media]) -> Message | TextMessage:
    parts: list[Part] = []
    begin = 0
    for mark in _MARK.finditer(message.text):
        number = int(mark[1])
        if message.role == "user" and number < len(media):
            if before := message.text[begin : mark.start()]:
                parts.append(TextPart(before))
            parts.append(media[number])
            begin = mark.end()
    if not parts:
        return message
    if rest := message.text[begin:]:
        parts.append(TextPart(rest))
    return Message("user", tuple(parts))
