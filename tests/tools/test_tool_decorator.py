"""`@tool`: what it makes of a function, what effects it declares, what it refuses."""

import asyncio
import sys
from functools import partial
from pathlib import Path

import pytest

from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import READ_ANYTHING, UNDECLARED_EFFECTS
from toolspeak.errors import ToolDefinitionError, ToolError
from toolspeak.tools import Effects, RunContext, Tool, tool


@tool
def greet(name: str, times: int = 1) -> str:
    """Greet somebody."""
    return f"hello {name} " * times


def test_an_annotation_that_does_not_exist_is_refused_by_name():
    # Before Python 3.14 the function itself cannot be made; from then on nobody has looked at the annotation yet.
    late = sys.version_info >= (3, 14)
    pattern = r"parameter 'b'.*define or import 'Missing' at module level" if late else "Missing"
    with pytest.raises(ToolDefinitionError if late else NameError, match=pattern):

        @tool
        def f(a: int, b: list[Missing]) -> Absent: ...  # noqa: F821


def test_bare_decorator_keeps_the_function_callable():
    assert isinstance(greet, Tool)
    assert (greet.name, greet.spec.description, greet.is_async) == ("greet", "Greet somebody.", False)
    assert greet("x", times=2) == "hello x hello x "
    assert greet.spec.effects == UNDECLARED_EFFECTS
    assert greet.effects_of({"name": "x", "times": 1}) == UNDECLARED_EFFECTS


def test_empty_parentheses_and_direct_call_are_the_same():
    def f(a: int) -> int:
        return a

    assert tool()(f).spec == tool(f).spec
    assert tool(f, name="g").name == "g"


def test_options_replace_name_and_description():
    @tool(name="fs/read-1.x:y", description="Other.", timeout=2.5)
    async def f(a: int) -> int:
        """Own."""
        return a

    assert (f.name, f.spec.description, f.timeout, f.is_async) == ("fs/read-1.x:y", "Other.", 2.5, True)
    assert asyncio.run(f(a=3)) == 3


def test_fixed_effects():
    new_tool = tool(lambda: 1, name="f", effects=Effects(writes="file:a"), external=True, destructive=False)
    assert new_tool.spec.effects == Effects(writes="file:a", external=True, destructive=False)
    assert new_tool.effects_of({}) == new_tool.spec.effects


def test_read_only_reads_anything():
    assert tool(greet.function, read_only=True).spec.effects == READ_ANYTHING
    external = tool(greet.function, read_only=True, external=True).spec.effects
    assert external.external
    assert external.read_only


def test_flags_alone_declare_no_resources():
    effects = tool(greet.function, external=True, idempotent=True).spec.effects
    assert (effects.external, effects.idempotent, effects.declared, effects.writes) == (True, True, False, {"*"})


def copy(source: str, target: str, force: bool = False) -> None: ...


def test_effects_function_gets_the_arguments_it_names():
    new_tool = tool(copy, effects=lambda target, source: Effects(reads={source}, writes={target}), idempotent=True)
    arguments = new_tool.read_arguments({"source": "a", "target": "b"})
    assert new_tool.effects_of(arguments) == Effects(reads={"a"}, writes={"b"}, idempotent=True)
    assert new_tool.spec.effects == Effects(reads="*", writes="*", idempotent=True)


def test_effects_function_may_name_no_parameter():
    assert tool(copy, effects=lambda: Effects(writes="x")).effects_of({}) == Effects(writes="x")


def explode(source: str) -> Effects:
    raise ZeroDivisionError(source)


def test_failing_effects_count_as_undeclared():
    arguments = {"source": "a", "target": "b", "force": False}
    assert tool(copy, effects=explode).effects_of(arguments) == UNDECLARED_EFFECTS
    assert tool(copy, effects=explode, external=True).effects_of(arguments).external


@pytest.mark.parametrize("effects", [lambda source: None, lambda source: source, lambda source: {source}])
def test_effects_that_are_none_are_refused(effects):
    with pytest.raises(ToolDefinitionError, match=r"tool 'copy': effects returned a .*Effects"):
        tool(copy, effects=effects).effects_of({"source": "a", "target": "b", "force": False})


def test_effects_beyond_the_bound_count_as_undeclared():
    bound = Effects(reads="file:", writes="file:out")
    new_tool = tool(copy, effects=lambda source, target: Effects(reads={source}, writes={target}), effects_bound=bound)
    assert new_tool.spec.effects == bound
    inside = {"source": "file:a", "target": "file:out/b"}
    assert new_tool.effects_of(inside) == Effects(reads="file:a", writes="file:out/b")
    assert new_tool.effects_of({"source": "file:a", "target": "file:b"}) == UNDECLARED_EFFECTS
    assert new_tool.effects_of({"source": "net:a", "target": "file:out"}) == UNDECLARED_EFFECTS


def test_read_only_binds_an_effects_function():
    new_tool = tool(copy, effects=lambda target: Effects(writes={target}), read_only=True)
    assert new_tool.spec.effects == READ_ANYTHING
    assert new_tool.effects_of({"target": "b"}) == UNDECLARED_EFFECTS


