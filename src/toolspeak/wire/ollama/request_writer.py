"""Requests of Ollama's chat API as a client writes them. Sans-IO.

Source: Ollama's API documentation and its server's `api/types.go` (`ChatRequest`, `Message`, `Options`), and the types
of its Python package (ollama 0.6): arguments are objects, a result names its tool (`tool_name`), and only recent
servers have ids (`id`, `tool_call_id`). Roles are `system`, `user`, `assistant` and `tool`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import cast

from toolspeak.data.messages import (
    FAILURE_PREFIX,
    JSON,
    ContentPart,
    ImagePart,
    MalformedCall,
    Message,
    ReasoningPart,
    Role,
    TextMessage,
    ToolCall,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.json_conversion import call_ids, check_request, text_of, without_lone_surrogates
from toolspeak.wire.ollama.common import NAME, RUNTIME_OPTIONS

_OWN_FIELDS = ("model", "messages", "stream", "tools")
"""Fields that options cannot set."""


def encode_request(request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
    """See `WireFormat.encode_request`.

    The API has no tool choice: leave out tools that must not be called. It does not enforce `required`. It has no field
    for `ModelRequest.parallel`, and needs none for `cache`.
    """
    check_request(request, _OWN_FIELDS, format_name=NAME)
    body: dict[str, JSON] = {"model": model, "messages": _messages(request.messages), "stream": stream}
    if request.tools:  # the API has no tool choice: a driver puts it into the prompt
        body["tools"] = [_declaration(tool) for tool in request.tools]
    if request.output is not None:
        body["format"] = request.output.schema
    runtime: dict[str, JSON] = {}
    for name, value in request.options.items():
        if name == "options":
            runtime = {**cast("Mapping[str, JSON]", value or {}), **runtime}
        elif name in RUNTIME_OPTIONS:
            runtime[name] = value
        else:
            body[name] = value
    if any(value is not None for value in runtime.values()):
        body["options"] = {name: value for name, value in runtime.items() if value is not None}
    return {name: without_lone_surrogates(value) for name, value in body.items() if value is not None}


def _declaration(tool: ToolSpec) -> JSON:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _messages(messages: Sequence[Message | TextMessage]) -> list[JSON]:
    """The conversation, with results right after their calls, in the calls' order. Results of malformed calls are user
    messages."""
    ids = call_ids(messages)
    order = {own: place for place, own in enumerate(ids)}
    out: list[JSON] = []
    results: list[ToolResult] = []
    for message in [*messages, None]:
        parts = message.parts if isinstance(message, Message) else ()
        new_results = [part for part in parts if isinstance(part, ToolResult)]
        results += new_results
        if message is not None and message.role == "tool" and new_results:
            continue
        results.sort(key=lambda result: order.get(result.call_id, len(order)))
        out += [_result(result, ids) for result in results if result.call_id in ids]
        out += [_message("user", result.content) for result in results if result.call_id not in ids]
        results = []
        if isinstance(message, TextMessage):
            out.append({"role": message.role, "content": message.text})
        elif message is not None and message.role == "assistant":
            out.append(_assistant(message, ids))
        elif message is not None:
            role: Role = "user" if message.role == "tool" else message.role
            out.append(_message(role, [part for part in message.parts if isinstance(part, ContentPart)]))
    return out


def _message(role: Role, parts: Sequence[ContentPart]) -> dict[str, JSON]:
    """A message with images as bytes. An image with only a URL becomes a line of text, and so does a file."""
    images = [part.data for part in parts if isinstance(part, ImagePart) and part.data is not None]
    text_parts = [part for part in parts if not isinstance(part, ImagePart) or part.data is None]
    message: dict[str, JSON] = {"role": role, "content": text_of(text_parts)}
    if images:
        message["images"] = [base64.b64encode(image).decode() for image in images]
    return message


def _result(result: ToolResult, ids: Mapping[str, str]) -> dict[str, JSON]:
    message = _message("tool", result.content)
    if result.status == "failure" and not message["content"].lower().startswith("error"):
        message["content"] = FAILURE_PREFIX + message["content"]  # the API has no field for it
    return {**message, "tool_name": result.name, "tool_call_id": ids[result.call_id]}


def _assistant(message: Message, ids: Mapping[str, str]) -> JSON:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[JSON] = []
    for part in message.parts:
        match part:
            case ReasoningPart(text, opaque):
                # A chat template accepts only the model's own reasoning, not reasoning signed by another API.
                if opaque is None or opaque.provider == NAME:
                    thoughts.append(text)
            case ToolCall():
                function = {"index": len(calls), "name": part.name, "arguments": dict(part.arguments)}
                calls.append({"id": ids[part.id], "function": function})
            case MalformedCall():
                texts.append(part.raw)
            case ToolResult():
                pass
            case _:
                texts.append(text_of([part]))
    fields: dict[str, JSON] = {"role": "assistant", "content": "\n".join(text for text in texts if text)}
    if thoughts:
        fields["thinking"] = "".join(thoughts)
    if calls:
        fields["tool_calls"] = calls
    return fields
