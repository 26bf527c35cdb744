"""The JSON Schema of a function's parameters."""

import json
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from toolspeak.errors import ToolDefinitionError
from toolspeak.tools import tool


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(BaseModel):
    """How large."""

    title: str
    width: int = Field(1, title="The width", gt=0)


class Options(TypedDict, total=False):
    deep: bool


@dataclass
class Node:
    name: str
    children: "list[Node]"


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def properties(function, **options) -> dict[str, Any]:
    return dict(tool(function, **options).spec.properties)


def test_the_whole_schema_of_a_plain_function():
    def read(path: str, start: int = 1, *, lines: int | None = None) -> str:
        """Read a file.

        As text.

        Args:
            path: Where it is,
                below the root.
            lines (int): How many.
            bogus: Nothing.
        """
        return path

    new_tool = tool(read)
    assert new_tool.spec.description == "Read a file.\n\nAs text."
    assert new_tool.spec.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where it is,\nbelow the root."},
            "start": {"type": "integer", "default": 1},
            "lines": {
                "anyOf": [{"type": "integer"}, {"type": "null"}],
                "default": None,
                "description": "How many.",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }


def test_no_parameters():
    assert tool(lambda: 1, name="f").spec.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def rest(x: int, y: int) -> None:
    """Add.

    :param x: the first
    :param y: the second
    """


def numpy(x: int, y: int) -> None:
    """Add.

    Parameters
    ----------
    x, y : int
        both
    """


def epydoc(x: int, y: int) -> None:
    """Add.

    @param x: one
    @param y: two
    """


@pytest.mark.parametrize(
    ("function", "descriptions"), [(rest, ["the first", "the second"]), (numpy, ["both"] * 2), (epydoc, ["one", "two"])]
)
def test_docstring_styles(function, descriptions):
    assert tool(function).spec.description == "Add."
    assert [schema["description"] for schema in properties(function).values()] == descriptions


def test_the_description_of_a_field_wins_over_the_docstring():
    def f(a: Annotated[int, Field(description="from the field", ge=1)], b: Colour) -> None:
        """F.

        Args:
            a: from the docstring
            b: which colour
        """

    schemas = properties(f)
    assert schemas["a"] == {"type": "integer", "description": "from the field", "minimum": 1}
    assert schemas["b"] == {"type": "string", "enum": ["red", "blue"], "description": "which colour"}


def test_titles_are_dropped_and_properties_called_title_stay():
    def f(size: Size, title: dict[str, str] = {"title": "x"}) -> None: ...  # noqa: B006

    schemas = properties(f)
    assert schemas["size"] == {
        "type": "object",
        "description": "How large.",
        "properties": {"title": {"type": "string"}, "width": {"type": "integer", "default": 1, "exclusiveMinimum": 0}},
        "required": ["title"],
    }
    assert schemas["title"]["default"] == {"title": "x"}


def test_recursive_types_stay_in_defs():
    def f(tree: Node) -> None: ...

    parameters = tool(f).spec.parameters
    assert parameters["properties"]["tree"] == {"$ref": "#/$defs/Node"}
    assert parameters["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_a_large_type_used_twice_stays_in_defs_and_once_is_inlined():
    class Large(BaseModel):
        text: str = Field("", description="x" * 300)

    def twice(a: Large, b: list[Large]) -> None: ...
    def once(b: list[Large]) -> None: ...

    assert tool(twice).spec.parameters["properties"]["b"]["items"] == {"$ref": "#/$defs/Large"}
    assert "$defs" not in tool(once).spec.parameters


def test_discriminated_unions_carry_no_openapi():
    def f(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...

    text = json.dumps(tool(f).spec.parameters)
    assert "discriminator" not in text
    assert "oneOf" in text
    assert "$ref" not in text


def test_default_none_allows_null():
    def f(a: int = None, b: Annotated[int, Field(gt=0, description="B")] = None, c: Any = None) -> None: ...  # noqa: RUF013

    schemas = properties(f)
    assert schemas["a"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert schemas["b"]["description"] == "B"
    assert tool(f).read_arguments({"a": None, "b": None}) == {"a": None, "b": None, "c": None}


def test_defaults_in_fields_and_defaults_json_cannot_hold():
    def f(
        a: Annotated[int, Field(default=3)],
        b: int = Field(4, description="B"),
        c: list[int] = Field(default_factory=list),  # noqa: B008
        d: float = float("inf"),
        e: Any = object,
        day: date = date(2026, 1, 31),
    ) -> None: ...

    new_tool = tool(f)
    schemas = new_tool.spec.properties
    assert schemas["a"]["default"] == 3
    assert schemas["b"] == {"type": "integer", "default": 4, "description": "B"}
    assert "default" not in schemas["d"]
    assert schemas["day"]["default"] == "2026-01-31"
    assert "required" not in new_tool.spec.parameters
    json.dumps(new_tool.spec.parameters, allow_nan=False)
    values = new_tool.read_arguments({})
    assert values == {"a": 3, "b": 4, "c": [], "d": float("inf"), "e": object, "day": date(2026, 1, 31)}


def test_names_a_pydantic_field_may_not_have():
    def f(_x: int, copy: int, json: int, model_config: int, p0: int, schema: int = 5) -> None: ...

    arguments = {"_x": 1, "copy": 2, "json": 3, "model_config": 4, "p0": 6}
    assert list(properties(f)) == ["_x", "copy", "json", "model_config", "p0", "schema"]
    assert tool(f).read_arguments(arguments) == {**arguments, "schema": 5}


class Opaque: ...


def takes_opaque(a: int, thing: Opaque) -> None: ...
def callback(then: type) -> None: ...
def pattern(text: Annotated[str, Field(pattern="(")]) -> None: ...
def alias(text: Annotated[str, Field(alias="t")]) -> None: ...
def missing(a: "Nowhere") -> None: ...  # noqa: F821
def takes_nowhere(a: "list[Nowhere]") -> None: ...  # noqa: F821
def wrong(a: "1 +") -> None: ...  # noqa: F722


@pytest.mark.parametrize(
    ("function", "phrases"),
    [
        (takes_opaque, ["'thing'", "Opaque", "Use a type that JSON can hold"]),
        (callback, ["'then'"]),
        (pattern, ["'text'"]),
        (alias, ["'text'", "aliases"]),
        (missing, ["'a'", "'Nowhere'", "module level"]),
        (takes_nowhere, ["'a'", "'Nowhere'", "module level"]),
        (wrong, ["'a'", "not a type"]),
    ],
)
def test_types_without_a_schema_are_refused(function, phrases):
    with pytest.raises(ToolDefinitionError) as raised_error:
        tool(function)
    for words in phrases:
        assert words in str(raised_error.value)
