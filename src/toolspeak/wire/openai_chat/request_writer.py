"""Requests of OpenAI Chat Completions as a client writes them. Sans-IO.

Source: the OpenAI API reference, "Chat Completions". Beyond it: `reasoning_content` goes back to APIs that demand it
(DeepSeek, "Thinking Mode"; Moonshot), `reasoning_details` to OpenRouter ("Reasoning Tokens"), `extra_content` of a call
to Gemini's compatible endpoint ("Thought signatures").
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import cast

from toolspeak.data.messages import (
    FAILURE_PREFIX,
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    MalformedCall,
    Message,
    Part,
    ReasoningPart,
    TextMessage,
    TextPart,
    ToolCall,
    ToolResult,
    opaque_fields,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ConfigurationError
from toolspeak.wire.base import Constraint, ModelRequest
from toolspeak.wire.base64_data import data_url
from toolspeak.wire.json_conversion import call_ids, check_request, is_native, text_of, without_lone_surrogates
from toolspeak.wire.openai_chat.common import NAME, REASONING_FIELDS
from toolspeak.wire.strict_schema import openai_form

_OWN_FIELDS = ("model", "messages", "tools")

_REQUEST_FIELDS = {"tool_choice": "choice", "parallel_tool_calls": "parallel"}


def encode_request(
    request: ModelRequest, *, model: str, stream: bool, short_ids: bool = False, keep_reasoning: bool = False
) -> dict[str, JSON]:
    """See `WireFormat.encode_request`; the deviations are those of `openai_chat`. A lone surrogate, which UTF-8 cannot
    encode, is sent as U+FFFD."""
    _check_options(request)
    body: dict[str, JSON] = {
        "model": model,
        "messages": encode_messages(request.messages, model, short_ids=short_ids, keep_reasoning=keep_reasoning),
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        choice = request.choice
        if choice.mode == "specific":
            body["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
        elif choice.mode != "auto":
            body["tool_choice"] = choice.mode
        if request.parallel is not None:
            body["parallel_tool_calls"] = request.parallel
    if request.output is not None:
        output = openai_form(request.output)
        description_field = {"description": output.description} if output.description else {}
        schema = {"name": output.name, **description_field, "schema": output.schema, "strict": output.strict}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.constraint is not None:
        body.update(_constraint(request.constraint))
    body.update(request.options)
    return {name: without_lone_surrogates(value) for name, value in body.items() if value is not None}


def _check_options(request: ModelRequest) -> None:
    check_request(request, _OWN_FIELDS, format_name=NAME, grammars=True)
    for name, field in _REQUEST_FIELDS.items():
        if request.options.get(name) is not None:
            raise ConfigurationError(f"the option {name!r} cannot be set: the request's {field!r} sets it")
    if request.output is not None and request.options.get("response_format") is not None:
        raise ConfigurationError("the option 'response_format' cannot be set: the request's output schema sets it")
    if request.constraint is not None:
        for name in ("grammar", "response_format"):
            if request.options.get(name) is not None:
                raise ConfigurationError(f"the option {name!r} cannot be set: the request's constraint sets it")


def _constraint(constraint: Constraint) -> dict[str, JSON]:
    """The field for a grammar (llama.cpp: its server's README; vLLM and SGLang: `StructuralTagResponseFormat`)."""
    if constraint.target == "gbnf":
        return {"grammar": constraint.source}
    return {"response_format": json.loads(constraint.source)}


def _tool(tool: ToolSpec) -> JSON:
    function: dict[str, JSON] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters
    # Without it vLLM does not enforce the schema of a required or named call.
    if isinstance(tool.extra.get("strict"), bool):
        function["strict"] = tool.extra["strict"]
    return {"type": "function", "function": function}


def encode_messages(
    messages: Sequence[Message | TextMessage], model: str, *, short_ids: bool = False, keep_reasoning: bool = False
) -> list[JSON]:
    """The messages of a conversation, with results right after their calls.

    Content that the role `tool` does not support (images, the result of a malformed call) follows in a user message.
    `short_ids` and `keep_reasoning` are as in `openai_chat`.
    """
    ids = call_ids(messages)
    if short_ids:
        ids = {own: _short_id(provider_id) for own, provider_id in ids.items()}
    out: list[JSON] = []
    deferred_parts: list[ContentPart] = []
    for message in messages:
        if isinstance(message, Message) and message.role == "tool":
            for part in message.parts:
                _add_result(part, ids, out, deferred_parts)
            continue
        if deferred_parts:
            out.append({"role": "user", "content": _content(deferred_parts)})
            deferred_parts = []
        if isinstance(message, TextMessage):
            # It has the role `tool` if the server accepts that without a `tool_call_id` (`Capabilities.tool_role`).
            name_field = {"name": message.name} if message.name else {}
            out.append({"role": message.role, **name_field, "content": message.text})
        elif message.role == "assistant":
            out.append(_assistant(message, ids, model, keep_reasoning))
        else:
            parts = [part for part in message.parts if isinstance(part, ContentPart)]
            content = _content(parts) if message.role == "user" else "".join(text_of([part]) for part in parts)
            out.append({"role": message.role, "content": content, **_own_fields(message.extra)})
    if deferred_parts:
        out.append({"role": "user", "content": _content(deferred_parts)})
    return out


def _add_result(part: Part, ids: Mapping[str, str], out: list[JSON], deferred_parts: list[ContentPart]) -> None:
    if not isinstance(part, ToolResult):
        if isinstance(part, ContentPart):
            deferred_parts.append(part)
        return
    text = text_of(part.content)
    if part.status == "failure" and not text.lower().startswith("error"):
        text = FAILURE_PREFIX + text  # the API has no field for it
    if part.call_id not in ids:
        deferred_parts.append(TextPart(text))
        return
    out.append({"role": "tool", "tool_call_id": ids[part.call_id], "content": text})
    images = [each for each in part.content if isinstance(each, ImagePart)]
    if images:
        deferred_parts += [TextPart(f"Images from the result of {part.name} ({ids[part.call_id]}):"), *images]


def _assistant(message: Message, ids: Mapping[str, str], model: str, keep_reasoning: bool) -> JSON:
    text = ""
    fields: dict[str, JSON] = {}
    calls: list[JSON] = []
    for part in message.parts:
        match part:
            case ReasoningPart():
                _add_reasoning(part, model, fields)
            case ToolCall():
                calls.append(_call(part, ids[part.id], model))
            case MalformedCall() if not is_native(part):
                text += f"\n{part.raw}" if text else part.raw
            case ToolResult() | MalformedCall():
                pass
            case _:
                text += text_of([part])
    if calls:
        fields["tool_calls"] = calls
        if keep_reasoning:
            # DeepSeek refuses a call without it, even if another model made the call.
            fields.setdefault("reasoning_content", "")
    # "" and not null: llama-cpp-python answers null with HTTP 500.
    return {"role": "assistant", "content": text, **fields, **_own_fields(message.extra)}


def _add_reasoning(part: ReasoningPart, model: str, fields: dict[str, JSON]) -> None:
    data = opaque_fields(part.opaque, NAME, model)
    field = data.get("field")
    if field in REASONING_FIELDS:
        fields[field] = fields.get(field, "") + part.text
    if isinstance(data.get("reasoning_details"), list):
        details = cast("list[JSON]", data["reasoning_details"])
        fields["reasoning_details"] = [*fields.get("reasoning_details", ()), *details]


def _call(call: ToolCall, sent_id: str, model: str) -> JSON:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    function = {"name": call.name, "arguments": arguments}
    return {**opaque_fields(call.opaque, NAME, model), "id": sent_id, "type": "function", "function": function}


def _content(parts: Sequence[ContentPart]) -> JSON:
    """A single text as text, anything else as a list of parts."""
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], TextPart) and not _own_fields(parts[0].extra):
        return parts[0].text
    return [_content_part(part) for part in parts]


def _content_part(part: ContentPart) -> JSON:
    match part:
        case ImagePart():
            url = part.url if part.data is None else data_url(part.media_type, part.data)
            return {"type": "image_url", "image_url": {"url": url, **_own_fields(part.extra)}}
        case FilePart():
            file = {"filename": part.name, "file_data": data_url(part.media_type, part.data)}
            return {"type": "file", "file": file}
        case _:
            return {"type": "text", "text": text_of([part]), **_own_fields(part.extra)}


def _own_fields(extra: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """The fields that only this format has (`name`, `cache_control`, …), from the request reader."""
    fields = extra.get(NAME)
    return cast("Mapping[str, JSON]", fields) if isinstance(fields, Mapping) else {}


def _short_id(call_id: str) -> str:
    """An id of nine letters and digits: Mistral's API and chat templates answer HTTP 400 to any other."""
    if re.fullmatch(r"[A-Za-z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:9]
