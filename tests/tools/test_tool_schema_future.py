"""The same with `from __future__ import annotations`, where every annotation is text."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pytest

from toolspeak.errors import ToolDefinitionError
from toolspeak.tools import RunContext, tool


@dataclass
class Point:
    x: int
    y: int = 0


def test_module_types_and_context():
    def move(ctx: RunContext[str], to: Point, back: list[Point] | None = None) -> Nowhere: ...  # noqa: F821

    new_tool = tool(move)
    assert new_tool.injected_kinds == {"ctx": "context"}
    assert new_tool.read_arguments({"to": {"x": 1}}) == {"to": Point(1), "back": None}


def test_local_types_in_the_closure_are_found():
    @dataclass
    class Local:
        n: int

    def f(a: Local) -> int:
        return Local(a.n).n

    assert tool(f).read_arguments({"a": {"n": 3}}) == {"a": Local(3)}


def test_local_types_outside_the_closure_are_refused_with_a_remedy():
    class Local: ...

    def f(a: Local) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"parameter 'a'.*define or import 'Local' at module level"):
        tool(f)


def test_wrapped_functions_and_methods():
    def log_calls(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            return function(*args, **kwargs)

        return call

    class Mover:
        @log_calls
        def move(self, to: Point) -> int:
            """Move."""
            return to.x

    new_tool = tool(Mover().move)
    assert new_tool.spec.description == "Move."
    assert new_tool(**new_tool.read_arguments({"to": {"x": 4}})) == 4
