"""Requests of OpenAI Chat Completions as a server reads them. Sans-IO.

Source: the OpenAI API reference, "Chat Completions".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    MalformedCall,
    Opaque,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import FormatError
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.base64_data import ANY_IMAGE, read_data_url
from toolspeak.wire.json_conversion import (
    ConversationReader,
    describe,
    invalid_field,
    optional_flag,
    optional_list,
    optional_text,
    require_name,
    require_object,
    require_text,
)
from toolspeak.wire.openai_chat.common import NAME, REASONING_FIELDS

_REQUEST_FIELDS = ("model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls")

_REMOVED_FIELDS = {"functions": "tools", "function_call": "tool_choice"}

_MESSAGE_FIELDS = frozenset(
    ("role", "content", "refusal", "tool_calls", "function_call", *REASONING_FIELDS, "reasoning_details")
)

_CALL_FIELDS = frozenset(("id", "type", "function", "index"))


def decode_request(body: JSON) -> WireRequest:
    """See `WireFormat.decode_request`."""
    fields = require_object(body, "the request")
    for old, new in _REMOVED_FIELDS.items():
        if fields.get(old) is not None:
            raise FormatError(f"{old}: the API no longer has this field; send {new}")
    if fields.get("n") not in (None, 1):
        raise FormatError(f"n: expected 1, found {describe(fields['n'])}; send a request for each answer")
    model = require_name(fields.get("model"), "model")
    stream = optional_flag(fields.get("stream"), "stream") or False
    tools = [
        _tool(require_object(tool, f"tools[{i}]"), f"tools[{i}]")
        for i, tool in enumerate(optional_list(fields.get("tools"), "tools"))
    ]
    choice, tools = _choice(fields.get("tool_choice"), tools)
    options = {name: value for name, value in fields.items() if name not in _REQUEST_FIELDS and value is not None}
    output = _output(options.get("response_format"))
    if output is not None:
        del options["response_format"]
    conversation = _ChatConversation(model)
    conversation.read(fields.get("messages"))
    request = ModelRequest(
        conversation.messages,
        tuple(tools),
        choice,
        optional_flag(fields.get("parallel_tool_calls"), "parallel_tool_calls") if tools else None,
        output,
        options,
    )
    return WireRequest(request, model, stream, not stream or _include_usage(fields.get("stream_options")))


def _include_usage(value: JSON) -> bool:
    if value is None:
        return False
    options = require_object(value, "stream_options")
    return optional_flag(options.get("include_usage"), "stream_options.include_usage") or False


def _tool(tool: dict[str, JSON], place: str) -> ToolSpec:
    if tool.get("type") != "function":
        raise FormatError(f"{place}.type: only 'function' is supported, found {describe(tool.get('type'))}")
    function = require_object(tool.get("function"), f"{place}.function")
    name = require_name(function.get("name"), f"{place}.function.name")
    description = require_text(function.get("description") or "", f"{place}.function.description")
    parameters: dict[str, JSON] = {"type": "object", "properties": {}}
    if function.get("parameters") is not None:
        parameters = require_object(function["parameters"], f"{place}.function.parameters")
    strict = optional_flag(function.get("strict"), f"{place}.function.strict")
    return ToolSpec(name, description, parameters, extra={} if strict is None else {"strict": strict})


def _choice(value: JSON, tools: list[ToolSpec]) -> tuple[ToolChoice, list[ToolSpec]]:
    """The choice, and the tools that it allows."""
    if value in (None, "auto", "none", "required"):
        if not tools:
            if value == "required":
                raise FormatError("tool_choice: 'required' needs tools; send some, or omit it")
            return ToolChoice(), tools
        return ToolChoice(value or "auto"), tools
    if isinstance(value, str):
        raise FormatError(f"tool_choice: unknown value {describe(value)}; write auto, none, required or an object")
    choice = require_object(value, "tool_choice")
    if choice.get("type") == "function":
        function = require_object(choice.get("function"), "tool_choice.function")
        name = require_name(function.get("name"), "tool_choice.function.name")
        _check_name(name, tools, "tool_choice.function.name")
        return ToolChoice("specific", name), tools
    if choice.get("type") == "allowed_tools":
        allowed_tools = require_object(choice.get("allowed_tools"), "tool_choice.allowed_tools")
        place = "tool_choice.allowed_tools.tools"
        names: set[str] = set()
        for i, each in enumerate(optional_list(allowed_tools.get("tools"), place)):
            function = require_object(require_object(each, f"{place}[{i}]").get("function"), f"{place}[{i}].function")
            name = require_name(function.get("name"), f"{place}[{i}].function.name")
            _check_name(name, tools, f"{place}[{i}].function.name")
            names.add(name)
        mode = allowed_tools.get("mode")
        if mode not in ("auto", "required"):
            raise invalid_field("tool_choice.allowed_tools.mode", "auto or required", mode)
        return ToolChoice(mode), [tool for tool in tools if tool.name in names]
    kind = describe(choice.get("type"))
    raise FormatError(f"tool_choice.type: unknown value {kind}; write function or allowed_tools")


def _check_name(name: str, tools: list[ToolSpec], place: str) -> None:
    if all(tool.name != name for tool in tools):
        raise FormatError(f"{place}: no tool is called {describe(name)}; name one of tools")


def _output(value: JSON) -> OutputSchema | None:
    """The schema of `json_schema`; other types of `response_format` stay options."""
    if value is None:
        return None
    form = require_object(value, "response_format")
    if form.get("type") != "json_schema":
        return None
    place = "response_format.json_schema"
    schema_fields = require_object(form.get("json_schema"), place)
    return OutputSchema(
        require_name(schema_fields.get("name"), f"{place}.name"),
        require_object(schema_fields.get("schema"), f"{place}.schema"),
        optional_flag(schema_fields.get("strict"), f"{place}.strict") or False,
        require_text(schema_fields.get("description") or "", f"{place}.description"),
    )


class _ChatConversation(ConversationReader):
    """Adjacent results become one message. A result without a call keeps its id, or "" if it has none. Fields that only
    this format has go into the message's `extra`, under the format's name."""

    def read(self, value: JSON) -> None:
        items = optional_list(value, "messages")
        if not items:
            raise FormatError("messages: at least one message is needed")
        for i, item in enumerate(items):
            self._read_message(require_object(item, f"messages[{i}]"), f"messages[{i}]")

    def _read_message(self, item: dict[str, JSON], place: str) -> None:
        role = require_text(item.get("role"), f"{place}.role")
        match role:
            case "system" | "developer":
                parts = self.begin("system", _extra(item, _MESSAGE_FIELDS))
                parts += _content(item.get("content"), f"{place}.content", media=False)
            case "user":
                parts = self.begin("user", _extra(item, _MESSAGE_FIELDS))
                parts += _content(item.get("content"), f"{place}.content")
            case "assistant":
                self._read_assistant(self.begin("assistant", _extra(item, _MESSAGE_FIELDS)), item, place)
            case "tool":
                call_id = optional_text(item.get("tool_call_id"), f"{place}.tool_call_id")
                self.join("tool").append(self._result(call_id, item, place))
            case "function":
                self.join("tool").append(self._result("", item, place))
            case _:
                raise FormatError(
                    f"{place}.role: unknown value {describe(role)}; write system, developer, user, assistant or tool"
                )

    def _read_assistant(self, parts: list[Part], item: dict[str, JSON], place: str) -> None:
        parts += self._reasoning(item, place)
        parts += _content(item.get("content"), f"{place}.content", media=False)
        if item.get("refusal") is not None:
            parts.append(TextPart(require_text(item["refusal"], f"{place}.refusal")))
        for i, call in enumerate(optional_list(item.get("tool_calls"), f"{place}.tool_calls")):
            parts.append(self._call(call, f"{place}.tool_calls[{i}]"))
        if item.get("function_call") is not None:  # the API before 2023-11: one call, without an id
            parts.append(self._function("", item["function_call"], {}, f"{place}.function_call"))

    def _reasoning(self, item: dict[str, JSON], place: str) -> list[ReasoningPart]:
        parts: list[ReasoningPart] = []
        for field in REASONING_FIELDS:
            if item.get(field) is not None:
                text = require_text(item[field], f"{place}.{field}")
                parts.append(ReasoningPart(text, Opaque(NAME, self.model, {"field": field})))
        details = optional_list(item.get("reasoning_details"), f"{place}.reasoning_details")
        if details:
            parts.append(ReasoningPart("", Opaque(NAME, self.model, {"reasoning_details": details})))
        return parts

    def _call(self, value: JSON, place: str) -> ToolCall | MalformedCall:
        item = require_object(value, place)
        if item.get("type", "function") != "function":
            raise FormatError(f"{place}.type: only 'function' is supported, found {describe(item['type'])}")
        rest = {key: each for key, each in item.items() if key not in _CALL_FIELDS and each is not None}
        return self._function(optional_text(item.get("id"), f"{place}.id"), item.get("function"), rest, place)

    def _function(self, call_id: str, value: JSON, rest: dict[str, JSON], place: str) -> ToolCall | MalformedCall:
        at = place if place.endswith(".function_call") else f"{place}.function"
        function = require_object(value, at)
        name = require_name(function.get("name"), f"{at}.name")
        raw = function.get("arguments")
        if isinstance(raw, dict):
            raw = json.dumps(raw, ensure_ascii=False)
        raw = require_text(raw if raw is not None else "", f"{at}.arguments")
        return self.call_from_text(call_id, name, raw, Opaque(NAME, self.model, rest) if rest else None)

    def _result(self, call_id: str, item: dict[str, JSON], place: str) -> ToolResult:
        call_id, name = self.match_by_id(call_id)
        content = _content(item.get("content"), f"{place}.content", media=False)
        if name is None:
            name = optional_text(item.get("name"), f"{place}.name")
        return ToolResult(call_id, name, "success", tuple(content))


def _extra(item: Mapping[str, JSON], fields: frozenset[str]) -> dict[str, JSON]:
    rest = {name: value for name, value in item.items() if name not in fields and value is not None}
    return {NAME: rest} if rest else {}


def _content(value: JSON, place: str, *, media: bool = True) -> list[ContentPart]:
    """Reads a string or a list of parts. Without `media` only text is allowed."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [TextPart(value)]
    if not isinstance(value, list):
        raise invalid_field(place, "a string or a list of parts", value)
    return [_part(part, f"{place}[{i}]", media) for i, part in enumerate(cast("list[Any]", value))]


