"""A call made ready to run: its tool, its validated arguments and its effects; or the failure that lists all that is
wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from toolspeak.data.messages import JSON, ToolCall, ToolResult, failure
from toolspeak.data.tools import Effects
from toolspeak.data.values import quick
from toolspeak.errors import ToolError, suggest
from toolspeak.execute.calls.ids import key_of
from toolspeak.execute.calls.result_limits import describe
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.tools.tool import ArgumentProblem, Tool
from toolspeak.tools.toolset import Toolset

_Reading: TypeAlias = Mapping[str, Any] | tuple[ArgumentProblem, ...]


@quick()
class PreparedCall:
    """A call that may run. `arguments` hold revealed secrets and are for the function alone. `changed`: it is no longer
    what the model wrote; `note` tells the model so, if it should know."""

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, Any]
    effects: Effects
    idempotency_key: str
    changed: bool = False
    note: str = ""


def prepare(call: ToolCall, tools: Toolset, secrets: Secrets, run_id: str) -> PreparedCall | ToolResult:
    """The call with its tool, arguments and effects, or its failure. Raises ToolDefinitionError where the tool's own
    declaration of effects fails."""
    tool = tools.get(call.name)
    if tool is None:
        known = suggest(call.name, (one.name for one in tools))
        return failure(call, "unknown_tool", f"no tool is called {known}")
    arguments = read_arguments(tool, call, secrets)
    if type(arguments) is ToolResult:
        return arguments
    return PreparedCall(call, tool, arguments, tool.effects_of(arguments), key_of(run_id, call.id))


def read_arguments(tool: Tool, call: ToolCall, secrets: Secrets) -> Mapping[str, Any] | ToolResult:
    """The function's keyword arguments with secrets revealed, or the failure that lists every problem.

    The values stay within the executor until the function runs: what an approver, an interceptor or a
    journal sees is the call, which holds placeholders. No problem shows a secret or a part of one.
    """
    revealed = secrets.reveal(call.arguments) if secrets.has_values else call.arguments
    reading = _read(tool, revealed)
    if not isinstance(reading, (tuple, Exception)):
        return reading
    if revealed != call.arguments:
        # Its words may quote a value, shortened: then `hide` would not know it again.
        reading = _without_values(reading, tool, call, secrets)
    if isinstance(reading, Exception):
        return failure(call, "invalid_arguments", f"the arguments of {tool.name!r} cannot be read: {describe(reading)}")
    listed = "\n".join(f"- {problem.message}" for problem in reading)
    return failure(call, "invalid_arguments", f"the arguments of {tool.name!r} do not fit:\n{listed}")


def _read(tool: Tool, arguments: Mapping[str, JSON]) -> _Reading | Exception:
    try:
        return tool.read_arguments(arguments)
    except Exception as error:  # noqa: BLE001 - a validator of the tool's own may raise anything
        return error


def _without_values(
    reading: tuple[ArgumentProblem, ...] | Exception, tool: Tool, call: ToolCall, secrets: Secrets
) -> tuple[ArgumentProblem, ...] | Exception:
    """The problems in the words of a reading that knew the placeholders only, or in none."""
    unrevealed = _read(tool, call.arguments)
    if isinstance(reading, Exception):
        return unrevealed if isinstance(unrevealed, Exception) else ToolError("a secret's value does not fit")
    problems_shown = {problem.path: problem for problem in unrevealed} if isinstance(unrevealed, tuple) else {}
    paths_tell = _placeholder_as_key(call.arguments, secrets)
    problems: dict[ArgumentProblem, None] = {}
    for path in (problem.path for problem in reading):
        place = "" if paths_tell or not path else f"{path}: "
        problems[problems_shown.get(path) or ArgumentProblem("", f"{place}the secret's value does not fit")] = None
    return tuple(problems)


def _placeholder_as_key(value: JSON, secrets: Secrets) -> bool:
    """Whether a place in the value may be called like a secret."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, JSON]", value)
        return any(secrets.reveal(key) != key or _placeholder_as_key(entries[key], secrets) for key in entries)
    if isinstance(value, list | tuple):
        return any(_placeholder_as_key(inner, secrets) for inner in cast("list[JSON]", value))
    return False
