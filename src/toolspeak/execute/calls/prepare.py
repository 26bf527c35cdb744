"""A call is made ready to run: its id, its tool, its validated arguments and its effects; or it gets a failure that
lists every problem."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from toolspeak.data.messages import JSON, MalformedCall, TextPart, ToolCall, ToolResult, failure
from toolspeak.data.tools import FOUND_TOOLS, Effects
from toolspeak.data.values import quick
from toolspeak.errors import ToolError, suggest
from toolspeak.execute.calls.result_limits import describe
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.tools.tool import ArgumentProblem, Tool
from toolspeak.tools.tool_catalogue import FIND_TOOLS
from toolspeak.tools.toolset import Toolset

NOW_LISTED = "It is among your tools from now on: read it, and make the call again if it is what you want."

_ArgumentReading: TypeAlias = Mapping[str, Any] | tuple[ArgumentProblem, ...]


def new_id() -> str:
    """Returns a random id for a run or a session: 32 hexadecimal digits."""
    return os.urandom(16).hex()


def unique(calls: Sequence[ToolCall | MalformedCall]) -> Sequence[ToolCall | MalformedCall]:
    """Returns the calls. A call whose id is missing, or was used before, gets an id of its own.

    The first call with an id keeps it. The model's own id stays as `provider_id`, unless the call has one; of a
    malformed call as `extra["provider_id"]`.
    """
    if len(calls) == 1 and calls[0].id:
        return calls
    ids = {call.id for call in calls}
    if len(ids) == len(calls) and "" not in ids:
        return calls
    earlier, last = {""}, dict[str, int]()
    calls_with_ids: list[ToolCall | MalformedCall] = []
    for call in calls:
        if call.id in earlier:
            call = _with_id(call, _free(call.id or "call", ids, last))
        ids.add(call.id)
        earlier.add(call.id)
        calls_with_ids.append(call)
    return calls_with_ids


def key_of(run_id: str, call_id: str) -> str:
    """A call's idempotency key: the same when the call runs again."""
    return f"{run_id}:{call_id}"


def _free(stem: str, ids: set[str], last: dict[str, int]) -> str:
    """An id that is free. `last` remembers the last number of each stem, so that a batch of equal ids takes linear
    time."""
    number = last.get(stem, 1) + 1
    while (name := f"{stem}#{number}") in ids:
        number += 1
    last[stem] = number
    return name


def _with_id(call: ToolCall | MalformedCall, name: str) -> ToolCall | MalformedCall:
    own = call.id or None
    if isinstance(call, ToolCall):
        return replace(call, id=name, provider_id=call.provider_id or own)
    return replace(call, id=name, extra={**call.extra, "provider_id": own} if own else call.extra)


@quick()
class PreparedCall:
    """A call that may run.

    - `arguments`: hold revealed secrets, and are for the function alone.
    - `changed`: whether it differs from what the model wrote.
    - `note`: what the model reads about that, "" for nothing.
    - `is_unread`: whether the model calls the tool without having read its definition.
    """

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, Any]
    effects: Effects
    idempotency_key: str
    changed: bool = False
    note: str = ""
    is_unread: bool = False


def prepare(
    call: ToolCall, tools: Toolset, secrets: Secrets, run_id: str, *, of_turn: bool = False
) -> PreparedCall | ToolResult:
    """Returns the call with its tool, arguments and effects, or its failure. `of_turn`: the tools are those of one
    turn. Raises ToolDefinitionError if the tool's own declaration of effects fails."""
    tool = tools.get(call.name)
    if tool is None:
        tool = tools.deferred_tool(call.name)
        if tool is not None:
            return _prepare_unlisted(call, tool, secrets, run_id)
        suggestion = suggest(call.name, (one.name for one in tools))
        which = "no tool of this turn" if of_turn else "no tool"
        search = f" {FIND_TOOLS} finds others." if FIND_TOOLS in tools else ""
        return failure(call, "unknown_tool", f"{which} is called {suggestion}{search}")
    arguments = read_arguments(tool, call, secrets)
    if type(arguments) is ToolResult:
        return arguments
    return PreparedCall(call, tool, arguments, tool.effects_of(arguments), key_of(run_id, call.id))


