"""Estimates of tokens, for servers that do not count them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolspeak.data.messages import FilePart, ImagePart, MalformedCall, Message, TextMessage
from toolspeak.data.tools import ToolSpec
from toolspeak.wire.base import ModelRequest, WireRequest

BYTES_PER_TOKEN = 4
"""Bytes of UTF-8. English has about four letters a token; scripts with two or three bytes a letter have fewer letters a
token. So bytes give a better estimate than characters."""

MEDIA_TOKENS = 1_600
"""Tokens of an image: the most that Anthropic's models count (API reference, "Vision"). A file counts the same."""


def tokens_of(size: int) -> int:
    """An estimate of the tokens in so many bytes, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


def text_size(text: str) -> int:
    """Bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def message_size(message: Message | TextMessage) -> int:
    """About how many bytes of a message a model reads."""
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
    """About how many bytes of a request a model reads."""
    output = 0 if request.output is None else _json_size(request.output.schema)
    return output + _tools_size(request.tools) + sum(map(message_size, request.messages))


def prompt_size(request: WireRequest) -> int:
    """About how many bytes a client's request has, without the prompt that a dialect adds."""
    return request_size(request.request)


def _tools_size(tools: Iterable[ToolSpec]) -> int:
    return sum(text_size(tool.name) + text_size(tool.description) + _json_size(tool.parameters) for tool in tools)


def _json_size(value: Mapping[str, Any]) -> int:
    return text_size(json.dumps(dict(value), ensure_ascii=False))
