"""A tool's returned value as the content of its result."""

from __future__ import annotations

import base64
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from enum import Enum
from typing import Any, cast

from toolspeak.data.messages import JSON, ContentPart, FilePart, ImagePart, JsonPart, TextPart, no_extra
from toolspeak.data.values import quick
from toolspeak.errors import ToolError
from toolspeak.tools import pydantic_support
from toolspeak.tools.places import Path, place_of, show

MAX_DEPTH = 128  # as for arguments, so that every returned value can be read back
_PLAIN_BITS = 64  # integers of this size are never too long
_TOO_LONG = 10**4300  # Python's own cap on turning an int into text


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_NAMED_VALUES = 3  # the most values that a note names: a table may have thousands


class Unserialisable(ToolError):
    """A value must be JSON and cannot be. The message names its type and place."""


@quick()
class ReturnValue:
    """A return value of a tool with both the content for the model and the value for programs."""

    parts: tuple[ContentPart, ...]
    structured_content: JSON = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)
    """What the result holds for programs besides (`ToolResult.extra`)."""


def to_content(value: object) -> tuple[tuple[ContentPart, ...], JSON]:
    """Returns the parts that the model reads, and the value as JSON (None for text, bytes and parts, except
    `ReturnValue`).

    Text becomes a TextPart, bytes an image or a file. A content part, or a list with content parts, stays. Everything
    else becomes a JsonPart: dataclasses, pydantic models, enums, dates, sets, paths, and values with `tolist()` or
    `item()` (NumPy's scalars and arrays). What JSON cannot hold (other objects, NaN, cycles, more than 128 levels)
    becomes text, and a note says so, for the tool has run. Raises what a value's own conversion raises.
    """
    if type(value) is bool or value is None or (type(value) is int and value.bit_length() < _PLAIN_BITS):
        return (JsonPart(value),), value
    match value:
        case str():
            return (TextPart(str.__str__(value)),), None
        case _ if (data := _bytes(value)) is not None:
            return (_binary(data),), None
        case ReturnValue():
            structured_content, notes = _lenient(value.structured_content)
            return (*(to_content([*value.parts])[0] if value.parts else ()), *notes), structured_content
        case JsonPart():
            plain, notes = _lenient(value.value)
            return (dataclasses.replace(value, value=plain), *notes), None
        case TextPart() | ImagePart() | FilePart():
            return (value,), None
        case list() | tuple() if any(isinstance(item, ContentPart) for item in cast("Sequence[object]", value)):
            items = cast("Sequence[object]", value)
            return tuple(part for item in items for part in to_content(item)[0]), None
        case _:
            plain, notes = _lenient(value)
            if notes and isinstance(plain, str):
                return (TextPart(f"{plain}\n{notes[0].text}"),), plain
            return (JsonPart(plain), *notes), plain


def jsonable(value: object) -> JSON:
    """Returns the value in the types of JSON. Raises Unserialisable."""
    return _Conversion(None).convert(value, (), [])


def _lenient(value: object) -> tuple[JSON, tuple[TextPart, ...]]:
    """The value in the types of JSON, and a note if something in it became text."""
    odd: list[str] = []
    plain = _Conversion(odd).convert(value, (), [])
    return plain, (TextPart(note_of(odd)),) if odd else ()


def note_of(odd: Sequence[str]) -> str:
    """What the model reads about values that JSON cannot hold."""
    more = f"; and {len(odd) - _NAMED_VALUES} more" if len(odd) > _NAMED_VALUES else ""
    return (
        "[The call ran. JSON cannot hold all of what it returned; here text, or null, replaces it: "
        f"{'; '.join(odd[:_NAMED_VALUES])}{more}.]"
    )


def shown_as_text(value: object) -> str:
    """`str(value)` without the addresses of objects, which differ every time; its type if it has no such text."""
    try:
        return _ADDRESS.sub("", str(value))
    except Exception:  # noqa: BLE001 - a value's own __str__ may raise anything, RecursionError too
        return f"<{_type(value)}>"


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


