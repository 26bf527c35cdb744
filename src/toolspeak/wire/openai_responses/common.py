"""What both roles of OpenAI Responses share: how items name tools, and the text of freeform tools. Sans-IO.

Sources: the OpenAI API reference, "Responses", `tools` and `tool_choice`, with the types of the `openai` package 3.54;
what codex 0.169 sends. A freeform tool (`custom`) takes a text in place of JSON: here it is a tool of one argument,
`input`. The functions of a namespace are tools named `namespace__function`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec

NAME = "openai-responses"

INPUT = "input"
"""The argument that is a freeform tool's text."""

BEFORE_INPUT, BEHIND_INPUT = f'{{"{INPUT}": "', '"}'
"""What makes arguments of such a text, as JSON (`within_json`)."""

_JOINT = "__"  # in Chat Completions a name has no other character between words


def own_name(spec: ToolSpec) -> tuple[str, str]:
    """The namespace of a tool, "" if it has none, and its name in there."""
    about: Any = spec.extra.get("namespace")
    return ("", spec.name) if about is None else (about["name"], spec.name.removeprefix(joined_name(about["name"], "")))


def joined_name(namespace: JSON, name: str) -> str:
    """The name by which a model knows a function of a namespace."""
    return f"{namespace.rstrip('_')}{_JOINT}{name}" if isinstance(namespace, str) and namespace else name


def is_freeform(spec: ToolSpec | None) -> bool:
    """Whether a tool takes a text."""
    return spec is not None and spec.extra.get("custom") is not None


def named(name: str, spec: ToolSpec | None) -> dict[str, JSON]:
    """How an item names its tool."""
    namespace, own = ("", name) if spec is None else own_name(spec)
    return {"namespace": namespace, "name": own} if namespace else {"name": own}


def text_input(arguments: Mapping[str, JSON]) -> str:
    """The text of a call of a freeform tool; the arguments as JSON if they are others than it has."""
    given = arguments.get(INPUT)
    return given if isinstance(given, str) and len(arguments) == 1 else json.dumps(dict(arguments), ensure_ascii=False)


def within_json(text: str) -> str:
    """A piece of a text as it stands in a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def search_query(arguments: Mapping[str, JSON]) -> str:
    """What a web search looks for: its `query`, or the first text, for tools name it as they like."""
    query = arguments.get("query")
    texts = [query, *arguments.values()]
    return next((text for text in texts if isinstance(text, str)), "")
