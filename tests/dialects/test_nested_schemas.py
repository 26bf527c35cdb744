"""Nested schemas in the listings: nothing is lost, and no schema makes a prompt explode."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from sweeps import fewer, grid
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, list_tools
from toolspeak.dialects.prompts.references import resolve_references
from toolspeak.tools import tool

LISTINGS = ("prose", "signatures", "json_schema")


class Corner(BaseModel):
    """Where two edges meet."""

    column: int = Field(ge=-7, le=901, description="Pixels from the left.")
    label: str = Field("none", pattern=r"^[a-z]{2}$", max_length=31)


class Shape(BaseModel):
    corners: list[Corner] = Field(min_length=3, description="In order.")
    changed_at: str = Field(json_schema_extra={"format": "date-time"})
    parts: list[Shape] = []


@tool
def draw(shape: Shape, at: Corner | None = None) -> None:
    """Draws a shape."""


def lines(parameters: dict[str, Any], listing: Any = "prose") -> list[str]:
    return list_tools([ToolSpec("f", "", parameters)], listing).splitlines()


def test_a_nested_model_is_told_with_all_that_its_fields_say():
    assert list_tools([draw.spec], "prose").splitlines() == [
        "### draw(shape, at?)",
        "Draws a shape.",
        "- shape: Shape, required",
        "- at: object or null, optional. Where two edges meet.",
        "  - column: integer, required, -7 to 901. Pixels from the left.",
        '  - label: string, optional, at most 31 characters, default "none", matching ^[a-z]{2}$',
        "Shape: object",
        "- corners: array, required, at least 3 items. In order.",
        "  - each item: object. Where two edges meet.",
        "    - column: integer, required, -7 to 901. Pixels from the left.",
        '    - label: string, optional, at most 31 characters, default "none", matching ^[a-z]{2}$',
        "- changed_at: string, required, format date-time",
        "- parts: array of Shape, optional, default []",
    ]


def test_only_a_type_that_holds_itself_keeps_its_name_in_json_schema():
    (line,) = list_tools([draw.spec], "json_schema").splitlines()
    parameters = json.loads(line)["function"]["parameters"]
    assert list(parameters["$defs"]) == ["Shape"]
    assert parameters["properties"]["shape"] == {"$ref": "#/$defs/Shape"}
    assert parameters["$defs"]["Shape"]["properties"]["parts"]["items"] == {"$ref": "#/$defs/Shape"}
    corner = parameters["properties"]["at"]["anyOf"][0]
    assert corner["properties"]["column"]["description"] == "Pixels from the left."


WORDS: list[tuple[Any, list[str]]] = [
    ({"anyOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]},
     ["- x: one of these, optional", "  - either: object", "    - a: any JSON value, optional", "  - or: object",
      "    - b: any JSON value, optional"]),
    ({"anyOf": [{"type": "string", "maxLength": 1}, {"type": "integer"}]},
     ["- x: string (at most 1 character) or integer, optional"]),
    ({"type": "object", "properties": {"a": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
     ["- x: object and object (with a) or object (with b), optional", "  - a: any JSON value, optional"]),
    ({"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
     ["- x: object, optional", "  - any key: integer, at least 0"]),
    ({"type": "object", "patternProperties": {"^a": {"type": "string", "description": "An A."}}},
     ["- x: object, optional", "  - keys that match ^a: string. An A."]),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"const": 5}], "maxItems": 2, "minItems": 2},
     ["- x: array, optional, 2 items", "  - item 1: string", "  - item 2: always 5"]),
    ({"type": "array", "items": {"type": ["string", "null"]}, "uniqueItems": True},
     ["- x: array of (string or null), optional, no item twice"]),
    ({"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5, "description": "One.\nTwo."},
     ["- x: number, optional, more than 0, a multiple of 0.5. One.", "  Two."]),
    ({"allOf": [{"type": "string"}, {"minLength": 3}]}, ["- x: string, optional, at least 3 characters"]),
    ({"type": "string", "contentEncoding": "base64", "nullable": True},
     ['- x: string or null, optional, contentEncoding "base64"']),
    ({"$ref": "#/$defs/Gone"}, ["- x: any JSON value (#/$defs/Gone), optional"]),
    ({"type": "array", "items": {"$ref": "#"}},
     ["- x: array of Arguments, optional", "Arguments: all arguments of this tool, as above"]),
    (True, ["- x: any JSON value, optional"]),
    (False, ["- x: nothing, optional"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "words"), WORDS)
def test_a_value_in_words(schema: Any, words: list[str]):
    assert lines({"type": "object", "properties": {"x": schema}}) == ["### f(x?)", *words]


@pytest.mark.parametrize("listing", LISTINGS)
def test_what_the_arguments_have_in_common_is_told(listing: str):
    branch = {"type": "object", "properties": {"inner": {"type": "integer", "description": "Deep."}}}
    shapes: tuple[Any, ...] = (
        {"$ref": "#/$defs/A", "$defs": {"A": branch}},
        {"type": "object", "allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": branch}},
        {"type": "object", "properties": {"o": {}}, "anyOf": [branch, {"required": ["o"]}]},
    )
    for parameters in shapes:
        facts_told = "\n".join(lines(parameters, listing))
        assert "inner" in facts_told
        assert "Deep." in facts_told


# --- everything that a schema says -----------------------------------------------------------------------------

_WORDS = (f"w{n}x" for n in itertools.count())
"""Words that occur nowhere else."""


@st.composite
def leaves(draw: st.DrawFn) -> tuple[dict[str, Any], set[str]]:
    kind = draw(st.sampled_from(["string", "number", "enum", "const", "map"]))
    first, second, third = next(_WORDS), next(_WORDS), next(_WORDS)
    low = draw(st.integers(10_000, 99_999))
    match kind:
        case "string":
            schema = {"type": "string", "minLength": low, "pattern": f"^{first}$", "format": second}
            return {**schema, "description": third}, {first, second, third, str(low)}
        case "number":
            schema = {"type": "number", "minimum": low, "exclusiveMaximum": 7 * low, "multipleOf": 3 * low}
            return {**schema, "description": third}, {str(low), str(3 * low), str(7 * low), third}
        case "enum":
            return {"enum": [first, second, low]}, {first, second, str(low)}
        case "const":
            return {"const": first, "description": second}, {first, second}
        case _:
            inner = {"type": "string", "description": first, "maxLength": low}
            return {"type": "object", "additionalProperties": inner, "minProperties": 3 * low}, {
                first,
                str(low),
                str(3 * low),
            }


def _nest(inner: st.SearchStrategy[tuple[dict[str, Any], set[str]]]) -> st.SearchStrategy[Any]:
    @st.composite
    def schema_and_facts(draw: st.DrawFn) -> tuple[dict[str, Any], set[str]]:
        kind = draw(st.sampled_from(["object", "array", "anyOf", "oneOf", "allOf", "optional", "tuple"]))
        parts = draw(st.lists(inner, min_size=1, max_size=3))
        schemas, facts_told = [schema for schema, _ in parts], set[str]().union(*(facts for _, facts in parts))
        word = next(_WORDS)
        match kind:
            case "object":
                properties = {next(_WORDS): schema for schema in schemas}
                whole = {"type": "object", "properties": properties, "required": list(properties)[:1]}
                facts_told |= set(properties)
            case "array":
                whole, facts_told = {"type": "array", "items": schemas[0], "minItems": 2}, set(parts[0][1])
            case "tuple":
                whole = {"type": "array", "prefixItems": schemas}
            case "optional":
                whole, facts_told = {"anyOf": [schemas[0], {"type": "null"}]}, set(parts[0][1])
            case _:
                whole = {kind: schemas}
        return {**whole, "description": word}, facts_told | {word}

    return schema_and_facts()


@st.composite
def parameters(draw: st.DrawFn) -> tuple[dict[str, Any], set[str]]:
    """A tool's parameters, some of whose schemas are definitions, and what a listing has to tell of them."""
    parts = draw(st.lists(st.recursive(leaves(), _nest, max_leaves=8), min_size=1, max_size=4))
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    facts_told: set[str] = set()
    for schema, facts in parts:
        name = next(_WORDS)
        facts_told |= {name, *facts}
        match draw(st.sampled_from(["inline", "reference", "described", "shared", "recursive"])):
            case "inline":
                properties[name] = schema
            case "reference":
                definitions[f"T{name}"] = schema
                properties[name] = {"$ref": f"#/$defs/T{name}"}
            case "described":
                definitions[f"T{name}"] = {key: value for key, value in schema.items() if key != "description"}
                properties[name] = {"$ref": f"#/$defs/T{name}", "description": schema.get("description", "Fine.")}
            case "shared":
                definitions[f"T{name}"] = schema
                either = {
                    "anyOf": [{"$ref": f"#/$defs/T{name}"}, {"type": "array", "items": {"$ref": f"#/$defs/T{name}"}}]
                }
                properties |= {name: either, f"{name}2": {"$ref": f"#/$defs/T{name}"}}
            case _:
                definitions[f"T{name}"] = {
                    "type": "object",
                    "properties": {
                        f"{name}in": schema,
                        f"{name}kids": {"type": "array", "items": {"$ref": f"#/$defs/T{name}"}},
                    },
                }
                properties[name] = {"$ref": f"#/$defs/T{name}"}
                facts_told |= {f"{name}in", f"{name}kids"}
    return {"type": "object", "properties": properties, "$defs": definitions}, facts_told


