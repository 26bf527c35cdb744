"""What a tool returned, as the content of its result."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, cast

from toolspeak.data.messages import JSON, ContentPart, FilePart, ImagePart, JsonPart, TextPart
from toolspeak.data.values import quick
from toolspeak.errors import ToolError
from toolspeak.tools import typed
from toolspeak.tools.places import Path, place_of, show

MAX_DEPTH = 128  # as for arguments: what can be returned can be read back
_PLAIN_BITS = 64  # integers that certainly are not too long
_TOO_LONG = 10**4300  # Python's own cap on turning an int into text


class Unserialisable(ToolError):
    """A tool returned what JSON cannot hold; the message names the type and the place."""


@quick()
class Returned:
    """A tool may return this to say both what a model reads and, for programs, the value behind it."""

    parts: tuple[ContentPart, ...]
    structured: JSON = None


def to_content(value: object) -> tuple[tuple[ContentPart, ...], JSON]:
    """The parts a model reads, and the value as JSON (None for text, bytes and ready-made parts but `Returned`).

    Text becomes a TextPart, bytes an image or a file, a content part or a list with content parts stays,
    everything else becomes a JsonPart: dataclasses, pydantic models, enums, dates, sets and paths included.
    Raises Unserialisable for the rest: objects, cycles, NaN, more than 128 levels.
    """
    if type(value) is str:
        return (TextPart(value),), None
    if type(value) is bool or value is None or (type(value) is int and value.bit_length() < _PLAIN_BITS):
        return (JsonPart(value),), value
    match value:
        case str():
            return (TextPart(str.__str__(value)),), None
        case _ if (data := _bytes(value)) is not None:
            return (_binary(data),), None
        case Returned():
            return to_content([*value.parts])[0] if value.parts else (), jsonable(value.structured)
        case JsonPart():
            return (dataclasses.replace(value, value=jsonable(value.value)),), None
        case TextPart() | ImagePart() | FilePart():
            return (value,), None
        case list() | tuple() if any(isinstance(item, ContentPart) for item in cast("Sequence[object]", value)):
            items = cast("Sequence[object]", value)
            return tuple(part for item in items for part in to_content(item)[0]), None
        case _:
            plain = jsonable(value)
            return (JsonPart(plain),), plain


def jsonable(value: object) -> JSON:
    """The value in the types of JSON. Raises Unserialisable."""
    return _convert(value, (), [])


def _binary(data: bytes) -> ImagePart | FilePart:
    media_type = _image_type(data)
    return ImagePart(media_type, data) if media_type else FilePart("data", "application/octet-stream", data)


def _bytes(value: object) -> bytes | None:
    return bytes(cast("bytes", value)) if isinstance(value, bytes | bytearray | memoryview) else None


def _image_type(data: bytes) -> str | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def _convert(value: object, path: Path, holders: list[object]) -> JSON:
    """`holders` are the containers around the value: a value among them is a cycle."""
    match value:
        case None | bool():
            return value
        case Enum():
            return _convert(value.value, path, holders)
        case str():
            return str.__str__(value)
        case int():
            if abs(value) >= _TOO_LONG:
                raise _refusal(path, "is an integer of more than 4300 digits")
            return int.__index__(value)
        case float():
            if not math.isfinite(value):
                raise _refusal(path, f"is {float.__float__(value)}, which JSON cannot hold")
            return float.__float__(value)
        case _ if (data := _bytes(value)) is not None:
            return base64.b64encode(data).decode()
        case _:
            return _convert_container(value, path, holders)


def _convert_container(value: object, path: Path, holders: list[object]) -> JSON:
    if any(value is holder for holder in holders):
        raise _refusal(path, f"is a {_type(value)} that contains itself")
    if len(holders) >= MAX_DEPTH:
        raise _refusal((), f"is nested more than {MAX_DEPTH} levels deep")
    inside = [*holders, value]
    if isinstance(value, Mapping):
        return _members(cast("Mapping[object, object]", value).items(), path, inside)
    if isinstance(value, AbstractSet):
        elements = [_convert(item, path, inside) for item in cast("AbstractSet[object]", value)]
        # A set of strings has another order in every process; a result should be the same when a call is repeated.
        return sorted(elements, key=repr)
    if isinstance(value, Sequence):
        items = cast("Sequence[object]", value)
        return [_convert(item, (*path, index), inside) for index, item in enumerate(items)]
    if _is_plain_dataclass(value):
        fields = dataclasses.fields(cast("Any", value))
        return _members([(field.name, getattr(value, field.name)) for field in fields], path, inside)
    return _convert(_by_pydantic(value, path), path, inside)


def _is_plain_dataclass(value: object) -> bool:
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and not hasattr(value, "__pydantic_serializer__")
    )


def _members(items: Iterable[tuple[object, object]], path: Path, inside: list[object]) -> dict[str, JSON]:
    members: dict[str, JSON] = {}
    for key, item in items:
        name = _key(key, path)
        if name in members:
            raise _refusal(path, f"has two keys that JSON writes as {show(name)}")
        members[name] = _convert(item, (*path, name), inside)
    return members


def _key(key: object, path: Path) -> str:
    plain = key if isinstance(key, str) else _convert(key, path, [])
    match plain:
        case str():
            return str.__str__(plain)
        case None:
            return "null"
        case bool():
            return "true" if plain else "false"
        case int() | float():
            return repr(plain)
        case _:
            raise _refusal(path, f"has a key of type {_type(key)}")


def _by_pydantic(value: object, path: Path) -> JSON:
    kind = _type(value)
    if isinstance(value, Iterator):  # pydantic would run it, perhaps forever
        raise _refusal(path, f"is of type {kind}; return a list")
    try:
        plain = typed.to_jsonable_python(value)
    except Exception as error:
        # A serialiser its author wrote may raise anything.
        detail = f" ({error})" if isinstance(value, typed.BaseModel) else ""
        raise _refusal(path, f"is of type {kind}{detail}") from error
    if isinstance(value, typed.BaseModel):
        _check_numbers(value.model_dump(by_alias=True, warnings=False), plain, path)
    return plain


def _check_numbers(before: object, plain: JSON, path: Path) -> None:
    """Refuse NaN and infinities in a model: pydantic writes them as null, unless the model says otherwise."""
    if isinstance(before, float) and plain is None:
        raise _refusal(path, f"is {before}, which JSON cannot hold")
    if isinstance(before, dict) and isinstance(plain, dict):
        for key, item in cast("dict[object, object]", before).items():
            if isinstance(key, str):
                _check_numbers(item, cast("dict[str, JSON]", plain).get(key, ""), (*path, key))
    if isinstance(before, list | tuple) and isinstance(plain, list):
        pairs = zip(cast("Sequence[object]", before), cast("list[JSON]", plain), strict=False)
        for index, (item, written) in enumerate(pairs):
            _check_numbers(item, written, (*path, index))


def _type(value: object) -> str:
    return type(value).__name__


def _refusal(path: Path, what: str) -> Unserialisable:
    place = place_of(("result", *path))
    return Unserialisable(
        f"the tool's result cannot be written as JSON: {place} {what}."
        " Return text, numbers, lists, dicts, dataclasses or pydantic models."
    )
