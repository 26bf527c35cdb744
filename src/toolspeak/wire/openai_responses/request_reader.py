"""Requests of OpenAI Responses as a server reads them. Sans-IO.

The server stores nothing: a client sends the whole conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    MalformedCall,
    Opaque,
    ReasoningPart,
    Role,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import FormatError
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.base64_data import file_of, image_of
from toolspeak.wire.json_conversion import (
    ConversationReader,
    invalid_field,
    optional_flag,
    optional_list,
    optional_text,
    require_name,
    require_object,
    require_text,
)
from toolspeak.wire.openai_responses.common import INPUT, NAME, namespace_and_name, qualified_name

_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}

_UNSUPPORTED_FIELDS: Mapping[str, str] = {
    "previous_response_id": "responses are not stored here: send the whole conversation as 'input', with store: false",
    "conversation": "conversations are not stored here: send the whole conversation as 'input', with store: false",
    "prompt": "prompt templates are not stored here: send 'instructions' and 'input'",
    "background": "responses are not stored here: omit 'background', and read the answer or its stream",
}

_KNOWN_FIELDS = (
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "store",
    "stream",
)

_CLIENT_TOOLS = ("function", "custom", "namespace")


def decode_request(body: JSON) -> WireRequest:
    """See `WireFormat.decode_request`. Tools that the API runs itself (`web_search`), a `tool_choice` that names one,
    and the fields of `text` other than a JSON Schema go into `options`. A tool of the type `custom` has one argument,
    `input`. An output without a call keeps its id, or "" if it has none."""
    fields = require_object(body, "the request")
    for name, why in _UNSUPPORTED_FIELDS.items():
        if fields.get(name):
            raise FormatError(f"{name}: {why}")
    model = require_name(fields.get("model"), "model")
    options = {
        name: value for name, value in fields.items() if name not in _KNOWN_FIELDS and name not in _UNSUPPORTED_FIELDS
    }
    tools, api_tools = _tools(fields.get("tools"))
    if api_tools:
        options["tools"] = api_tools
    choice, tools, other_choice = _choice(fields.get("tool_choice"), tools)
    if other_choice is not None:
        options["tool_choice"] = other_choice
    output, text = _text(fields.get("text"))
    if text:
        options["text"] = text
    conversation = _ResponsesConversation(model)
    conversation.read(fields)
    request = ModelRequest(
        conversation.messages,
        tools=tools,
        choice=choice,
        parallel=optional_flag(fields.get("parallel_tool_calls"), "parallel_tool_calls"),
        output=output,
        options=options,
        keep=optional_flag(fields.get("store"), "store") is True,
    )
    return WireRequest(request, model, stream=optional_flag(fields.get("stream"), "stream") is True)


class _ResponsesConversation(ConversationReader):
    """Adjacent items of the assistant (text, reasoning, calls) become one message, and so do adjacent outputs."""

    def read(self, body: dict[str, JSON]) -> None:
        instructions = body.get("instructions")
        if instructions is not None and require_text(instructions, "instructions"):
            self.begin("system").append(TextPart(instructions))
        items = body.get("input")
        if isinstance(items, str):
            self.begin("user").append(TextPart(items))
            return
        if not isinstance(items, list):
            raise invalid_field("input", "a string or a list of items", items)
        for i, item in enumerate(cast("list[JSON]", items)):
            self._read_item(require_object(item, f"input[{i}]"), f"input[{i}]")

    def _read_item(self, item: dict[str, JSON], place: str) -> None:
        kind = item.get("type", "message")
        match kind:
            case "message":
                self._read_message(item, place)
            case "function_call":
                self.join("assistant").append(self._call(item, place))
            case "custom_tool_call":
                self.join("assistant").append(self._freeform(item, place))
            case "function_call_output" | "custom_tool_call_output":
                self.join("tool").append(self._result(item, place))
            case "reasoning":
                self.join("assistant").append(_reasoning(item, self.model, place))
            case "mcp_call":
                self._read_hosted_call(item, place)
            case "mcp_list_tools" | "web_search_call":
                pass  # nothing for the model: the item does not hold the results of a search
            case "item_reference":
                raise FormatError(f"{place}: items are not stored here: send the item itself, with store: false")
            case _:
                raise FormatError(f"{place}.type: {kind!r} is not supported here: omit the item")

    def _read_message(self, item: dict[str, JSON], place: str) -> None:
        role = _ROLES.get(require_text(item.get("role"), f"{place}.role"))
        if role is None:
            raise invalid_field(f"{place}.role", "user, assistant, system or developer", item["role"])
        content = item.get("content")
        if isinstance(content, str):
            parts: list[ContentPart] = [TextPart(content)]
        else:
            parts = _content(content, f"{place}.content")
        if role != "assistant":
            self.begin(role).extend(parts)
            return
        own_fields = {name: item[name] for name in ("id", "phase") if item.get(name)}
        opaque = Opaque(NAME, self.model, own_fields) if own_fields else None
        for part in parts:
            self.join("assistant").append(TextPart(part.text, opaque) if isinstance(part, TextPart) else part)

    def _call(self, item: dict[str, JSON], place: str) -> ToolCall | MalformedCall:
        call_id = optional_text(item.get("call_id"), f"{place}.call_id")
        name = qualified_name(item.get("namespace"), require_name(item.get("name"), f"{place}.name"))
        raw = require_text(item.get("arguments"), f"{place}.arguments")
        return self.call_from_text(call_id, name, raw, self._opaque(item))

    def _freeform(self, item: dict[str, JSON], place: str) -> ToolCall:
        call_id = optional_text(item.get("call_id"), f"{place}.call_id")
        name = require_name(item.get("name"), f"{place}.name")
        arguments = {INPUT: require_text(item.get("input"), f"{place}.input")}
        return self.call(call_id, name, arguments, opaque=self._opaque(item))

    def _read_hosted_call(self, item: dict[str, JSON], place: str) -> None:
        """A call that the server ran in an earlier turn, with its result."""
        name = qualified_name(item.get("server_label"), require_name(item.get("name"), f"{place}.name"))
        raw = require_text(item.get("arguments"), f"{place}.arguments")
        item_id = optional_text(item.get("id"), f"{place}.id")
        parts = self.join("assistant")
        call = self.call_from_text(item_id, name, raw)
        parts.append(call)
        self.match_by_id(item_id)
        text, is_error = _hosted_result(item)
        status, code = ("failure", "exception") if is_error else ("success", None)
        self.join("tool").append(ToolResult(call.id, name, status, (TextPart(text),), code))

    def _opaque(self, item: dict[str, JSON]) -> Opaque | None:
        return Opaque(NAME, self.model, {"id": item["id"]}) if item.get("id") else None

    def _result(self, item: dict[str, JSON], place: str) -> ToolResult:
        call_id, name = self.match_by_id(optional_text(item.get("call_id"), f"{place}.call_id"))
        output = item.get("output")
        content = [TextPart(output)] if isinstance(output, str) else _content(output, f"{place}.output")
        return ToolResult(call_id, name or "", "success", tuple(content))


def _reasoning(item: dict[str, JSON], model: str, place: str) -> ReasoningPart:
    texts: list[str] = []
    for field in ("summary", "content"):
        for i, each in enumerate(optional_list(item.get(field), f"{place}.{field}")):
            at = f"{place}.{field}[{i}]"
            texts.append(require_text(require_object(each, f"{at}").get("text"), f"{at}.text"))
    return ReasoningPart("\n\n".join(text for text in texts if text), Opaque(NAME, model, item))


def _content(content: JSON, place: str) -> list[ContentPart]:
    if not isinstance(content, list):
        raise invalid_field(f"{place}", "a string or a list of parts", content)
    parts: list[ContentPart] = []
    for i, each in enumerate(cast("list[JSON]", content)):
        at = f"{place}[{i}]"
        part = require_object(each, f"{at}")
        part_reader = _PARTS.get(cast("str", part.get("type"))) if isinstance(part.get("type"), str) else None
        if part_reader is None:
            raise FormatError(f"{at}.type: unknown value {part.get('type')!r}; known: {', '.join(_PARTS)}")
        parts.append(part_reader(part, at))
    return parts


def _image(part: dict[str, JSON], place: str) -> ContentPart:
    if part.get("image_url") is None:
        raise FormatError(f"{place}.image_url: files are not stored here: send a URL or a data URL")
    image = image_of(require_text(part["image_url"], f"{place}.image_url"), f"{place}.image_url")
    detail = part.get("detail")
    if detail in (None, "auto"):
        return image
    return type(image)(image.media_type, image.data, image.url, extra={"detail": detail})


def _file(part: dict[str, JSON], place: str) -> ContentPart:
    if part.get("file_data") is None:
        raise FormatError(
            f"{place}.file_data: files are neither stored nor fetched here: send the content as base64 in a data URL"
        )
    name = part.get("filename")
    content = require_text(part["file_data"], f"{place}.file_data")
    return file_of(name if isinstance(name, str) else "", content, f"{place}.file_data")


def _text_part(field: str) -> Callable[[dict[str, JSON], str], ContentPart]:
    return lambda part, place: TextPart(require_text(part.get(field), f"{place}.{field}"))


_PARTS: Mapping[str, Callable[[dict[str, JSON], str], ContentPart]] = {
    "input_text": _text_part("text"),
    "output_text": _text_part("text"),
    "text": _text_part("text"),
    "refusal": _text_part("refusal"),
    "input_image": _image,
    "input_file": _file,
}


def _text(value: JSON) -> tuple[OutputSchema | None, dict[str, JSON]]:
    """The output's schema, and the rest of `text`."""
    if value is None:
        return None, {}
    text = require_object(value, "text")
    if text.get("format") is None:
        return None, text
    form = require_object(text["format"], "text.format")
    if form.get("type") != "json_schema":
        return None, {name: value for name, value in text.items() if name != "format" or form != {"type": "text"}}
    description: Any = form.get("description")
    output = OutputSchema(
        require_name(form.get("name"), "text.format.name"),
        require_object(form.get("schema"), "text.format.schema"),
        optional_flag(form.get("strict"), "text.format.strict") is True,
        "" if description is None else require_text(description, "text.format.description"),
    )
    return output, {name: value for name, value in text.items() if name != "format"}


