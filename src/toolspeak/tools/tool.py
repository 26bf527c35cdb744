"""A tool: what a model is told (`spec`) and what runs (`function`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Generic, Protocol

from typing_extensions import ParamSpec, TypeVar

from toolspeak.data.messages import JSON, no_extra
from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.data.values import quick
from toolspeak.errors import ToolDefinitionError
from toolspeak.tools.context import Injected, RunContext
from toolspeak.tools.verify import Verify

ParametersT = ParamSpec("ParametersT", default=...)
ReturnedT = TypeVar("ReturnedT", default=Any)

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}")
"""What a tool may be called: every model API takes a part of it, and no dialect's markers fit in."""


def check_name(name: str) -> None:
    """Raise ToolDefinitionError unless a tool may have this name."""
    if type(name) is not str or not _fits(name):
        raise ToolDefinitionError(
            f"a tool cannot be named {name!r}: a name starts with a letter or _, goes on with letters, digits"
            " and _ . : / - and has at most 128 characters; give another with @tool(name=…)"
        )


@lru_cache(maxsize=1024)  # each agent looks at all names of its tools
def _fits(name: str) -> bool:
    return NAME_PATTERN.fullmatch(name) is not None


@quick()
class ArgumentProblem:
    """One thing wrong with a call's arguments. `message` names the field, what is expected and what came."""

    path: str
    message: str


class ArgumentReader(Protocol):
    """Turns a call's JSON arguments into the function's keyword arguments."""

    def __call__(self, arguments: Mapping[str, JSON]) -> Mapping[str, Any] | tuple[ArgumentProblem, ...]: ...


class Preview(Protocol):
    """Shows what a call would change, from its validated arguments. `context` is what the run knows, if given."""

    def __call__(self, arguments: Mapping[str, Any], context: RunContext[Any] | None = None) -> str: ...


@quick()
class Tool(Generic[ParametersT, ReturnedT]):
    """Made by `@tool`; calling it calls the function, with its own signature.

    `read_arguments` applies aliases and validates strictly; problems are returned, not raised.
    `effects_of` and `preview` take the validated keyword arguments; a declaration of effects that fails counts as
    undeclared, and one that gives no Effects raises ToolDefinitionError. `preview` shows what the call would change and
    may read the disk; with the call's RunContext it can say more. `previewed` are the parameters it is made of.
    `injected` are the parameters that get something of the run in place of an argument; `deps` names the type that the
    tool wants of `RunContext.deps`, "" if it can do without. `timeout` is in seconds, of every call or as a function of
    its validated arguments (which never raises). Of `max_concurrent` calls none more runs at once.
    `verify` is asked what became of a call that was started and has no result. `live` gives the definition as it is by
    now, of a tool whose server may change it while a run goes on: what a person decides is about that one.
    """

    spec: ToolSpec
    function: Callable[ParametersT, ReturnedT]
    is_async: bool
    read_arguments: ArgumentReader
    effects_of: Callable[[Mapping[str, Any]], Effects]
    preview: Preview | None = None
    injected: Mapping[str, Injected] = field(default_factory=no_extra)
    timeout: float | Callable[[Mapping[str, Any]], float | None] | None = None
    max_concurrent: int | None = None
    verify: Verify | None = None
    deps: str = ""
    live: Callable[[], ToolSpec] | None = None
    previewed: frozenset[str] = frozenset()

    @property
    def now(self) -> ToolSpec:
        """The definition as it is by now; `spec` is what the model was told."""
        return self.spec if self.live is None else self.live()

    def seconds(self, arguments: Mapping[str, Any]) -> float | None:
        """How long a call with these validated arguments may take; None where the tool does not say."""
        return self.timeout(arguments) if callable(self.timeout) else self.timeout

    @property
    def name(self) -> str:
        return self.spec.name

    def __call__(self, *args: ParametersT.args, **kwargs: ParametersT.kwargs) -> ReturnedT:
        return self.function(*args, **kwargs)
