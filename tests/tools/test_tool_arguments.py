"""`read_arguments`: strict as JSON is, every mistake a problem in words, never an exception."""

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, field_validator
from typing_extensions import TypedDict

from toolspeak.tools import tool
from toolspeak.tools.tool import ArgumentProblem


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Item(BaseModel):
    name: str
    count: int = 1


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("must be even.")
        return n


class Entry(TypedDict):
    key: str
    value: NotRequired[int]


@dataclass
class Node:
    name: str
    children: "list[Node]"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


def explode(value: int) -> int:
    return 1 // value


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
Exploding = Annotated[int, AfterValidator(explode)]


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def unprintable(value: int) -> int:
    raise UnprintableError


def read(path: str, start: int = 1, lines: int | None = None) -> None: ...


def messages(annotation: Any, value: Any) -> list[str]:
    def f(v) -> None: ...

    f.__annotations__["v"] = annotation
    problems = tool(f).read_arguments({"v": value})
    assert isinstance(problems, tuple), problems
    assert all(isinstance(problem, ArgumentProblem) for problem in problems)
    return [problem.message for problem in problems]


def value_of(annotation: Any, value: Any) -> Any:
    def f(v) -> None: ...

    f.__annotations__["v"] = annotation
    arguments = tool(f).read_arguments({"v": value})
    assert not isinstance(arguments, tuple), arguments
    return arguments["v"]


GOOD_VALUES = [
    (float, 1, 1.0),
    (dt.date, "2026-01-01", dt.date(2026, 1, 1)),
    (dt.datetime, "2026-01-01T10:00:00Z", dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)),
    (dt.timedelta, "PT1H", dt.timedelta(hours=1)),
    (Colour, "red", Colour.RED),
    (Level, 2, Level.HIGH),
    (tuple[int, str], [1, "a"], (1, "a")),
    (set[int], [1, 2], {1, 2}),
    (Path, "a/b", Path("a/b")),
    (bytes, "ab", b"ab"),
    (Decimal, "1.50", Decimal("1.50")),
    (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
    (Entry, {"key": "a"}, {"key": "a"}),
    (int | str, "1", "1"),
    (Pet, {"kind": "cat", "lives": 9}, Cat(kind="cat", lives=9)),
    (dict[str, list[Item]], {"a": [{"name": "x"}]}, {"a": [Item(name="x")]}),
    (Any, {"a": [1, None]}, {"a": [1, None]}),
    (int, 10**4299, 10**4299),
    (str, "\0</results>", "\0</results>"),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), GOOD_VALUES)
def test_accepted(annotation, value, expected):
    actual = value_of(annotation, value)
    assert actual == expected
    assert type(actual) is type(expected)


WHICH = "v: the field 'kind' is required: it says which kind of object this is"

