"""Estimates of tokens, for servers that do not count them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolspeak.data.messages import FilePart, ImagePart, MalformedCall, Message, TextMessage
from toolspeak.data.tools import ToolSpec
from toolspeak.wire.base import ModelRequest, WireRequest

BYTES_PER_TOKEN = 4
"""Of UTF-8. English has some four letters a token; scripts of two or three bytes a letter have fewer letters a token:
bytes are nearer than characters."""

MEDIA_TOKENS = 1_600
"""Of an image: the most that one is to Anthropic's models (API reference, "Vision"). A file counts as one."""


def tokens_of(size: int) -> int:
    """An estimate for so many bytes, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


def text_size(text: str) -> int:
    """Bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def message_size(message: Message | TextMessage) -> int:
    """Of what a model reads of a message, about."""
    size = text_size(message.text)
    if isinstance(message, TextMessage):
        return size
    for call in message.calls:
        if isinstance(call, MalformedCall):
            size += text_size(call.raw)
        else:
            size += text_size(call.name) + _json_size(call.arguments)
    parts: list[Any] = [*message.parts]
    for result in message.results:
        size += text_size(result.text)
        parts += result.content
    media = sum(isinstance(part, ImagePart | FilePart) for part in parts)
    return size + media * MEDIA_TOKENS * BYTES_PER_TOKEN


def request_size(request: ModelRequest) -> int:
    """Of all that a model reads, about."""
    output = 0 if request.output is None else _json_size(request.output.schema)
    return output + _tools_size(request.tools) + sum(map(message_size, request.messages))


def prompt_size(request: WireRequest) -> int:
    """Of what a client asks, without the words in which a dialect tells tools."""
    return request_size(request.request)


def _tools_size(tools: Iterable[ToolSpec]) -> int:
    return sum(text_size(tool.name) + text_size(tool.description) + _json_size(tool.parameters) for tool in tools)


def _json_size(value: Mapping[str, Any]) -> int:
    return text_size(json.dumps(dict(value), ensure_ascii=False))
