"""OpenAI Responses (`POST /v1/responses`), both roles, and requests as a client encodes them. Sans-IO.

Sources: the OpenAI API reference, "Responses", with the types of the `openai` package 3.54; what compatible servers
(vLLM, LM Studio, llama.cpp, Ollama) make of it. Answers are read in `response_reader`; the server role reads
requests in `request_reader` and writes answers in `response_writer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    Opaque,
    Part,
    ReasoningPart,
    TextMessage,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.errors import UsageError
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.checks import check_request
from toolspeak.wire.history import call_ids, text_of
from toolspeak.wire.media import data_url, image_url
from toolspeak.wire.openai_responses.request_reader import decode_request
from toolspeak.wire.openai_responses.response_reader import NAME, ResponseDecoder, decode_response
from toolspeak.wire.openai_responses.response_writer import ResponseEncoder, encode_error, encode_response
from toolspeak.wire.openai_responses.tools import call_item, encode_choice, encode_tools, is_freeform
from toolspeak.wire.reading import without_lone_surrogates
from toolspeak.wire.strict_schema import openai_form

_OWN_FIELDS = ("model", "input", "instructions", "stream", "previous_response_id", "parallel_tool_calls")


@quick()
class OpenAIResponses:
    """Implements `WireFormat`."""

    name: str = NAME

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        """See `WireFormat.encode_request`.

        The system message at the front is sent as `instructions`, which a server never keeps. The option `tools`
        holds tools that the API runs itself (`{"type": "web_search"}`) and comes behind the request's own; the option
        `text` is joined with the output's format. Without `keep` the server is told not to store the turn.
        """
        return encode_request(request, model=model, stream=stream)

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        return decode_response(body, model)

    def decoder(self, *, model: str | None = None) -> ResponseDecoder:
        return ResponseDecoder(model)

    def decode_request(self, body: JSON) -> WireRequest:
        return decode_request(body)

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, asked: WireRequest | None = None
    ) -> JSON:
        asking = {"model": model} if asked is None else _repeated(asked)
        specs = () if asked is None else asked.request.tools
        return encode_response(deltas, asking, specs, response_id=response_id, created=created)

    def encoder(self, asked: WireRequest, *, response_id: str, created: int) -> ResponseEncoder:
        return ResponseEncoder(_repeated(asked), asked.request.tools, response_id=response_id, created=created)

    def encode_error(self, message: str, status: int) -> JSON:
        return encode_error(message, status)


OPENAI_RESPONSES = OpenAIResponses()


def _repeated(asked: WireRequest) -> dict[str, JSON]:
    """What clients read in the answer of what they asked: all but the conversation."""
    request = asked.request
    instructions = [message for message in request.messages[:1] if message.role == "system"]
    repeated = encode_request(replace(request, messages=instructions), model=asked.model, stream=asked.stream)
    return {**repeated, "echoed": dict(asked.echoed)}


def encode_request(request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
    check_request(request, _OWN_FIELDS, format_name=NAME)
    instructions, messages = _split_instructions(request.messages)
    ids = call_ids(request.messages)
    new = _not_kept(request, ids)
    body: dict[str, JSON] = {"model": model}
    if instructions:
        body["instructions"] = instructions
    sent = messages if new is None else new
    specs = {spec.name: spec for spec in request.tools if spec.extra}
    body["input"] = [item for message in sent for item in _items(message, ids, model, specs)]
    if request.earlier is not None and new is not None:
        body["previous_response_id"] = request.earlier.response_id
    tools = [*encode_tools(request.tools), *_api_tools(request)]
    if tools:
        body["tools"] = tools
    if request.choice.mode != "auto":
        body["tool_choice"] = encode_choice(request.choice, request.tools)
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


def _api_tools(request: ModelRequest) -> list[JSON]:
    found = request.options.get("tools")
    tools = cast("Sequence[JSON]", found) if isinstance(found, list | tuple) else ()
    if found is not None and (found is not tools or not all(_is_api_tool(tool) for tool in tools)):
        raise UsageError(
            "the option 'tools' is a list of tools that the API runs itself ({'type': 'web_search'}); "
            "functions are the request's own tools"
        )
    return [*tools]


def _is_api_tool(tool: JSON) -> bool:
    return isinstance(tool, Mapping) and cast("Mapping[str, JSON]", tool).get("type") not in (None, "function")


def _format(asked: OutputSchema) -> dict[str, JSON]:
    output = openai_form(asked)
    described = {"description": output.description} if output.description else {}
    return {
        "type": "json_schema",
        "name": output.name,
        **described,
        "schema": dict(output.schema),
        "strict": output.strict,
    }


def _text_option(value: JSON, body: Mapping[str, JSON]) -> JSON:
    own = body.get("text")
    if own is None or value is None:
        return value
    if not isinstance(value, Mapping) or "format" in value:
        raise UsageError("the option 'text' cannot set a format: the request's own output goes there")
    return {**own, **cast("Mapping[str, JSON]", value)}


def _split_instructions(
    messages: Sequence[Message | TextMessage],
) -> tuple[str, Sequence[Message | TextMessage]]:
    """The text of the system message at the front, and the messages behind it."""
    first = messages[0] if messages else None
    if isinstance(first, TextMessage) and first.role == "system" and first.text:
        return first.text, messages[1:]
    if isinstance(first, Message) and first.role == "system" and len(first.parts) == 1:
        part = first.parts[0]
        if isinstance(part, TextPart) and part.text:
            return part.text, messages[1:]
    return "", messages


def _not_kept(request: ModelRequest, ids: Mapping[str, str]) -> Sequence[Message | TextMessage] | None:
    """The messages that the server does not have; None if all must be sent.

    The server insists on an output for each call of the turn it keeps, under the id it gave: where the turn has a call
    that cannot be answered so (a malformed one), only the whole conversation will do.
    """
    earlier = request.earlier
    if earlier is None:
        return None
    if earlier.messages > len(request.messages):
        raise UsageError(f"earlier names {earlier.messages} messages, and the request has {len(request.messages)}")
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
    """The input items that one message becomes."""
    if isinstance(message, TextMessage):
        return [_said("user" if message.role == "tool" else message.role, message.text)]
    if message.role == "assistant":
        return _assistant(message, ids, model, specs)
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    # The outputs come first: what is said stands between no call and its output.
    items: list[JSON] = [_output(result, ids, specs) for result in results if result.call_id in ids]
    # The results of malformed calls, which went back as text.
    items += [_said("user", text_of(result.content)) for result in results if result.call_id not in ids]
    content = [part for part in message.parts if isinstance(part, TextPart | JsonPart | ImagePart | FilePart)]
    if content:
        role = "user" if message.role == "tool" else message.role
        items.append({"type": "message", "role": role, "content": _content(content)})
    return items


def _assistant(message: Message, ids: Mapping[str, str], model: str, specs: Mapping[str, ToolSpec]) -> list[JSON]:
    # An item's id only goes with the reasoning that led to it: one without the other is refused, and so is the id of
    # an item that was not stored ("Items are not persisted when `store` is set to false").
    thoughts = [part for part in message.parts if isinstance(part, ReasoningPart)]
    linked = bool(thoughts) and all(_reasoning(part, model) is not None for part in thoughts)
    items: list[JSON] = []
    for part in message.parts:
        item = _assistant_item(part, ids, model, specs, linked=linked)
        if item is not None:
            items.append(item)
    return items


def _assistant_item(
    part: Part, ids: Mapping[str, str], model: str, specs: Mapping[str, ToolSpec], *, linked: bool
) -> JSON:
    match part:
        case TextPart(text):
            kept = _own(part.opaque, model)
            return _assistant_text(text, kept, linked=linked) if text else None
        case ReasoningPart():
            return _reasoning(part, model)
        case ToolCall():
            kept = _own(part.opaque, model)
            linking = {"id": kept["id"]} if linked and kept.get("id") else {}
            return {**linking, **call_item(part.name, part.arguments, ids[part.id], specs)}
        case MalformedCall():
            return _said("assistant", part.raw)
        case ToolResult():
            return None  # results stand in messages of role tool or user
        case _:
            return _said("assistant", text_of([part]))


def _assistant_text(text: str, kept: Mapping[str, JSON], *, linked: bool) -> JSON:
    # `phase` (commentary, final_answer) is to be sent back, or later turns get worse (API reference).
    phase = {"phase": kept["phase"]} if kept.get("phase") else {}
    if not (linked and kept.get("id")):
        return {**_said("assistant", text), **phase}
    content: list[JSON] = [{"type": "output_text", "text": text, "annotations": list[JSON]()}]
    return {
        "type": "message",
        "id": kept["id"],
        "role": "assistant",
        "status": "completed",
        "content": content,
        **phase,
    }


def _said(role: str, text: str) -> dict[str, JSON]:
    return {"type": "message", "role": role, "content": text}


def _own(opaque: Opaque | None, model: str) -> Mapping[str, JSON]:
    """What this API gave for this model to be sent back; empty if there is nothing."""
    if opaque is None or opaque.provider != NAME or opaque.model != model:
        return {}
    data: JSON = opaque.data
    return cast("Mapping[str, JSON]", data) if isinstance(data, Mapping) else {}


def _reasoning(part: ReasoningPart, model: str) -> JSON:
    """The reasoning item, verbatim; None for one that only its server could read, and perhaps no longer keeps."""
    item = _own(part.opaque, model)
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
