"""Schemas of answers as APIs take them that hold a model to one."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from strict_types import OPEN, STRICT, Cat, Empty, Town, Zoo, refused_by_anthropic, refused_by_openai

from toolspeak.data.messages import Message
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest, OutputSchema
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES
from toolspeak.wire.strict_schema import anthropic_form, is_closed, openai_form


def encoded_tool(wire: Any, schema: dict[str, Any]) -> dict[str, Any]:
    request = ModelRequest([Message.user("Hi")], output=OutputSchema("x", schema))
    body = wire.encode_request(request, model="m", stream=True)
    match wire.name:
        case "openai-chat":
            return body["response_format"]["json_schema"]
        case "openai-responses":
            return body["text"]["format"]
        case _:
            return body["output_config"]["format"]


@pytest.mark.parametrize("wire", [OPENAI_CHAT, OPENAI_RESPONSES], ids=lambda wire: wire.name)
@pytest.mark.parametrize("type_", STRICT)
def test_openai_is_sent_what_it_takes(wire: Any, type_: Any):
    schema = type_.model_json_schema()
    before = copy.deepcopy(schema)
    definition = encoded_tool(wire, schema)
    assert definition["strict"] is True
    assert refused_by_openai(definition["schema"]) == []
    assert schema == before
    assert encoded_tool(wire, definition["schema"]) == definition  # and what it takes stays as it is


@pytest.mark.parametrize("wire", [OPENAI_CHAT, OPENAI_RESPONSES], ids=lambda wire: wire.name)
@pytest.mark.parametrize("type_", OPEN)
def test_what_openai_cannot_hold_a_model_to_is_only_asked_for(wire: Any, type_: Any):
    schema = type_.model_json_schema()
    definition = encoded_tool(wire, schema)
    assert (definition["strict"], definition["schema"]) == (False, schema)


@pytest.mark.parametrize("type_", STRICT)
def test_anthropic_is_sent_what_it_takes(type_: Any):
    schema = encoded_tool(ANTHROPIC, type_.model_json_schema())["schema"]
    assert refused_by_anthropic(schema) == []
    assert anthropic_form(schema) == schema


def test_what_is_refused_of_a_constraint_is_told_in_words():
    town = openai_form(OutputSchema("x", Town.model_json_schema())).schema["$defs"]["Town"]
    assert town["properties"]["name"] == {
        "title": "Name",
        "type": "string",
        "description": 'As on the sign. (minLength: 1, pattern: "^(?=\\\\w)")',
    }
    assert town["properties"]["people"] == {"title": "People", "type": "integer", "minimum": 0, "maximum": 10**8}
    assert town["required"] == ["name", "people", "twin", "tags"]
    town = anthropic_form(Town.model_json_schema())["$defs"]["Town"]
    assert town["properties"]["people"]["description"] == "(minimum: 0, maximum: 100000000)"
    assert town["required"] == ["name", "people"]
    lives = anthropic_form(Cat.model_json_schema())["properties"]["lives"]
    assert lives == {"title": "Lives", "type": "integer", "description": "(default: 9)"}


def test_options_told_apart_by_a_field_and_a_reference_with_a_description():
    zoo = openai_form(OutputSchema("x", Zoo.model_json_schema())).schema["properties"]
    assert [each["$ref"] for each in zoo["animals"]["items"]["anyOf"]] == ["#/$defs/Cat", "#/$defs/Dog"]
    assert zoo["town"]["anyOf"] == [{"$ref": "#/$defs/Town"}]
    assert zoo["town"]["description"] == "Where it is."


@pytest.mark.parametrize("wire", [OPENAI_CHAT, OPENAI_RESPONSES], ids=lambda wire: wire.name)
def test_a_schema_that_is_not_to_be_held_to_stays_as_it_is(wire: Any):
    schema = Zoo.model_json_schema()
    request = ModelRequest([Message.user("Hi")], output=OutputSchema("x", schema, strict=False))
    assert json.dumps(schema) in json.dumps(wire.encode_request(request, model="m", stream=True))


@pytest.mark.parametrize("type_", [*STRICT, *OPEN], ids=lambda type_: type_.__name__)
def test_what_is_said_to_be_closed_is_taken(type_: Any):
    schema = type_.model_json_schema()
    if is_closed(schema):
        assert refused_by_anthropic(anthropic_form(schema)) == []
    assert is_closed(schema) == (type_ in (Cat, Empty))  # a Town may hold another one, and a Zoo a Town


def test_definitions_that_are_named_again_and_again_are_read_once():
    last = {"type": "object", "properties": {"a": {"type": "string"}}}
    for end, is_closed_schema in ((last, True), ({"$ref": "#/$defs/3"}, False)):
        definitions: dict[str, Any] = {"60": end}
        for i in range(60):
            twice = {"a": {"$ref": f"#/$defs/{i + 1}"}, "b": {"$ref": f"#/$defs/{i + 1}"}}
            definitions[str(i)] = {"type": "object", "properties": twice}
        assert is_closed({"$ref": "#/$defs/0", "$defs": definitions}) is is_closed_schema
