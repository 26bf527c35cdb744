"""Requests of Gemini's generateContent API as a server reads them. Sans-IO.

Field names may have either spelling that Google's servers accept, `functionCall` or `function_call`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    JsonPart,
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
from toolspeak.wire.base64_data import ANY_IMAGE, require_bytes
from toolspeak.wire.gemini.common import GENERATION_FIELDS, NAME, short_name
from toolspeak.wire.json_conversion import (
    ConversationReader,
    invalid_field,
    optional_list,
    optional_text,
    require_name,
    require_object,
)

FILE_NAME = "file"
"""The name of a file, since the API has none."""

_PATH = re.compile(r"(?:^|/)(?:models/)?([^/]+):(generateContent|streamGenerateContent)$")
_SNAKE = re.compile(r"_([a-z0-9])")
_OUTPUT_FIELDS = ("responseMimeType", "responseJsonSchema", "responseSchema")


def _read_path(path: str) -> tuple[str, bool]:
    """The model in the path of a request, and whether the client wants a stream. Raises FormatError."""
    match = _PATH.search(path.partition("?")[0])
    if match is None:
        raise FormatError(f"unknown path {path!r}; POST to /v1beta/models/<model>:generateContent")
    return match[1], match[2] == "streamGenerateContent"


def decode_request_at(path: str, body: JSON) -> WireRequest:
    """Reads a request from its body and its path, which holds the model and whether to stream. Raises FormatError with
    the field."""
    model, stream = _read_path(path)
    fields = {**cast("dict[str, JSON]", body), "model": model} if isinstance(body, dict) else body
    return replace(decode_request(fields), stream=stream)


def decode_request(body: JSON) -> WireRequest:
    """See `WireFormat.decode_request`. `model` is empty unless the body names it, as in the API's batches; `stream` is
    False. Use `decode_request_at` if the path is known."""
    fields = _camel(require_object(body, "the request"))
    model = short_name(optional_text(fields.pop("model", None), "model"))
    conversation = _GeminiConversation(model)
    instruction = fields.pop("systemInstruction", None)
    if instruction is not None:
        conversation.begin("system").extend(conversation.parts(instruction, "systemInstruction", "user"))
    conversation.read(fields.pop("contents", None))
    tools = [*_tools(fields.pop("tools", None))]
    choice, tools = _choice(fields.pop("toolConfig", None), tools)
    output, options = _generation(fields.pop("generationConfig", None))
    options = {**options, **{name: value for name, value in fields.items() if value is not None}}
    return WireRequest(ModelRequest(conversation.messages, tuple(tools), choice, output=output, options=options), model)


def _camel(fields: dict[str, JSON]) -> dict[str, JSON]:
    """The fields in camel case, without those that are null."""
    return {_camel_name(name): value for name, value in fields.items() if value is not None}


def _camel_name(name: str) -> str:
    return _SNAKE.sub(lambda match: match[1].upper(), name)


def _object_at(fields: Mapping[str, JSON], name: str, place: str) -> dict[str, JSON]:
    return _camel(require_object(fields[name], f"{place}.{name}"))


class _GeminiConversation(ConversationReader):
    def read(self, contents: JSON) -> None:
        items = optional_list(contents, "contents")
        if not items:
            raise FormatError("contents: at least one content is needed")
        for at, content in enumerate(items):
            place = f"contents[{at}]"
            role = optional_text(require_object(content, place).get("role"), f"{place}.role") or "user"
            if role not in ("user", "model", "function", "tool"):
                raise invalid_field(f"{place}.role", "'user' or 'model'", role)
            parts = self.parts(content, place, role)
            if role == "model":
                self.begin("assistant").extend(parts)
                continue
            results = [part for part in parts if isinstance(part, ToolResult)]
            others = [part for part in parts if not isinstance(part, ToolResult)]
            if results:
                self.begin("tool").extend(results)
            if others:
                self.begin("user").extend(others)

    def parts(self, content: JSON, place: str, role: str) -> list[Part]:
        fields = require_object(content, place)
        return [
            self._part(_camel(require_object(part, f"{place}.parts[{at}]")), f"{place}.parts[{at}]", role)
            for at, part in enumerate(optional_list(fields.get("parts"), f"{place}.parts"))
        ]

    def _part(self, part: dict[str, JSON], place: str, role: str) -> Part:
        if "functionResponse" in part:
            return self._result(_object_at(part, "functionResponse", place), f"{place}.functionResponse")
        if "functionCall" in part:
            return self._call(
                _object_at(part, "functionCall", place), f"{place}.functionCall", self._rest(part, "functionCall")
            )
        if "inlineData" in part:
            return _inline_media(
                _object_at(part, "inlineData", place), f"{place}.inlineData", self._rest(part, "inlineData")
            )
        if "fileData" in part:
            return _media_at_url(_object_at(part, "fileData", place), f"{place}.fileData", self._rest(part, "fileData"))
        if "text" in part:
            text = optional_text(part["text"], f"{place}.text")
            opaque = self._rest(part, "text", "thought")
            return ReasoningPart(text, opaque) if part.get("thought") else TextPart(text, opaque)
        if role == "model":
            return TextPart("", self._rest(part))  # the API's own tools, for example: sent back unchanged
        raise FormatError(f"{place}: expected text, inlineData, fileData, functionCall or functionResponse")

    def _rest(self, part: dict[str, JSON], *fields_read: str) -> Opaque | None:
        """The other fields of a part, which are sent back with it."""
        rest = {name: value for name, value in part.items() if name not in fields_read}
        return Opaque(NAME, self.model, rest) if rest else None

    def _call(self, call: dict[str, JSON], place: str, opaque: Opaque | None) -> ToolCall:
        call_id = optional_text(call.get("id"), f"{place}.id")
        name = require_name(call.get("name"), f"{place}.name")
        arguments = require_object(call.get("args") or {}, f"{place}.args")
        return self.call(call_id, name, arguments, opaque=opaque)

    def _result(self, fields: dict[str, JSON], place: str) -> ToolResult:
        call_id = optional_text(fields.get("id"), f"{place}.id")
        call = self.match_in_turn(call_id, optional_text(fields.get("name"), f"{place}.name"), place)
        response = require_object(fields.get("response") or {}, f"{place}.response")
        media = [
            _result_media(_camel(require_object(part, f"{place}.parts[{at}]")), f"{place}.parts[{at}]")
            for at, part in enumerate(optional_list(fields.get("parts"), f"{place}.parts"))
        ]
        if response.keys() == {"error"}:
            return ToolResult(
                call.id, call.name, "failure", (_content(response["error"], plain=True), *media), "exception"
            )
        only = next(iter(response)) if len(response) == 1 else ""
        content = _content(response[only]) if only in ("result", "output") else JsonPart(response)
        return ToolResult(call.id, call.name, "success", (content, *media))


def _content(value: JSON, *, plain: bool = False) -> ContentPart:
    if isinstance(value, str):
        return TextPart(value)
    return TextPart(json.dumps(value, ensure_ascii=False)) if plain else JsonPart(value)


def _result_media(part: dict[str, JSON], place: str) -> ImagePart | FilePart:
    if "fileData" in part:
        return _media_at_url(_object_at(part, "fileData", place), f"{place}.fileData", None)
    if "inlineData" not in part:
        raise FormatError(f"{place}: expected inlineData or fileData")
    return _inline_media(_object_at(part, "inlineData", place), f"{place}.inlineData", None)


def _inline_media(blob: dict[str, JSON], place: str, opaque: Opaque | None) -> ImagePart | FilePart:
    kind = require_name(blob.get("mimeType"), f"{place}.mimeType")
    data = require_bytes(blob.get("data"), f"{place}.data")
    return ImagePart(kind, data, opaque=opaque) if kind.startswith("image/") else FilePart(FILE_NAME, kind, data)


def _media_at_url(file: dict[str, JSON], place: str, opaque: Opaque | None) -> ImagePart:
    kind = optional_text(file.get("mimeType"), f"{place}.mimeType")
    if kind and not kind.startswith("image/"):
        raise FormatError(f"{place}: only images can be sent by address; send {kind} as inlineData")
    return ImagePart(kind or ANY_IMAGE, url=require_name(file.get("fileUri"), f"{place}.fileUri"), opaque=opaque)


def _tools(tools: JSON) -> Iterable[ToolSpec]:
    for at, tool in enumerate(optional_list(tools, "tools")):
        fields = _camel(require_object(tool, f"tools[{at}]"))
        for name in fields:
            if name != "functionDeclarations":
                raise FormatError(f"tools[{at}].{name}: not supported here; declare functions in functionDeclarations")
        for number, declaration in enumerate(optional_list(fields.get("functionDeclarations"), f"tools[{at}]")):
            place = f"tools[{at}].functionDeclarations[{number}]"
            function = _camel(require_object(declaration, place))
            yield ToolSpec(
                require_name(function.get("name"), f"{place}.name"),
                optional_text(function.get("description"), f"{place}.description"),
                _parameters(function, place),
            )


def _parameters(function: dict[str, JSON], place: str) -> dict[str, JSON]:
    if function.get("parametersJsonSchema") is not None:
        return require_object(function["parametersJsonSchema"], f"{place}.parametersJsonSchema")
    if function.get("parameters") is not None:
        return _json_schema(require_object(function["parameters"], f"{place}.parameters"), f"{place}.parameters")
    return {"type": "object", "properties": {}}


def _choice(config: JSON, tools: list[ToolSpec]) -> tuple[ToolChoice, list[ToolSpec]]:
    place = "toolConfig.functionCallingConfig"
    calling = _camel(require_object(config or {}, "toolConfig")).get("functionCallingConfig")
    fields = _camel(require_object(calling or {}, place))
    mode = optional_text(fields.get("mode"), f"{place}.mode").upper()
    allowed_names = [
        require_name(name, f"{place}.allowedFunctionNames")
        for name in optional_list(fields.get("allowedFunctionNames"), place)
    ]
    if mode == "NONE":
        return ToolChoice("none"), tools
    if mode == "ANY" and len(allowed_names) == 1:
        return ToolChoice("specific", allowed_names[0]), tools
    if mode not in ("", "AUTO", "ANY", "VALIDATED", "MODE_UNSPECIFIED"):
        raise invalid_field(f"{place}.mode", "AUTO, ANY, NONE or VALIDATED", mode)
    allowed_tools = [tool for tool in tools if tool.name in allowed_names] if allowed_names else tools
    return ToolChoice("required" if mode == "ANY" else "auto"), allowed_tools


def _generation(config: JSON) -> tuple[OutputSchema | None, dict[str, JSON]]:
    fields = _camel(require_object(config or {}, "generationConfig"))
    output = None
    plain, own_schema = fields.get("responseJsonSchema"), fields.get("responseSchema")
    if fields.get("responseMimeType") == "application/json" and (plain is not None or own_schema is not None):
        place = "generationConfig.responseSchema"
        schema = (
            require_object(plain, "generationConfig.responseJsonSchema")
            if plain is not None
            else _json_schema(require_object(own_schema, place), place)
        )
        output = OutputSchema("response", schema)
        fields = {name: value for name, value in fields.items() if name not in _OUTPUT_FIELDS}
    options = {name: value for name, value in fields.items() if name in GENERATION_FIELDS and value is not None}
    rest = {name: value for name, value in fields.items() if name not in GENERATION_FIELDS and value is not None}
    return output, {**options, "generationConfig": rest} if rest else options


def _json_schema(schema: dict[str, JSON], place: str) -> dict[str, JSON]:
    """Converts Gemini's own `Schema` (types in capitals, `nullable`, counts as strings) to JSON Schema."""
    result: dict[str, JSON] = {}
    for keyword, value in schema.items():
        name = _camel_name(keyword)
        where = f"{place}.{name}"
        match name:
            case "type":
                result[name] = optional_text(value, where).lower()
            case "properties":
                inner = require_object(value, where)
                result[name] = {
                    key: _json_schema(require_object(one, where), f"{where}.{key}") for key, one in inner.items()
                }
            case "items":
                result[name] = _json_schema(require_object(value, where), where)
            case "anyOf":
                result[name] = [_json_schema(require_object(one, where), where) for one in optional_list(value, where)]
            case "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties":
                result[name] = int(value) if isinstance(value, str) and value.isdecimal() else value
            case "nullable" | "propertyOrdering" | "example":
                pass  # `nullable` follows below; the others do not constrain
            case _:
                result[name] = value
    if schema.get("nullable") and "type" in result:
        result["type"] = [result["type"], "null"]
        if isinstance(result.get("enum"), list):
            result["enum"] = [*cast("list[JSON]", result["enum"]), None]
    return result
