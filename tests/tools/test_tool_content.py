"""`to_content`: what a tool returned, as parts and as JSON."""

import json
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum, IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_serializer

from toolspeak.data.messages import FilePart, ImagePart, JsonPart, TextPart
from toolspeak.errors import ToolError
from toolspeak.tools.content import Unserialisable, to_content


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Model(BaseModel):
    inner: Any = Field(None, alias="in")


class Broken(BaseModel):
    n: int = 1

    @field_serializer("n")
    def write(self, n: int) -> int:
        raise ZeroDivisionError("no n")


@dataclass
class Point:
    x: Any
    y: Any = None


class Pair(NamedTuple):
    a: int
    b: str


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "changed"


AS_JSON = [
    (None, None),
    (True, True),
    (0, 0),
    (1.5, 1.5),
    ([], []),
    ({"a": [1, None]}, {"a": [1, None]}),
    (Pair(1, "b"), [1, "b"]),
    (Point(Point(1), {2}), {"x": {"x": 1, "y": None}, "y": [2]}),
    (Model(**{"in": date(2026, 1, 31)}), {"in": "2026-01-31"}),
    (Colour.RED, "red"),
    ({Level.LOW: Colour.RED}, {"1": "red"}),
    ({1: 1, None: 2, False: 3, 1.5: 4}, {"1": 1, "null": 2, "false": 3, "1.5": 4}),
    ({date(2026, 1, 31): Path("a/b")}, {"2026-01-31": "a/b"}),
    ({"b", "a", "c"}, ["a", "b", "c"]),
    (deque([1]), [1]),
    (range(2), [0, 1]),
    (OrderedDict(a=1), {"a": 1}),
    (MappingProxyType({"a": (1,)}), {"a": [1]}),
    ({"data": b"\xff"}, {"data": "/w=="}),
    ({"\ud800": "\udfff"}, {"\ud800": "\udfff"}),
    ([Text("a")], ["a"]),
]


@pytest.mark.parametrize(("value", "expected"), AS_JSON)
def test_values_become_one_json_part(value, expected):
    parts, structured = to_content(value)
    assert parts == (JsonPart(expected),)
    assert structured == expected
    assert json.dumps(structured) == json.dumps(expected)


IMAGES = [
    (b"\x89PNG\r\n\x1a\n rest", "image/png"),
    (b"\xff\xd8\xff\xe0", "image/jpeg"),
    (b"GIF89a", "image/gif"),
    (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
]


@pytest.mark.parametrize(("data", "media_type"), IMAGES)
def test_bytes_with_a_signature_are_images(data, media_type):
    assert to_content(data) == ((ImagePart(media_type, data),), None)
    assert to_content(bytearray(data)) == ((ImagePart(media_type, data),), None)


def test_text_and_other_bytes():
    assert to_content("a\ud800") == ((TextPart("a\ud800"),), None)
    assert to_content("") == ((TextPart(""),), None)
    assert to_content(b"RIFF\0\0\0\0WAVE")[0] == (FilePart("data", "application/octet-stream", b"RIFF\0\0\0\0WAVE"),)
    assert to_content(b"") == ((FilePart("data", "application/octet-stream", b""),), None)


def test_parts_pass_through():
    image = ImagePart("image/png", url="https://example.org/x.png")
    assert to_content(image) == ((image,), None)
    assert to_content([TextPart("a"), image]) == ((TextPart("a"), image), None)
    assert to_content(("a", image, {"n": 1})) == ((TextPart("a"), image, JsonPart({"n": 1})), None)
    assert to_content(JsonPart({"when": date(2026, 1, 31)})) == ((JsonPart({"when": "2026-01-31"}),), None)


def circle() -> list[Any]:
    found: list[Any] = [1]
    found.append({"again": found})
    return found


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(1000):
        found = [found]
    return found


def numbers() -> Iterator[int]:
    while True:
        yield 1


REFUSED = [
    (object(), ["result is of type object"]),
    ({"items": [1, {"a b": object()}]}, ['result.items[1]["a b"] is of type object']),
    ([float("nan")], ["result[0] is nan"]),
    (Point(float("inf")), ["result.x is inf"]),
    (Model(**{"in": [float("nan")]}), ["result.in[0] is nan"]),
    (Model(**{"in": object()}), ["result is of type Model", "object"]),
    (Broken(), ["result is of type Broken", "no n"]),
    (circle(), ["result[1].again is a list that contains itself"]),
    (deep(), ["128 levels"]),
    ({"n": 10**4300}, ["result.n is an integer of more than 4300 digits"]),
    ({1: "a", "1": "b"}, ['two keys that JSON writes as "1"']),
    ({(1, 2): "a"}, ["result has a key of type tuple"]),
    (numbers(), ["result is of type generator; return a list"]),
    (len, ["builtin_function_or_method"]),
    (int, ["result is of type type"]),
]


@pytest.mark.parametrize(("value", "said"), REFUSED)
def test_refused_with_type_and_place(value, said):
    with pytest.raises(Unserialisable) as caught:
        to_content(value)
    assert isinstance(caught.value, ToolError)
    for words in said:
        assert words in str(caught.value)


def test_the_same_value_twice_is_no_cycle():
    shared = [1]
    assert to_content({"a": shared, "b": shared})[1] == {"a": [1], "b": [1]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_json_stays_as_it_is(value):
    (part,), structured = to_content(value)
    assert isinstance(part, JsonPart)
    assert part.value == structured == value
