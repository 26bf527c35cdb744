"""Tools of a JSON Schema, of OpenAI's dictionaries, of a pydantic model and of callable objects."""

import datetime
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from toolspeak import Agent, Effects, RunContext, Tool, tool
from toolspeak.errors import ToolDefinitionError
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn

WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def results_of(new_tool: Tool, *calls: dict[str, Any], deps: Any = None) -> list[str]:
    """What the model reads after these calls."""
    turn = ScriptedTurn("", calls=[ScriptedCall(new_tool.name, arguments) for arguments in calls])
    result = Agent(ScriptedProvider([turn, "Done."]), [new_tool], approve="all").run_sync("Go.", deps=deps)
    return [execution.result.text for execution in result.steps[0].executions]


def test_a_function_of_a_schema_gets_its_arguments_by_name():
    async def look(word, ctx: RunContext[str]):
        return f"{ctx.deps} {word}"

    new_tool = Tool.from_schema(look, name="look-up", description="Looks.", parameters=WORD, read_only=True)
    assert (new_tool.name, new_tool.spec.description, new_tool.deps) == ("look-up", "Looks.", "str")
    assert new_tool.spec.parameters == WORD
    assert new_tool.spec.effects.read_only
    assert results_of(new_tool, {"word": "pear"}, deps="the") == ["the pear"]


def test_arguments_are_checked_by_the_schema():
    schema = {**WORD, "properties": {**WORD["properties"], "size": {"enum": ["s", "l"]}}}
    new_tool = Tool.from_schema(lambda word, size="s": word + size, name="f", parameters=schema)
    wrong, unknown_text, right = results_of(
        new_tool, {"word": 3, "size": "m"}, {"word": "a", "sise": "l"}, {"word": "a"}
    )
    assert 'word: 3 is not of type "string"' in wrong
    assert "size: " in wrong
    assert "sise: unknown argument; known: word, size" in unknown_text
    assert right == "as"


def test_a_default_of_the_schema_is_filled_in():
    calls: list[Any] = []
    schema = {"properties": {"tags": {"default": []}, "word": {"default": "pear"}}}
    new_tool = Tool.from_schema(lambda tags, word: calls.append((tags, word)), name="f", parameters=schema)
    results_of(new_tool, {}, {"tags": ["a"]})
    assert calls == [([], "pear"), (["a"], "pear")]
    assert calls[0][0] is not schema["properties"]["tags"]["default"]


def test_any_arguments_pass_to_a_function_that_takes_any():
    new_tool = Tool.from_schema(lambda **rest: str(rest), name="f", parameters={"type": "object"})
    assert results_of(new_tool, {"class": 1, "self": 2}) == ["{'class': 1, 'self': 2}"]


def test_effects_of_a_schema_tool_are_a_function_of_its_properties():
    new_tool = Tool.from_schema(
        lambda **rest: None, name="f", parameters=WORD, effects=lambda word: Effects(writes={f"word:{word}"})
    )
    assert new_tool.effects_of({"word": "pear"}) == Effects(writes={"word:pear"})
    with pytest.raises(ToolDefinitionError, match="'words' does not belong to the tool; its parameters: word"):
        Tool.from_schema(lambda **rest: None, name="f", parameters=WORD, effects=lambda words: Effects())


@pytest.mark.parametrize(
    ("function", "schema", "message"),
    [
        (lambda: 0, WORD, "the function no such parameter; add it, or take"),
        (lambda word, other: 0, WORD, "the function needs 'other', and the schema's properties are: word"),
        (lambda word: 0, {"properties": {"word": {}}}, "does not require 'word', and the function's parameter has no"),
        (lambda *words: 0, WORD, "takes any number of arguments"),
        (lambda word: 0, {"type": "string"}, "parameters must be the schema of an object"),
        (lambda word: 0, "word", 'parameters must be a JSON Schema as a dict, not "word"'),
        (lambda word: 0, {"properties": {"word": {"default": {1}}}}, "its schema is not JSON"),
        (lambda word: 0, {**WORD, "properties": {"word": {"type": "text"}}}, "its schema cannot be used"),
        (
            lambda word: 0,
            {**WORD, "properties": {"word": {"$ref": "http://127.0.0.1:1/x"}}},
            "refers to http://127.0.0.1:1/x, which toolspeak does not fetch",
        ),
    ],
)
def test_a_schema_that_does_not_go_with_the_function_is_refused(function: Any, schema: Any, message: str):
    with pytest.raises(ToolDefinitionError, match=f"tool 'f'.*{message}"):
        Tool.from_schema(function, name="f", parameters=schema)


def test_a_property_must_not_have_the_name_of_an_injected_parameter():
    def look(word: RunContext) -> None: ...

    with pytest.raises(ToolDefinitionError, match="parameter of that name gets the run's context; rename"):
        Tool.from_schema(look, parameters=WORD)


def test_a_schema_that_combines_others_is_taken_as_it_is():
    schema = {"oneOf": [WORD, {"properties": {"number": {"type": "integer"}}, "required": ["number"]}]}
    new_tool = Tool.from_schema(lambda word=None, number=None: word or number, name="f", parameters=schema)
    assert results_of(new_tool, {"word": "a"}, {"number": 3}) == ["a", "3"]


