"""Images and files in JSON: base64, usually inside a `data:` URL (RFC 2397)."""

from __future__ import annotations

import base64
import binascii

from toolspeak.data.messages import JSON, FilePart, ImagePart
from toolspeak.errors import FormatError
from toolspeak.wire.json_conversion import require_text

ANY_IMAGE = "image/*"
"""The media type of an image if the API does not send one: for a URL, or for Ollama's bytes."""


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def image_url(part: ImagePart) -> str:
    """The image's URL; for an image without one, a `data:` URL."""
    return part.url if part.url is not None else data_url(part.media_type, part.data or b"")


def image_of(url: str, place: str) -> ImagePart:
    """The image at a URL or in a `data:` URL. Raises FormatError with `place` for a `data:` URL that is not base64."""
    if url[:5].lower() != "data:":
        return ImagePart(ANY_IMAGE, url=url)
    media_type, data = read_data_url(url, place)
    return ImagePart(media_type or ANY_IMAGE, data)


def file_of(name: str, content: str, place: str) -> FilePart:
    """The file in a `data:` URL or in plain base64. Raises FormatError with `place`."""
    if content[:5].lower() == "data:":
        media_type, data = read_data_url(content, place)
    else:
        media_type, data = "", _bytes(content, place)
    return FilePart(name, media_type or "application/octet-stream", data)


def read_data_url(url: str, place: str) -> tuple[str, bytes]:
    """The media type (empty if the URL has none) and the bytes. Raises FormatError with `place`."""
    head, comma, content = url[5:].partition(",")
    media_type, *parameters = head.split(";")
    if not comma or not parameters or parameters[-1].strip().lower() != "base64":
        raise FormatError(f"{place}: write a data URL as data:TYPE;base64,…")
    return media_type.strip(), _bytes(content, place)


def _bytes(content: str, place: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{place}: the data is not base64: {error}") from error


def require_bytes(value: JSON, place: str) -> bytes:
    """Decodes base64 in the standard or the URL alphabet (google-genai uses the latter), with or without padding.
    Raises FormatError with `place`."""
    text = require_text(value, place).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{place}: expected base64: {error}") from error
