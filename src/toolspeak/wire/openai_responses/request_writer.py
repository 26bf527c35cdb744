"""Requests of OpenAI Responses as a client writes them. Sans-IO."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    Part,
    ReasoningPart,
    TextMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
    opaque_fields,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ConfigurationError
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.base64_data import data_url, image_url
from toolspeak.wire.json_conversion import call_ids, check_request, text_of, without_lone_surrogates
from toolspeak.wire.openai_responses.common import NAME, freeform_text, is_freeform, name_fields, namespace_and_name
from toolspeak.wire.strict_schema import openai_form

_OWN_FIELDS = ("model", "input", "instructions", "stream", "previous_response_id", "parallel_tool_calls")


def encode_request(request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
    """See `WireFormat.encode_request`.

    The leading system message is sent as `instructions`, which a server never stores. The option `tools` holds tools
    that the API runs itself (`{"type": "web_search"}`); they follow the request's own. The option `text` is merged with
    the output's format. Without `keep` the request has `store: false`.
    """
    check_request(request, _OWN_FIELDS, format_name=NAME)
    instructions, messages = _split_instructions(request.messages)
    ids = call_ids(request.messages)
    new_messages = _new_messages(request, ids)
    body: dict[str, JSON] = {"model": model}
    if instructions:
        body["instructions"] = instructions
    messages_to_send = messages if new_messages is None else new_messages
    specs = {spec.name: spec for spec in request.tools if spec.extra}
    body["input"] = [item for message in messages_to_send for item in _items(message, ids, model, specs)]
    if request.earlier is not None and new_messages is not None:
        body["previous_response_id"] = request.earlier.response_id
    tools = [*_tools(request.tools), *_api_tools(request)]
    if tools:
        body["tools"] = tools
    if request.choice.mode != "auto":
        body["tool_choice"] = _choice(request.choice, request.tools)
    if request.parallel is not None:
        body["parallel_tool_calls"] = request.parallel
    if request.output is not None:
        body["text"] = {"format": _format(request.output)}
    body["store"] = request.keep
    body["stream"] = stream
    for name, value in request.options.items():
        if name == "text":
            value = _text_option(value, body)
        if name != "tools":
            body[name] = value
    return {name: without_lone_surrogates(value) for name, value in body.items() if value is not None}


def repeated_fields(request: WireRequest) -> dict[str, JSON]:
    """The fields of a client's request that the answer repeats: all except the conversation."""
    instructions = [message for message in request.request.messages[:1] if message.role == "system"]
    model_request = replace(request.request, messages=instructions)
    fields = encode_request(model_request, model=request.model, stream=request.stream)
    return {**fields, "echo_fields": dict(request.echo_fields)}


def _split_instructions(
    messages: Sequence[Message | TextMessage],
) -> tuple[str, Sequence[Message | TextMessage]]:
    """The text of the leading system message, and the messages after it."""
    first = messages[0] if messages else None
    if isinstance(first, TextMessage) and first.role == "system" and first.text:
        return first.text, messages[1:]
    if isinstance(first, Message) and first.role == "system" and len(first.parts) == 1:
        part = first.parts[0]
        if isinstance(part, TextPart) and part.text:
            return part.text, messages[1:]
    return "", messages


def _new_messages(request: ModelRequest, ids: Mapping[str, str]) -> Sequence[Message | TextMessage] | None:
    """The messages that the server has not stored; None if all must be sent.

    The server requires an output for each call of its stored turn, with the call's id. If that is impossible (for a
    malformed call), the whole conversation must be sent.
    """
    earlier = request.earlier
    if earlier is None:
        return None
    if earlier.messages > len(request.messages):
        raise ConfigurationError(
            f"earlier has {earlier.messages} messages, and the request only {len(request.messages)}"
        )
    rest = request.messages[earlier.messages :]
    if not rest or rest[0].role != "assistant":
        return rest
    calls = rest[0].calls if isinstance(rest[0], Message) else ()
    if any(isinstance(call, MalformedCall) or ids[call.id] != call.provider_id for call in calls):
        return None
    return rest[1:]


def _items(
    message: Message | TextMessage, ids: Mapping[str, str], model: str, specs: Mapping[str, ToolSpec]
) -> list[JSON]:
    """The input items for one message."""
    if isinstance(message, TextMessage):
        return [_message_item("user" if message.role == "tool" else message.role, message.text)]
    if message.role == "assistant":
        return _assistant(message, ids, model, specs)
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    # The outputs come first: no text may be between a call and its output.
    items: list[JSON] = [_output(result, ids, specs) for result in results if result.call_id in ids]
    # The results of malformed calls, which were sent as text.
    items += [_message_item("user", text_of(result.content)) for result in results if result.call_id not in ids]
    content = [part for part in message.parts if isinstance(part, TextPart | JsonPart | ImagePart | FilePart)]
    if content:
        role = "user" if message.role == "tool" else message.role
        items.append({"type": "message", "role": role, "content": _content(content)})
    return items


def _assistant(message: Message, ids: Mapping[str, str], model: str, specs: Mapping[str, ToolSpec]) -> list[JSON]:
    # An item's id is sent only with the reasoning that led to it: the API refuses one without the other. It also
    # refuses the id of an item that was not stored ("Items are not persisted when `store` is set to false").
    thoughts = [part for part in message.parts if isinstance(part, ReasoningPart)]
    with_ids = bool(thoughts) and all(_reasoning(part, model) is not None for part in thoughts)
    items: list[JSON] = []
    for part in message.parts:
        item = _assistant_item(part, ids, model, specs, with_ids=with_ids)
        if item is not None:
            items.append(item)
    return items


