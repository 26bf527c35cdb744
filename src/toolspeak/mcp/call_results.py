"""Converts a server's answer to a call into a tool's return value."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, cast

from mcp import types

from toolspeak.data.messages import JSON, ContentPart, FilePart, ImagePart, JsonPart, TextPart
from toolspeak.errors import ToolError
from toolspeak.tools.returned_values import ReturnValue
from toolspeak.tools.schema_checks import Checks, mismatch


def returned_content(result: types.CallToolResult, output: Checks | None) -> ReturnValue:
    """The content for the model, and the structured content.

    `output` checks the structured content against the tool's output schema. If it does not match, a note replaces it:
    the call has run, so this is not an error. Raises ToolError with the server's text if the server reports an error.
    """
    parts = tuple(part_of(block) for block in result.content)
    if result.is_error:
        raise ToolError(_failure_text(parts) or "the server reports that the call failed, without a reason")
    value: JSON = result.structured_content
    wrong = mismatch(output, value) if output is not None else ""
    if wrong:
        note = f"[The tool's structured result is left out: it does not match the tool's own schema: {wrong}]"
        return ReturnValue((*parts, TextPart(note)))
    if value is None:
        return ReturnValue(parts)
    return ReturnValue(_with_value(parts, value), value)


def _with_value(parts: tuple[ContentPart, ...], value: JSON) -> tuple[ContentPart, ...]:
    """The parts, which contain the value only once. Servers also write it as text, for clients that read only text."""

    inner = _unwrap(value)
    if not parts:
        return (JsonPart(inner),)
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) == 1 and not isinstance(inner, str) and _is_text_of(texts[0], inner):
        return tuple(JsonPart(inner) if isinstance(part, TextPart) else part for part in parts)
    elements: list[JSON] = cast("list[JSON]", inner) if isinstance(inner, list) else [inner]
    if len(elements) == len(texts) and all(map(_is_text_of, texts, elements)):
        return parts
    return (*parts, JsonPart(value))


def _unwrap(value: Any) -> Any:
    """The value without the object that the official SDKs put around a value that is not an object."""
    return value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType] - JSON


def _is_text_of(text: str, value: JSON) -> bool:
    if isinstance(value, str):
        return text == value
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def _failure_text(parts: Sequence[ContentPart]) -> str:
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    others = sum(not isinstance(part, TextPart) for part in parts)
    return f"{text}\n[{others} images or files came with it]" if others else text


def part_of(block: types.ContentBlock) -> ContentPart:
    """A block of a server's content."""
    match block:
        case types.TextContent():
            return TextPart(block.text)
        case types.ImageContent():
            data = _decode_base64(block.data)
            return ImagePart(block.mime_type, data) if data is not None else _unreadable("an image")
        case types.AudioContent():
            data = _decode_base64(block.data)
            return FilePart("audio", block.mime_type, data) if data is not None else _unreadable("a sound")
        case types.ResourceLink():
            about = f": {block.description}" if block.description else ""
            return TextPart(f"[{block.name}, at {block.uri}{about}]")
        case types.EmbeddedResource():
            return resource_part(block.resource)


def resource_part(resource: types.TextResourceContents | types.BlobResourceContents) -> ContentPart:
    """The content of a resource."""
    if isinstance(resource, types.TextResourceContents):
        return TextPart(resource.text)
    data, kind = _decode_base64(resource.blob), resource.mime_type or "application/octet-stream"
    if data is None:
        return _unreadable(resource.uri)
    if kind.startswith("image/"):
        return ImagePart(kind, data)
    return FilePart(resource.uri.rstrip("/").rpartition("/")[2] or "data", kind, data)


def _decode_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _unreadable(what: str) -> TextPart:
    return TextPart(f"[{what} in this result is not valid base64, and cannot be shown]")
