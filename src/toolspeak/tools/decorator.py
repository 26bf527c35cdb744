"""`@tool`, which makes a Tool from a typed function."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, cast, overload

from toolspeak.data.messages import JSON
from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.errors import ToolDefinitionError, ToolError, suggest
from toolspeak.tools import pydantic_support
from toolspeak.tools.context import RunContext, injected_values
from toolspeak.tools.crashes import log_crash
from toolspeak.tools.declaration import Declaration, by_name
from toolspeak.tools.places import show
from toolspeak.tools.signature import (
    FunctionSignature,
    default_name,
    injected_parameters,
    read_signature,
    signature_of,
)
from toolspeak.tools.tool import ArgumentReader, ParametersT, Preview, ReturnedT, Tool, check_name
from toolspeak.tools.tool_options import OfArguments, ToolOptions
from toolspeak.tools.verify import Verify


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
    polls: bool = False,
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
    polls: bool = False,
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
    polls: bool = False,
    timeout: float | OfArguments[float | None] | None = None,
    max_concurrent: int | None = None,
    preview: OfArguments[str] | None = None,
    verify: OfArguments[Any] | None = None,
    command_line: str = "",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a tool from a function, method, partial or callable object. Use it as `@tool`, `@tool(…)` or `tool(f)`.

    - `name`: the tool's name; default: the function's.
    - `description`: the tool's description; default: the function's docstring.
    - `effects`: the effects of every call, or a function of some of the tool's parameters that returns the effects of
      one call.
    - `effects_bound`: the most effects that such a function can return.
    - `read_only`: the tool may read anything and changes nothing.
    - `external`: the tool reaches outside the machine.
    - `idempotent`: a call may run twice.
    - `destructive`: False if the tool only adds.
    - `polls`: the model may repeat the same call, and each call runs: a cached result does not answer it.
    - `aliases`: maps other names that a model may use to the names of parameters.
    - `timeout`: in seconds, or a function of some of the tool's parameters that returns the seconds of one call; None
      leaves it to the executor.
    - `max_concurrent`: the most calls of a run that may be in the function at once.
    - `preview`: a function of some of the tool's parameters that shows what a call would change. A parameter annotated
      as RunContext gets the call's, None without one. In the question, beside a unified diff, the arguments that the
      preview takes are shortened and all others are whole. If it raises ToolError, the call fails so, and nobody is
      asked about it.
    - `verify`: a function, plain or async, of some of the tool's parameters (and a RunContext), for a call that was
      interrupted. It returns `VerifiedResult(value)` or True if the call took effect, False if it did not, None if that
      cannot be known.
    - `command_line`: the parameter that /bin/sh runs. A person may then allow commands by how they begin.

    A tool that declares no effects counts as one that may touch everything.

    Raises ToolDefinitionError, naming the parameter or option and the remedy.
    """
    options = ToolOptions(
        effects=effects,
        effects_bound=effects_bound,
        read_only=read_only,
        external=external,
        idempotent=idempotent,
        destructive=destructive,
        polls=polls,
        timeout=timeout,
        max_concurrent=max_concurrent,
        preview=preview,
        verify=verify,
        command_line=command_line,
    )

    def make(function: Callable[..., Any]) -> Tool:
        tool_name = check_function(function, name, "@tool")
        where = f"tool {tool_name!r}"
        if aliases is not None and not isinstance(cast("object", aliases), Mapping):
            raise ToolDefinitionError(f"{where}: aliases={aliases!r} must be a dict: {{'other name': 'parameter'}}")
        check_options(options, where)
        signature = read_signature(function, where)
        schema, reader = pydantic_support.describe_parameters(signature, aliases or {}, where)
        text = signature.description if description is None else description
        return build_tool(
            function, tool_name, text, signature, schema, reader, reader.names, options, aliases=dict(aliases or {})
        )

    return make if function is None else make(function)


