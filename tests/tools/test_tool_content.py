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
from toolspeak.tools.returned_values import Unserialisable, jsonable, to_content


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Model(BaseModel):
    inner: Any = Field(None, alias="in")


class CrashingModel(BaseModel):
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
    parts, structured_content = to_content(value)
    assert parts == (JsonPart(expected),)
    assert structured_content == expected
    assert json.dumps(structured_content) == json.dumps(expected)


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
    members: list[Any] = [1]
    members.append({"again": members})
    return members


def deep() -> list[Any]:
    nest: list[Any] = []
    for _ in range(1000):
        nest = [nest]
    return nest


def numbers() -> Iterator[int]:
    while True:
        yield 1


REFUSALS = [
    (object(), ["result is of type object"]),
    ({"items": [1, {"a b": object()}]}, ['result.items[1]["a b"] is of type object']),
    ([float("nan")], ["result[0] is nan"]),
    (Point(float("inf")), ["result.x is inf"]),
    (Model(**{"in": [float("nan")]}), ["result.in[0] is nan"]),
    (Model(**{"in": object()}), ["result is of type Model", "object"]),
    (CrashingModel(), ["result is of type CrashingModel", "no n"]),
    (circle(), ["result[1].again is a list that contains itself"]),
    (deep(), ["128 levels"]),
    ({"n": 10**4300}, ["result.n is an integer of more than 4300 digits"]),
    ({1: "a", "1": "b"}, ['two keys that JSON writes as "1"']),
    ({(1, 2): "a"}, ["result has a key of type tuple"]),
    (numbers(), ["result is of type generator; return a list"]),
    (len, ["builtin_function_or_method"]),
    (int, ["result is of type type"]),
]


@pytest.mark.parametrize(("value", "phrases"), REFUSALS)
def test_what_must_be_json_is_refused_with_type_and_place(value, phrases):
    with pytest.raises(Unserialisable) as raised_error:
        jsonable(value)
    assert isinstance(raised_error.value, ToolError)
    for words in phrases:
        assert words in str(raised_error.value)


@pytest.mark.parametrize(("value", "phrases"), REFUSALS)
def test_what_json_cannot_hold_is_shown_as_text_with_type_and_place(value, phrases):
    parts, structured_content = to_content(value)
    note = parts[-1].text
    assert "The call ran." in note
    for words in phrases:
        assert words in note
    assert " at 0x" not in json.dumps(structured_content)


class Scalar:
    """As NumPy's scalars are: no number of Python's, with `item` and `tolist`."""

    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value

    tolist = item


class Array(Scalar):
    """As NumPy's arrays are: `item` is for a single element alone."""

    def item(self):
        raise ValueError("can only convert an array of size 1 to a Python scalar")

    def tolist(self):
        return self.value


class Tensor:
    """Some have `item` alone."""

    def item(self):
        return 1.5


PLAIN_OF_THEIR_OWN = [
    (Scalar(3), 3),
    (Tensor(), 1.5),
    (Array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    ({"n": Scalar(1), "rows": [Array([True])]}, {"n": 1, "rows": [[True]]}),
    (Model(**{"in": Scalar(3)}), {"in": 3}),
    (Point(Array([Scalar(1)])), {"x": [1], "y": None}),
    ({Scalar(1): 2}, {"1": 2}),
]


@pytest.mark.parametrize(("value", "expected"), PLAIN_OF_THEIR_OWN)
def test_scalars_and_arrays_are_what_they_make_of_themselves(value, expected):
    assert to_content(value) == ((JsonPart(expected),), expected)
    assert jsonable(value) == expected


def test_text_stands_where_json_cannot_hold_a_value():
    class Table:
        def __str__(self):
            return "a\n1"

    (part, note), structured_content = to_content({"table": Table(), "share": float("nan"), "rows": 2})
    assert part.value == structured_content == {"table": "a\n1", "share": "nan", "rows": 2}
    assert "result.table is of type Table; result.share is nan" in note.text
    (part,), structured_content = to_content(Table())
    assert structured_content == "a\n1"
    assert part.text.startswith("a\n1\n[The call ran.")
    (part, note), _ = to_content([float("inf")] * 100)
    assert part.value == ["inf"] * 100
    assert "and 97 more" in note.text
    (part, _), _ = to_content({1: "a", "1": "b"})
    assert part.value == {"1": "a", "1 (2)": "b"}
    (part,), _ = to_content(10**5000)
    assert part.text.startswith(hex(10**5000))


def test_the_same_value_twice_is_no_cycle():
    numbers = [1]
    assert to_content({"a": numbers, "b": numbers})[1] == {"a": [1], "b": [1]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_json_stays_as_it_is(value):
    (part,), structured_content = to_content(value)
    assert isinstance(part, JsonPart)
    assert part.value == structured_content == value
