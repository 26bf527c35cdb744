"""`@tool`: a typed function becomes a Tool."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, cast, overload

from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.errors import ToolDefinitionError
from toolspeak.tools import typed
from toolspeak.tools.context import RunContext, injected
from toolspeak.tools.crashes import log_crash
from toolspeak.tools.declaration import Declaration, by_name
from toolspeak.tools.places import show
from toolspeak.tools.signature import default_name, injected_parameters, read_signature, signature_of
from toolspeak.tools.tool import ParametersT, Preview, ReturnedT, Tool, check_name
from toolspeak.tools.verify import Verify

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


class ToolMaker(Protocol):
    """The decorator that `@tool(…)` with options returns."""

    def __call__(self, function: Callable[ParametersT, ReturnedT], /) -> Tool[ParametersT, ReturnedT]: ...


_LOG = logging.getLogger("toolspeak.tools")


@overload
def tool(
    function: Callable[ParametersT, ReturnedT],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effects: Effects | OfArguments[Effects] | None = None,
    effects_bound: Effects | None = None,
    read_only: bool = False,
    external: bool = False,
    idempotent: bool = False,
    destructive: bool = True,
    aliases: Mapping[str, str] | None = None,
    repeatable: bool = False,
    timeout: float | OfArguments[float | None] | None = None,
    max_concurrent: int | None = None,
    preview: OfArguments[str] | None = None,
    verify: OfArguments[Any] | None = None,
    command_line: str = "",
) -> Tool[ParametersT, ReturnedT]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effects: Effects | OfArguments[Effects] | None = None,
    effects_bound: Effects | None = None,
    read_only: bool = False,
    external: bool = False,
    idempotent: bool = False,
    destructive: bool = True,
    aliases: Mapping[str, str] | None = None,
    repeatable: bool = False,
    timeout: float | OfArguments[float | None] | None = None,
    max_concurrent: int | None = None,
    preview: OfArguments[str] | None = None,
    verify: OfArguments[Any] | None = None,
    command_line: str = "",
) -> ToolMaker: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effects: Effects | OfArguments[Effects] | None = None,
    effects_bound: Effects | None = None,
    read_only: bool = False,
    external: bool = False,
    idempotent: bool = False,
    destructive: bool = True,
    aliases: Mapping[str, str] | None = None,
    repeatable: bool = False,
    timeout: float | OfArguments[float | None] | None = None,
    max_concurrent: int | None = None,
    preview: OfArguments[str] | None = None,
    verify: OfArguments[Any] | None = None,
    command_line: str = "",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a tool of a function, method, partial or callable object; bare, with options, or as a call.

    - `name`, `description`: replace those of the function and its docstring.
    - `effects`: what every call touches, or a function of some of the tool's parameters that returns what one call
      touches.
    - `effects_bound`: the most that such a function can return.
    - `read_only`: reads anything and changes nothing.
    - `external`: leaves the machine.
    - `idempotent`: may run twice.
    - `destructive`: False if it only adds.
    - `repeatable`: for polls: the same call may be made again, and is not answered from memory.
    - `aliases`: maps other names that a model may use to parameters.
    - `timeout`: in seconds, or a function of some of the tool's parameters that returns the seconds of one call; None
      leaves it to the executor.
    - `max_concurrent`: how many calls of a run may be in the function at once.
    - `preview`: a function of some of the tool's parameters that shows what a call would change. A parameter annotated
      as RunContext gets the call's, None without one. In the question, beside a unified diff, the arguments that the
      preview takes are shortened and all others are whole.
    - `verify`: a function, plain or async, of some of the tool's parameters (and a RunContext), for a call that was
      interrupted. It returns `Happened(value)` or True if the call took effect, False if it did not, None if that
      cannot be known.
    - `command_line`: the parameter that /bin/sh runs. A person may then allow commands by how they begin.

    A tool that declares no effects counts as one that may touch everything.

    Raises ToolDefinitionError, naming the parameter or option and the remedy.
    """
    declaration = Declaration(effects, effects_bound, read_only, external, idempotent, destructive, repeatable)

    def make(function: Callable[..., Any]) -> Tool:
        if isinstance(function, Tool):
            raise ToolDefinitionError(f"{function.name!r} is a tool already; give @tool the function, once")
        if isinstance(cast("object", function), Mapping):
            raise ToolDefinitionError(
                f"{show(function)} is a dict, and there is nothing in a schema to run; a tool is a typed function, and "
                "@tool above it reads off its name, description and parameters"
            )
        if not callable(function):
            raise ToolDefinitionError(f"{function!r} is not a function; pass options of @tool by name")
        tool_name = default_name(function) if name is None else name
        check_name(tool_name)
        where = f"tool {tool_name!r}"
        if timeout is not None and not callable(timeout) and not _is_above(timeout, 0, int | float):
            raise ToolDefinitionError(f"{where}: timeout={timeout!r} must be more than 0 seconds, or None for no limit")
        if max_concurrent is not None and not _is_above(max_concurrent, 0, int):
            raise ToolDefinitionError(f"{where}: max_concurrent={max_concurrent!r} must be at least 1, or None")
        if aliases is not None and not isinstance(cast("object", aliases), Mapping):
            raise ToolDefinitionError(f"{where}: aliases={aliases!r} must be a dict: {{'other name': 'parameter'}}")
        declaration.check(where)
        signature = read_signature(function, where)
        schema, reader = typed.describe_parameters(signature, aliases or {}, where)
        if command_line and command_line not in reader.names:
            known = ", ".join(reader.names) or "none"
            raise ToolDefinitionError(f"{where}: command_line={command_line!r} is none of its parameters: {known}")
        spec = ToolSpec(
            tool_name,
            signature.description if description is None else description,
            schema,
            declaration.bound,
            dict(aliases or {}),
            command_line,
        )
        return Tool(
            spec,
            function,
            signature.is_async,
            reader,
            declaration.per_call(reader.names, where),
            None if preview is None else _previewer(preview, reader.names, where),
            signature.injected,
            _limiter(timeout, reader.names, where) if callable(timeout) else timeout,
            max_concurrent,
            None if verify is None else _verifier(verify, reader.names, where),
            signature.deps,
            previewed=frozenset() if preview is None else frozenset(signature_of(preview).parameters),
        )

    return make if function is None else make(function)


