"""Requests of Anthropic's Messages API as a server reads them. Sans-IO.

Source: Anthropic's API reference, "Messages", and the types of its Python SDK 2.12.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from itertools import groupby

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
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
from toolspeak.wire.anthropic.common import NAME, PDF, PLAIN_TEXT, TOOL_FIELDS, ContentBlock
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.base64_data import ANY_IMAGE
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

OUTPUT_NAME = "output"
"""The name of a client's output schema, since the API has none."""


def decode_request(body: JSON) -> WireRequest:
    """See `WireFormat.decode_request`."""
    fields = dict(require_object(body, "the request"))
    model = require_name(fields.pop("model", None), "model")
    if fields.pop("thread", None) is not None:
        # The SDK's tool runner sends `thread` first. These details make it repeat the request without the field.
        raise FormatError(
            "thread: conversations are not stored here: send the whole one in 'messages', without 'thread'",
            details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        )
    reader = _AnthropicConversation(model)
    reader.read_system(fields.pop("system", None))
    reader.read(fields.pop("messages", None))
    tools = [_tool(reader.note_cache_marker(tool), place) for tool, place in _tools(fields.pop("tools", None))]
    choice, parallel = _choice(fields.pop("tool_choice", None), tools)
    stream = bool(optional_flag(fields.pop("stream", None), "stream"))
    reader.note_cache_marker({"cache_control": fields.pop("cache_control", None)})
    output = _output(fields)
    request = ModelRequest(reader.messages, tools, choice, parallel, output, fields, reader.cached)
    return WireRequest(request, model, stream)


