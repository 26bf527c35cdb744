"""The options of a tool that `@tool` did not make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict, TypeVar

from toolspeak.data.tools import Effects

ValueT = TypeVar("ValueT")

OfArguments: TypeAlias = (
    Callable[[], ValueT]
    | Callable[[Any], ValueT]
    | Callable[[Any, Any], ValueT]
    | Callable[[Any, Any, Any], ValueT]
    | Callable[[Any, Any, Any, Any], ValueT]
    | Callable[[Any, Any, Any, Any, Any], ValueT]
    | Callable[[Any, Any, Any, Any, Any, Any], ValueT]
)
"""A function of some of a tool's parameters, by their names. Each number of parameters is a type of its own, so that
strict type checkers know those of a lambda."""


class ToolOptions(TypedDict, total=False):
    """The options of a tool besides its name and description: the effects of its calls, and how they run. Each has the
    same meaning as in `@tool`."""

    effects: Effects | OfArguments[Effects] | None
    effects_bound: Effects | None
    read_only: bool
    external: bool
    idempotent: bool
    destructive: bool
    polls: bool
    timeout: float | OfArguments[float | None] | None
    max_concurrent: int | None
    preview: OfArguments[str] | None
    verify: OfArguments[Any] | None
    command_line: str
