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
    ReasoningPart,
    TextPart,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import FormatError
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.base64_data import ANY_IMAGE, require_bytes
from toolspeak.wire.json_conversion import (
    ConversationReader,
    invalid_field,
    optional_flag,
    optional_list,
    optional_text,
    require_name,
    require_object,
)
from toolspeak.wire.ollama.common import RUNTIME_OPTIONS


def decode_request(body: JSON) -> WireRequest:
    """See `WireFormat.decode_request`. Without `stream` the client wants a stream. A result without an id belongs to
    the first call of its tool that has no result."""
    fields = {**require_object(body, "the request")}
    model = require_name(fields.pop("model", None), "model")
    stream = optional_flag(fields.pop("stream", None), "stream")
    conversation = _OllamaConversation(model)
    conversation.read(fields.pop("messages", None))
    tools = tuple(
        _tool(tool, f"tools[{at}]") for at, tool in enumerate(optional_list(fields.pop("tools", None), "tools"))
    )
    output = None
    output_format = fields.get("format")
    if isinstance(output_format, dict):
        output = OutputSchema("response", cast("dict[str, JSON]", fields.pop("format")))
    elif output_format not in (None, "", "json"):
        raise invalid_field("format", "'json' or a JSON Schema", output_format)
    runtime = require_object(fields.pop("options", None) or {}, "options")
    options = {name: value for name, value in {**runtime, **fields}.items() if value is not None and value != ""}
    other_options = {name: value for name, value in runtime.items() if name not in RUNTIME_OPTIONS}
    if other_options:
        options = {name: value for name, value in options.items() if name not in other_options or name in fields}
        options["options"] = other_options
    request = ModelRequest(conversation.messages, tools, output=output, options=options)
    return WireRequest(request, model, stream is not False)


def _tool(tool: JSON, place: str) -> ToolSpec:
    function = require_object(require_object(tool, place).get("function"), f"{place}.function")
    parameters = require_object(function.get("parameters") or {"type": "object"}, f"{place}.function.parameters")
    return ToolSpec(
        require_name(function.get("name"), f"{place}.function.name"),
        optional_text(function.get("description"), f"{place}.function.description"),
        parameters,
    )


class _OllamaConversation(ConversationReader):
    def read(self, messages: JSON) -> None:
        items = optional_list(messages, "messages")
        if not items:  # a real server would load the model, or unload it
            raise FormatError("messages: at least one message is needed")
        for at, message in enumerate(items):
            place = f"messages[{at}]"
            fields = require_object(message, place)
            role = fields.get("role")
            match role:
                case "tool":
                    self.join("tool").append(self._result(fields, place))
                case "assistant":
                    self._read_assistant(fields, place)
                case "system" | "user":
                    self.begin(role).extend(_content(fields, place))
                case _:
                    raise invalid_field(f"{place}.role", "'system', 'user', 'assistant' or 'tool'", role)

    def _read_assistant(self, fields: Mapping[str, JSON], place: str) -> None:
        parts = self.begin("assistant")
        thinking = optional_text(fields.get("thinking"), f"{place}.thinking")
        if thinking:
            parts.append(ReasoningPart(thinking))
        parts += _content(fields, place)
        for i, item in enumerate(optional_list(fields.get("tool_calls"), f"{place}.tool_calls")):
            at = f"{place}.tool_calls[{i}]"
            call = require_object(item, at)
            call_id = optional_text(call.get("id"), f"{at}.id")
            function = require_object(call.get("function"), f"{at}.function")
            name = require_name(function.get("name"), f"{at}.function.name")
            arguments = require_object(function.get("arguments") or {}, f"{at}.function.arguments")
            parts.append(self.call(call_id, name, arguments))

    def _result(self, fields: Mapping[str, JSON], place: str) -> ToolResult:
        call_id = optional_text(fields.get("tool_call_id"), f"{place}.tool_call_id")
        name = optional_text(fields.get("tool_name"), f"{place}.tool_name")
        call = self.match_in_turn(call_id, name, place)
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