@settings(max_examples=fewer(40))
@given(parameters())
def test_each_listing_tells_all_that_a_nested_schema_says(schema_and_facts: tuple[dict[str, Any], set[str]]):
    schema, facts = schema_and_facts
    for listing in LISTINGS:
        facts_told = "\n".join(lines(schema, listing))
        assert [fact for fact in sorted(facts) if fact not in facts_told] == [], listing
        assert len(facts_told) <= 60 * len(json.dumps(schema)) + 2000


@settings(max_examples=fewer(40))
@given(parameters())
def test_resolved_is_the_same_twice_and_names_only_types_that_hold_themselves(
    schema_and_facts: tuple[dict[str, Any], set[str]],
):
    schema, _ = schema_and_facts
    once = resolve_references(schema)
    assert json.dumps(resolve_references(once)) == json.dumps(once)
    for name, definition in once.get("$defs", {}).items():
        assert f'"#/$defs/{name}"' in json.dumps(definition)


# --- hostile schemas -----------------------------------------------------------------------------------------


def chain_of(count: int, *, twice: bool) -> dict[str, Any]:
    """Definitions that name the next one, some of them twice."""
    definitions: dict[str, Any] = {}
    for n in range(count):
        following = {"$ref": f"#/$defs/D{n + 1}"}
        definitions[f"D{n}"] = {"type": "object", "properties": {"a": following, **({"b": following} if twice else {})}}
    definitions[f"D{count}"] = {"type": "string", "description": "The end."}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/D0"}}, "$defs": definitions}


