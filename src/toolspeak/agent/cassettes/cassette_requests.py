"""A request to a model, as a cassette stores it and as a person compares it."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from toolspeak.data.codec import dump
from toolspeak.data.messages import JSON, Message, TextMessage
from toolspeak.wire.base import ModelRequest

_DIFF_LINES = 60


def request_json(request: ModelRequest) -> dict[str, JSON]:
    """All of a request; what is not set is left out."""
    fields: dict[str, JSON] = {
        "messages": [_message(message) for message in request.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in request.tools
        ],
        "choice": request.choice.name if request.choice.mode == "specific" else request.choice.mode,
    }
    output, earlier, constraint = request.output, request.earlier, request.constraint
    if output is not None:
        fields["output"] = [output.name, output.schema, output.strict, output.description]
    if earlier is not None:
        fields["earlier"] = [earlier.response_id, earlier.messages]
    rest = {
        "parallel": request.parallel,
        "options": request.options,
        "cache": request.cache,
        "keep": request.keep,
        "constraint": constraint and [constraint.target, _digest(constraint.source)],
    }
    return fields | {name: value for name, value in rest.items() if value}


def _message(message: Message | TextMessage) -> JSON:
    data = dump(message)
    del data["format"]
    if isinstance(message, TextMessage):
        del data["type"]
    return data


def digest_of(request: Mapping[str, JSON]) -> str:
    """SHA-256 (hex) of a request; calls count by their order, not by their ids."""
    return _digest(json.dumps(_number_calls(request), sort_keys=True, default=dict))


def _number_calls(request: Mapping[str, JSON]) -> dict[str, JSON]:
    """The request with calls numbered in the order in which they were made: a run that lost a turn with its process has
    other ids than one that did not."""
    numbers: dict[str, str] = {}

    def number_part(part: Mapping[str, JSON]) -> Mapping[str, JSON]:
        match part.get("type"):
            case "ToolCall" | "MalformedCall":
                numbers[part["id"]] = name = f"call {len(numbers) + 1}"
                return {**part, "id": name}
            case "ToolResult":
                return {**part, "call_id": numbers.get(part["call_id"], part["call_id"])}
            case _:
                return part

    messages = [
        {**message, "parts": [number_part(part) for part in message["parts"]]} if "parts" in message else message
        for message in request["messages"]
    ]
    return {**request, "messages": messages}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def shorten_request(request: Mapping[str, JSON], before: Mapping[str, JSON] | None) -> dict[str, JSON]:
    """The request without what it has in common with the one before: its first messages, and its tools."""
    messages = request["messages"]
    earlier: list[JSON] = [] if before is None else before["messages"]
    same = 0
    while same < min(len(messages), len(earlier)) and messages[same] == earlier[same]:
        same += 1
    line = {**request, "messages": messages[same:]}
    if before is not None and line["tools"] == before["tools"]:
        del line["tools"]
    return {"same": same, **line} if same else line


def restore_request(line: Mapping[str, JSON], before: Mapping[str, JSON] | None) -> dict[str, JSON]:
    """The request that `shortened` made shorter. Raises LookupError and TypeError for anything else."""
    request = dict(line)
    same = request.pop("same", 0)
    earlier: Mapping[str, JSON] = {"messages": []} if before is None else before
    request["messages"] = [*earlier["messages"][:same], *request["messages"]]
    if "tools" not in request:
        request["tools"] = earlier["tools"]
    return request


def differences(earlier: Mapping[str, JSON], current: Mapping[str, JSON]) -> str:
    """What changed from one request to the other: which fields, and a diff of what a person can read."""
    earlier, current = _number_calls(earlier), _number_calls(current)
    names = [name for name in {**earlier, **current} if earlier.get(name) != current.get(name)]
    if _is_native(earlier) != _is_native(current):
        recorded_form, now = ("the API's own", "written in text")[:: 1 if _is_native(earlier) else -1]
        names.append(f"calls were {recorded_form} and are {now} (another dialect)")
    sides = [list(_lines(earlier)), list(_lines(current))]
    if sides[0] == sides[1]:
        sides = [
            json.dumps(each, indent=1, ensure_ascii=False, sort_keys=True).split("\n") for each in (earlier, current)
        ]
    lines = list(difflib.unified_diff(sides[0], sides[1], "recorded", "asked now", n=1, lineterm=""))
    more = [f"… and {len(lines) - _DIFF_LINES} lines more"] if len(lines) > _DIFF_LINES else []
    return "\n".join([f"different: {', '.join(names)}", *lines[:_DIFF_LINES], *more])


def _is_native(request: Mapping[str, JSON]) -> bool:
    return bool(request["tools"]) or any("type" in message for message in request["messages"])


def _lines(request: Mapping[str, JSON]) -> Iterator[str]:
    for tool in request["tools"]:
        yield from f"tool {tool['name']}: {tool['description']}".split("\n")
        yield f"  {json.dumps(tool['parameters'], ensure_ascii=False, sort_keys=True)}"
    for name, value in request.items():
        if name not in ("tools", "messages"):
            yield f"{name}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}"
    for message in request["messages"]:
        yield f"[{message['role']}]"
        if "text" in message:
            yield from message["text"].split("\n")
        for part in cast("Sequence[Mapping[str, Any]]", message.get("parts", ())):
            yield from _part_lines(part)


def _part_lines(part: Mapping[str, Any]) -> Iterator[str]:
    match part["type"]:
        case "TextPart" | "ReasoningPart":
            yield from part["text"].split("\n")
        case "ToolCall":
            yield f"call {part['id']}: {part['name']} {json.dumps(part.get('arguments', {}), ensure_ascii=False)}"
        case "ToolResult":
            yield f"result {part['call_id']}: {part['status']}"
            for inner in part.get("content", ()):
                yield from _part_lines(inner)
        case kind:
            yield f"{kind} {json.dumps(part, ensure_ascii=False, sort_keys=True)}"