def _hosted_result(item: Mapping[str, JSON]) -> tuple[str, bool]:
    """The text of an `mcp_call`'s result, and whether the call failed."""
    error, output = item.get("error"), item.get("output")
    if not error:
        return (output if isinstance(output, str) else ""), False
    if isinstance(error, str):
        return error, True
    content: Any = cast("dict[str, Any]", error).get("content") if isinstance(error, dict) else None
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str)) or json.dumps(error, ensure_ascii=False), True


def _tools(value: JSON) -> tuple[list[ToolSpec], list[JSON]]:
    """The tools that the client runs, and those that the API runs itself (`web_search`)."""
    specs: list[ToolSpec] = []
    others: list[JSON] = []
    for i, each in enumerate(optional_list(value, "tools")):
        tool = require_object(each, f"tools[{i}]")
        match require_name(tool.get("type"), f"tools[{i}].type"):
            case "function":
                specs.append(_function(tool, f"tools[{i}]"))
            case "custom":
                specs.append(_custom(tool, f"tools[{i}]"))
            case "namespace":
                specs += _namespace(tool, f"tools[{i}]")
            case _:
                others.append(tool)
    return specs, others


def _function(tool: dict[str, JSON], place: str) -> ToolSpec:
    if "function" in tool and "name" not in tool:
        raise FormatError(f"{place}.name: missing; unlike in Chat Completions, write it next to 'type'")
    parameters = tool.get("parameters")
    return ToolSpec(
        require_name(tool.get("name"), f"{place}.name"),
        _description(tool, place),
        {"type": "object", "properties": {}}
        if parameters is None
        else require_object(parameters, f"{place}.parameters"),
        extra={"strict": True} if optional_flag(tool.get("strict"), f"{place}.strict") else {},
    )


