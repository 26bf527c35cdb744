"""What a server answered to a call, as what a tool returns."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, cast

from mcp import types

from toolspeak.data.messages import JSON, ContentPart, FilePart, ImagePart, JsonPart, TextPart
from toolspeak.errors import ToolError
from toolspeak.mcp.schema_checks import Checks, mismatch
from toolspeak.tools.returned_values import Returned


def returned(result: types.CallToolResult, output: Checks | None) -> Returned:
    """The content a model reads, and the structured content. `output` is what the tool's output schema demands of it:
    what does not fit is left out with a note, since the call itself has happened.

    Raises ToolError, with what the server says, for an error.
    """
    parts = tuple(_part(block) for block in result.content)
    if result.is_error:
        raise ToolError(_failure_text(parts) or "the server says that the call failed, and not why")
    value: JSON = result.structured_content
    wrong = mismatch(output, value) if output is not None else ""
    if wrong:
        note = f"[The tool's structured result is left out, for it does not fit the tool's own schema: {wrong}]"
        return Returned((*parts, TextPart(note)))
    if value is None:
        return Returned(parts)
    return Returned(_with_value(parts, value), value)


def _with_value(parts: tuple[ContentPart, ...], value: JSON) -> tuple[ContentPart, ...]:
    """The parts with the value among them, once: servers write it as text too, for clients that read nothing else."""
    inner = _unwrapped(value)
    if not parts:
        return (JsonPart(inner),)
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) == 1 and not isinstance(inner, str) and _says(texts[0], inner):
        return tuple(JsonPart(inner) if isinstance(part, TextPart) else part for part in parts)
    elements: list[JSON] = cast("list[JSON]", inner) if isinstance(inner, list) else [inner]
    if len(elements) == len(texts) and all(map(_says, texts, elements)):
        return parts
    return (*parts, JsonPart(value))


def _unwrapped(value: Any) -> Any:
    """The value without the object that the official SDKs put around what is none."""
    return value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType] - JSON


def _says(text: str, value: JSON) -> bool:
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


def _part(block: types.ContentBlock) -> ContentPart:
    match block:
        case types.TextContent():
            return TextPart(block.text)
        case types.ImageContent():
            data = _decoded(block.data)
            return ImagePart(block.mime_type, data) if data is not None else _unreadable("an image")
        case types.AudioContent():
            data = _decoded(block.data)
            return FilePart("audio", block.mime_type, data) if data is not None else _unreadable("a sound")
        case types.ResourceLink():
            about = f": {block.description}" if block.description else ""
            return TextPart(f"[{block.name}, to be found at {block.uri}{about}]")
        case types.EmbeddedResource():
            return _resource(block.resource)


def _resource(resource: types.TextResourceContents | types.BlobResourceContents) -> ContentPart:
    if isinstance(resource, types.TextResourceContents):
        return TextPart(resource.text)
    data, kind = _decoded(resource.blob), resource.mime_type or "application/octet-stream"
    if data is None:
        return _unreadable(resource.uri)
    if kind.startswith("image/"):
        return ImagePart(kind, data)
    return FilePart(resource.uri.rstrip("/").rpartition("/")[2] or "data", kind, data)


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _unreadable(what: str) -> TextPart:
    return TextPart(f"[{what} that came with this is not base64, and cannot be shown]")
