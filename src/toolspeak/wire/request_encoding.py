"""What the request writers of all APIs share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from toolspeak.data.messages import (
    JSON,
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
from toolspeak.errors import ConfigurationError
from toolspeak.wire.base import ModelRequest


def check_request(request: ModelRequest, own: Iterable[str], *, format_name: str, grammars: bool = False) -> None:
    """Raises ConfigurationError for an option with the name of one of the format's `own` fields, and for a grammar if
    the format has no field for it."""
    for name in own:
        if name in request.options:
            raise ConfigurationError(f"the option {name!r} cannot be set: the request sets this field itself")
    if request.constraint is not None and not grammars:
        raise ConfigurationError(
            f"{format_name} requests have no field for a grammar; omit the constraint (see Capabilities.grammar)"
        )


def call_ids(messages: Iterable[Message | TextMessage]) -> dict[str, str]:
    """Maps each call's own id to the id in the request, for the call and its result: its `provider_id`, if that is
    unique."""
    ids: dict[str, str] = {}
    ids_so_far: set[str] = set()
    for message in messages:
        if isinstance(message, Message) and message.role == "assistant":
            for part in message.parts:
                if isinstance(part, ToolCall):
                    preferred = part.provider_id
                    ids[part.id] = wire_id = preferred if preferred and preferred not in ids_so_far else part.id
                    ids_so_far.add(wire_id)
    return ids


def is_native(part: Part) -> bool:
    """Whether a part of an assistant's message has its own form in the API.

    A malformed call has none, since no API accepts arguments that are not JSON. It is sent as text
    (`MalformedCall.raw`), and its result as text in a user message.
    """
    return not isinstance(part, MalformedCall)


def text_of(parts: Sequence[ContentPart]) -> str:
    """Content as text. A line describes an image or a file."""
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


def without_lone_surrogates(value: JSON) -> JSON:
    """The value with each lone surrogate replaced by U+FFFD: UTF-8 cannot encode it."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            # Through UTF-16, so that two adjacent halves become their character.
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, list | tuple):
        return [without_lone_surrogates(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, Mapping):
        return {
            without_lone_surrogates(key): without_lone_surrogates(item)
            for key, item in cast("Mapping[Any, Any]", value).items()
        }
    return value


_LIMIT_NAMES = (
    "max_completion_tokens",  # OpenAI; takes precedence over the older name
    "max_tokens",  # Anthropic, Mistral and every server with OpenAI's Chat Completions
    "max_output_tokens",  # OpenAI Responses
    "maxOutputTokens",  # Gemini
    "num_predict",  # Ollama
    "n_predict",  # llama.cpp's server
)

_LIMIT_PLACES = ("generationConfig", "options")
"""The fields that hold it in Gemini's and Ollama's requests."""


def token_limit(options: Mapping[str, JSON]) -> int | None:
    """The most tokens that a request's body or options allow for a turn; None without a limit above 0."""
    for fields in (options, *(options.get(place) for place in _LIMIT_PLACES)):
        if isinstance(fields, Mapping):
            for name in _LIMIT_NAMES:
                limit = cast("Mapping[str, JSON]", fields).get(name)
                if type(limit) is int and limit > 0:
                    return limit
    return None
