"""Mistral: the tools between `[AVAILABLE_TOOLS]` and its end, before the user's last message."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import Prompt
from toolspeak.dialects.trained.template import Template, dump, function_of, tool_array


def _raw(value: object) -> str:
    """Like Nemo's template: a text between quotes, without escapes."""
    return f'"{value}"' if isinstance(value, str) else dump(value)


def _nemo_tool(spec: ToolSpec) -> str:
    keys = ", ".join(f'"{key}": {_raw(value)}' for key, value in function_of(spec).items())
    return f'{{"type": "function", "function": {{{keys}}}}}'


def _nemo_tools(tools: Sequence[ToolSpec]) -> str:
    return f"[{', '.join(map(_nemo_tool, tools))}]"


def _nemo(system: str, tools: Sequence[ToolSpec]) -> Prompt:
    return Prompt((system,), f"[AVAILABLE_TOOLS]{_nemo_tools(tools)}[/AVAILABLE_TOOLS]", "last")


def _tekken(system: str, tools: Sequence[ToolSpec]) -> Prompt:
    return Prompt((system,), f"[AVAILABLE_TOOLS]{tool_array(tools)}[/AVAILABLE_TOOLS]", "last")


NEMO = Template(source="mistralai/Mistral-Nemo-Instruct-2407", place=_nemo)
TEKKEN = Template(source="mistralai/Mistral-Small-3.2-24B-Instruct-2506, of Devstral and Ministral too", place=_tekken)
