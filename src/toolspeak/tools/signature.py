"""What a function says of itself: its parameters with their types, its documentation, whether it is async."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from toolspeak.data.values import quick
from toolspeak.errors import ToolDefinitionError
from toolspeak.tools import pydantic_support
from toolspeak.tools.context import INJECTED_KINDS, InjectedKind

NO_DEFAULT: Any = inspect.Parameter.empty
"""The `default` of a required parameter."""

FORWARDREF: Any = 3
"""`annotationlib.Format.FORWARDREF` (an IntEnum) without its module, which only Python 3.14 has."""


@quick()
class Parameter:
    """One parameter the model fills in. `default` is REQUIRED without a default."""

    name: str
    annotation: Any
    default: Any


@quick()
class FunctionSignature:
    """`parameters` leaves out those that get something of the run (`injected_kinds`) and those a partial has already
    bound. `deps` names what a RunContext is to hold, "" if nothing needs to be there. `takes_any`: the function takes
    any name (`**arguments`)."""

    parameters: tuple[Parameter, ...]
    injected_kinds: Mapping[str, InjectedKind]
    deps: str
    is_async: bool
    description: str
    documentation: Mapping[str, str]
    takes_any: bool = False


def underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain function, method or `__call__` of a partial or a callable object."""
    inner = _without_partials(function)
    return inner if inspect.isroutine(inner) else inner.__call__


def default_name(function: Callable[..., Any]) -> str:
    """The function's own name; for a callable object, the name of its class."""
    inner = _without_partials(function)
    return inner.__name__ if inspect.isroutine(inner) else type(inner).__name__