def test_unknown_options_and_what_is_no_function_are_refused():
    with pytest.raises(ToolDefinitionError, match=r"there is no option 'readonly'\. Did you mean 'read_only'"):
        Tool.from_schema(lambda word: 0, name="f", parameters=WORD, readonly=True)
    with pytest.raises(ToolDefinitionError, match=r"is a tool already; give Tool\.from_schema the function"):
        Tool.from_schema(tool(lambda: 0, name="f"), parameters=WORD)
    with pytest.raises(ToolDefinitionError, match=r"Tool\.from_openai\(function, definition\)"):
        Agent(ScriptedProvider([]), [{"type": "function", "function": {"name": "f", "parameters": WORD}}])


@pytest.mark.parametrize("flat", [False, True])
def test_a_definition_of_openai(flat: bool):
    fields = {"name": "look", "description": "Looks.", "parameters": WORD, "strict": True}
    definition = {"type": "function", **fields} if flat else {"type": "function", "function": fields}
    new_tool = Tool.from_openai(lambda word: word, definition, read_only=True)
    assert (new_tool.name, new_tool.spec.description, new_tool.spec.parameters) == ("look", "Looks.", WORD)
    assert results_of(new_tool, {"word": "pear"}) == ["pear"]


def test_a_definition_without_parameters_has_none():
    new_tool = Tool.from_openai(lambda: "now", {"type": "function", "function": {"name": "clock"}})
    assert new_tool.spec.parameters == {"type": "object", "properties": {}}
    assert results_of(new_tool, {}) == ["now"]


@pytest.mark.parametrize(
    "definition", ["f", {"type": "custom", "name": "f"}, {"type": "function", "function": 3}, {"type": "function"}]
)
def test_a_definition_that_is_none_is_refused(definition: Any):
    with pytest.raises(ToolDefinitionError, match=r"Tool\.from_openai"):
        Tool.from_openai(lambda: 0, definition)


class Booking(BaseModel):
    """Books a table."""

    day: datetime.date
    guests: int = Field(2, ge=1, description="How many.")


def test_a_function_of_a_model_gets_the_instance():
    bookings: list[Booking] = []

    def book(booking: Booking, ctx: RunContext) -> str:
        bookings.append(booking)
        return ctx.call.name

    new_tool = Tool.from_model(book, effects=lambda booking: Effects(writes={f"day:{booking.day}"}))
    assert (new_tool.name, new_tool.spec.description) == ("book", "Books a table.")
    assert new_tool.spec.parameters == {
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date"},
            "guests": {"type": "integer", "default": 2, "minimum": 1, "description": "How many."},
        },
        "required": ["day"],
        "additionalProperties": False,
    }
    texts = results_of(new_tool, {"day": "2026-05-01"}, {"day": "2026-05-01", "guests": 0}, {"day": "May", "gests": 1})
    assert texts[0] == "book"
    assert bookings == [Booking(day=datetime.date(2026, 5, 1))]
    assert "guests: " in texts[1]
    assert "gests: unknown argument; known: day, guests" in texts[2]
    assert "day: expected a date" in texts[2]
    assert new_tool.effects_of({"booking": bookings[0]}) == Effects(writes={"day:2026-05-01"})


def test_a_model_may_forbid_or_allow_what_it_does_not_know():
    class StrictForm(BaseModel):
        model_config = ConfigDict(extra="forbid")
        a: int = 1

    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    def fill_form(value: StrictForm) -> str:
        return str(value)

    def open_model(value: Open) -> str:
        return str(value.model_extra)

    (text,) = results_of(Tool.from_model(fill_form), {"b": 2})
    assert text.count("unknown argument") == 1
    assert results_of(Tool.from_model(open_model), {"b": 2}) == ["{'b': 2}"]


def test_a_function_that_takes_no_model_alone_is_refused():
    def two(booking: Booking, other: int) -> None: ...

    def plain(booking: int) -> None: ...

    class Numbers(RootModel[list[int]]): ...

    def of_list(numbers: Numbers) -> None: ...

    for function in (two, plain):
        with pytest.raises(ToolDefinitionError, match="needs a function with one argument"):
            Tool.from_model(function)
    with pytest.raises(ToolDefinitionError, match="Numbers is not a JSON object"):
        Tool.from_model(of_list)


def test_an_object_that_can_be_called_is_a_tool():
    class Adder:
        """Adds a number that it knows."""

        def __init__(self, number: int) -> None:
            self.number = number

        async def __call__(self, other: int) -> int:
            return self.number + other

    @dataclass
    class Bare:
        number: int

        def __call__(self, other: int) -> int:
            return other

    new_tool = tool(Adder(3), read_only=True)
    assert (new_tool.name, new_tool.spec.description, new_tool.is_async) == (
        "Adder",
        "Adds a number that it knows.",
        True,
    )
    assert results_of(new_tool, {"other": 4}) == ["7"]
    assert tool(Bare(3)).spec.description == ""


def test_the_error_names_the_extra_that_is_missing(tmp_path: Path):
    (tmp_path / "jsonschema_rs.py").write_text("raise ModuleNotFoundError('none', name='jsonschema_rs')")
    code = "from toolspeak import Tool\nTool.from_schema(print, parameters={})"
    path = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True, check=False)
    assert "ConfigurationError: tools of a JSON Schema need: pip install 'toolspeak[schemas]'" in result.stderr
