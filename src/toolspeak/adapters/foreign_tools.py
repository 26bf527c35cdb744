"""What the adapters from other frameworks' tools to toolspeak tools share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import ValidationError

from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.data.values import JSON
from toolspeak.errors import ToolDefinitionError, suggest
from toolspeak.tools.argument_reader import find_flaw
from toolspeak.tools.context import RunContext
from toolspeak.tools.declaration import Declaration
from toolspeak.tools.problems import explain, problem
from toolspeak.tools.schema_checks import UnusableSchema, checks_of
from toolspeak.tools.tool import ArgumentProblem, Tool, check_name

EffectsByName: TypeAlias = Mapping[str, Effects | Callable[..., Effects]]
"""The effects of another framework's tools, by tool name: Effects, or a function of some of the tool's parameters, as
for `@tool(effects=…)`. A tool without an entry counts as one that may touch everything."""

Validate: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any] | tuple[ArgumentProblem, ...]]
"""Validates a call's arguments. Returns their values, or the problems. May raise ValidationError instead."""

Invoke: TypeAlias = Callable[[dict[str, Any], Mapping[str, Any], RunContext[Any] | None], object]
"""Calls the framework's tool with the model's arguments and with their validated values. It may be async."""


@dataclass(frozen=True, slots=True)
class _ForeignReader:
    """An `ArgumentReader` that validates as the framework does."""

    validate: Validate
    schema: Mapping[str, JSON]

    def __call__(self, arguments: Mapping[str, JSON]) -> Mapping[str, Any] | tuple[ArgumentProblem, ...]:
        flaws = tuple(flaw for item in arguments.items() if (flaw := find_flaw(*item)))
        if flaws:
            return flaws
        plain = dict(arguments)
        try:
            values = self.validate(plain)
            return values if isinstance(values, tuple) else {"arguments": plain, "values": values}
        except ValidationError as error:
            return explain(error.errors(include_url=False), plain, self.schema, {})
        except Exception as error:  # noqa: BLE001 - the author's validators may raise anything
            return (problem((), f"cannot be used: {type(error).__name__}: {error}"),)


def by_schema(schema: Mapping[str, Any], where: str) -> Validate:
    """Validates arguments with a JSON Schema alone. Raises ToolDefinitionError for a schema that cannot be used."""
    try:
        checks = checks_of(schema)
    except UnusableSchema as error:
        raise ToolDefinitionError(f"{where}: its schema cannot be used: {error}") from None
    return lambda arguments: checks.flaws(arguments) or arguments


def check_effects(effects: EffectsByName, names: Sequence[str]) -> None:
    """Raises ToolDefinitionError for effects of an unknown tool."""
    for name in effects:
        if name not in names:
            raise ToolDefinitionError(f"effects names an unknown tool: {suggest(name, names)}")


def foreign_tool(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    validate: Validate,
    invoke: Invoke,
    effects: EffectsByName,
    *,
    is_async: bool = True,
    timeout: float | None = None,
    needs_approval: bool = False,
) -> Tool:
    """Makes a toolspeak tool from another framework's tool.

    `is_async`: whether `invoke` returns an awaitable. Otherwise it runs in a thread.
    `timeout`: the time limit of one call, in seconds.
    `needs_approval`: whether every call needs approval, whatever its effects.

    Raises ToolDefinitionError for an invalid name and for effects that do not match the tool's parameters.
    """
    check_name(name)
    where = f"tool {name!r}"
    declaration = Declaration(effects.get(name), external=needs_approval)
    declaration.check(where)
    # Model APIs require `properties`, even empty ones.
    parameters: dict[str, Any] = {"type": "object", "properties": {}, **schema}
    effects_of = declaration.per_call(list(parameters["properties"]), where)

    def function(
        arguments: dict[str, Any], values: Mapping[str, Any], context: RunContext[Any] | None = None
    ) -> object:
        return invoke(arguments, values, context)

    return Tool(
        spec=ToolSpec(name, description, parameters, declaration.bound),
        function=function,
        is_async=is_async,
        read_arguments=_ForeignReader(validate, parameters),
        effects_of=lambda read: effects_of(read["values"]),
        injected_kinds={"context": "context"},
        timeout=timeout,
    )
