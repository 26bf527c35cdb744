"""Tools as the functions of a program: what a model reads of them, and what a call's arguments become."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from typing_extensions import TypedDict

from toolspeak import ToolSpec, tool
from toolspeak.programs import ToolFunctions, type_returned_by
from toolspeak.tools import Toolset


class Point(TypedDict):
    x: int
    y: int


@tool(read_only=True)
def search(
    query: str, limit: int = 10, kinds: list[Literal["text", "code"]] | None = None, near: Point | None = None
) -> list[str]:
    """Find things.

    Args:
        query: What to look for.
        limit: The most.
    """
    return [query]


def functions(*tools: Any) -> ToolFunctions:
    toolset = Toolset(tools)
    return ToolFunctions(toolset.specs, {each.name: type_returned_by(each) for each in toolset})


def test_a_stub_has_the_types_of_schema_and_annotations():
    text = functions(search).stubs_for_model()
    assert 'SearchNear = TypedDict("SearchNear", {"x": int, "y": int})' in text
    assert (
        'async def search(query: str, limit: int = 10, kinds: list[Literal["text", "code"]] | None = ..., '
        "near: SearchNear | None = ...) -> list[str]:"
    ) in text
    assert '"""Find things.\n    query: What to look for.\n    limit: The most."""' in text


def test_the_stub_for_the_check_asks_for_less():
    text = functions(search).stubs_for_check()
    assert "kinds: Sequence[str] | None = ..., near: Mapping[str, Any] | None = ...) -> list[str]: ..." in text


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("list", "list_"),
        ("github.create-issue", "github_create_issue"),
        ("9lives", "_9lives"),
        ("class", "class_"),
        ("csv", "csv_"),
    ],
)
def test_a_tool_has_a_name_that_python_leaves_free(name, function):
    specs = [ToolSpec(name, "", {"type": "object", "properties": {}})]
    assert list(ToolFunctions(specs, {}).by_name) == [function]


def test_two_tools_never_share_a_name():
    empty = {"type": "object", "properties": {}}
    names = ToolFunctions([ToolSpec("a-b", "", empty), ToolSpec("a.b", "", empty)], {}).by_name
    assert {name: each.tool for name, each in names.items()} == {"a_b": "a-b", "a_b_2": "a.b"}


ODD = ToolSpec(
    "odd",
    'Has """quotes""" and a \\ in it.',
    {
        "type": "object",
        "properties": {
            "from": {"type": "string"},
            "max-size": {"type": ["integer", "null"]},
            "tree": {"$ref": "#/$defs/Tree"},
            "mode": {"enum": ["a", 1, None]},
        },
        "required": ["max-size"],
        "$defs": {"Tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}}},
        "additionalProperties": True,
    },
)


def test_odd_schemas_give_stubs_that_are_python():
    odd = ToolFunctions([ODD], {})
    for text in (odd.stubs_for_model(), odd.stubs_for_check()):
        compile(text, "stubs", "exec")
    assert "*, max_size: int | None, from_: str" in odd.stubs_for_model()


def test_arguments_get_the_names_of_the_tool():
    function = ToolFunctions([ODD], {}).by_name["odd"]
    assert function.arguments((), {"from_": "x", "max_size": None, "other": (1, 2)}) == {
        "from": "x",
        "max-size": None,
        "other": [1, 2],
    }
    assert function.arguments(("x", 3), {}) == {"from": "x", "max-size": 3}


def test_none_for_what_may_be_left_out_is_left_out():
    function = functions(search).by_name["search"]
    assert function.arguments(("q",), {"limit": None, "near": None}) == {"query": "q", "near": None}


@pytest.mark.parametrize(
    ("values", "keywords", "problem"),
    [
        ((), {}, r"search\(\) is missing the argument 'query'"),
        (("a", 1, None, None, 2), {}, r"search\(\) takes 4 arguments but 5 were given"),
        (("a",), {"query": "b"}, r"search\(\) got multiple values for argument 'query'"),
        (("a",), {"size": 1}, r"search\(\) got an unexpected argument 'size'; it takes query, limit, kinds, near"),
        ((object(),), {}, r"search\(query=…\): a object cannot be an argument"),
        ((float("nan"),), {}, r"search\(query=…\): a float cannot be an argument"),
    ],
)
def test_a_call_that_does_not_fit_raises_in_pythons_words(values, keywords, problem):
    with pytest.raises(TypeError, match=problem):
        functions(search).by_name["search"].arguments(values, keywords)


def test_a_return_type_is_one_of_json():
    def of(annotation: Any) -> str:
        def function():
            return None

        function.__annotations__["return"] = annotation
        return type_returned_by(tool(function, name="f", description="F."))

    assert of(str) == "str"
    assert of(dict[str, list[int | None]]) == "dict[str, list[int | None]]"
    assert of(tuple[int, ...]) == "list[int]"
    assert of(object) == "Any"
    assert of("Nowhere") == "Any"


@pytest.mark.parametrize("name", ["m²", "x³", "①", "ﬁle", "größe", "a b", "·", "́a", "²", "", "x\u200dy", "日本"])
def test_a_parameter_has_a_name_that_python_reads(name):
    specs = [ToolSpec("measure", "", {"type": "object", "properties": {name: {"type": "integer"}}})]
    functions = ToolFunctions(specs, {})
    (parameter,) = functions.by_name["measure"].parameters
    compile(functions.stubs_for_check(), "stubs", "exec")
    assert compile(f"measure({parameter}=1)", "call", "eval").co_consts[-1] == (parameter,)  # as Python writes it
    assert functions.by_name["measure"].arguments((), {parameter: 1}) == {name: 1}