def test_preview_gets_named_arguments_and_raises_only_what_the_call_would():
    arguments = {"source": "a", "target": "b", "force": False}
    preview = tool(copy, preview=lambda target: f"+ {target}").preview
    assert preview(arguments) == "+ b"
    failing = tool(copy, preview=lambda source: Path(source, "missing").read_text()).preview
    assert failing(arguments).startswith("(no preview: FileNotFoundError: ")

    def refusing(source: str) -> str:
        raise ToolError(f"{source} is missing")

    would_fail = tool(copy, preview=refusing).preview
    with pytest.raises(ToolError, match="a is missing"):
        would_fail(arguments)


def test_a_preview_may_ask_for_the_context():
    def would(target: str, ctx: "RunContext[int] | None" = None) -> str:
        return f"{target} {ctx and ctx.deps}"

    preview = tool(copy, preview=would).preview
    arguments = {"source": "a", "target": "b", "force": False}
    assert preview(arguments) == "b None"
    assert preview(arguments, RunContext(5, ToolCall("1", "copy", {}))) == "b 5"
    assert tool(copy, preview=lambda source: source).preview(arguments, RunContext(5, ToolCall("1", "copy", {}))) == "a"


def test_context_parameter_is_found_wherever_it_stands():
    def first(ctx: RunContext[int], a: int) -> int:
        return ctx.deps + a

    def last(a: int, *, ctx: "RunContext | None" = None) -> None: ...

    new_tool = tool(first)
    assert new_tool.injected_kinds == {"ctx": "context"}
    assert list(new_tool.spec.properties) == ["a"]
    assert new_tool(RunContext(2, ToolCall("1", "first", {})), a=3) == 5
    assert tool(last).injected_kinds == {"ctx": "context"}
    problems = new_tool.read_arguments({"a": 1, "ctx": 2})
    assert [problem.message for problem in problems] == ["ctx: unknown argument; known: a"]


class Store:
    def __init__(self) -> None:
        self.entries: list[str] = []

    def add(self, item: str) -> int:
        """Add an item."""
        self.entries.append(item)
        return len(self.entries)

    async def __call__(self, item: str) -> None:
        """Call it."""


def test_bound_methods_partials_and_callable_objects():
    store = Store()
    method = tool(store.add)
    assert (method.name, list(method.spec.properties), method.spec.description) == ("add", ["item"], "Add an item.")
    assert method(item="x") == 1
    bound = tool(partial(copy, "a", force=True))
    assert (bound.name, list(bound.spec.properties)) == ("copy", ["target"])
    store_tool = tool(store)
    assert (store_tool.name, store_tool.is_async, store_tool.spec.description) == ("Store", True, "Call it.")


def positional(a: int, /) -> None: ...
def many(*paths: str) -> None: ...
def keywords(**options: str) -> None: ...
def bare(a, b: int = 1) -> None: ...
def two(a: RunContext, b: RunContext) -> None: ...
def generates(a: int):
    yield a


async def async_effects(source: str) -> Effects:
    return Effects()


REFUSALS = [
    (positional, {}, ["'a'", "remove the '/'"]),
    (many, {}, ["'*paths: str'", "list"]),
    (keywords, {}, ["'**options: str'", "dict"]),
    (bare, {}, ["parameter 'a' has no annotation", "'a: str'"]),
    (Store.add, {}, ["'self'", "bound method"]),
    (two, {}, ["['a', 'b']", "keep one"]),
    (generates, {}, ["generator"]),
    (Store, {}, ["class"]),
    (len, {}, ["'obj' is positional-only"]),
    (lambda: None, {}, ["'<lambda>'", "@tool(name=…)"]),
    (copy, {"name": "two words"}, ["'two words'", "letters"]),
    (copy, {"name": "a\n"}, ["'a\\n'"]),
    (copy, {"name": "x" * 129}, ["128"]),
    (copy, {"timeout": 0}, ["timeout=0"]),
    (copy, {"aliases": {"from": "sorce"}}, ["'sorce'", "source, target, force"]),
    (copy, {"aliases": {"target": "source"}}, ["'target'", "remove it"]),
    (copy, {"effects": lambda path: Effects()}, ["'path'", "source, target, force"]),
    (copy, {"effects": lambda *paths: Effects()}, ["'*paths'"]),
    (copy, {"effects": async_effects}, ["async"]),
    (copy, {"effects": "file:a"}, ["Effects(…)"]),
    (copy, {"preview": lambda path: ""}, ["preview", "'path'"]),
    (copy, {"preview": "text"}, ["preview", "signature cannot be read"]),
    (copy, {"read_only": True, "effects": Effects(writes="file:a")}, ["read_only", "file:a"]),
    (copy, {"read_only": True, "effects": lambda: Effects(), "effects_bound": Effects(writes="x")}, ["effects_bound"]),
    (copy, {"effects_bound": Effects()}, ["effects_bound"]),
    (copy, {"effects": Effects(writes="a"), "effects_bound": Effects(writes="b")}, ["beyond effects_bound"]),
    (greet, {}, ["tool already"]),
    ("name", {}, ["by name"]),
]


@pytest.mark.parametrize(("function", "options", "phrases"), REFUSALS)
def test_refusals_name_the_parameter_and_the_remedy(function, options, phrases):
    with pytest.raises(ToolDefinitionError) as raised_error:
        tool(function, **options)
    for words in phrases:
        assert words in str(raised_error.value)