def _part(value: JSON, place: str, media: bool) -> ContentPart:
    part = require_object(value, place)
    kind = part.get("type")
    if kind == "text":
        return TextPart(
            require_text(part.get("text"), f"{place}.text"), extra=_extra(part, frozenset(("type", "text")))
        )
    if kind == "refusal" and not media:
        return TextPart(require_text(part.get("refusal"), f"{place}.refusal"))
    if kind == "image_url" and media:
        return _image(part.get("image_url"), f"{place}.image_url")
    if kind == "file" and media:
        return _file(require_object(part.get("file"), f"{place}.file"), f"{place}.file")
    part_types = "text, image_url or file" if media else "text"
    raise FormatError(f"{place}.type: {describe(kind)} is not allowed here; write {part_types}")


def _image(value: JSON, place: str) -> ImagePart:
    image = {"url": value} if isinstance(value, str) else require_object(value, place)
    url = require_name(image.get("url"), f"{place}.url")
    extra = _extra(image, frozenset(("url",)))
    if not url.startswith("data:"):
        return ImagePart(ANY_IMAGE, url=url, extra=extra)
    media_type, data = read_data_url(url, f"{place}.url")
    return ImagePart(media_type or ANY_IMAGE, data, extra=extra)


def _file(file: dict[str, JSON], place: str) -> FilePart:
    if file.get("file_data") is None:
        raise FormatError(f"{place}: send the file itself, as file_data; this server has no stored files")
    media_type, data = read_data_url(require_text(file["file_data"], f"{place}.file_data"), f"{place}.file_data")
    name = require_text(file.get("filename") or "file", f"{place}.filename")
    return FilePart(name, media_type or "application/octet-stream", data)
