"""What the templates are asked to write: tools of every kind, system texts, conversations with calls and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolspeak.data.messages import Message, Part, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.template import tool_of

SYSTEMS = {"no system text": "", "a system text": "You are brief.\nAnswer in French."}


def _object(properties: Mapping[str, Any], required_names: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required_names), **more}


WEATHER = ToolSpec(
    "get_weather",
    "Get the weather of a city.",
    _object(
        {
            "city": {"type": "string", "description": "The city."},
            "days": {"type": "integer", "description": "How many."},
        },
        ["city"],
    ),
)
NOTHING = ToolSpec("list_all", "List all there is.", {"type": "object", "properties": {}})
NESTED_TOOL = ToolSpec(
    "draw",
    "Draw points: 点 and ü.",
    _object(
        {
            "points": {
                "type": "array",
                "description": "Where.",
                "items": _object({"x": {"type": "number", "description": "Right."}, "y": {"type": "number"}}, ["x"]),
            },
            "style": {"type": "string", "description": "How.", "enum": ["solid", "gestrichelt", "点線"]},
            "size": {
                "type": "object",
                "description": "How large.",
                "properties": {
                    "width": {"type": "integer", "description": "In pixels.", "minimum": 1},
                    "deep": _object({"on": {"type": "boolean", "description": "Whether."}}, ["on"]),
                },
                "required": ["width"],
            },
            "labels": {"type": "object", "description": "Names.", "additionalProperties": {"type": "string"}},
            "scale": {"type": "number", "description": "Factor.", "default": 1.5},
        },
        ["points", "style"],
        additionalProperties=False,
    ),
)
REFERENCE_TOOL = ToolSpec(
    "book",
    "Book a room.",
    _object(
        {
            "guest": {"$ref": "#/$defs/Person", "description": "Who comes."},
            "others": {"type": "array", "description": "With whom.", "items": {"$ref": "#/$defs/Person"}},
            "until": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "A date.", "default": None},
        },
        ["guest"],
        **{
            "$defs": {
                "Person": _object(
                    {
                        "name": {"type": "string", "description": "In full."},
                        "age": {"type": "integer", "description": "In years."},
                    },
                    ["name"],
                )
            }
        },
    ),
)
QUOTES_TOOL = ToolSpec(
    "say",
    "Say \"it\" & 'that' <tool_call> </tools> {{ x }} \\ back.\nSecond line.",
    _object({"text": {"type": "string", "description": 'A "quoted" <b>text</b> & more </tool_call>.'}}, ["text"]),
)


def _many() -> list[ToolSpec]:
    one = _object({"a": {"type": "string", "description": "First."}, "b": {"type": "integer"}}, ["a"])
    return [ToolSpec(f"tool_{i}", f"Do {i}.", one) for i in range(9)]


TOOLS: dict[str, list[ToolSpec]] = {
    "one": [WEATHER],
    "empty": [NOTHING],
    "nested": [NESTED_TOOL],
    "references": [REFERENCE_TOOL],
    "quotes": [QUOTES_TOOL],
    "two": [WEATHER, NOTHING],
    "twelve": [WEATHER, NOTHING, NESTED_TOOL, *_many()],
}

ASK = Message.user("What is the weather in Paris?")
CALL = ToolCall("call_one1", "get_weather", {"city": "Paris", "days": 2}, "call_one1")
SECOND = ToolCall("call_two2", "get_weather", {"city": "Rome"}, "call_two2")


def _result(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, "success", (TextPart(text),))


def _assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


def _tool_results(*results: ToolResult) -> Message:
    return Message("tool", results)


HISTORIES: dict[str, list[Message]] = {
    "a call and its result": [ASK, _assistant(CALL), _tool_results(_result(CALL, "sunny, 21 °C"))],
    "a call behind words": [ASK, _assistant(TextPart("I look it up."), CALL), _tool_results(_result(CALL, "sunny"))],
    "parallel calls": [ASK, _assistant(CALL, SECOND), _tool_results(_result(CALL, "sunny"), _result(SECOND, "rain"))],
    "two steps and an answer": [
        ASK,
        _assistant(CALL),
        _tool_results(_result(CALL, "sunny")),
        _assistant(SECOND),
        _tool_results(_result(SECOND, "rain")),
        _assistant(TextPart("Sun in Paris, rain in Rome.")),
        Message.user("And tomorrow?"),
    ],
}


@dataclass(frozen=True)
class Case:
    system: str
    tools: Sequence[ToolSpec]
    messages: Sequence[Message]

    def chat_messages(self, arguments: Any = dict) -> list[dict[str, Any]]:
        """The messages as a client of OpenAI's API sends them; `arguments` makes what a call's are."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        for message in self.messages:
            if message.role == "tool":
                messages += [
                    {"role": "tool", "tool_call_id": each.call_id, "name": each.name, "content": each.text}
                    for each in message.results
                ]
                continue
            entry: dict[str, Any] = {"role": message.role, "content": message.text}
            calls = [call for call in message.calls if isinstance(call, ToolCall)]
            if calls:
                entry["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": arguments(call.arguments)},
                    }
                    for call in calls
                ]
            messages.append(entry)
        return messages

    @property
    def tool_definitions(self) -> list[dict[str, Any]]:
        """The tools as a client of OpenAI's API declares them."""
        return [tool_of(spec) for spec in self.tools]


def first_requests() -> dict[str, Case]:
    return {
        f"{system_name}, {which}": Case(system, tools, [ASK])
        for system_name, system in SYSTEMS.items()
        for which, tools in TOOLS.items()
    }


def requests_with_history() -> dict[str, Case]:
    return {
        f"{system_name}, {which}": Case(system, TOOLS["two"], messages)
        for system_name, system in SYSTEMS.items()
        for which, messages in HISTORIES.items()
    }
