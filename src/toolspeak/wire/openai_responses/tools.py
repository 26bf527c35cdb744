"""The tools of OpenAI Responses, both roles: functions, freeform tools (`custom`), functions in a namespace. Sans-IO.

Sources: the OpenAI API reference, "Responses", `tools` and `tool_choice`, with the types of the `openai` package 3.54;
what codex 0.169 sends. A freeform tool takes a text in place of JSON: here it is a tool of one argument, `input`. The
functions of a namespace are tools named `namespace__function`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from toolspeak.data.messages import JSON, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import FormatError
from toolspeak.wire.asked import asked_flag, asked_list, asked_name, asked_object, asked_text, wrong

INPUT = "input"
"""The argument that is a freeform tool's text."""
BEFORE_INPUT, BEHIND_INPUT = f'{{"{INPUT}": "', '"}'
"""What makes arguments of such a text, as JSON (`within_json`)."""

_JOINT = "__"  # in Chat Completions a name has no other character between words
_ANY_OF_OURS = ("function", "custom", "namespace")


def encode_tools(specs: Iterable[ToolSpec]) -> list[JSON]:
    """The request's tools, those of one namespace in one entry."""
    tools: list[JSON] = []
    spaces: dict[str, list[JSON]] = {}
    for spec in specs:
        about: Any = spec.extra.get("namespace")
        if is_freeform(spec):
            given: Any = spec.extra["custom"]
            tools.append({"type": "custom", "name": spec.name, "description": spec.description, **given})
        elif about is not None:
            if about["name"] not in spaces:
                spaces[about["name"]] = []
                tools.append({"type": "namespace", **about, "tools": spaces[about["name"]]})
            spaces[about["name"]].append({**_function(spec), "name": own_name(spec)[1]})
        else:
            tools.append(_function(spec))
    return tools


def _function(spec: ToolSpec) -> dict[str, JSON]:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
        # The API's own default would be strict, which refuses schemas with optional arguments.
        "strict": spec.extra.get("strict") is True,
    }


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


def call_item(name: str, arguments: Mapping[str, JSON], call_id: str, specs: Mapping[str, ToolSpec]) -> dict[str, JSON]:
    """A call as an item of a conversation."""
    spec = specs.get(name)
    if is_freeform(spec):
        return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": text_input(arguments)}
    text = json.dumps(dict(arguments), ensure_ascii=False)
    return {"type": "function_call", "call_id": call_id, **named(name, spec), "arguments": text}


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


def hosted_result(item: Mapping[str, JSON]) -> tuple[str, bool]:
    """The text of an `mcp_call`'s result, and whether it failed."""
    error, output = item.get("error"), item.get("output")
    if not error:
        return (output if isinstance(output, str) else ""), False
    if isinstance(error, str):
        return error, True
    content: Any = cast("dict[str, Any]", error).get("content") if isinstance(error, dict) else None
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str)) or json.dumps(error, ensure_ascii=False), True


def decode_tools(given: JSON) -> tuple[list[ToolSpec], list[JSON]]:
    """The tools that the client runs, and those that the API runs itself (`web_search`)."""
    specs: list[ToolSpec] = []
    others: list[JSON] = []
    for i, each in enumerate(asked_list(given, "tools")):
        tool = asked_object(each, f"tools[{i}]")
        match asked_name(tool.get("type"), f"tools[{i}].type"):
            case "function":
                specs.append(_read_function(tool, f"tools[{i}]"))
            case "custom":
                specs.append(_read_custom(tool, f"tools[{i}]"))
            case "namespace":
                specs += _read_namespace(tool, f"tools[{i}]")
            case _:
                others.append(tool)
    return specs, others


def _read_function(tool: dict[str, JSON], place: str) -> ToolSpec:
    if "function" in tool and "name" not in tool:
        raise FormatError(f"{place}.name: it is nested as Chat Completions wants it; write it beside the type")
    parameters = tool.get("parameters")
    return ToolSpec(
        asked_name(tool.get("name"), f"{place}.name"),
        _description(tool, place),
        {"type": "object", "properties": {}} if parameters is None else asked_object(parameters, f"{place}.parameters"),
        extra={"strict": True} if asked_flag(tool.get("strict"), f"{place}.strict") else {},
    )