REFUSALS = [
    (int, "1", 'v: expected an integer, got "1" (string)'),
    (int, True, "v: expected an integer, got true (boolean)"),
    (int, 1.0, "v: expected an integer, got 1.0 (number)"),
    (int, None, "v: expected an integer, got null"),
    (float, "1", 'v: expected a number, got "1" (string)'),
    (float, True, "v: expected a number, got true (boolean)"),
    (str, 1, "v: expected a string, got 1 (integer)"),
    (bool, 1, "v: expected true or false, got 1 (integer)"),
    (bool, "true", 'v: expected true or false, got "true" (string)'),
    (list[int], "[1]", 'v: expected an array, got "[1]" (string)'),
    (dict[str, int], [1], "v: expected an object, got [1] (array)"),
    (Item, "x", 'v: expected an object, got "x" (string)'),
    (Node, "x", 'v: expected an object, got "x" (string)'),
    (dt.date, "soon", 'v: expected a date such as "2026-01-31", got "soon" (string)'),
    (Colour, "green", 'v: expected one of "red", "blue", got "green" (string)'),
    (Level, 3, "v: expected one of 1, 2, got 3 (integer)"),
    (Literal["a", 1], "b", 'v: expected one of "a", 1, got "b" (string)'),
    (Literal["a"], "b", 'v: expected "a", got "b" (string)'),
    (Colour | None, "green", 'v: expected one of "red", "blue", got "green" (string)'),
    (int | list[int], "x", 'v: expected an integer or an array, got "x" (string)'),
    (Annotated[int, Field(gt=0)], -1, "v: should be greater than 0, got -1 (integer)"),
    (Annotated[int, Field(gt=0)] | str, -1, "v: should be greater than 0, got -1 (integer)"),
    (list[Item], [{"name": "a"}, {}], "v[1].name: required (string)"),
    (list[Item], [{"name": "a"}, {"name": 2}], "v[1].name: expected a string, got 2 (integer)"),
    (Item | str, {"count": 1}, "v.name: required (string)"),
    (tuple[int, str], [1], "v[1]: required (string)"),
    (Entry, {"key": "a", "vlue": 1}, "v.vlue: unknown field; known: key, value. Did you mean value?"),
    (Node, {"name": "a", "children": [{"name": "b"}]}, "v.children[0].children: required (array)"),
    (dict[str, int], {"a b": "x"}, 'v["a b"]: expected an integer, got "x" (string)'),
    (dict[int, str], {"x": "y"}, 'v.x: expected an integer, got "x" (string)'),
    (Even, {"n": 3}, "v.n: must be even, got 3 (integer)"),
    (Exploding, 0, "v: cannot be used: ZeroDivisionError: integer division or modulo by zero"),
    (Annotated[int, AfterValidator(unprintable)], 0, "the arguments cannot be read (RuntimeError)"),
    (Pet, {}, WHICH),
    (Pet, {"kind": "cow"}, "v: the field 'kind' must be one of 'cat', 'dog'"),
    (str, "a\ud800", "v: contains U+D800, half of a character; leave it out"),
    (Any, {"a": ["\udfff"]}, "v.a[0]: contains U+DFFF, half of a character; leave it out"),
    (Any, {"\ud800": 1}, 'v: the key "\\ud800" is not valid text'),
    (float, math.nan, "v: nan is not a JSON number; use a finite number"),
    (Any, [math.inf], "v[0]: inf is not a JSON number; use a finite number"),
    (Any, [10**4300], "v[0]: an integer of more than 4300 digits; use fewer"),
    (Any, {1, 2}, "v: a Python set is not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value", "message"), REFUSALS)
def test_refused(annotation, value, message):
    assert messages(annotation, value) == [message]


def test_integers_no_float_can_hold():
    (message,) = messages(float, 10**400)
    assert message.startswith("v: expected a number")


def test_deep_nesting():
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    (message,) = messages(Any, deep)
    assert message.endswith("nested more than 128 levels deep; make it flatter")
    circle: list[Any] = []
    circle.append(circle)
    assert messages(Any, circle)[0].endswith("nested more than 128 levels deep; make it flatter")
    # Taken apart by hand: freeing it recursively is what some Python versions do badly.
    while deep:
        deep = deep.pop()


def test_missing_and_unknown():
    new_tool = tool(read)
    assert [p.message for p in new_tool.read_arguments({"paht": "x", "zzz": 1})] == [
        "path: required (string)",
        "paht: unknown argument; known: path, start, lines. Did you mean path?",
        "zzz: unknown argument; known: path, start, lines",
    ]
    assert [p.path for p in new_tool.read_arguments({"paht": "x"})] == ["path", "paht"]
    nothing = tool(lambda: 1, name="f")
    assert nothing.read_arguments({"a": 1})[0].message == "a: unknown argument; the tool takes none"


def test_the_hint_knows_the_aliases():
    new_tool = tool(read, aliases={"filename": "path"})
    problems = new_tool.read_arguments({"file_name": "x"})
    assert problems[-1].message.endswith("Did you mean path?")


