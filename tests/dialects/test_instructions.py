"""The instructions for the model: every tool, every parameter, and examples that work."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

import pytest
from dialect_strategies import BLOCK, TOOLS, spec
from pydantic import BaseModel

from toolspeak.data.messages import ToolCall, ToolChoice
from toolspeak.dialects import PROTOCOLS, Dialect, get_dialect, read_turn
from toolspeak.tools import Tool, tool
from toolspeak.tools.builtin import workspace_tools

each_dialect = pytest.mark.parametrize("dialect", PROTOCOLS, ids=lambda dialect: dialect.name)


class Point(BaseModel):
    x: int
    label: str
    parent: Point | None = None


class Colour(Enum):
    RED = "red"


def _tools() -> list[Tool]:
    @tool
    def place(point: Point, points: list[Point], colour: Colour, size: float) -> None: ...

    @tool
    def count(first: int | None, ratio: float, on: bool, names: list[str], table: dict[str, int]) -> None: ...

    @tool(name="a.b-c/d")
    def odd(text: str | int, maybe: str | None, colour: Colour = Colour.RED) -> None: ...

    @tool(read_only=True)
    def nothing() -> None: ...

    return [place, count, odd, nothing]


def examples(dialect: Dialect, instructions: str) -> list[ToolCall]:
    """The calls of the worked example: the first block that stands on lines of its own."""
    name = BLOCK[dialect.name]
    matched_section = re.search(rf"^<{name}>\n.*?^</{name}>$", instructions, re.DOTALL | re.MULTILINE)
    assert matched_section
    return [call for call in read_turn(dialect, matched_section[0]).calls if isinstance(call, ToolCall)]


@each_dialect
@pytest.mark.parametrize("which", range(4))
def test_the_worked_example_is_a_call_that_the_tool_accepts(dialect: Dialect, which: int):
    tool = _tools()[which]
    text = dialect.instructions([tool.spec])
    (call,) = read_example(dialect, text, [tool])
    assert call.name == tool.name
    assert not isinstance(tool.read_arguments(call.arguments), tuple), tool.read_arguments(call.arguments)


def read_example(dialect: Dialect, text: str, tools: list[Tool]) -> list[ToolCall]:
    name = BLOCK[dialect.name]
    matched_section = re.search(rf"^<{name}>\n.*?^</{name}>$", text, re.DOTALL | re.MULTILINE)
    assert matched_section
    turn = read_turn(dialect, matched_section[0], [each.spec for each in tools])
    assert not turn.notes
    assert all(isinstance(call, ToolCall) and not call.notes for call in turn.calls), turn.calls
    return [call for call in turn.calls if isinstance(call, ToolCall)]


@each_dialect
def test_the_worked_example_of_the_built_in_tools(dialect: Dialect, tmp_path: Path):
    tools = list(workspace_tools(tmp_path))
    by_name = {each.name: each for each in tools}
    calls = read_example(dialect, dialect.instructions([each.spec for each in tools]), tools)
    assert len(calls) == (1 if dialect.batch.max_calls == 1 else 2)
    for call in calls:
        assert not isinstance(by_name[call.name].read_arguments(call.arguments), tuple)
        assert by_name[call.name].spec.effects.read_only


@pytest.mark.parametrize("name", ["cogency-json", "cogency-xml"])
def test_a_batch_of_one_and_a_batch_of_several_are_shown(name: str, tmp_path: Path):
    dialect, tools = get_dialect(name), list(workspace_tools(tmp_path))
    blocks = re.findall(
        r"^<execute>\n.*?^</execute>$", dialect.instructions([each.spec for each in tools]), re.DOTALL | re.MULTILINE
    )
    turns = [read_turn(dialect, block, [each.spec for each in tools]) for block in blocks]
    assert sorted(len(turn.calls) for turn in turns) == [1, 2]
    assert all(isinstance(call, ToolCall) for turn in turns for call in turn.calls)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 5},
        {"type": "integer", "maximum": -5},
        {"type": "integer", "exclusiveMinimum": 5},
        {"type": "integer", "exclusiveMaximum": 0},
    ],
)
def test_an_example_keeps_to_bounds(schema):
    (call,) = examples(PROTOCOLS[0], PROTOCOLS[0].instructions([spec("t", {"n": schema})]))
    number = call.arguments["n"]
    assert schema.get("minimum", -99) <= number <= schema.get("maximum", 99)
    assert schema.get("exclusiveMinimum", -99) < number < schema.get("exclusiveMaximum", 99)


def test_an_example_keeps_to_lengths():
    properties = {
        "s": {"type": "string", "minLength": 9},
        "a": {"type": "array", "items": {"type": "integer"}, "minItems": 2},
    }
    (call,) = examples(PROTOCOLS[0], PROTOCOLS[0].instructions([spec("t", properties)]))
    assert call.arguments == {"s": "textxxxxx", "a": [1, 1]}


@each_dialect
def test_every_tool_and_every_parameter_is_listed(dialect: Dialect):
    specs = [*TOOLS, *(each.spec for each in _tools())]
    text = dialect.instructions(specs)
    listing = text[text.index("## The tools you have") :]
    for each in specs:
        _, _, section = listing.partition(f"### {each.name}(")
        section = section.partition("\n### ")[0]
        assert each.description in section
        for name in each.properties:
            line = next(line for line in section.splitlines() if line.startswith(f"- {name}: "))
            assert ("required" in line) == (name in each.parameters.get("required", ()))


@each_dialect
def test_parameters_are_described_with_type_default_and_description(dialect: Dialect):
    properties = {
        "n": {"type": "integer", "default": 3, "description": "How many."},
        "mode": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"type": "object", "properties": {"x": {"type": "number"}}},
        "any": {},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }
    text = dialect.instructions([spec("t", properties, ["mode"])])
    assert "### t(n?, mode, tags?, at?, any?, maybe?)" in text
    assert "- n: integer, optional, default 3. How many." in text
    assert '- mode: one of "a", "b", required' in text
    assert "- tags: array of string, optional" in text
    assert "- at: object, optional\n  - x: number, optional" in text
    assert "- any: any JSON value, optional" in text
    assert "- maybe: string or null, optional" in text


@each_dialect
@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (ToolChoice("none"), "Do not call tools in this turn"),
        (ToolChoice("required"), "You must call at least one tool"),
        (ToolChoice("specific", "read"), "You must call the tool 'read'"),
    ],
)
def test_a_tool_choice_is_one_sentence(dialect: Dialect, choice: ToolChoice, sentence: str):
    assert sentence in dialect.instructions(TOOLS, choice)
    assert sentence not in dialect.instructions(TOOLS)


@each_dialect
def test_instructions_do_not_depend_on_anything_but_their_arguments(dialect: Dialect):
    assert dialect.instructions(TOOLS) == dialect.instructions(list(TOOLS), ToolChoice("auto"))


@each_dialect
def test_without_tools_there_are_still_instructions(dialect: Dialect):
    assert "(no tools)" in dialect.instructions([])