def check_function(function: object, name: str | None, maker: str) -> str:
    """The name of a tool with this function: `name`, or the function's own name.

    `maker`: the call to name in errors, such as `@tool`. Raises ToolDefinitionError for a value that is not a function,
    and for an invalid name.
    """
    if isinstance(function, Tool):
        raise ToolDefinitionError(f"{function.name!r} is a tool already; give {maker} the function, once")
    if isinstance(function, Mapping):
        raise ToolDefinitionError(
            f"{show(cast('object', function))} is a dict, which cannot run: write a typed function with @tool above it,"
            " which takes its name, description and parameters from the function, or use "
            "Tool.from_openai(function, definition), which takes them from the dict"
        )
    if not callable(function):
        raise ToolDefinitionError(f"{function!r} is not a function; pass options of {maker} by name")
    tool_name = default_name(function) if name is None else name
    check_name(tool_name)
    return tool_name


def check_options(options: ToolOptions, where: str) -> None:
    """Raises ToolDefinitionError for an unknown option and for an invalid value of an option."""
    for option in options:
        if option not in ToolOptions.__annotations__:
            raise ToolDefinitionError(f"{where}: there is no option {suggest(option, ToolOptions.__annotations__)}")
    timeout, max_concurrent = options.get("timeout"), options.get("max_concurrent")
    if timeout is not None and not callable(timeout) and not _is_above(timeout, 0, int | float):
        raise ToolDefinitionError(f"{where}: timeout={timeout!r} must be more than 0 seconds, or None for no limit")
    if max_concurrent is not None and not _is_above(max_concurrent, 0, int):
        raise ToolDefinitionError(f"{where}: max_concurrent={max_concurrent!r} must be at least 1, or None")
    _declaration(options).check(where)


def build_tool(
    function: Callable[..., Any],
    name: str,
    description: str,
    signature: FunctionSignature,
    schema: Mapping[str, JSON],
    reader: ArgumentReader,
    parameters: Sequence[str],
    options: ToolOptions,
    *,
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> Tool:
    """Makes the tool of a function. The options have passed `check_options`.

    `parameters`: the names of the parameters that the options' functions may take. Raises ToolDefinitionError for any
    other.
    """
    where, declaration = f"tool {name!r}", _declaration(options)
    timeout, preview, verify = options.get("timeout"), options.get("preview"), options.get("verify")
    command_line = options.get("command_line", "")
    if command_line and command_line not in parameters:
        names = ", ".join(parameters) or "none"
        raise ToolDefinitionError(f"{where}: command_line={command_line!r} is not one of its parameters: {names}")
    return Tool(
        ToolSpec(name, description, schema, declaration.bound, dict(aliases), command_line),
        function,
        signature.is_async,
        reader,
        declaration.per_call(parameters, where),
        None if preview is None else _previewer(preview, parameters, where),
        signature.injected_kinds,
        _limiter(timeout, parameters, where) if callable(timeout) else timeout,
        options.get("max_concurrent"),
        None if verify is None else _verifier(verify, parameters, where),
        signature.deps,
        preview_parameters=frozenset() if preview is None else frozenset(signature_of(preview).parameters),
    )


def _declaration(options: ToolOptions) -> Declaration:
    return Declaration(
        options.get("effects"),
        options.get("effects_bound"),
        options.get("read_only", False),
        options.get("external", False),
        options.get("idempotent", False),
        options.get("destructive", True),
        options.get("polls", False),
    )


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
    injected_sources = injected_parameters(verify, where)
    ask = by_name(verify, [*parameters, *injected_sources], where, may_be_async=True)

    def verify_call(arguments: Mapping[str, Any], context: RunContext[Any]) -> Any:
        return ask({**arguments, **injected_values(injected_sources, context)})

    return verify_call


def _previewer(preview: Callable[..., str], parameters: Sequence[str], where: str) -> Preview:
    where = f"{where}: preview"
    injected_sources = injected_parameters(preview, where)
    show = by_name(preview, [*parameters, *injected_sources], where)

    def safe(arguments: Mapping[str, Any], context: RunContext[Any] | None = None) -> str:
        try:
            text = show({**arguments, **injected_values(injected_sources, context)})
            return "" if text is None else str(text)
        except ToolError:  # the call would fail
            raise
        except Exception as error:  # noqa: BLE001 - the author's code; a person can decide without a preview
            log_crash(_LOG, f"{where} failed", error)
            return f"(no preview: {type(error).__name__}: {error})"

    return safe