def test_aliases():
    new_tool = tool(read, aliases={"file": "path", "filename": "path"})
    expected = {"path": "a", "start": 1, "lines": None}
    assert new_tool.read_arguments({"file": "a"}) == expected
    assert new_tool.read_arguments({"file": "a", "path": "a"}) == expected
    assert new_tool.read_arguments({"file": "a", "filename": "a"}) == expected
    assert new_tool.spec.aliases == {"file": "path", "filename": "path"}
    assert "file" not in new_tool.spec.properties
    both = new_tool.read_arguments({"path": "a", "file": "b"})
    assert [p.message for p in both] == [
        "path: given twice, as 'path' and 'file', with different values; give 'path' only"
    ]
    more = new_tool.read_arguments({"file": "a", "filename": "b", "start": "1"})
    assert [p.path for p in more] == ["path", "start"]
    assert "'file' and 'filename'" in more[0].message


def test_values_equal_in_python_only_are_different():
    def f(n: Any) -> None: ...

    assert isinstance(tool(f, aliases={"m": "n"}).read_arguments({"n": 1, "m": True}), tuple)


def test_long_values_and_many_problems_are_shortened():
    (message,) = messages(int, "x" * 1_000_000)
    assert len(message) < 150
    assert message.endswith("… (string)")
    many = messages(list[int], ["x"] * 1000)
    assert len(many) == 21
    assert many[-1] == "… and 980 more problems"


def test_the_default_is_not_shared_between_calls():
    def f(items: list[int] = []) -> None: ...  # noqa: B006

    new_tool = tool(f)
    new_tool.read_arguments({})["items"].append(1)
    assert new_tool.read_arguments({}) == {"items": []}


leaves = st.builds(Node, st.text(), st.just([]))

TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, st.text()),
    (bool, st.booleans()),
    (bytes, st.text().map(str.encode)),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (dt.date, st.dates()),
    (dt.datetime, st.datetimes(timezones=st.just(dt.UTC))),
    (UUID, st.uuids()),
    (list[int | None], st.lists(st.none() | st.integers())),
    (tuple[int, str], st.tuples(st.integers(), st.text())),
    (set[int], st.sets(st.integers())),
    (dict[str, list[bool]], st.dictionaries(st.text(), st.lists(st.booleans()))),
    (Item, st.builds(Item, name=st.text(), count=st.integers())),
    (Node, st.recursive(leaves, lambda inner: st.builds(Node, st.text(), st.lists(inner)))),
    (Cat | Dog | None, st.builds(Dog, kind=st.just("dog"), name=st.text()) | st.none()),
]  # fmt: skip


@given(st.data())
def test_what_pydantic_writes_for_a_type_is_read_back(data):
    annotation, values = data.draw(st.sampled_from(TYPES))
    value = data.draw(values)
    json_value = TypeAdapter(annotation).dump_python(value, mode="json")
    assert value_of(annotation, json_value) == value


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=5)
    | st.sampled_from(["red", "cat", "2026-01-01"])
    | st.sampled_from([400, 4300]).map(lambda digits: 10**digits),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "kind", "n", "Cat", "int", "\ud800"]) | st.text(max_size=3), inner)
    ),
    max_leaves=6,
)


@tool(aliases={"x": "node", "y": "node", "z": "pet"})
def every(
    node: Node | None = None,
    pet: Pet | None = None,
    one_of_many: int | list[Item | str] | dict[int, float] | Cat | Dog = 0,
    entry: Entry | dt.date | None = None,
    even: list[Even] = [],  # noqa: B006
    boom: Exploding = 1,
    colour: Colour | Literal[1, True] | tuple[int, str] = Colour.RED,
    free: Any = None,
    number: float = 1.0,
    exact: Decimal = Decimal(1),
) -> None: ...


names = st.sampled_from([*every.spec.properties, "x", "y", "z", "bogus", "\ud800"]) | st.text(max_size=3)


@given(st.dictionaries(names, anything, max_size=6))
def test_no_arguments_raise(arguments):
    reading = every.read_arguments(arguments)
    if isinstance(reading, tuple):
        assert reading
        for problem in reading:
            assert problem.message.startswith(problem.path)
            assert len(problem.message) < 1000
            problem.message.encode()
    else:
        assert list(reading) == list(every.spec.properties)
