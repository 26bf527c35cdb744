"""Kimi: the tools in a separate message before the system text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import Prompt
from toolspeak.dialects.trained.template import Template, first_message, tool_array, tool_of


def _tool_declaration(default: str) -> Callable[[str, Sequence[ToolSpec]], Prompt]:
    """The template writes a message's name where others write its role."""
    return lambda system, tools: Prompt((tool_array(tools), system or default), name="tool_declare")


def _sort_keys(value: JSON) -> JSON:
    """With the keys of every object in order, regardless of case, like jinja's `dictsort`."""
    if isinstance(value, Mapping):
        mapping = as_mapping(value)
        return {key: _sort_keys(mapping[key]) for key in sorted(mapping, key=str.lower)}
    return [_sort_keys(each) for each in as_list(value)] if isinstance(value, list | tuple) else value


def _k3(tools: Sequence[ToolSpec]) -> str:
    tool_text = json.dumps([_sort_keys(tool_of(spec)) for spec in tools], ensure_ascii=False, separators=(",", ":"))
    return f"# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{tool_text}\n```"


K2 = Template(
    source="moonshotai/Kimi-K2-Instruct-0905, of K2 Thinking too",
    place=_tool_declaration("You are Kimi, an AI assistant created by Moonshot AI."),
)
K3 = Template(source="moonshotai/Kimi-K3", place=first_message(_k3))