def _read_custom(tool: dict[str, JSON], place: str) -> ToolSpec:
    kind = asked_object(tool.get("format") or {"type": "text"}, f"{place}.format")
    said = "What the tool reads: plain text."
    if kind.get("type") == "grammar":
        syntax = asked_text(kind.get("syntax"), f"{place}.format.syntax")
        definition = asked_text(kind.get("definition"), f"{place}.format.definition")
        said = f"What the tool reads: text of this {syntax} grammar.\n{definition}"
    return ToolSpec(
        asked_name(tool.get("name"), f"{place}.name"),
        _description(tool, place),
        {
            "type": "object",
            "properties": {INPUT: {"type": "string", "description": said}},
            "required": [INPUT],
            "additionalProperties": False,
        },
        extra={"custom": {name: value for name, value in tool.items() if name not in ("type", "name", "description")}},
    )


def _read_namespace(tool: dict[str, JSON], place: str) -> list[ToolSpec]:
    about: dict[str, JSON] = {name: value for name, value in tool.items() if name not in ("type", "tools")}
    namespace = asked_name(tool.get("name"), f"{place}.name")
    specs: list[ToolSpec] = []
    for i, each in enumerate(asked_list(tool.get("tools"), f"{place}.tools")):
        at = f"{place}.tools[{i}]"
        inner = asked_object(each, at)
        if inner.get("type") != "function":
            raise wrong(f"{at}.type", "function", inner.get("type"))
        spec = _read_function(inner, at)
        name = joined_name(namespace, spec.name)
        specs.append(ToolSpec(name, spec.description, spec.parameters, extra={**spec.extra, "namespace": about}))
    return specs


def _description(tool: dict[str, JSON], place: str) -> str:
    return "" if tool.get("description") is None else asked_text(tool["description"], f"{place}.description")


def encode_choice(choice: ToolChoice, specs: Sequence[ToolSpec]) -> JSON:
    if choice.mode != "specific":
        return choice.mode
    spec = next((spec for spec in specs if spec.name == choice.name), None)
    if spec is None:
        return {"type": "function", "name": choice.name}
    return {"type": "custom" if is_freeform(spec) else "function", **named(spec.name, spec)}


def decode_choice(given: JSON, specs: list[ToolSpec]) -> tuple[ToolChoice, list[ToolSpec], JSON]:
    """The choice, the tools that it leaves, and what was asked if it is a tool that the API runs itself."""
    if given is None:
        return ToolChoice(), specs, None
    if given in ("auto", "none", "required"):
        return ToolChoice(given), specs, None
    if not isinstance(given, dict):
        raise wrong("tool_choice", "auto, none, required or an object", given)
    choice = cast("dict[str, JSON]", given)
    if choice.get("type") in ("function", "custom"):
        name = joined_name(choice.get("namespace"), asked_name(choice.get("name"), "tool_choice.name"))
        return ToolChoice("specific", name), specs, None
    if choice.get("type") != "allowed_tools":
        return ToolChoice(), specs, choice
    mode = choice.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise wrong("tool_choice.mode", "auto or required", mode)
    allowed: set[str] = set()
    for i, each in enumerate(asked_list(choice.get("tools"), "tool_choice.tools")):
        tool = asked_object(each, f"tool_choice.tools[{i}]")
        if tool.get("type") not in _ANY_OF_OURS:
            continue  # the API's own
        name = asked_name(tool.get("name"), f"tool_choice.tools[{i}].name")
        if tool["type"] == "namespace":
            found = {spec.name for spec in specs if own_name(spec)[0] == name}
        else:
            found = {spec.name for spec in specs if spec.name == joined_name(tool.get("namespace"), name)}
        if not found:
            raise FormatError(f"tool_choice.tools[{i}].name: no tool is called {name!r}; name one of tools")
        allowed |= found
    return ToolChoice(mode), [spec for spec in specs if spec.name in allowed], None