def _is_above(value: object, bound: int, kinds: Any) -> bool:
    return isinstance(value, kinds) and cast("float", value) > bound


def _limiter(
    timeout: Callable[..., float | None], parameters: Sequence[str], where: str
) -> Callable[[Mapping[str, Any]], float | None]:
    ask = by_name(timeout, parameters, f"{where}: timeout")

    def seconds(arguments: Mapping[str, Any]) -> float | None:
        try:
            limit = ask(arguments)
            return limit if limit is not None and limit > 0 else None
        except Exception as error:  # noqa: BLE001 - the author's code; the executor's own limit is the careful answer
            log_crash(_LOG, f"{where}: timeout failed, so the executor's own limit holds", error)
            return None

    return seconds


def _verifier(verify: Callable[..., Any], parameters: Sequence[str], where: str) -> Verify:
    where = f"{where}: verify"
    wanted = injected_parameters(verify, where)
    ask = by_name(verify, [*parameters, *wanted], where, may_be_async=True)

    def verified(arguments: Mapping[str, Any], context: RunContext[Any]) -> Any:
        return ask({**arguments, **injected(wanted, context)})

    return verified


def _previewer(preview: Callable[..., str], parameters: Sequence[str], where: str) -> Preview:
    where = f"{where}: preview"
    wanted = injected_parameters(preview, where)
    show = by_name(preview, [*parameters, *wanted], where)

    def safe(arguments: Mapping[str, Any], context: RunContext[Any] | None = None) -> str:
        try:
            text = show({**arguments, **injected(wanted, context)})
            return "" if text is None else str(text)
        except Exception as error:  # noqa: BLE001 - a preview is shown to a person who can still decide without it
            log_crash(_LOG, f"{where} failed", error)
            return f"(no preview: {type(error).__name__}: {error})"

    return safe
