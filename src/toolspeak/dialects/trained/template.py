"""How a model's own chat template writes tools, as a declaration."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import Prompt

Place: TypeAlias = Callable[[str, Sequence[ToolSpec]], Prompt]
"""From the agent's own system text, empty if there is none, and its tools (at least one), what is sent of both."""

WriteTools: TypeAlias = Callable[[Sequence[ToolSpec]], str]
WriteTurn: TypeAlias = Callable[[str, Sequence[ToolCall | MalformedCall], str], str]
"""The text of a turn with calls: from what the model said, the calls, and these as the dialect writes them."""

WriteResults: TypeAlias = Callable[[Sequence[ToolResult], Sequence[str]], str]
"""A batch's results in one message: from the results, and each as bare text without live markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What the chat template of `source` does with tools.

    `models` are the families whose template it is, as in `DialectInfo.models`; a dialect's first template is that of
    models which no other one names. `turn` and `results` are for templates that write a turn with calls, or results in
    a message of the user, otherwise than the dialect does. `tool_turns`: the template writes the frame of a result
    itself, around the bare text of a message of role `tool`, each its own, and asks for no id.
    """

    source: str
    place: Place
    models: tuple[str, ...] = ()
    turn: WriteTurn | None = None
    results: WriteResults | None = None
    tool_turns: bool = False


def directly(text: str, _calls: Sequence[ToolCall | MalformedCall], block: str) -> str:
    """A turn whose calls stand right behind its text."""
    return text + block


def in_a_new_line(text: str, _calls: Sequence[ToolCall | MalformedCall], block: str) -> str:
    """A turn whose calls stand in a new line, also where there is no text."""
    return f"{text}\n{block}"


def in_system(write: WriteTools, *, joint: str = "\n\n", default: str = "", lead: str = "") -> Place:
    """The tools behind the system text and `joint`. Where there is no system text, `default` is it; where that is
    empty too, the tools stand alone, behind `lead`."""

    def place(system: str, tools: Sequence[ToolSpec]) -> Prompt:
        text = system or default
        return Prompt((f"{text}{joint}{write(tools)}" if text else lead + write(tools),))

    return place


def before_system(write: WriteTools, *, joint: str = "\n\n", default: str = "") -> Place:
    """The tools, `joint` and the system text, or `default` where there is none."""

    def place(system: str, tools: Sequence[ToolSpec]) -> Prompt:
        text = system or default
        return Prompt((f"{write(tools)}{joint}{text}" if text else write(tools),))

    return place


def function_of(spec: ToolSpec) -> dict[str, Any]:
    """A tool's function as chat templates are given it: `name`, `description`, `parameters`, in this order."""
    description = {"description": spec.description} if spec.description else {}
    return {"name": spec.name, **description, "parameters": spec.parameters}


def tool_of(spec: ToolSpec) -> dict[str, Any]:
    """A tool as chat templates are given it."""
    return {"type": "function", "function": function_of(spec)}


def dump(value: Any, indent: int | None = None) -> str:
    """JSON as the filter `tojson` writes it in Hugging Face's chat templates."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def tool_lines(tools: Sequence[ToolSpec]) -> str:
    """One line of JSON for each tool."""
    return "\n".join(dump(tool_of(spec)) for spec in tools)


def function_lines(tools: Sequence[ToolSpec]) -> str:
    """One line of JSON for each tool's function."""
    return "\n".join(dump(function_of(spec)) for spec in tools)


def tool_array(tools: Sequence[ToolSpec]) -> str:
    """All tools as one JSON array."""
    return dump([tool_of(spec) for spec in tools])
