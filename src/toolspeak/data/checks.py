"""The leaves of the codec: checked conversion of scalars, arrays and JSON values (see `codec`).

Each function takes a value and returns its stored form, or the other way round. It raises `FieldMismatch` for others.
"""

from __future__ import annotations

import base64
import json
import math
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from toolspeak.data.messages import JSON

Convert = Callable[[Any], Any]

to_text = json.JSONEncoder(ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":")).encode
"""A JSON value as one line of ASCII text."""


class FieldMismatch(Exception):
    """A value does not fit the format; the codec makes a FormatError of it.

    `place` grows from the inside out while the exception rises.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.place: list[str] = []


def identity(value: Any) -> Any:
    return value


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise FieldMismatch(f"expected text, found {kind_of(value)}")
    return value


def integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise FieldMismatch(f"expected an integer, found {kind_of(value)}")
    return value


def number(value: Any) -> float:
    if not isinstance(value, _NUMBERS) or isinstance(value, bool):
        raise FieldMismatch(f"expected a number, found {kind_of(value)}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise FieldMismatch("NaN and infinite numbers are not JSON")
    return result


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise FieldMismatch(f"expected true or false, found {kind_of(value)}")
    return value


def base64_of(value: Any) -> str:
    if not isinstance(value, bytes):
        raise FieldMismatch(f"expected bytes, found {kind_of(value)}")
    return base64.b64encode(value).decode("ascii")


def bytes_of(value: Any) -> bytes:
    try:
        return base64.b64decode(text(value), validate=True)
    except ValueError as error:
        raise FieldMismatch("expected base64 text") from error


def array(convert: Convert, accepted_types: tuple[type, ...], build: Callable[[list[Any]], Any]) -> Convert:
    """Makes the conversion of a list: each item by `convert`, then all of them by `build`."""

    def walk(value: Any) -> Any:
        if not isinstance(value, accepted_types):
            raise FieldMismatch(f"expected a list, found {kind_of(value)}")
        items: list[Any] = []
        try:
            for item in cast("Iterable[Any]", value):
                items.append(convert(item))  # noqa: PERF401 (its length is the place when an item misfits)
        except FieldMismatch as misfit:
            misfit.place.append(f"[{len(items)}]")
            raise
        return build(items)

    return walk


def json_value(value: Any) -> JSON:
    """A checked copy of a JSON value; tuples become arrays."""
    if value is None or isinstance(value, _ATOMS):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return json_object(value)
    if isinstance(value, _ARRAYS):
        return _json_array(value)
    raise FieldMismatch(f"{kind_of(value)} is not a JSON value")


def json_object(value: Any) -> dict[str, JSON]:
    """A checked copy of a mapping to JSON values."""
    return _object(json_value, value)


def text_object(value: Any) -> dict[str, str]:
    """A checked copy of a mapping of strings to strings."""
    return _object(text, value)


def plain_object(value: Any) -> dict[str, JSON]:
    """The value itself, if it is an object as `json.loads` makes it."""
    if type(value) is not dict:
        raise FieldMismatch(f"expected an object, found {kind_of(value)}")
    return cast("dict[str, JSON]", value)


def _object(convert: Convert, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise FieldMismatch(f"expected an object, found {kind_of(value)}")
    entries: dict[str, Any] = {}
    for key, item in cast("Mapping[Any, Any]", value).items():
        if not isinstance(key, str):
            raise FieldMismatch(f"the key {quote(key)} is not text")
        try:
            entries[key] = convert(item)
        except FieldMismatch as misfit:
            misfit.place.append(f"[{quote(key)}]")
            raise
    return entries


_NUMBERS = (float, int)
_ATOMS = (str, int)  # bool is an int
_ARRAYS = (list, tuple)
_json_array = array(json_value, _ARRAYS, list)

SCALARS: Mapping[Any, tuple[Convert, Convert]] = {
    str: (text, text),
    int: (integer, integer),
    float: (number, number),
    bool: (boolean, boolean),
    bytes: (base64_of, bytes_of),
}
"""The writer and the reader of each scalar type."""

_KINDS: Mapping[Any, str] = {
    types.NoneType: "null",
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def kind_of(value: Any) -> str:
    """The kind of a value, by its name in JSON if it has one."""
    cls = cast("type[Any]", type(value))
    return _KINDS.get(cls, f"a {cls.__name__}")


def quote(value: Any) -> str:
    """A short, printable form of any stored value."""
    if not isinstance(value, str | int | float | None):
        return kind_of(value)
    try:
        text = ascii(value)
    except ValueError:  # an integer of more than 4,300 digits (sys.set_int_max_str_digits)
        return "a huge integer"
    return text if len(text) <= 60 else text[:57] + "..."


def one_of(names: Iterable[str]) -> str:
    """`A or B`; `one of: A, B, …` for many names."""
    options = sorted(names)
    return " or ".join(options) if len(options) <= 4 else f"one of: {', '.join(options)}"
