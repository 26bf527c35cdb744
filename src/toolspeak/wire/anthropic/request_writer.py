"""Requests of Anthropic's Messages API as a client writes them. Sans-IO.

Source: Anthropic's API reference, "Messages", and the types of its Python SDK 2.12. Content that the API refuses (text
of only white space, an image of another type, an id with a dot) is sent in a form that the API accepts. Only white
space and other models' reasoning are left out.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    MalformedCall,
    Message,
    Opaque,
    ReasoningPart,
    TextMessage,
    TextPart,
    ToolCall,
    ToolResult,
    opaque_fields,
)
from toolspeak.data.tools import ToolSpec, found_in
from toolspeak.errors import ConfigurationError
from toolspeak.wire.anthropic.common import INVALID_IN_NAME, NAME, PDF, PLAIN_TEXT, TOOL_FIELDS, ContentBlock, valid_id
from toolspeak.wire.base import ModelRequest, OutputSchema
from toolspeak.wire.json_conversion import call_ids, check_request, text_of, without_lone_surrogates
from toolspeak.wire.strict_schema import anthropic_form, is_closed

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

_CACHE_CONTROL = {"type": "ephemeral"}  # valid for the default 5 minutes, which each use renews
_CACHEABLE = ("text", "image", "document", "tool_use", "tool_result")  # blocks that can have a cache marker

_NAME_CHARACTERS = 128

MAX_TOKENS = 32_000
"""The default of `max_tokens`, which the API requires. Every model of 2025 and later can write at least this many
(Anthropic, "Models overview": 32,000 for Opus 4.1, 64,000 for the 4.5 models, 128,000 since)."""

_OWN_FIELDS = ("model", "messages", "system", "tool_choice", "stream")

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")

_CHOICES = {"auto": "auto", "required": "any", "none": "none", "specific": "tool"}


def encode_request(request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
    """See `WireFormat.encode_request`. `Earlier` changes nothing: this API stores no conversation. The option `tools`
    holds tools that the API runs itself (`{"type": "web_search_20260209", "name": "web_search"}`); they follow the
    request's own."""
    check_request(request, _OWN_FIELDS, format_name=NAME)
    system, rest = _split_system(request.messages)
    names = frozenset(spec.name for spec in request.tools) if request.references else frozenset[str]()
    referenced_names = frozenset(name for message in rest for name in _references_in(message, names))
    messages = _messages(rest, model, names)
    tools = [_tool(spec, referenced_names) for spec in request.tools]
    if request.cache:
        _mark_cached(system, tools, messages)
    body: dict[str, JSON] = {
        "model": model,
        "max_tokens": MAX_TOKENS,
        "system": system or None,
        "messages": messages,
        "tools": [*tools, *_api_tools(request)] or None,
        "tool_choice": _choice(request) if tools else None,
        "stream": stream,
    }
    body.update((name, value) for name, value in request.options.items() if name != "tools")
    # The API enforces every schema strictly: a schema that it cannot enforce, and need not, is left out.
    if request.output is not None and (request.output.strict or is_closed(request.output.schema)):
        body["output_config"] = _output_config(request.output, body.get("output_config"))
    return {name: without_lone_surrogates(value) for name, value in body.items() if value is not None}


def _split_system(
    messages: Sequence[Message | TextMessage],
) -> tuple[list[ContentBlock], Sequence[Message | TextMessage]]:
    """The leading system messages as text blocks, and the messages after them."""
    at = 0
    while at < len(messages) and messages[at].role == "system":
        at += 1
    return [block for message in messages[:at] for block in _text_blocks(_text_of_message(message))], messages[at:]