def deep(count: int, key: str) -> dict[str, Any]:
    schema: Any = {"type": "string", "description": "The end."}
    for n in range(count):
        match key:
            case "properties":
                schema = {"type": "object", "properties": {f"p{n}": schema}}
            case "anyOf":
                schema = {"anyOf": [schema, {"type": "null"}]}
            case _:
                schema = {"type": "array", "items": schema}
    return {"type": "object", "properties": {"x": schema}}


ITSELF = {"$ref": "#/$defs/A"}
UNIONS = {f"U{n}": {"anyOf": [{"$ref": f"#/$defs/U{n + 1}"}] * 2} for n in range(60)}
HOSTILE: dict[str, dict[str, Any]] = {
    "names itself in a choice": {"properties": {"x": ITSELF}, "$defs": {"A": {"anyOf": [ITSELF, ITSELF, {}]}}},
    "is itself": {"properties": {"x": ITSELF}, "$defs": {"A": ITSELF}},
    "is itself altogether": {"$ref": "#"},
    "two that are each other": {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": ITSELF}},
    "names grow twofold": chain_of(60, twice=True),
    "a long chain": chain_of(3000, twice=False),
    "unions grow twofold": {"properties": {"x": {"$ref": "#/$defs/U0"}}, "$defs": {**UNIONS, "U60": {"type": "null"}}},
    "100 objects deep": deep(100, "properties"),
    "100 choices deep": deep(100, "anyOf"),
    "5,000 arrays deep": deep(5000, "items"),
    "a default 5,000 deep": {"properties": {"x": {"default": deep(5000, "items")}}},
    "leads nowhere": {"properties": {"x": {"$ref": "#/$defs/Gone"}, "y": {"$ref": "https://a.b#d"}, "z": {"$ref": 5}}},
    "leads to a list": {"properties": {"x": {"$ref": "#/required"}, "y": {"$ref": "#/required/0"}}, "required": ["x"]},
    "booleans": {"properties": {"x": True, "y": False, "z": {"items": True, "additionalProperties": True}}},
    "a huge enum": {"properties": {"x": {"enum": [f"value {n}" for n in range(5000)]}}},
    "kinds of a kind": {"properties": {"x": {"type": 5, "enum": 7, "anyOf": {"a": 1}, "items": "y", "required": 3}}},
    "bounds that are none": {"properties": {"x": {"minLength": "z", "minimum": [], "pattern": 5, "examples": 1}}},
}  # fmt: skip


@pytest.mark.parametrize("listing", LISTINGS)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_listed_in_bounded_space_and_time(name: str, listing: Any):
    schema = HOSTILE[name]
    began = time.process_time()
    facts_told = list_tools([ToolSpec("f", "Says.", schema)], listing)
    assert time.process_time() - began < 5
    assert "Says." in facts_told
    try:
        size = len(json.dumps(schema))
    except RecursionError:
        size = 0
    assert len(facts_told) <= 60 * size + 20_000
    if name in ("names grow twofold", "a long chain", "100 objects deep", "100 choices deep"):
        assert "The end." in facts_told


@pytest.mark.parametrize(
    ("dialect", "part"), grid(DIALECTS, range(3), every=3, ids=lambda value: getattr(value, "name", str(value)))
)
def test_no_hostile_schema_makes_instructions_raise(dialect: Any, part: int):
    tools = [ToolSpec(f"f{n}", "", schema) for n, schema in enumerate([*HOSTILE.values()][part::3])]
    began = time.process_time()
    assert "f3" in dialect.instructions(tools)
    assert time.process_time() - began < 20