@dataclasses.dataclass(frozen=True, slots=True)
class _Conversion:
    """Turns a value into the types of JSON. What cannot be is text, and named in `odd`; without `odd` it is refused."""

    odd: list[str] | None

    def convert(self, value: object, path: Path, holders: list[object]) -> JSON:
        """`holders` are the containers around the value: a value among them is a cycle."""
        match value:
            case None | bool():
                return value
            case Enum():
                return self.convert(value.value, path, holders)
            case str():
                return str.__str__(value)
            case int():
                if abs(value) >= _TOO_LONG:
                    return self._replacement(hex(value), path, "is an integer of more than 4300 digits")
                return int.__index__(value)
            case float():
                if not math.isfinite(value):
                    return self._replacement(value, path, f"is {float.__repr__(value)}")
                return float.__float__(value)
            case _ if (data := _bytes(value)) is not None:
                return base64.b64encode(data).decode()
            case _:
                return self._container(value, path, holders)

    def _container(self, value: object, path: Path, holders: list[object]) -> JSON:
        if any(value is holder for holder in holders):
            return self._replacement("…", path, f"is a {_type(value)} that contains itself")
        if len(holders) >= MAX_DEPTH:
            return self._replacement(
                "…", () if self.odd is None else path, f"is nested more than {MAX_DEPTH} levels deep"
            )
        inside = [*holders, value]
        if isinstance(value, Mapping):
            return self._members(cast("Mapping[object, object]", value).items(), path, inside)
        if isinstance(value, AbstractSet):
            elements = [self.convert(item, path, inside) for item in cast("AbstractSet[object]", value)]
            # The order of a set of strings differs between processes, and a repeated call should have the same result.
            return sorted(elements, key=repr)
        if isinstance(value, Sequence):
            items = cast("Sequence[object]", value)
            return [self.convert(item, (*path, index), inside) for index, item in enumerate(items)]
        if _is_plain_dataclass(value):
            fields = dataclasses.fields(cast("Any", value))
            return self._members([(field.name, getattr(value, field.name)) for field in fields], path, inside)
        if isinstance(value, Iterator):  # it may be infinite
            container = cast("object", value)
            return self._replacement(container, path, f"is of type {_type(container)}; return a list")
        plain = _own_plain(value)
        if plain is not value:
            return self.convert(plain, path, inside)
        return self._by_pydantic(value, path, inside)

    def _members(self, items: Iterable[tuple[object, object]], path: Path, inside: list[object]) -> dict[str, JSON]:
        members: dict[str, JSON] = {}
        for key, item in items:
            name = self._key(key, path)
            if name in members:
                self._replacement("", path, f"has two keys that JSON writes as {show(name)}")
                name = _free(name, members)
            members[name] = self.convert(item, (*path, name), inside)
        return members

    def _key(self, key: object, path: Path) -> str:
        if isinstance(key, str):
            return str.__str__(key)
        try:
            plain = _Conversion(None).convert(key, path, [])
        except Unserialisable:
            if self.odd is None:
                raise
            return self._replacement(key, path, f"has a key of type {_type(key)}")
        match plain:
            case str():
                return plain
            case None:
                return "null"
            case bool():
                return "true" if plain else "false"
            case int() | float():
                return repr(plain)
            case _:
                return self._replacement(key, path, f"has a key of type {_type(key)}")

    def _by_pydantic(self, value: object, path: Path, inside: list[object]) -> JSON:
        try:
            plain = pydantic_support.to_jsonable_python(
                value, fallback=lambda inner: self._inside(inner, value, path, inside)
            )
        except Exception as error:
            # A serialiser its author wrote may raise anything.
            detail = f" ({error})" if isinstance(value, pydantic_support.BaseModel) else ""
            if self.odd is None:
                raise _refusal(path, f"is of type {_type(value)}{detail}") from error
            return self._replacement(value, path, f"is of type {_type(value)}{detail}")
        if isinstance(value, pydantic_support.BaseModel):
            self._check_numbers(value.model_dump(by_alias=True, warnings=False), plain, path)
        return self.convert(plain, path, inside)

    def _inside(self, value: object, around: object, path: Path, inside: list[object]) -> JSON:
        """What pydantic cannot write: a value in a model, or the value itself."""
        plain = _own_plain(value)
        if plain is not value:
            return self.convert(plain, path, inside)
        if value is around or self.odd is None:
            raise TypeError(f"{_type(value)} is no JSON")
        return self._replacement(value, path, f"is of type {_type(around)}, and holds a value of type {_type(value)}")

    def _check_numbers(self, before: object, plain: JSON, path: Path) -> None:
        """Names NaN and infinities in a model: pydantic writes them as null, unless the model says otherwise."""
        if isinstance(before, float) and plain is None:
            self._replacement("", path, f"is {before}")
        if isinstance(before, dict) and isinstance(plain, dict):
            for key, item in cast("dict[object, object]", before).items():
                if isinstance(key, str):
                    self._check_numbers(item, cast("dict[str, JSON]", plain).get(key, ""), (*path, key))
        if isinstance(before, list | tuple) and isinstance(plain, list):
            pairs = zip(cast("Sequence[object]", before), cast("list[JSON]", plain), strict=False)
            for index, (item, item_text) in enumerate(pairs):
                self._check_numbers(item, item_text, (*path, index))

    def _replacement(self, value: object, path: Path, what: str) -> str:
        """The text that replaces a value, which is named. Raises Unserialisable if it must be JSON."""
        if self.odd is None:
            raise _refusal(path, what)
        self.odd.append(f"{place_of(('result', *path))} {what}")
        return shown_as_text(value)


def _is_plain_dataclass(value: object) -> bool:
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and not hasattr(value, "__pydantic_serializer__")
    )


def _own_plain(value: object) -> object:
    """What a value makes of itself in Python's own types, as NumPy's scalars and arrays, pandas' series and tensors do;
    else the value."""
    for name in ("tolist", "item"):
        plain = getattr(type(value), name, None)
        if callable(plain) and not isinstance(value, type):
            return cast("Callable[[object], object]", plain)(value)
    return value


def _free(name: str, names: Mapping[str, JSON]) -> str:
    number = 2
    while f"{name} ({number})" in names:
        number += 1
    return f"{name} ({number})"


def _type(value: object) -> str:
    return type(value).__name__


def _refusal(path: Path, what: str) -> Unserialisable:
    place = place_of(("result", *path))
    return Unserialisable(
        f"the tool's result cannot be written as JSON: {place} {what}."
        " Return text, numbers, lists, dicts, dataclasses or pydantic models."
    )