def _without_partials(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function


def read_signature(function: Callable[..., Any], where: str, *, has_schema: bool = False) -> FunctionSignature:
    """Reads a function, method, partial or callable object.

    - `where`: starts every message (`tool 'read'`).
    - `has_schema`: a schema describes the parameters, so they may lack annotations and be `**arguments`.

    Raises ToolDefinitionError for what a model cannot fill in.
    """
    plain = underlying(function)
    if isinstance(function, type) or inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ToolDefinitionError(f"{where}: a class or generator cannot be a tool; write a function that returns")
    namespaces = _namespaces(plain)
    parameters: list[Parameter] = []
    injected_kinds: dict[str, InjectedKind] = {}
    deps, takes_any = "", False
    for parameter in _parameters(function, where):
        if has_schema and parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
            continue
        _check_kind(parameter, where)
        if parameter.name in _bound(function):
            continue
        if has_schema and parameter.annotation is parameter.empty:
            annotation = Any
        else:
            annotation = _annotation(parameter, namespaces, where)
        kind = injected_by(annotation)
        if kind is not None:
            injected_kinds[parameter.name] = kind
            deps = deps or (_deps_of(annotation) if kind == "context" else "")
        else:
            parameters.append(Parameter(parameter.name, annotation, parameter.default))
    for kind in set(injected_kinds.values()):
        names = [name for name, one in injected_kinds.items() if one == kind]
        if len(names) > 1:
            raise ToolDefinitionError(f"{where}: parameters {names} all want the run's {kind}; keep one")
    description, documentation = pydantic_support.read_docstring(_docstring(function))
    is_async = inspect.iscoroutinefunction(plain)
    return FunctionSignature(tuple(parameters), injected_kinds, deps, is_async, description, documentation, takes_any)


def _docstring(function: Callable[..., Any]) -> str:
    """A function's docstring; for a callable object, the docstring of `__call__`, else its class's own docstring."""
    inner = _without_partials(function)
    if inspect.isroutine(inner):
        return inspect.getdoc(inner) or ""
    cls = type(inner)
    by_dataclass = (cls.__doc__ or "").startswith(f"{cls.__name__}(")
    return inspect.cleandoc(cls.__call__.__doc__ or ("" if by_dataclass else cls.__doc__) or "")


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature with what can be resolved of the annotations; raises ValueError or TypeError."""
    if sys.version_info >= (3, 14):
        # Annotations are evaluated at their first use: what is not defined stays a ForwardRef.
        return inspect.signature(function, annotation_format=FORWARDREF)
    return inspect.signature(function)


def injected_by(annotation: Any) -> InjectedKind | None:
    """What of the run the annotation asks for: RunContext (or RunContext[X]), ToolCall or StateView, also in Annotated
    or Optional."""
    origin: Any = get_origin(annotation)
    if origin is Annotated:
        return injected_by(get_args(annotation)[0])
    if origin in (Union, UnionType):
        options = [option for option in get_args(annotation) if option is not NoneType]
        return injected_by(options[0]) if len(options) == 1 else None
    plain = origin or annotation
    return INJECTED_KINDS.get(plain) if isinstance(plain, type) else None


def _deps_of(annotation: Any) -> str:
    """The X of `RunContext[X]`; "" if X accepts None or any value."""
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return "".join(_deps_of(option) for option in get_args(annotation))
    argument = next(iter(get_args(annotation)), None) if injected_by(annotation) == "context" else None
    if argument in (None, NoneType, Any, object) or isinstance(argument, TypeVar) or NoneType in get_args(argument):
        return ""
    return argument.__name__ if isinstance(argument, type) and not get_args(argument) else str(argument)


def injected_parameters(function: Callable[..., Any], where: str) -> dict[str, InjectedKind]:
    """The parameters whose annotation asks for something of the run; others may lack annotations."""
    parameters = _parameters(function, where)
    namespaces = _namespaces(underlying(function))
    kinds: dict[str, InjectedKind] = {}
    for parameter in parameters:
        if parameter.annotation is not inspect.Parameter.empty:
            with suppress(ToolDefinitionError):
                kind = injected_by(_annotation(parameter, namespaces, where))
                if kind is not None:
                    kinds[parameter.name] = kind
    return kinds


def takes_context(function: Callable[..., Any], where: str) -> bool:
    """Whether the function can be called with a RunContext alone: its first parameter has that annotation, or none, and
    the others have defaults."""
    parameters = [each for each in _parameters(function, where) if each.kind is not each.VAR_KEYWORD]
    if not parameters or any(
        each.default is each.empty and each.kind is not each.VAR_POSITIONAL for each in parameters[1:]
    ):
        return False
    first = parameters[0]
    if first.kind is first.KEYWORD_ONLY or first.annotation is first.empty:
        return first.kind is not first.KEYWORD_ONLY
    try:
        annotation = _annotation(first, _namespaces(underlying(function)), where)
    except ToolDefinitionError:  # a name that is there for type checkers alone
        return True
    return injected_by(annotation) == "context"


def _bound(function: object) -> Mapping[str, Any]:
    """The keyword arguments that a partial has bound, which the model cannot pass."""
    return cast("partial[Any]", function).keywords if isinstance(function, partial) else {}


def _parameters(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    try:
        return list(signature_of(function).parameters.values())
    except (ValueError, TypeError, NameError) as error:
        raise ToolDefinitionError(f"{where}: its signature cannot be read ({error}); wrap it in a function") from error


def _check_kind(parameter: inspect.Parameter, where: str) -> None:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            remedy = "a model passes named arguments only; name each argument, or take one list or dict"
            raise ToolDefinitionError(f"{where}: parameter '{parameter}' takes any number of arguments: {remedy}")
        case inspect.Parameter.POSITIONAL_ONLY:
            remedy = "arguments are passed by name; remove the '/' after it"
            raise ToolDefinitionError(f"{where}: parameter {parameter.name!r} is positional-only: {remedy}")
        case _:
            return


def _namespaces(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The globals of a function and the variables of its closure, to resolve annotations that are text."""
    inner = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)
    names: tuple[str, ...] = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    local: dict[str, Any] = {}
    for name, cell in zip(names, getattr(inner, "__closure__", None) or (), strict=False):
        try:
            local[name] = cell.cell_contents
        except ValueError:  # the enclosing function has not assigned it yet
            continue
    return getattr(inner, "__globals__", {}), local


def _annotation(parameter: inspect.Parameter, namespaces: tuple[dict[str, Any], dict[str, Any]], where: str) -> Any:
    name, annotation = parameter.name, parameter.annotation
    if annotation is inspect.Parameter.empty:
        hint = " (for a method, make a tool of the bound method: tool(obj.method))" if name in ("self", "cls") else ""
        remedy = f"annotate it, for instance '{name}: str', or '{name}: Any' for any JSON value{hint}"
        raise ToolDefinitionError(f"{where}: parameter {name!r} has no annotation; {remedy}")

    def holder() -> None: ...

    # One parameter at a time, so that the message can name it and the return annotation may stay unresolved.
    holder.__annotations__ = {name: annotation}
    text = getattr(annotation, "__forward_arg__", annotation)
    try:
        return get_type_hints(holder, *namespaces, include_extras=True)[name]
    except NameError as error:
        remedy = f"define or import {error.name!r} at module level (not under TYPE_CHECKING, not inside a function)"
        raise ToolDefinitionError(
            f"{where}: the annotation {text!r} of parameter {name!r} cannot be resolved ({error}); {remedy}"
        ) from error
    except Exception as error:  # evaluating an annotation runs its author's code
        raise ToolDefinitionError(
            f"{where}: the annotation {text!r} of parameter {name!r} is not a type ({error}); correct it"
        ) from error
