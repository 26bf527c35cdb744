"""A prompt of an editor as a message for the model, and back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlsplit

from toolspeak.acp.client_messages import PromptBlock, ResourceContents
from toolspeak.acp.json_rpc import INVALID_PARAMS, RpcError
from toolspeak.data.messages import JSON, ContentPart, FilePart, ImagePart, JsonPart, Message, Part, TextPart
from toolspeak.execute.calls.result_limits import json_text


def message_of(prompt: Sequence[PromptBlock]) -> Message:
    """The user's message. Raises RpcError for content that no message can hold, and for an empty prompt."""
    parts = tuple(_part(block, index) for index, block in enumerate(prompt))
    if not any(not isinstance(part, TextPart) or part.text.strip() for part in parts):
        raise RpcError("the prompt is empty: write what to do", INVALID_PARAMS)
    return Message("user", parts)


def _part(block: PromptBlock, index: int) -> ContentPart:
    match block.type:
        case "text":
            return TextPart(block.text)
        case "image":
            if not block.data and block.uri and block.uri.startswith(("http://", "https://")):
                return ImagePart(block.mime_type or "", url=block.uri)
            return ImagePart(block.mime_type or "image/png", _decode(block.data, f"prompt[{index}].data"))
        case "resource" if block.resource is not None:
            return _resource(block.resource, f"prompt[{index}].resource.blob")
        case "resource_link" if block.uri:
            return TextPart(f"[{block.name or place_of_uri(block.uri)}]({place_of_uri(block.uri)})")
        case _:
            raise RpcError(
                f"prompt[{index}]: content of type {block.type!r} cannot be sent to the model: send text, an image or "
                "a resource",
                INVALID_PARAMS,
            )


def _resource(resource: ResourceContents, place: str) -> ContentPart:
    name = place_of_uri(resource.uri)
    if resource.text is not None:
        return TextPart(f'\n<file path="{name}">\n{resource.text}\n</file>\n')
    data, media_type = _decode(resource.blob or "", place), resource.mime_type or "application/octet-stream"
    if media_type.startswith("image/"):
        return ImagePart(media_type, data)
    return FilePart(name.rpartition("/")[2] or "file", media_type, data)


def _decode(text: str, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RpcError(f"{place} is not base64", INVALID_PARAMS) from None


def place_of_uri(uri: str) -> str:
    """The path of a `file:` URI, with its fragment (a range of lines); another URI as it is."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    return unquote(parts.path) + (f"#{parts.fragment}" if parts.fragment else "")


def blocks_of(parts: Iterable[Part]) -> list[dict[str, JSON]]:
    """The parts of a message or a result that an editor shows, as content blocks."""
    return [block for part in parts for block in _blocks(part)]


def _blocks(part: Part) -> list[dict[str, JSON]]:
    match part:
        case TextPart(text):
            return [text_block(text)] if text else []
        case JsonPart():
            return [text_block(json_text(part.value))]
        case ImagePart(media_type, data) if data is not None:
            return [{"type": "image", "data": base64.b64encode(data).decode(), "mimeType": media_type}]
        case ImagePart():
            return [{"type": "resource_link", "uri": part.url or "", "name": part.url or "image"}]
        case FilePart(name, media_type, data):
            blob = {"uri": f"attachment:{name}", "blob": base64.b64encode(data).decode(), "mimeType": media_type}
            return [{"type": "resource", "resource": blob}]
        case _:
            return []


def text_block(text: str) -> dict[str, JSON]:
    return {"type": "text", "text": text}


def fence(text: str, language: str = "") -> str:
    """The text as a block of code in Markdown, with a fence that the text cannot end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"
