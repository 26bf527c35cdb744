"""Requests of Ollama's chat API, written and read. Sans-IO.

Source: Ollama's API documentation and its server's `api/types.go` (`ChatRequest`, `Message`, `Options`), and the types
of its Python package (ollama 0.6): arguments are objects, a result names its tool (`tool_name`), and only recent
servers have ids (`id`, `tool_call_id`). Roles are `system`, `user`, `assistant` and `tool`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import cast

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    ImagePart,
    MalformedCall,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextMessage,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import FormatError
from toolspeak.wire.asked import asked_flag, asked_list, asked_name, asked_object, wrong
from toolspeak.wire.asked_calls import Awaiting, asked_bytes, optional_text
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.checks import check_request
from toolspeak.wire.history import call_ids, text_of
from toolspeak.wire.reading import without_lone_surrogates

NAME = "ollama"

OWN_FIELDS = ("model", "messages", "stream", "tools")
"""Fields of a request that no option may set."""

RUNTIME_OPTIONS = frozenset(
    {
        "numa", "num_ctx", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "logits_all", "vocab_only",
        "use_mmap", "use_mlock", "embedding_only", "num_thread", "num_keep", "seed", "num_predict", "top_k", "top_p",
        "min_p", "tfs_z", "typical_p", "repeat_last_n", "temperature", "repeat_penalty", "presence_penalty",
        "frequency_penalty", "mirostat", "mirostat_tau", "mirostat_eta", "penalize_newline", "stop",
    }
)  # fmt: skip
"""Options that stand in the body's `options`; others (`think`, `keep_alive`, `truncate`, …) stand beside it."""

ANY_IMAGE = "image/*"
"""The API tells no media types; the server looks at the bytes."""


# --- writing -----------------------------------------------------------------------------------------------------


def encode_request(request: ModelRequest, model: str, stream: bool) -> dict[str, JSON]:
    check_request(request, OWN_FIELDS, format_name=NAME)
    body: dict[str, JSON] = {"model": model, "messages": encode_messages(request.messages), "stream": stream}
    if request.tools:  # the API has no tool choice: a driver asks for it in words
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


def encode_messages(messages: Sequence[Message | TextMessage]) -> list[JSON]:
    """A conversation: results right behind their calls and in their order; those of malformed calls are the user's."""
    ids = call_ids(messages)
    order = {own: place for place, own in enumerate(ids)}
    out: list[JSON] = []
    results: list[ToolResult] = []
    for message in [*messages, None]:
        found = [part for part in message.parts if isinstance(part, ToolResult)] if isinstance(message, Message) else []
        results += found
        if message is not None and message.role == "tool" and found:
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
    """Images go as bytes; one that is only an address is told by a line of text, and so is a file."""
    images = [part.data for part in parts if isinstance(part, ImagePart) and part.data is not None]
    said = [part for part in parts if not isinstance(part, ImagePart) or part.data is None]
    message: dict[str, JSON] = {"role": role, "content": text_of(said)}
    if images:
        message["images"] = [base64.b64encode(image).decode() for image in images]
    return message


def _result(result: ToolResult, ids: Mapping[str, str]) -> dict[str, JSON]:
    message = _message("tool", result.content)
    if result.status == "failure" and not message["content"].lower().startswith("error"):
        message["content"] = f"ERROR: {message['content']}"  # the API has no other way to say it
    return {**message, "tool_name": result.name, "tool_call_id": ids[result.call_id]}


def _assistant(message: Message, ids: Mapping[str, str]) -> JSON:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[JSON] = []
    for part in message.parts:
        match part:
            case ReasoningPart(text, opaque):
                # A chat template takes a model's own thoughts back; those that another API signed are not its own.
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
    told: dict[str, JSON] = {"role": "assistant", "content": "\n".join(text for text in texts if text)}
    if thoughts:
        told["thinking"] = "".join(thoughts)
    if calls:
        told["tool_calls"] = calls
    return told


# --- reading -----------------------------------------------------------------------------------------------------


