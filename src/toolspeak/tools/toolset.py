"""An ordered, frozen collection of tools."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from inspect import isawaitable
from typing import Any, Concatenate, Generic, TypeAlias, cast

from typing_extensions import TypeVar

from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.data.values import quick
from toolspeak.errors import ToolDefinitionError
from toolspeak.tools.context import RunContext
from toolspeak.tools.decorator import tool
from toolspeak.tools.tool import Tool, check_name
from toolspeak.tools.tool_catalogue import ToolCatalogue


class Toolset:
    """Tools by name, in the order given. Every change makes a new set.

    Plain functions become tools as with `@tool`. Raises ToolDefinitionError for two tools with the same name, and for
    an invalid name.
    """

    __slots__ = ("_digest", "_specs", "_tools")

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        by_name: dict[str, Tool] = {}
        if type(tools) not in (list, tuple) and _is_no_list(tools):
            raise ToolDefinitionError(f"a Toolset takes a list of functions and tools, not {tools!r}")
        for item in tools:
            if item is None:
                raise ToolDefinitionError("None is not a function; remove it from the tools")
            new_tool = cast("Tool", item) if isinstance(item, Tool) else tool(item)
            name = new_tool.spec.name
            check_name(name)
            if name in by_name:
                raise ToolDefinitionError(
                    f"two tools are named {name!r}; rename one with @tool(name=…) or Toolset.with_prefix(…)"
                )
            by_name[name] = new_tool
        self._tools = by_name
        self._specs: tuple[ToolSpec, ...] | None = None
        self._digest = ""

    def get(self, name: str) -> Tool | None:
        """The tool of this name, or None."""
        return self._tools.get(name)

    def deferred_tool(self, name: str) -> Tool | None:
        """The tool of this name that a model may call although the set does not list it (`defer`), or None."""
        return None

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The definitions that a model reads, in order."""
        if self._specs is None:
            self._specs = tuple([each.spec for each in self._tools.values()])
        return self._specs

    @property
    def digest(self) -> str:
        """`tools_digest` of the specs."""
        if not self._digest:
            self._digest = tools_digest(self.specs)
        return self._digest

    def filter(self, predicate: Callable[[Tool], bool]) -> Toolset:
        """The tools for which the predicate holds."""
        return Toolset(each for each in self if predicate(each))

    def filter_per_turn(
        self, predicate: Callable[[RunContext[DepsT], Tool], bool | Awaitable[bool]]
    ) -> ToolFilter[DepsT]:
        """The tools for which the predicate holds before each model turn, for `Agent(tools=…)`. The predicate may be
        async."""
        return ToolFilter(self, predicate)

    def defer(self, predicate: Callable[[Tool], bool] = lambda _: True) -> DeferredTools:
        """The tools for `Agent(tools=…)`, when their definitions would fill the model's window. Of those for which the
        predicate holds the model reads the names alone, by group, in the description of a tool `find_tools`. The five
        tools that fit a search best follow the others from the next turn on, for the rest of the run and the session.

        A tool that the model calls without having found it is added too. The call runs if its arguments are valid and
        it may run without approval. Any other call does not run, and the model is told to read the definition first.

        Raises ToolDefinitionError if one of the tools is named `find_tools`.
        """
        return DeferredTools(self, predicate)

    def with_prefix(self, prefix: str) -> Toolset:
        """The same tools with the prefix before each name. Raises ToolDefinitionError if a name becomes invalid."""
        return Toolset(_with_spec(each, lambda spec: replace(spec, name=prefix + spec.name)) for each in self)

    def approval_required(self, predicate: Callable[[Tool], bool] = lambda _: True) -> Toolset:
        """The same tools. Every call of a tool for which the predicate holds needs a person's approval, whatever its
        effects. Rules and policies decide first, as for any call."""

        def asking(effects: Effects) -> Effects:
            return replace(effects, approval=True)

        def with_approval(original: Tool) -> Tool:
            effects_of, asks = (
                original.effects_of,
                _with_spec(original, lambda spec: replace(spec, effects=asking(spec.effects))),
            )

            def effects(arguments: Mapping[str, Any]) -> Effects:
                return asking(effects_of(arguments))

            return replace(asks, effects_of=effects)

        return Toolset(with_approval(each) if predicate(each) else each for each in self)

    def __add__(self, other: Toolset) -> Toolset:
        """The tools of both. Raises ToolDefinitionError if they share a name."""
        return Toolset((*self, *other))

    def __contains__(self, item: object) -> bool:
        """Whether the set has a tool with this name, or this same tool."""
        if isinstance(item, Tool):
            return self._tools.get(item.name) is item
        return item in self._tools if isinstance(item, str) else False

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"Toolset({', '.join(self._tools)})"