def _custom(tool: dict[str, JSON], place: str) -> ToolSpec:
    kind = require_object(tool.get("format") or {"type": "text"}, f"{place}.format")
    input_description = "What the tool reads: plain text."
    if kind.get("type") == "grammar":
        syntax = require_text(kind.get("syntax"), f"{place}.format.syntax")
        definition = require_text(kind.get("definition"), f"{place}.format.definition")
        input_description = f"What the tool reads: text of this {syntax} grammar.\n{definition}"
    return ToolSpec(
        require_name(tool.get("name"), f"{place}.name"),
        _description(tool, place),
        {
            "type": "object",
            "properties": {INPUT: {"type": "string", "description": input_description}},
            "required": [INPUT],
            "additionalProperties": False,
        },
        extra={"custom": {name: value for name, value in tool.items() if name not in ("type", "name", "description")}},
    )


def _namespace(tool: dict[str, JSON], place: str) -> list[ToolSpec]:
    fields: dict[str, JSON] = {name: value for name, value in tool.items() if name not in ("type", "tools")}
    namespace = require_name(tool.get("name"), f"{place}.name")
    specs: list[ToolSpec] = []
    for i, each in enumerate(optional_list(tool.get("tools"), f"{place}.tools")):
        at = f"{place}.tools[{i}]"
        inner = require_object(each, at)
        if inner.get("type") != "function":
            raise invalid_field(f"{at}.type", "function", inner.get("type"))
        spec = _function(inner, at)
        name = qualified_name(namespace, spec.name)
        specs.append(ToolSpec(name, spec.description, spec.parameters, extra={**spec.extra, "namespace": fields}))
    return specs