class _AnthropicConversation(ConversationReader):
    """Adjacent results become one message. A result without a call keeps its id, or "" if it has none."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.cached: bool = False
        """Whether a block has a cache marker."""

    def read_system(self, value: JSON) -> None:
        if isinstance(value, str):
            if value:
                self.begin("system").append(TextPart(value))
            return
        for block, place in self._blocks(value, "system"):
            self.begin("system").append(TextPart(self._text_block(block, place)))

    def read(self, value: JSON) -> None:
        if value is None:
            raise invalid_field("messages", "a list", value)
        for i, item in enumerate(optional_list(value, "messages")):
            place = f"messages[{i}]"
            message = require_object(item, place)
            role = message.get("role")
            if role not in ("user", "assistant", "system"):
                raise FormatError(
                    f"{place}.role: expected 'user', 'assistant' or 'system'; send tool results as 'user'"
                )
            content = message.get("content")
            if role == "assistant":
                self.begin(role).extend(self._parts(content, f"{place}.content", self._assistant_part))
                continue
            parts = self._parts(content, f"{place}.content", self._user_part)
            if not parts:
                self.begin(role)
            for are_results, group in groupby(parts, lambda part: isinstance(part, ToolResult)):
                (self.join("tool") if are_results else self.begin(role)).extend(group)

    def note_cache_marker(self, block: ContentBlock) -> ContentBlock:
        """Sets `cached` if the block has a cache marker; returns the block."""
        if block.get("cache_control") is not None:
            self.cached = True
        return block

    def _parts(self, content: JSON, place: str, read: Callable[[ContentBlock, str], Part]) -> list[Part]:
        if isinstance(content, str):
            return [TextPart(content)] if content else []
        if content is None:
            raise invalid_field(place, "a string or a list of blocks", content)
        return [read(block, at) for block, at in self._blocks(content, place)]

    def _blocks(self, value: JSON, place: str) -> Iterable[tuple[ContentBlock, str]]:
        for i, item in enumerate(optional_list(value, place)):
            at = f"{place}[{i}]"
            yield self.note_cache_marker(require_object(item, at)), at

    def _user_part(self, block: ContentBlock, place: str) -> Part:
        if block.get("type") != "tool_result":
            return self._content_part(block, place)
        call_id, name = self.match_by_id(optional_text(block.get("tool_use_id"), f"{place}.tool_use_id"))
        content = block.get("content")
        if isinstance(content, str) or content is None:
            parts: list[ContentPart] = [TextPart(content)] if content else []
        else:
            parts = [self._content_part(inner, at) for inner, at in self._blocks(content, f"{place}.content")]
        is_error = optional_flag(block.get("is_error"), f"{place}.is_error")
        return ToolResult(call_id, name or "", "failure" if is_error else "success", tuple(parts))

    def _content_part(self, block: ContentBlock, place: str) -> ContentPart:
        match block.get("type"):
            case "text":
                return TextPart(self._text_block(block, place))
            case "image":
                return _image(require_object(block.get("source"), f"{place}.source"), f"{place}.source")
            case "document":
                name = block.get("title") or "document"
                source = require_object(block.get("source"), f"{place}.source")
                return _document(require_text(name, f"{place}.title"), source, f"{place}.source")
            case kind:
                raise _unsupported_kind(kind, place)

    def _assistant_part(self, block: ContentBlock, place: str) -> Part:
        match block.get("type"):
            case "text":
                return TextPart(self._text_block(block, place))
            case "thinking":
                signature = require_text(block.get("signature") or "", f"{place}.signature")
                opaque = Opaque(NAME, self.model, {"signature": signature}) if signature else None
                return ReasoningPart(require_text(block.get("thinking"), f"{place}.thinking"), opaque)
            case "redacted_thinking":
                data = require_text(block.get("data"), f"{place}.data")
                return ReasoningPart("", Opaque(NAME, self.model, {"redacted": data}))
            case "tool_use":
                return self._call(block, place)
            case kind:
                raise _unsupported_kind(kind, place)

    def _call(self, block: ContentBlock, place: str) -> ToolCall:
        call_id = optional_text(block.get("id"), f"{place}.id")
        name = require_name(block.get("name"), f"{place}.name")
        arguments = require_object(block.get("input"), f"{place}.input")
        return self.call(call_id, name, arguments)

    def _text_block(self, block: ContentBlock, place: str) -> str:
        if block.get("type") != "text":
            raise _unsupported_kind(block.get("type"), place)
        return require_text(block.get("text"), f"{place}.text")


def _image(source: ContentBlock, place: str) -> ImagePart:
    match source.get("type"):
        case "url":
            return ImagePart(ANY_IMAGE, url=require_text(source.get("url"), f"{place}.url"))
        case "base64":
            media_type = require_text(source.get("media_type"), f"{place}.media_type")
            return ImagePart(media_type, _bytes(source.get("data"), f"{place}.data"))
        case _:
            raise FormatError(f"{place}.type: send the image itself ('base64') or its address ('url')")


def _document(name: str, source: ContentBlock, place: str) -> FilePart:
    match source.get("type"):
        case "base64":
            return FilePart(name, PDF, _bytes(source.get("data"), f"{place}.data"))
        case "text":
            return FilePart(
                name, PLAIN_TEXT, require_text(source.get("data"), f"{place}.data").encode("utf-8", "replace")
            )
        case _:
            raise FormatError(f"{place}.type: send the document itself ('base64' or 'text')")


def _bytes(value: JSON, place: str) -> bytes:
    try:
        return base64.b64decode(require_text(value, place), validate=True)
    except ValueError as error:
        raise invalid_field(place, "base64", value) from error


def _unsupported_kind(kind: JSON, place: str) -> FormatError:
    return FormatError(
        f"{place}.type: blocks of the type {kind!r} are not supported here: this server does not have Anthropic's own "
        "tools, files and searches; omit the block, or send its content as text"
    )


def _tool(tool: ContentBlock, place: str) -> ToolSpec:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise FormatError(
            f"{place}.type: {kind!r} is one of Anthropic's own tools, which this server does not run; omit it, or send "
            "your own tool, with name, description and input_schema"
        )
    name = require_name(tool.get("name"), f"{place}.name")
    schema = require_object(tool.get("input_schema"), f"{place}.input_schema")
    description = require_text(tool.get("description") or "", f"{place}.description")
    extra = {field: tool[field] for field in TOOL_FIELDS if field in tool}
    return ToolSpec(name, description, schema, extra=extra) if extra else ToolSpec(name, description, schema)


def _tools(tools: JSON) -> list[tuple[ContentBlock, str]]:
    return [
        (require_object(tool, f"tools[{i}]"), f"tools[{i}]") for i, tool in enumerate(optional_list(tools, "tools"))
    ]


def _choice(value: JSON, tools: list[ToolSpec]) -> tuple[ToolChoice, bool | None]:
    if value is None:
        return ToolChoice(), None
    choice = require_object(value, "tool_choice")
    single = optional_flag(choice.get("disable_parallel_tool_use"), "tool_choice.disable_parallel_tool_use")
    parallel = None if single is None else not single
    match choice.get("type"):
        case "auto":
            return ToolChoice(), parallel
        case "any":
            return ToolChoice("required"), parallel
        case "none":
            return ToolChoice("none"), parallel
        case "tool":
            name = require_name(choice.get("name"), "tool_choice.name")
            if all(spec.name != name for spec in tools):
                raise FormatError(f"tool_choice.name: no tool is called {name!r}; name one of tools")
            return ToolChoice("specific", name), parallel
        case _:
            raise FormatError("tool_choice.type: expected one of: auto, any, tool, none")


def _output(fields: dict[str, JSON]) -> OutputSchema | None:
    """Takes the output's format out of the fields; the rest of `output_config` stays there."""
    place = "output_config.format"
    config = dict(require_object(fields.pop("output_config", None) or {}, "output_config"))
    value = config.pop("format", None)
    if config:
        fields["output_config"] = config
    if value is None:
        return None
    form = require_object(value, place)
    if form.get("type") != "json_schema":
        raise FormatError(f"{place}.type: expected 'json_schema'")
    return OutputSchema(OUTPUT_NAME, require_object(form.get("schema"), f"{place}.schema"))
