"""Llama 3: the tools before the user's first message."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.prompt import Prompt
from toolspeak.dialects.trained.template import Template, dump, tool_of

_RULES = (
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that best "
    'answers the given prompt.\n\nRespond in the format {"name": function name, "parameters": dictionary of argument '
    "name and its value}.Do not use variables.\n\n"
)


def _place(system: str, tools: Sequence[ToolSpec]) -> Prompt:
    tool_text = "".join(f"{dump(tool_of(spec), indent=4)}\n\n" for spec in tools)
    return Prompt((system,), _RULES + tool_text, "first")


LLAMA31 = Template(source="meta-llama/Llama-3.1-8B-Instruct, of 3.2 and 3.3 too", place=_place)