def decode_request(body: JSON) -> WireRequest:
    """See `Ollama.decode_request`."""
    fields = {**asked_object(body, "the request")}
    model = asked_name(fields.pop("model", None), "model")
    stream = asked_flag(fields.pop("stream", None), "stream")
    messages = _Reader().conversation(fields.pop("messages", None))
    tools = tuple(_tool(tool, f"tools[{at}]") for at, tool in enumerate(asked_list(fields.pop("tools", None), "tools")))
    output = None
    shape = fields.get("format")
    if isinstance(shape, dict):
        output = OutputSchema("response", cast("dict[str, JSON]", fields.pop("format")))
    elif shape not in (None, "", "json"):
        raise wrong("format", "'json' or a JSON Schema", shape)
    runtime = asked_object(fields.pop("options", None) or {}, "options")
    options = {name: value for name, value in {**runtime, **fields}.items() if value is not None and value != ""}
    unknown = {name: value for name, value in runtime.items() if name not in RUNTIME_OPTIONS}
    if unknown:
        options = {name: value for name, value in options.items() if name not in unknown or name in fields}
        options["options"] = unknown
    return WireRequest(ModelRequest(messages, tools, output=output, options=options), model, stream is not False)


def _tool(tool: JSON, place: str) -> ToolSpec:
    function = asked_object(asked_object(tool, place).get("function"), f"{place}.function")
    parameters = asked_object(function.get("parameters") or {"type": "object"}, f"{place}.function.parameters")
    return ToolSpec(
        asked_name(function.get("name"), f"{place}.function.name"),
        optional_text(function.get("description"), f"{place}.function.description"),
        parameters,
    )


class _Reader:
    def __init__(self) -> None:
        self._awaiting = Awaiting()

    def conversation(self, messages: JSON) -> list[Message]:
        items = asked_list(messages, "messages")
        if not items:  # a real server would load the model, or unload it
            raise FormatError("messages: at least one message is needed")
        found: list[Message] = []
        for at, message in enumerate(items):
            place = f"messages[{at}]"
            fields = asked_object(message, place)
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
                    raise wrong(f"{place}.role", "'system', 'user', 'assistant' or 'tool'", role)
        return found

    def _assistant(self, fields: Mapping[str, JSON], place: str) -> Message:
        thinking = optional_text(fields.get("thinking"), f"{place}.thinking")
        parts: list[Part] = [ReasoningPart(thinking)] if thinking else []
        parts += _content(fields, place)
        calls = [
            self._call(asked_object(call, f"{place}.tool_calls[{at}]"), f"{place}.tool_calls[{at}]")
            for at, call in enumerate(asked_list(fields.get("tool_calls"), f"{place}.tool_calls"))
        ]
        self._awaiting.begin(calls)
        return Message("assistant", (*parts, *calls))

    def _call(self, call: Mapping[str, JSON], place: str) -> ToolCall:
        given = optional_text(call.get("id"), f"{place}.id")
        function = asked_object(call.get("function"), f"{place}.function")
        name = asked_name(function.get("name"), f"{place}.function.name")
        arguments = asked_object(function.get("arguments") or {}, f"{place}.function.arguments")
        return ToolCall(self._awaiting.id_of(given), name, arguments, given or None)

    def _result(self, fields: Mapping[str, JSON], place: str) -> ToolResult:
        given = optional_text(fields.get("tool_call_id"), f"{place}.tool_call_id")
        name = optional_text(fields.get("tool_name"), f"{place}.tool_name")
        call = self._awaiting.take(given, name, place)
        return ToolResult(call.id, call.name, "success", _content(fields, place) or (TextPart(""),))


def _content(fields: Mapping[str, JSON], place: str) -> tuple[ContentPart, ...]:
    text = optional_text(fields.get("content"), f"{place}.content")
    images = [
        ImagePart(ANY_IMAGE, asked_bytes(image, f"{place}.images[{at}]"))
        for at, image in enumerate(asked_list(fields.get("images"), f"{place}.images"))
    ]
    if not text:
        return tuple(images)
    return (TextPart(text), *images)