def _description(tool: dict[str, JSON], place: str) -> str:
    return "" if tool.get("description") is None else require_text(tool["description"], f"{place}.description")


def _choice(value: JSON, specs: list[ToolSpec]) -> tuple[ToolChoice, list[ToolSpec], JSON]:
    """The choice, the tools that it allows, and the field unchanged if it names a tool that the API runs itself."""
    if value is None:
        return ToolChoice(), specs, None
    if value in ("auto", "none", "required"):
        return ToolChoice(value), specs, None
    if not isinstance(value, dict):
        raise invalid_field("tool_choice", "auto, none, required or an object", value)
    choice = cast("dict[str, JSON]", value)
    if choice.get("type") in ("function", "custom"):
        name = qualified_name(choice.get("namespace"), require_name(choice.get("name"), "tool_choice.name"))
        return ToolChoice("specific", name), specs, None
    if choice.get("type") != "allowed_tools":
        return ToolChoice(), specs, choice
    mode = choice.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise invalid_field("tool_choice.mode", "auto or required", mode)
    allowed_names: set[str] = set()
    for i, each in enumerate(optional_list(choice.get("tools"), "tool_choice.tools")):
        tool = require_object(each, f"tool_choice.tools[{i}]")
        if tool.get("type") not in _CLIENT_TOOLS:
            continue  # the API's own
        name = require_name(tool.get("name"), f"tool_choice.tools[{i}].name")
        if tool["type"] == "namespace":
            names = {spec.name for spec in specs if namespace_and_name(spec)[0] == name}
        else:
            names = {spec.name for spec in specs if spec.name == qualified_name(tool.get("namespace"), name)}
        if not names:
            raise FormatError(f"tool_choice.tools[{i}].name: no tool is called {name!r}; name one of tools")
        allowed_names |= names
    return ToolChoice(mode), [spec for spec in specs if spec.name in allowed_names], None