def _messages(messages: Sequence[Message | TextMessage], model: str, names: frozenset[str]) -> list[ContentBlock]:
    """The messages after the system prompt, alternately user and assistant. `names`: the tools that results may refer
    to. A later system message becomes a user
    message: only some models accept the role `system` there, and the others refuse the request."""
    ids = _valid_ids(call_ids(messages))
    turns: list[tuple[str, list[ContentBlock]]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _assistant(message, ids, model) if role == "assistant" else _user(message, ids, names)
        if not blocks:
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    _drop_unanswered(turns)
    turns = [turn for turn in turns if turn[1]]
    if turns and turns[-1][0] == "assistant":
        _strip_last_text(turns)
    # The API requires the results of calls at the beginning of the next message.
    return [
        {"role": role, "content": sorted(blocks, key=_is_not_result) if role == "user" else blocks}
        for role, blocks in turns
    ]


def _mark_cached(system: list[ContentBlock], tools: list[ContentBlock], messages: list[ContentBlock]) -> None:
    """Sets the cache markers: after the tools, the system prompt and the last message.

    The fourth marker, the last that the API allows, is at the previous user message: the API looks back over only 20
    blocks, and a turn with many calls is longer.
    """
    loaded_tools = [tool for tool in tools if not tool.get("defer_loading")]  # others cannot have a marker
    ends = [blocks[-1] for blocks in (loaded_tools, system) if blocks]
    user_messages = [message for message in messages[:-1] if message["role"] == "user"]
    for message in [*user_messages[-1:], *messages[-1:]]:
        ends += [block for block in message["content"] if block["type"] in _CACHEABLE][-1:]
    for block in ends:
        block["cache_control"] = dict(_CACHE_CONTROL)


def _text_blocks(text: str) -> list[ContentBlock]:
    """A text block; no block for only white space, which the API refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _valid_ids(ids: dict[str, str]) -> dict[str, str]:
    """Maps each call's own id to the id in the request, of letters, digits, `_` and `-`, as the API requires.

    Other characters become `_`, and a digest is appended: the id stays unique, and the same in every request.
    """
    valid: dict[str, str] = {}
    ids_so_far: set[str] = set()
    for own_id, preferred_id in ids.items():
        valid[own_id] = valid_id(preferred_id, ids_so_far)
        ids_so_far.add(valid[own_id])
    return valid


def _is_not_result(block: ContentBlock) -> bool:
    return block["type"] != "tool_result"


def _strip_last_text(turns: list[tuple[str, list[ContentBlock]]]) -> None:
    """The API refuses to continue an answer that ends in white space."""
    blocks = turns[-1][1]
    if blocks[-1]["type"] == "text":
        blocks[-1] = {**blocks[-1], "text": cast("str", blocks[-1]["text"]).rstrip()}


def _text_of_message(message: Message | TextMessage) -> str:
    if isinstance(message, TextMessage):
        return message.text
    return text_of([part for part in message.parts if isinstance(part, ContentPart)])


def _user(message: Message | TextMessage, ids: dict[str, str], names: frozenset[str]) -> list[ContentBlock]:
    if isinstance(message, TextMessage):
        return _text_blocks(message.text)
    blocks: list[ContentBlock] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            # A malformed call was sent as text, so its result is text too.
            is_native = part.call_id in ids
            blocks += [_result(part, ids[part.call_id], names)] if is_native else _text_blocks(text_of(part.content))
        elif isinstance(part, ContentPart):
            blocks += _content(part)
    return blocks


def _references(result: ToolResult, names: frozenset[str]) -> Sequence[str]:
    """The tools that the result of a search found, if the request has all of them. A result holds only references then
    (Anthropic, "Tool search tool", custom tool search)."""
    found_names = found_in(result) if names else ()
    is_search = result.status == "success" and result.name not in found_names  # not a call of the tool itself
    return found_names if is_search and names.issuperset(found_names) else ()


def _references_in(message: Message | TextMessage, names: frozenset[str]) -> Iterator[str]:
    if names and isinstance(message, Message) and message.role == "tool":
        for part in message.results:
            yield from _references(part, names)


def _result(result: ToolResult, sent_id: str, names: frozenset[str]) -> ContentBlock:
    block: ContentBlock = {"type": "tool_result", "tool_use_id": sent_id}
    content: list[ContentBlock] = [
        {"type": "tool_reference", "tool_name": name} for name in _references(result, names)
    ] or [inner for part in result.content for inner in _content(part)]
    if content:
        block["content"] = content
    if result.status == "failure":
        block["is_error"] = True
    return block


def _content(part: ContentPart) -> list[ContentBlock]:
    match part:
        case ImagePart(_, None, str(url)):
            return [{"type": "image", "source": {"type": "url", "url": url}}]
        case ImagePart(media_type, bytes(data)) if media_type in IMAGE_TYPES:
            source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode("ascii")}
            return [{"type": "image", "source": source}]
        case FilePart(name, "application/pdf", data):
            source = {"type": "base64", "media_type": PDF, "data": base64.b64encode(data).decode("ascii")}
            return [{"type": "document", "source": source, "title": name}]
        case FilePart(name, media_type, data) if media_type.startswith("text/") and (text := _file_text(data)).strip():
            return [
                {"type": "document", "source": {"type": "text", "media_type": PLAIN_TEXT, "data": text}, "title": name}
            ]
        case _:
            return _text_blocks(text_of([part]))


def _file_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def _assistant(message: Message | TextMessage, ids: dict[str, str], model: str) -> list[ContentBlock]:
    if isinstance(message, TextMessage):
        return _text_blocks(message.text)
    blocks: list[ContentBlock] = []
    for part in message.parts:
        match part:
            case ToolCall():
                name = INVALID_IN_NAME.sub("_", part.name)[:_NAME_CHARACTERS] or "_"
                blocks.append({"type": "tool_use", "id": ids[part.id], "name": name, "input": dict(part.arguments)})
            case MalformedCall(raw=raw):
                blocks += _text_blocks(raw)
            case ReasoningPart(text, opaque):
                blocks += _reasoning(text, opaque, model)
            case ToolResult():
                pass  # the model's messages hold no results
            case TextPart(text, opaque) if (data := opaque_fields(opaque, NAME, model)).get("citations"):
                blocks += [{**block, "citations": data["citations"]} for block in _text_blocks(text)]
            case _:
                blocks += _text_blocks(text_of([part]))
    return blocks


def _reasoning(text: str, opaque: Opaque | None, model: str) -> list[ContentBlock]:
    """The blocks that the API requires back unchanged, if this model made them."""
    data = opaque_fields(opaque, NAME, model)
    if "block" in data:
        return [dict(data["block"])]
    if "redacted" in data:
        return [{"type": "redacted_thinking", "data": data["redacted"]}]
    return [{"type": "thinking", "thinking": text, "signature": data["signature"]}] if data else []


def _tool(spec: ToolSpec, referenced_names: frozenset[str]) -> ContentBlock:
    if not _TOOL_NAME.fullmatch(spec.name):
        raise ConfigurationError(
            f"the tool {spec.name!r} cannot be sent to Anthropic's API: a name has 1 to 128 letters, digits, _ and -; "
            "rename it"
        )
    tool: ContentBlock = {"name": spec.name, "input_schema": {"type": "object", **spec.parameters}}
    if spec.description:
        tool["description"] = spec.description
    if spec.name in referenced_names:
        tool["defer_loading"] = True
    return {**tool, **{field: spec.extra[field] for field in TOOL_FIELDS if field in spec.extra}}


def _api_tools(request: ModelRequest) -> list[JSON]:
    option = request.options.get("tools")
    tools = cast("list[JSON]", option) if isinstance(option, list | tuple) else []
    if option is not None and (option is not tools or not all(_is_api_tool(tool) for tool in tools)):
        raise ConfigurationError(
            "the option 'tools' must be a list of tools that the API runs itself ({'type': 'web_search_…', 'name': "
            "'web_search'}); put your own tools into the request's tools"
        )
    return [*tools]


def _is_api_tool(tool: JSON) -> bool:
    return isinstance(tool, Mapping) and cast("Mapping[str, JSON]", tool).get("type") not in (None, "custom")


def _choice(request: ModelRequest) -> ContentBlock | None:
    choice: ContentBlock = {"type": _CHOICES[request.choice.mode]}
    if request.choice.mode == "specific":
        choice["name"] = request.choice.name
    if request.parallel is not None and request.choice.mode != "none":
        choice["disable_parallel_tool_use"] = not request.parallel
    return None if choice == {"type": "auto"} else choice


def _output_config(output: OutputSchema, option: JSON) -> ContentBlock:
    config = dict(cast("Mapping[str, JSON]", option)) if isinstance(option, Mapping) else {}
    if config.get("format") is not None:
        raise ConfigurationError("the option 'output_config' cannot set a format: the request's output sets it")
    schema = anthropic_form(output.schema)
    if output.description:
        schema.setdefault("description", output.description)
    return {**config, "format": {"type": "json_schema", "schema": schema}}


def _drop_unanswered(turns: Sequence[tuple[str, list[ContentBlock]]]) -> None:
    """Drops calls of the API's own tools without a result, since the API refuses such a conversation.

    Those of the last answer stay if only results follow: the API continues them.
    """
    result_ids = {block["tool_use_id"] for _, blocks in turns for block in blocks if _is_hosted_result(block)}
    last = max((at for at, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    continues = all(block["type"] == "tool_result" for _, blocks in turns[last + 1 :] for block in blocks)
    for at, (role, blocks) in enumerate(turns):
        if role == "assistant" and not (at == last and continues):
            blocks[:] = [block for block in blocks if not _is_hosted_call(block) or block.get("id") in result_ids]


def _is_hosted_call(block: Mapping[str, JSON]) -> bool:
    return block["type"] != "tool_use" and str(block["type"]).endswith("_tool_use")


def _is_hosted_result(block: Mapping[str, JSON]) -> bool:
    return block["type"] != "tool_result" and isinstance(block.get("tool_use_id"), str)
