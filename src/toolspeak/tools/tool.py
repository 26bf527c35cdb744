"""A tool: its definition for the model (`spec`) and its function."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Generic, Protocol

from typing_extensions import ParamSpec, TypeVar, Unpack

from toolspeak.data.messages import JSON, no_extra
from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.data.values import quick
from toolspeak.errors import ToolDefinitionError
from toolspeak.tools import pydantic_support
from toolspeak.tools.context import InjectedKind, RunContext
from toolspeak.tools.tool_options import ToolOptions
from toolspeak.tools.verify import Verify

ParametersT = ParamSpec("ParametersT", default=...)
ReturnedT = TypeVar("ReturnedT", default=Any)
_P = ParamSpec("_P")
_R = TypeVar("_R")

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}")
"""The names that a tool may have. No dialect's marker matches; a model API may allow fewer names."""


def check_name(name: str) -> None:
    """Raises ToolDefinitionError unless a tool may have this name."""
    if type(name) is not str or not _fits(name):
        raise ToolDefinitionError(
            f"a tool cannot be named {name!r}: a name starts with a letter or _, continues with letters, digits"
            " and _ . : / - and has at most 128 characters; give another with @tool(name=…)"
        )


@lru_cache(maxsize=1024)  # each agent looks at all names of its tools
def _fits(name: str) -> bool:
    return NAME_PATTERN.fullmatch(name) is not None


@quick()
class ArgumentProblem:
    """One problem of a call's arguments. `message` names the field, the expected type and the actual value."""

    path: str
    message: str


class ArgumentReader(Protocol):
    """Turns a call's JSON arguments into the function's keyword arguments."""

    def __call__(self, arguments: Mapping[str, JSON]) -> Mapping[str, Any] | tuple[ArgumentProblem, ...]: ...


class Preview(Protocol):
    """Shows what a call would change, from its validated arguments, and its RunContext if there is one."""

    def __call__(self, arguments: Mapping[str, Any], context: RunContext[Any] | None = None) -> str: ...


@quick()
class Tool(Generic[ParametersT, ReturnedT]):
    """A tool, made by `@tool` or from a schema or a model (`from_schema`, `from_openai`, `from_model`). Calling it
    calls the function, with the function's signature.

    - `spec`: the definition that the model reads.
    - `read_arguments`: applies aliases and validates strictly. It returns problems and never raises.
    - `effects_of`: the effects of validated arguments. A declaration that fails counts as undeclared; one that returns
      anything but Effects raises ToolDefinitionError.
    - `preview`: shows what a call would change. It may read the disk.
    - `injected_kinds`: the parameters that get a part of the run instead of an argument.
    - `timeout`: the time limit of every call in seconds, or a function of a call's validated arguments that never
      raises.
    - `max_concurrent`: the most calls that may run at once.
    - `verify`: checks whether a call took effect that was started and has no result.
    - `deps`: the type that the tool needs as `RunContext.deps`; "" if it needs none.
    - `live`: for a tool whose server may change it during a run, returns the current definition. An approval is about
      that definition.
    - `preview_parameters`: the parameters of the preview.
    - `sandbox`: the boundary of the processes that its calls start, such as "bubblewrap" or "none", or a function that
      returns it; "" for a tool that starts none, or does not say.
    - `reveals_secrets`: whether its function gets the values of secrets. Without, it gets their placeholders, as the
      model wrote them.
    """

    spec: ToolSpec
    function: Callable[ParametersT, ReturnedT]
    is_async: bool
    read_arguments: ArgumentReader
    effects_of: Callable[[Mapping[str, Any]], Effects]
    preview: Preview | None = None
    injected_kinds: Mapping[str, InjectedKind] = field(default_factory=no_extra)
    timeout: float | Callable[[Mapping[str, Any]], float | None] | None = None
    max_concurrent: int | None = None
    verify: Verify | None = None
    deps: str = ""
    live: Callable[[], ToolSpec] | None = None
    preview_parameters: frozenset[str] = frozenset()
    sandbox: str | Callable[[], str] = ""
    reveals_secrets: bool = True

    @property
    def boundary(self) -> str:
        """What holds the processes of a call that starts now (`sandbox`)."""
        return self.sandbox() if callable(self.sandbox) else self.sandbox

    @property
    def now(self) -> ToolSpec:
        """The current definition. `spec` is the definition that the model read."""
        return self.spec if self.live is None else self.live()

    def seconds(self, arguments: Mapping[str, Any]) -> float | None:
        """The time limit in seconds of a call with these validated arguments; None if the tool has none."""
        return self.timeout(arguments) if callable(self.timeout) else self.timeout

    @property
    def name(self) -> str:
        return self.spec.name

    @staticmethod
    def from_schema(
        function: Callable[_P, _R],
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, JSON],
        **options: Unpack[ToolOptions],
    ) -> Tool[_P, _R]:
        """Makes a tool from a function whose parameters a JSON Schema describes (needs the extra `schemas`).

        The function gets the arguments by name. Arguments that the model leaves out have the schema's `default`. The
        function's parameters need no annotations, and `**arguments` takes any argument. A parameter annotated with
        RunContext, ToolCall or StateView gets a part of the run. References to other documents are not fetched.

        - `name`: the tool's name; default: the function's.
        - `description`: the tool's description; default: the function's docstring.
        - `parameters`: the schema, of type object. The arguments of each call are checked against it.
        - `options`: as in `@tool`.

        Raises ToolDefinitionError for a schema that cannot be used, and for a function that cannot take all arguments
        that match the schema.
        """
        return pydantic_support.tool_from_schema(function, name, description, parameters, options)

    @staticmethod
    def from_openai(
        function: Callable[_P, _R], definition: Mapping[str, JSON], /, **options: Unpack[ToolOptions]
    ) -> Tool[_P, _R]:
        """Makes a tool from a function and a definition for OpenAI's APIs: `{"type": "function", "function": {"name":
        …, "description": …, "parameters": {…}}}`, or the same without the inner dict. Otherwise it works as
        `Tool.from_schema`."""
        return pydantic_support.tool_from_openai(function, definition, options)

    @staticmethod
    def from_model(
        function: Callable[_P, _R],
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> Tool[_P, _R]:
        """Makes a tool from a function that takes one pydantic model. The model's fields are the tool's parameters. The
        function gets the validated instance, and so do functions of the arguments (`effects=lambda booking: …`).

        - `name`: the tool's name; default: the function's.
        - `description`: the tool's description; default: the function's docstring, or the model's.
        - `options`: as in `@tool`.

        Raises ToolDefinitionError for a function with other arguments, and for a model that JSON cannot express.
        """
        return pydantic_support.tool_from_model(function, name, description, options)

    def __call__(self, *args: ParametersT.args, **kwargs: ParametersT.kwargs) -> ReturnedT:
        return self.function(*args, **kwargs)
