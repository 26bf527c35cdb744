"""What both roles of OpenAI Responses share: how items name tools, and the text of freeform tools. Sans-IO.

Sources: the OpenAI API reference, "Responses", `tools` and `tool_choice`, with the types of the `openai` package 3.54;
the requests of codex 0.169. The input of a freeform tool (`custom`) is text instead of JSON: here it is a tool with one
argument, `input`. The functions of a namespace are tools with the name `namespace__function`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec

NAME = "openai-responses"

INPUT = "input"
"""The argument that holds a freeform tool's text."""

INPUT_START, INPUT_END = f'{{"{INPUT}": "', '"}'
"""The JSON before and after the `escaped` text in the arguments."""

_SEPARATOR = "__"  # names in Chat Completions allow no other separator


def namespace_and_name(spec: ToolSpec) -> tuple[str, str]:
    """The namespace of a tool ("" if it has none), and the tool's name in it."""
    namespace: Any = spec.extra.get("namespace")
    return (
        ("", spec.name)
        if namespace is None
        else (namespace["name"], spec.name.removeprefix(qualified_name(namespace["name"], "")))
    )


def qualified_name(namespace: JSON, name: str) -> str:
    """The model's name for a function of a namespace."""
    return f"{namespace.rstrip('_')}{_SEPARATOR}{name}" if isinstance(namespace, str) and namespace else name


def is_freeform(spec: ToolSpec | None) -> bool:
    """Whether a tool's input is text instead of JSON."""
    return spec is not None and spec.extra.get("custom") is not None


def name_fields(name: str, spec: ToolSpec | None) -> dict[str, JSON]:
    """The fields with which an item names its tool."""
    namespace, own_name = ("", name) if spec is None else namespace_and_name(spec)
    return {"namespace": namespace, "name": own_name} if namespace else {"name": own_name}


def freeform_text(arguments: Mapping[str, JSON]) -> str:
    """The text of a freeform tool's call; the arguments as JSON if they are not one text."""
    text = arguments.get(INPUT)
    return text if isinstance(text, str) and len(arguments) == 1 else json.dumps(dict(arguments), ensure_ascii=False)


def json_fragment(text: str) -> str:
    """A fragment of text, escaped for a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def search_query(arguments: Mapping[str, JSON]) -> str:
    """The query of a web search: the argument `query`, else the first string, since tools use various names."""
    query = arguments.get("query")
    texts = [query, *arguments.values()]
    return next((text for text in texts if isinstance(text, str)), "")
