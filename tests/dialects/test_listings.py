"""The tools as a prompt lists them: in words, as signatures, as JSON Schema."""

from __future__ import annotations

import json

import pytest
from dialect_strategies import TOOLS

from toolspeak.data.messages import ToolChoice
from toolspeak.data.tools import READ_ANYTHING, ToolSpec
from toolspeak.dialects import DIALECTS, list_tools
from toolspeak.tools.builtin import workspace_tools

LISTINGS = ("prose", "signatures", "json_schema")


def lean(parameters: dict, description: str = "") -> list[str]:
    spec = ToolSpec("f", description, {"type": "object", **parameters}, READ_ANYTHING)
    return list_tools([spec], "signatures").splitlines()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "x?: str"),
        ({"type": "integer", "default": 10}, "x?: int = 10"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "x?: int(1..9)"),
        ({"type": "number", "exclusiveMinimum": 0}, "x?: number(exclusiveMinimum=0)"),
        ({"type": "string", "maxLength": 5, "pattern": "^a"}, 'x?: str(..5 characters, pattern="^a")'),
        ({"type": ["string", "null"], "default": None}, "x?: str|null"),
        ({"type": "string", "nullable": True}, "x?: str|null"),
        ({"type": "string", "enum": ["a", "b"], "default": "b"}, 'x?: "a"|"b" = "b"'),
        ({"const": 5}, "x?: 5"),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1}, "x?: bool[](1.. items)"),
        ({"type": "array", "items": {"enum": [1, 2]}}, "x?: (1|2)[]"),
        ({"type": "array"}, "x?: any[]"),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {}]}, "x?: [int, any]"),
        ({"type": "object"}, "x?: object"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "x?: {[key]: int}"),
        (
            {"properties": {"a b": {"type": "string"}, "c": {"properties": {"d": {}}}}, "required": ["c"]},
            'x?: {"a b"?: str, c: {d?: any}}',
        ),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "integer"}]}, 'x?: str(format="date")|int'),
        (
            {"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "x?: {a?: any, b?: any} & ({a: any}|{b: any})",
        ),
        ({}, "x?: any"),
        (True, "x?: any"),
    ],
)
def test_a_type_as_a_signature_writes_it(schema, expected):
    assert lean({"properties": {"x": schema}}) == [f"f({expected})"]


def test_references_are_types_with_names_even_where_they_name_themselves():
    node = {"properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}, "description": "A tree."}
    box = {"type": "object", "properties": {"left": {"type": "number", "description": "In pixels."}}}
    parameters = {
        "properties": {"a": {"$ref": "#/$defs/Node"}, "b": {"$ref": "#/$defs/Box", "description": "Where."}},
        "required": ["a"],
        "$defs": {"Node": node, "Box": box},
    }
    assert lean(parameters, "Draw.\n\nSlowly.") == [
        "f(a: Node, b?: Box)",
        "Draw.",
        "Slowly.",
        "Node = {kids?: Node[]}",
        "- Node: A tree.",
        "Box = {left?: number}",
        "- Box.left: In pixels.",
        "- b: Where.",
    ]


def test_what_is_said_of_inner_values_is_told_with_their_path():
    inner = {"type": "object", "properties": {"k": {"description": "Deep."}}}
    lean_schema = lean({"properties": {"x": {"type": "array", "items": inner}, "y": {"additionalProperties": inner}}})
    assert lean_schema[1:] == ["- x[].k: Deep.", "- y[key].k: Deep."]


def test_every_fact_of_the_built_in_tools_is_told_in_each_listing():
    specs = workspace_tools(".").specs
    texts = {
        listing: " ".join(list_tools(specs, listing).replace('\\"', '"').replace("\\\\", "\\").split())
        for listing in LISTINGS
    }
    for spec in specs:
        facts = [spec.name, *spec.properties, *(schema.get("description", "") for schema in spec.properties.values())]
        for listing, text in texts.items():
            assert [fact for fact in facts if " ".join(fact.split()) not in text] == [], listing


def test_signatures_are_the_shortest_and_json_schema_is_the_whole():
    specs = workspace_tools(".").specs
    size = {listing: len(list_tools(specs, listing)) for listing in LISTINGS}
    assert size["signatures"] <= 0.6 * size["json_schema"]
    assert size["signatures"] < size["prose"]
    read = [json.loads(line)["function"] for line in list_tools(specs, "json_schema").splitlines()]
    assert read == [
        {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)} for spec in specs
    ]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_instructions_take_each_listing(dialect):
    for listing in LISTINGS:
        assert list_tools(TOOLS, listing) in dialect.instructions(TOOLS, ToolChoice("required"), listing)


@pytest.mark.parametrize("schema", [{"properties": []}, {"properties": {"x": 5}, "required": 5}, {"items": [5]}, {}])
def test_a_schema_that_is_none_is_listed_all_the_same(schema):
    for listing in LISTINGS:
        assert "f" in list_tools([ToolSpec("f", "", schema)], listing)


def test_no_tools():
    assert {list_tools([], listing) for listing in LISTINGS} == {"(no tools)"}