class PartialToolset(Toolset):
    """The tools that a model reads, with those that it found at the end. It may call the `others` too, by their names.

    Raises ToolDefinitionError for two tools of one name.
    """

    __slots__ = ("_first", "_last", "_others")

    def __init__(self, first: Iterable[Tool], last: Iterable[Tool], others: Mapping[str, Tool]) -> None:
        self._first, self._last, self._others = (*first,), (*last,), others
        super().__init__((*self._first, *self._last))

    def deferred_tool(self, name: str) -> Tool | None:
        return None if name in self else self._others.get(name)

    def __add__(self, other: Toolset) -> Toolset:
        for each in other:
            if each.name in self._others:
                raise ToolDefinitionError(f"two tools are named {each.name!r}, and one of them is deferred; rename one")
        return PartialToolset((*self._first, *other), self._last, self._others)


class DeferredTools:
    """A function of the run that returns the tools of the next turn: those that are not deferred, `find_tools`, and
    those that the run, or the session before it, has found. See `Toolset.defer`."""

    def __init__(self, tools: Toolset, predicate: Callable[[Tool], bool]) -> None:
        self.tools = tools
        """All tools."""
        self._others = {each.name: each for each in tools if predicate(each)}
        first = [each for each in tools if each.name not in self._others]
        if self._others:
            first.append(ToolCatalogue([each.spec for each in self._others.values()]).tool())
        self._first = Toolset(first)
        self._last: tuple[tuple[str, ...], Toolset] | None = None

    def __call__(self, context: RunContext[Any], /) -> Toolset:
        names = () if context.state is None else context.state.found_tools
        if self._last is None or self._last[0] != names:
            last = [self._others[name] for name in names if name in self._others]
            self._last = names, PartialToolset(self._first, last, self._others)
        return self._last[1]


DepsT = TypeVar("DepsT", default=Any, contravariant=True)  # noqa: PLC0105 - users read the name

ToolLike: TypeAlias = (
    Callable[Concatenate[RunContext[DepsT], ...], Any]
    | Callable[Concatenate[Any, RunContext[DepsT], ...], Any]
    | Callable[Concatenate[Any, Any, RunContext[DepsT], ...], Any]
    | Callable[Concatenate[Any, Any, Any, RunContext[DepsT], ...], Any]
    | Tool
    | Callable[..., Any]
)
"""A Tool or a function. pyright compares a RunContext among its first four parameters with the agent's `deps_type`."""


@quick()
class ToolFilter(Generic[DepsT]):
    """A function of the run that returns those of `tools` for which `predicate` holds. See
    `Toolset.filter_per_turn`."""

    tools: Toolset
    predicate: Callable[[RunContext[DepsT], Tool], bool | Awaitable[bool]]

    async def __call__(self, context: RunContext[DepsT], /) -> Toolset:
        chosen_tools: list[Tool] = []
        for each in self.tools:
            holds = self.predicate(context, each)
            if await holds if isawaitable(holds) else holds:
                chosen_tools.append(each)
        return Toolset(chosen_tools)


ToolList: TypeAlias = Toolset | Iterable[Tool | Callable[..., Any]]
"""Functions, Tools, or a Toolset."""

TurnTools: TypeAlias = Callable[[RunContext[DepsT]], ToolList] | Callable[[RunContext[DepsT]], Awaitable[ToolList]]
"""A function of the run that returns the tools of the next model turn; it may be async."""


def _with_spec(original: Tool, change: Callable[[ToolSpec], ToolSpec]) -> Tool:
    """The tool with a changed definition. If a server changes the tool's definition, the new one is changed too."""
    live = original.live
    return replace(original, spec=change(original.spec), live=None if live is None else lambda: change(live()))


def _is_no_list(tools: object) -> bool:
    return isinstance(tools, Mapping | str) or not hasattr(tools, "__iter__")


def tools_digest(tools: Iterable[ToolSpec]) -> str:
    """SHA-256 (hex) over names, descriptions and parameters."""
    definitions = [[spec.name, spec.description, spec.parameters] for spec in tools]
    return hashlib.sha256(json.dumps(definitions, sort_keys=True, default=dict).encode()).hexdigest()
