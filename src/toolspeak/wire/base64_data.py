"""Images and files as APIs carry them in JSON: base64, mostly inside a `data:` URL (RFC 2397)."""

from __future__ import annotations

import base64
import binascii

from toolspeak.data.messages import JSON, FilePart, ImagePart
from toolspeak.errors import FormatError
from toolspeak.wire.json_validation import require_text

ANY_IMAGE = "image/*"
"""The media type of an image where the API gives none: a URL alone, or Ollama's bytes."""


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def image_url(part: ImagePart) -> str:
    """The image's URL, or the image itself as a `data:` URL."""
    return part.url if part.url is not None else data_url(part.media_type, part.data or b"")


def image_of(url: str, place: str) -> ImagePart:
    """The image of a URL. Raises FormatError naming `place` for a `data:` URL that is not base64."""
    if url[:5].lower() != "data:":
        return ImagePart(ANY_IMAGE, url=url)
    media_type, data = read_data_url(url, place)
    return ImagePart(media_type or ANY_IMAGE, data)


def file_of(name: str, content: str, place: str) -> FilePart:
    """A file of a `data:` URL, or of base64 alone. Raises FormatError naming `place`."""
    if content[:5].lower() == "data:":
        media_type, data = read_data_url(content, place)
    else:
        media_type, data = "", _bytes(content, place)
    return FilePart(name, media_type or "application/octet-stream", data)


def read_data_url(url: str, place: str) -> tuple[str, bytes]:
    """The media type (empty if there is none) and the bytes. Raises FormatError naming `place`."""
    head, comma, content = url[5:].partition(",")
    media_type, *parameters = head.split(";")
    if not comma or not parameters or parameters[-1].strip().lower() != "base64":
        raise FormatError(f"{place}: a data URL is written data:TYPE;base64,…")
    return media_type.strip(), _bytes(content, place)


def _bytes(content: str, place: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{place}: the data is no base64: {error}") from error


def require_bytes(value: JSON, place: str) -> bytes:
    """Decodes base64 of either alphabet, with or without padding (google-genai writes the one for URLs). Raises
    FormatError naming `place`."""
    text = require_text(value, place).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{place}: expected bytes in base64: {error}") from error
