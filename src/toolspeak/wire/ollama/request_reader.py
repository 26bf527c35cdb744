"""Requests of Ollama's chat API as a server reads them. Sans-IO.

Source: as in `request_writer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import FormatError
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.base64_data import ANY_IMAGE, require_bytes
from toolspeak.wire.conversation_reader import Awaiting
from toolspeak.wire.ollama.common import RUNTIME_OPTIONS
from toolspeak.wire.validation import (
    invalid_field,
    optional_flag,
    optional_list,
    optional_text,
    require_name,
    require_object,
)


def decode_request(body: JSON) -> WireRequest:
    """See `Ollama.decode_request`."""
    fields = {**require_object(body, "the request")}
    model = require_name(fields.pop("model", None), "model")
    stream = optional_flag(fields.pop("stream", None), "stream")
    messages = _Reader().conversation(fields.pop("messages", None))
    tools = tuple(
        _tool(tool, f"tools[{at}]") for at, tool in enumerate(optional_list(fields.pop("tools", None), "tools"))
    )
    output = None
    shape = fields.get("format")
    if isinstance(shape, dict):
        output = OutputSchema("response", cast("dict[str, JSON]", fields.pop("format")))
    elif shape not in (None, "", "json"):
        raise invalid_field("format", "'json' or a JSON Schema", shape)
    runtime = require_object(fields.pop("options", None) or {}, "options")
    options = {name: value for name, value in {**runtime, **fields}.items() if value is not None and value != ""}
    unknown = {name: value for name, value in runtime.items() if name not in RUNTIME_OPTIONS}
    if unknown:
        options = {name: value for name, value in options.items() if name not in unknown or name in fields}
        options["options"] = unknown
    return WireRequest(ModelRequest(messages, tools, output=output, options=options), model, stream is not False)


def _tool(tool: JSON, place: str) -> ToolSpec:
    function = require_object(require_object(tool, place).get("function"), f"{place}.function")
    parameters = require_object(function.get("parameters") or {"type": "object"}, f"{place}.function.parameters")
    return ToolSpec(
        require_name(function.get("name"), f"{place}.function.name"),
        optional_text(function.get("description"), f"{place}.function.description"),
        parameters,
    )


class _Reader:
    def __init__(self) -> None:
        self._awaiting = Awaiting()

    def conversation(self, messages: JSON) -> list[Message]:
        items = optional_list(messages, "messages")
        if not items:  # a real server would load the model, or unload it
            raise FormatError("messages: at least one message is needed")
        found: list[Message] = []
        for at, message in enumerate(items):
            place = f"messages[{at}]"
            fields = require_object(message, place)
            role = fields.get("role")
            match role:
                case "tool":
                    result = self._result(fields, place)
                    if found and found[-1].role == "tool":
                        found[-1] = Message("tool", (*found[-1].parts, result))
                    else:
                        found.append(Message("tool", (result,)))
                case "assistant":
                    found.append(self._assistant(fields, place))
                case "system" | "user":
                    found.append(Message(role, _content(fields, place)))
                case _:
                    raise invalid_field(f"{place}.role", "'system', 'user', 'assistant' or 'tool'", role)
        return found

    def _assistant(self, fields: Mapping[str, JSON], place: str) -> Message:
        thinking = optional_text(fields.get("thinking"), f"{place}.thinking")
        parts: list[Part] = [ReasoningPart(thinking)] if thinking else []
        parts += _content(fields, place)
        calls = [
            self._call(require_object(call, f"{place}.tool_calls[{at}]"), f"{place}.tool_calls[{at}]")
            for at, call in enumerate(optional_list(fields.get("tool_calls"), f"{place}.tool_calls"))
        ]
        self._awaiting.begin(calls)
        return Message("assistant", (*parts, *calls))

    def _call(self, call: Mapping[str, JSON], place: str) -> ToolCall:
        given = optional_text(call.get("id"), f"{place}.id")
        function = require_object(call.get("function"), f"{place}.function")
        name = require_name(function.get("name"), f"{place}.function.name")
        arguments = require_object(function.get("arguments") or {}, f"{place}.function.arguments")
        return ToolCall(self._awaiting.id_of(given), name, arguments, given or None)

    def _result(self, fields: Mapping[str, JSON], place: str) -> ToolResult:
        given = optional_text(fields.get("tool_call_id"), f"{place}.tool_call_id")
        name = optional_text(fields.get("tool_name"), f"{place}.tool_name")
        call = self._awaiting.take(given, name, place)
        return ToolResult(call.id, call.name, "success", _content(fields, place) or (TextPart(""),))


def _content(fields: Mapping[str, JSON], place: str) -> tuple[ContentPart, ...]:
    text = optional_text(fields.get("content"), f"{place}.content")
    images = [
        ImagePart(ANY_IMAGE, require_bytes(image, f"{place}.images[{at}]"))
        for at, image in enumerate(optional_list(fields.get("images"), f"{place}.images"))
    ]
    if not text:
        return tuple(images)
    return (TextPart(text), *images)
