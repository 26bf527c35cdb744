"""Names that begin with a marker's word, and arguments in any order: rendered text is accepted, and read back."""

from __future__ import annotations

import re
from typing import Any

import pytest
from dialect_strategies import spec
from grammar_checks import render_calls
from grammar_matchers import matcher
from grammar_tools import I, S
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sweeps import fewer, grid, parts
from toolspeak.data.messages import ToolCall, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, read_turn

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
each_target = pytest.mark.parametrize(
    ("dialect", "target"), grid(DIALECTS, ["lark", "gbnf"], every=2, ids=lambda value: getattr(value, "name", value))
)
"""Of the two, `make test` runs one in turn."""
REQUIRED_CHOICE = ToolChoice("required")
POINT = {"type": "object", "properties": {"x": I, "y": I, "label": S}, "required": ["x", "y"]}
ORDERED_TOOL = ToolSpec(
    "draw",
    "",
    {
        "type": "object",
        "properties": {
            "title": S,
            "at": POINT,
            "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
            "how": {"anyOf": [S, POINT]},
            "size": I,
        },
        "required": ["title", "at"],
        "$defs": {"point": POINT},
    },
)


@st.composite
def shuffled_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of the tool, the keys of each object in any order."""

    def shuffle(arguments: dict[str, Any]) -> dict[str, Any]:
        return {name: arguments[name] for name in draw(st.permutations(list(arguments)))}

    def point() -> dict[str, Any]:
        return shuffle({"x": 1, "y": 2, **({"label": "a"} if draw(st.booleans()) else {})})

    arguments: dict[str, Any] = {"title": "t", "at": point()}
    others = {"points": [point(), point()], "how": point() if draw(st.booleans()) else "quickly", "size": 3}
    return shuffle({**arguments, **{name: each for name, each in others.items() if draw(st.booleans())}})


@each_target
def test_arguments_in_any_order_are_rendered_in_the_one_that_the_grammar_takes(dialect: Dialect, target: str):
    accepts = matcher(dialect.grammar([ORDERED_TOOL], REQUIRED_CHOICE, target=target))  # type: ignore[arg-type]

    @given(shuffled_arguments())
    @settings(
        deadline=None,
        max_examples=fewer(5),
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(arguments: dict[str, Any]):
        text = render_calls(dialect, [ToolCall("id1", "draw", arguments)], [ORDERED_TOOL])
        assert accepts(text), text
        (call,) = read_turn(dialect, text, [ORDERED_TOOL]).calls
        assert isinstance(call, ToolCall), call
        assert call.arguments == arguments

    check()


def words(dialect: Dialect) -> list[str]:
    """The words of a dialect's markers and of the markup of its calls."""
    plain = render_calls(dialect, [ToolCall("id1", "zz", {"yy": "x", "ww": 1})], [spec("zz", {"yy": S, "ww": I})])
    markers = [text for each in dialect.grammar_parts()[1] for text in (each.text, each.end or "")]  # type: ignore[attr-defined]
    matches = re.findall(r"[A-Za-z]\w+", " ".join([plain, *markers]), re.ASCII)
    return sorted({word.lower() for word in matches} - {"zz", "yy", "ww", "id1"})


def tool_of(word: str) -> ToolSpec:
    return spec(f"{word}_it", {word: S, f"{word}ing": S, f"{word}_count": I}, [word])


@each_target
@parts(3)
def test_names_that_begin_with_a_marker_s_word_are_accepted_as_they_are_rendered(
    dialect: Dialect, target: str, part: int
):
    tools = [tool_of(word) for word in words(dialect)]
    accepts = matcher(dialect.grammar(tools, REQUIRED_CHOICE, target=target))  # type: ignore[arg-type]
    for tool in tools[part::3]:
        word = tool.name.removesuffix("_it")
        for arguments in ({word: "a"}, {word: "a < b", f"{word}ing": "x </y> z", f"{word}_count": 7}):
            text = render_calls(dialect, [ToolCall("id1", tool.name, arguments)], tools)
            assert accepts(text), text
            (call,) = read_turn(dialect, text, tools).calls
            assert isinstance(call, ToolCall), call
            assert (call.name, call.arguments) == (tool.name, arguments)