def _prepare_unlisted(call: ToolCall, tool: Tool, secrets: Secrets, run_id: str) -> PreparedCall | ToolResult:
    """Returns the call of a deferred tool whose definition the model has not read, or its failure.

    The call runs only if its arguments are valid and it needs no approval. The model has guessed what the tool does
    from its name. A read that it did not mean does no harm, and a turn is saved; a write that it did not mean may, and
    a person who is asked about one must be able to rely on the model having read what the tool does.
    """
    arguments = read_arguments(tool, call, secrets)
    if type(arguments) is ToolResult:
        problem = f"{arguments.text}\nYou had not read the definition of {tool.name}. {NOW_LISTED}"
        return replace(arguments, content=(TextPart(problem),), extra={FOUND_TOOLS: [tool.name]})
    effects = tool.effects_of(arguments)
    if effects.needs_approval:
        reason = f"{tool.name} did not run: it may change something, and you had not read its definition. {NOW_LISTED}"
        return replace(failure(call, "unknown_tool", reason), extra={FOUND_TOOLS: [tool.name]})
    return PreparedCall(call, tool, arguments, effects, key_of(run_id, call.id), is_unread=True)


def read_arguments(tool: Tool, call: ToolCall, secrets: Secrets) -> Mapping[str, Any] | ToolResult:
    """Returns the function's keyword arguments with secrets revealed, or the failure that lists every problem.

    The revealed values stay within the executor until the function runs: an approver, an interceptor and the journal
    see the call, which holds placeholders. No problem shows a secret, or a part of one.
    """
    reveals = secrets.has_values and tool.reveals_secrets
    revealed_arguments = secrets.reveal(call.arguments) if reveals else call.arguments
    reading = _read(tool, revealed_arguments)
    if not isinstance(reading, (tuple, Exception)):
        return reading
    if revealed_arguments != call.arguments:
        # A problem may quote a part of a value, which `hide` would not recognise.
        reading = _without_values(reading, tool, call, secrets)
    if isinstance(reading, Exception):
        return failure(call, "invalid_arguments", f"the arguments of {tool.name!r} cannot be read: {describe(reading)}")
    problem_lines = "\n".join(f"- {problem.message}" for problem in reading)
    return failure(call, "invalid_arguments", f"the arguments of {tool.name!r} do not fit:\n{problem_lines}")


def _read(tool: Tool, arguments: Mapping[str, JSON]) -> _ArgumentReading | Exception:
    try:
        return tool.read_arguments(arguments)
    except Exception as error:  # noqa: BLE001 - a validator of the tool's own may raise anything
        return error


def _without_values(
    reading: tuple[ArgumentProblem, ...] | Exception, tool: Tool, call: ToolCall, secrets: Secrets
) -> tuple[ArgumentProblem, ...] | Exception:
    """The problems as they read with placeholders instead of the values, or without any value."""
    safe_reading = _read(tool, call.arguments)
    if isinstance(reading, Exception):
        return safe_reading if isinstance(safe_reading, Exception) else ToolError("a secret's value does not fit")
    problem_by_path = {problem.path: problem for problem in safe_reading} if isinstance(safe_reading, tuple) else {}
    paths_tell = _placeholder_as_key(call.arguments, secrets)
    problems: dict[ArgumentProblem, None] = {}
    for path in (problem.path for problem in reading):
        place = "" if paths_tell or not path else f"{path}: "
        problems[problem_by_path.get(path) or ArgumentProblem("", f"{place}the secret's value does not fit")] = None
    return tuple(problems)


def _placeholder_as_key(value: JSON, secrets: Secrets) -> bool:
    """Whether a key in the value may be a secret."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, JSON]", value)
        return any(secrets.reveal(key) != key or _placeholder_as_key(entries[key], secrets) for key in entries)
    if isinstance(value, list | tuple):
        return any(_placeholder_as_key(inner, secrets) for inner in cast("list[JSON]", value))
    return False