def _assistant_item(
    part: Part, ids: Mapping[str, str], model: str, specs: Mapping[str, ToolSpec], *, with_ids: bool
) -> JSON:
    match part:
        case TextPart(text):
            data = opaque_fields(part.opaque, NAME, model)
            return _assistant_text(text, data, with_ids=with_ids) if text else None
        case ReasoningPart():
            return _reasoning(part, model)
        case ToolCall():
            data = opaque_fields(part.opaque, NAME, model)
            id_field = {"id": data["id"]} if with_ids and data.get("id") else {}
            return {**id_field, **_call_item(part.name, part.arguments, ids[part.id], specs)}
        case MalformedCall():
            return _message_item("assistant", part.raw)
        case ToolResult():
            return None  # results are in messages of role tool or user
        case _:
            return _message_item("assistant", text_of([part]))


def _assistant_text(text: str, data: Mapping[str, JSON], *, with_ids: bool) -> JSON:
    # Without `phase` (commentary, final_answer) later turns get worse (API reference).
    phase = {"phase": data["phase"]} if data.get("phase") else {}
    if not (with_ids and data.get("id")):
        return {**_message_item("assistant", text), **phase}
    content: list[JSON] = [{"type": "output_text", "text": text, "annotations": list[JSON]()}]
    return {
        "type": "message",
        "id": data["id"],
        "role": "assistant",
        "status": "completed",
        "content": content,
        **phase,
    }


def _message_item(role: str, text: str) -> dict[str, JSON]:
    return {"type": "message", "role": role, "content": text}


def _reasoning(part: ReasoningPart, model: str) -> JSON:
    """The reasoning item, verbatim; None for an item with only an id, which the server may have deleted."""
    item = opaque_fields(part.opaque, NAME, model)
    return dict(item) if item.get("encrypted_content") or item.get("content") else None


def _output(result: ToolResult, ids: Mapping[str, str], specs: Mapping[str, ToolSpec]) -> JSON:
    kind = "custom_tool_call_output" if is_freeform(specs.get(result.name)) else "function_call_output"
    return {"type": kind, "call_id": ids[result.call_id], "output": _content(result.content)}


def _content(parts: Sequence[ContentPart]) -> JSON:
    if not any(isinstance(part, ImagePart | FilePart) for part in parts) and len(parts) <= 1:
        return text_of(parts)
    return [_content_part(part) for part in parts]


def _content_part(part: ContentPart) -> JSON:
    match part:
        case ImagePart():
            return {"type": "input_image", "image_url": image_url(part), "detail": part.extra.get("detail") or "auto"}
        case FilePart(name, media_type, data):
            return {"type": "input_file", "filename": name, "file_data": data_url(media_type, data)}
        case _:
            return {"type": "input_text", "text": text_of([part])}


def _tools(specs: Iterable[ToolSpec]) -> list[JSON]:
    """The request's tools; those of one namespace are one entry."""
    tools: list[JSON] = []
    spaces: dict[str, list[JSON]] = {}
    for spec in specs:
        namespace: Any = spec.extra.get("namespace")
        if is_freeform(spec):
            fields: Any = spec.extra["custom"]
            tools.append({"type": "custom", "name": spec.name, "description": spec.description, **fields})
        elif namespace is not None:
            if namespace["name"] not in spaces:
                spaces[namespace["name"]] = []
                tools.append({"type": "namespace", **namespace, "tools": spaces[namespace["name"]]})
            spaces[namespace["name"]].append({**_function(spec), "name": namespace_and_name(spec)[1]})
        else:
            tools.append(_function(spec))
    return tools


def _function(spec: ToolSpec) -> dict[str, JSON]:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
        # The API's default is strict, which refuses schemas with optional arguments.
        "strict": spec.extra.get("strict") is True,
    }


def _call_item(
    name: str, arguments: Mapping[str, JSON], call_id: str, specs: Mapping[str, ToolSpec]
) -> dict[str, JSON]:
    """A call as an item of the conversation."""
    spec = specs.get(name)
    if is_freeform(spec):
        return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": freeform_text(arguments)}
    text = json.dumps(dict(arguments), ensure_ascii=False)
    return {"type": "function_call", "call_id": call_id, **name_fields(name, spec), "arguments": text}


def _choice(choice: ToolChoice, specs: Sequence[ToolSpec]) -> JSON:
    if choice.mode != "specific":
        return choice.mode
    spec = next((spec for spec in specs if spec.name == choice.name), None)
    if spec is None:
        return {"type": "function", "name": choice.name}
    return {"type": "custom" if is_freeform(spec) else "function", **name_fields(spec.name, spec)}


def _api_tools(request: ModelRequest) -> list[JSON]:
    option = request.options.get("tools")
    tools = cast("Sequence[JSON]", option) if isinstance(option, list | tuple) else ()
    if option is not None and (option is not tools or not all(_is_api_tool(tool) for tool in tools)):
        raise ConfigurationError(
            "the option 'tools' must be a list of tools that the API runs itself ({'type': 'web_search'}); put your "
            "own tools into the request's tools"
        )
    return [*tools]


def _is_api_tool(tool: JSON) -> bool:
    return isinstance(tool, Mapping) and cast("Mapping[str, JSON]", tool).get("type") not in (None, "function")


def _format(schema: OutputSchema) -> dict[str, JSON]:
    output = openai_form(schema)
    description_field = {"description": output.description} if output.description else {}
    return {
        "type": "json_schema",
        "name": output.name,
        **description_field,
        "schema": dict(output.schema),
        "strict": output.strict,
    }


def _text_option(value: JSON, body: Mapping[str, JSON]) -> JSON:
    own = body.get("text")
    if own is None or value is None:
        return value
    if not isinstance(value, Mapping) or "format" in value:
        raise ConfigurationError("the option 'text' cannot set a format: the request's output sets it")
    return {**own, **cast("Mapping[str, JSON]", value)}
