"""The declaration of what a model's own chat template writes for tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import Prompt

ToolPlacement: TypeAlias = Callable[[str, Sequence[ToolSpec]], Prompt]
"""Makes the prompt from the agent's own system text, which may be empty, and its tools (at least one)."""

WriteTools: TypeAlias = Callable[[Sequence[ToolSpec]], str]
WriteTurn: TypeAlias = Callable[[str, Sequence[ToolCall | MalformedCall], str], str]
"""Makes the text of a turn with calls from the model's text, the calls, and the text that the dialect wrote for them."""

WriteResults: TypeAlias = Callable[[Sequence[ToolResult], Sequence[str]], str]
"""Makes one message of a batch's results, from these and the text of each, which is without live markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a chat template writes for tools."""

    source: str
    """The model with this template."""
    place: ToolPlacement
    models: tuple[str, ...] = ()
    """The families with this template, as in `DialectInfo.models`; a dialect's first template is for all others."""
    gap: str | None = None
    """The text between a turn's text and its calls; None: as the dialect writes it."""
    turn: WriteTurn | None = None
    """Writes a turn with calls where `gap` does not say it all."""
    results: WriteResults | None = None
    """Writes results in a user message; None: as the dialect does."""
    tool_turns: bool = False
    """Each result is a message of role `tool` without an id. The template writes the frame around its text."""


def apart(text: str, _calls: Sequence[ToolCall | MalformedCall], block: str) -> str:
    """Writes an empty line between the text and the calls. Strips the white space around the text."""
    return f"{text.strip()}\n\n{block}" if text.strip() else block


def in_a_new_line(text: str, _calls: Sequence[ToolCall | MalformedCall], block: str) -> str:
    """Writes the calls on a new line, even without text."""
    return f"{text}\n{block}"


def in_system(write: WriteTools, *, joint: str = "\n\n", default: str = "", lead: str = "") -> ToolPlacement:
    """Writes the system text, or `default` without one, then `joint` and the tools.

    If both are empty, `lead` precedes the tools.
    """

    def place(system: str, tools: Sequence[ToolSpec]) -> Prompt:
        text = system or default
        return Prompt((f"{text}{joint}{write(tools)}" if text else lead + write(tools),))

    return place


def before_system(write: WriteTools, *, joint: str = "\n\n", default: str = "") -> ToolPlacement:
    """Writes the tools, then `joint` and the system text, or `default` without one."""

    def place(system: str, tools: Sequence[ToolSpec]) -> Prompt:
        text = system or default
        return Prompt((f"{write(tools)}{joint}{text}" if text else write(tools),))

    return place


def first_message(write: WriteTools) -> ToolPlacement:
    """Writes the tools in a separate system message before the system text."""

    def place(system: str, tools: Sequence[ToolSpec]) -> Prompt:
        return Prompt((write(tools), system) if system else (write(tools),))

    return place


def fill_tools(text: str, write: WriteTools) -> WriteTools:
    """Writes `text` with its `{tools}` replaced by the tools."""
    return lambda tools: text.replace("{tools}", write(tools))


def function_of(spec: ToolSpec) -> dict[str, Any]:
    """A tool's function as servers pass it to chat templates: `name`, `description`, `parameters`, in this order."""
    description = {"description": spec.description} if spec.description else {}
    return {"name": spec.name, **description, "parameters": spec.parameters}


def tool_of(spec: ToolSpec) -> dict[str, Any]:
    """A tool as servers pass it to chat templates."""
    return {"type": "function", "function": function_of(spec)}


def dump(value: Any, indent: int | None = None) -> str:
    """JSON as the filter `tojson` of Hugging Face's chat templates writes it."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def tool_lines(tools: Sequence[ToolSpec]) -> str:
    """One line of JSON for each tool."""
    return "\n".join(dump(tool_of(spec)) for spec in tools)


def function_lines(tools: Sequence[ToolSpec]) -> str:
    """One line of JSON for each tool's function."""
    return "\n".join(dump(function_of(spec)) for spec in tools)


def function_array(tools: Sequence[ToolSpec]) -> str:
    """All tools' functions as one JSON array."""
    return dump([function_of(spec) for spec in tools])


def tool_array(tools: Sequence[ToolSpec]) -> str:
    """All tools as one JSON array."""
    return dump([tool_of(spec) for spec in tools])
