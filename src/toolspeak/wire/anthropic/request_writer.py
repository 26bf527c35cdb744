"""A conversation as Anthropic's Messages API has it, and back: content blocks, tool results first, ids. Sans-IO.

Source: Anthropic's API reference, "Messages", and the types of its Python SDK 2.12. Where the API refuses what a
conversation holds (text of white space alone, an image of another type, an id with a dot), it is sent in a form that
the API takes; nothing is left out but white space and reasoning that is not the model's own.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Container, Iterable, Sequence
from itertools import groupby
from typing import cast

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    MalformedCall,
    Message,
    Opaque,
    Part,
    ReasoningPart,
    Role,
    TextMessage,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.errors import FormatError
from toolspeak.wire.anthropic.kept import Block, without_unanswered
from toolspeak.wire.asked import asked_flag, asked_list, asked_name, asked_object, asked_text, wrong
from toolspeak.wire.asked_calls import GivenCalls, optional_text
from toolspeak.wire.history import call_ids, text_of

NAME = "anthropic"
"""The format's name, and what its opaque data is marked with."""

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
ANY_IMAGE = "image/*"
"""The media type of an image that is told by its URL alone."""

PDF, PLAIN_TEXT = "application/pdf", "text/plain"

_MARK = {"type": "ephemeral"}  # of the default life time, 5 minutes, which each use renews
_MARKED = ("text", "image", "document", "tool_use", "tool_result")  # blocks of ours, which take a cache marker

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ID_CHARACTERS = 40  # kept of an id that has to be changed; ids of the API's own have about 30
_NAME_CHARACTERS = 128
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


# --- ours to the API's -------------------------------------------------------------------------------------------


def split_system(messages: Sequence[Message | TextMessage]) -> tuple[list[Block], Sequence[Message | TextMessage]]:
    """The system messages at the beginning as text blocks, and the messages behind them."""
    at = 0
    while at < len(messages) and messages[at].role == "system":
        at += 1
    return [block for message in messages[:at] for block in text_blocks(_plain(message))], messages[at:]


def encode_history(messages: Sequence[Message | TextMessage], model: str) -> list[Block]:
    """The messages behind the system prompt, user and assistant in turn; a later system message is the user's.

    (The role `system` inside a conversation is for some models only; the others refuse the request.)
    """
    ids = accepted_ids(call_ids(messages))
    turns: list[tuple[str, list[Block]]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _assistant(message, ids, model) if role == "assistant" else _user(message, ids)
        if not blocks:
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    without_unanswered(turns)
    turns = [turn for turn in turns if turn[1]]
    if turns and turns[-1][0] == "assistant":
        _without_white_space_at_its_end(turns)
    # The API wants the results of calls at the beginning of the message behind them.
    return [
        {"role": role, "content": sorted(blocks, key=_behind_results) if role == "user" else blocks}
        for role, blocks in turns
    ]


def mark_cached(system: list[Block], tools: list[Block], messages: list[Block]) -> None:
    """Marks where the prompt may be cached to: after the tools, the system prompt, and the last message.

    The fourth marker, the most there may be, is at the last message of the user before: from the last one the API
    looks back over 20 blocks only, and a turn of many calls is longer.
    """
    ends = [blocks[-1] for blocks in (tools, system) if blocks]
    asked = [message for message in messages[:-1] if message["role"] == "user"]
    for message in [*asked[-1:], *messages[-1:]]:
        ends += [block for block in message["content"] if block["type"] in _MARKED][-1:]
    for block in ends:
        block["cache_control"] = dict(_MARK)


def text_blocks(text: str) -> list[Block]:
    """A text block; none for white space alone, which the API refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def accepted_ids(ids: dict[str, str]) -> dict[str, str]:
    """By a call's own id, the id it is sent with: letters, digits, `_` and `-`, as the API asks.

    One that has other characters gets a mark in their place and a digest, so that it stays its own, in every request
    the same.
    """
    accepted: dict[str, str] = {}
    taken: set[str] = set()
    for own, given in ids.items():
        accepted[own] = sent = accepted_id(given, taken)
        taken.add(sent)
    return accepted


def accepted_id(given: str, taken: Container[str]) -> str:
    """An id that the API takes and that is not among those taken: the one given, if it can be."""
    sent = given if _ID.fullmatch(given) else _changed(given)
    while sent in taken:
        sent = _changed(sent)
    return sent


def _changed(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{_FOREIGN.sub('_', text)[:_ID_CHARACTERS]}_{digest}"


def _behind_results(block: Block) -> bool:
    return block["type"] != "tool_result"


def _without_white_space_at_its_end(turns: list[tuple[str, list[Block]]]) -> None:
    """The API refuses an answer to be continued that ends in white space."""
    blocks = turns[-1][1]
    if blocks[-1]["type"] == "text":
        blocks[-1] = {**blocks[-1], "text": cast("str", blocks[-1]["text"]).rstrip()}


def _plain(message: Message | TextMessage) -> str:
    if isinstance(message, TextMessage):
        return message.text
    return text_of([part for part in message.parts if isinstance(part, ContentPart)])


def _user(message: Message | TextMessage, ids: dict[str, str]) -> list[Block]:
    if isinstance(message, TextMessage):
        return text_blocks(message.text)
    blocks: list[Block] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            # The result of a malformed call has no call to belong to: it is told in words.
            known = part.call_id in ids
            blocks += [_result(part, ids[part.call_id])] if known else text_blocks(text_of(part.content))
        elif isinstance(part, ContentPart):
            blocks += _content(part)
    return blocks


def _result(result: ToolResult, sent_id: str) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": sent_id}
    content = [inner for part in result.content for inner in _content(part)]
    if content:
        block["content"] = content
    if result.status == "failure":
        block["is_error"] = True
    return block


def _content(part: ContentPart) -> list[Block]:
    match part:
        case ImagePart(_, None, str(url)):
            return [{"type": "image", "source": {"type": "url", "url": url}}]
        case ImagePart(media_type, bytes(data)) if media_type in IMAGE_TYPES:
            source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode("ascii")}
            return [{"type": "image", "source": source}]
        case FilePart(name, "application/pdf", data):
            source = {"type": "base64", "media_type": PDF, "data": base64.b64encode(data).decode("ascii")}
            return [{"type": "document", "source": source, "title": name}]
        case FilePart(name, media_type, data) if media_type.startswith("text/") and (text := _decoded(data)).strip():
            return [
                {"type": "document", "source": {"type": "text", "media_type": PLAIN_TEXT, "data": text}, "title": name}
            ]
        case _:
            return text_blocks(text_of([part]))


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def _assistant(message: Message | TextMessage, ids: dict[str, str], model: str) -> list[Block]:
    if isinstance(message, TextMessage):
        return text_blocks(message.text)
    blocks: list[Block] = []
    for part in message.parts:
        match part:
            case ToolCall():
                name = _FOREIGN.sub("_", part.name)[:_NAME_CHARACTERS] or "_"
                blocks.append({"type": "tool_use", "id": ids[part.id], "name": name, "input": dict(part.arguments)})
            case MalformedCall(raw=raw):
                blocks += text_blocks(raw)
            case ReasoningPart(text, opaque):
                blocks += _reasoning(text, opaque, model)
            case ToolResult():
                pass  # no message of the model's holds one
            case TextPart(text, opaque) if (own := _own(opaque, model)).get("citations"):
                blocks += [{**block, "citations": own["citations"]} for block in text_blocks(text)]
            case _:
                blocks += text_blocks(text_of([part]))
    return blocks


def _reasoning(text: str, opaque: Opaque | None, model: str) -> list[Block]:
    """What the API wants back as it was, in its place, if it is this model's own."""
    own = _own(opaque, model)
    if "block" in own:
        return [dict(own["block"])]
    if "redacted" in own:
        return [{"type": "redacted_thinking", "data": own["redacted"]}]
    return [{"type": "thinking", "thinking": text, "signature": own["signature"]}] if own else []


def _own(opaque: Opaque | None, model: str) -> dict[str, JSON]:
    if opaque is None or (opaque.provider, opaque.model) != (NAME, model):
        return {}
    return cast("dict[str, JSON]", opaque.data)


# --- the API's to ours -------------------------------------------------------------------------------------------


class HistoryReader:
    """Reads `system` and `messages` of a request. `cached` tells whether a block was marked for the cache.

    Ids of calls that come again are made unique; neighbouring results are one message. A result of no call before it
    keeps the id that it names, which is "" if it names none."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._calls = GivenCalls()
        self._turn = 0
        self.cached = False

    def system(self, value: JSON) -> list[Message]:
        if value is None:
            return []
        if isinstance(value, str):
            return [Message.system(value)] if value else []
        blocks = self._blocks(value, "system")
        return [Message.system(self._text_block(block, place)) for block, place in blocks]

    def messages(self, value: JSON) -> list[Message]:
        found: list[tuple[Role, list[Part]]] = []
        if value is None:
            raise wrong("messages", "a list", value)
        for i, item in enumerate(asked_list(value, "messages")):
            place = f"messages[{i}]"
            message = asked_object(item, place)
            role = message.get("role")
            if role not in ("user", "assistant", "system"):
                raise FormatError(
                    f"{place}.role: expected 'user', 'assistant' or 'system'; tool results are the user's"
                )
            self._turn = i
            parts = self._parts(role, message.get("content"), f"{place}.content")
            if not parts:
                found.append((role, []))
            for are_results, group in groupby(parts, lambda part: isinstance(part, ToolResult)):
                if are_results and found and found[-1][0] == "tool":
                    found[-1][1].extend(group)
                else:
                    found.append(("tool" if are_results else role, [*group]))
        return [Message(role, tuple(parts)) for role, parts in found]

    def marked(self, block: Block) -> Block:
        """Notes a cache marker."""
        if block.get("cache_control") is not None:
            self.cached = True
        return block

    def _parts(self, role: Role, content: JSON, place: str) -> list[Part]:
        if isinstance(content, str):
            return [TextPart(content)] if content else []
        if content is None:
            raise wrong(place, "text or a list of blocks", content)
        read = self._assistant_part if role == "assistant" else self._user_part
        return [read(block, at) for block, at in self._blocks(content, place)]

    def _blocks(self, value: JSON, place: str) -> Iterable[tuple[Block, str]]:
        for i, item in enumerate(asked_list(value, place)):
            at = f"{place}[{i}]"
            yield self.marked(asked_object(item, at)), at

    def _user_part(self, block: Block, place: str) -> Part:
        if block.get("type") != "tool_result":
            return self._content_part(block, place)
        given = optional_text(block.get("tool_use_id"), f"{place}.tool_use_id")
        call = self._calls.answered(given)
        content = block.get("content")
        if isinstance(content, str) or content is None:
            parts: list[ContentPart] = [TextPart(content)] if content else []
        else:
            parts = [self._content_part(inner, at) for inner, at in self._blocks(content, f"{place}.content")]
        failed = asked_flag(block.get("is_error"), f"{place}.is_error")
        call_id, name = (given, "") if call is None else (call.id, call.name or "")
        return ToolResult(call_id, name, "failure" if failed else "success", tuple(parts))

    def _content_part(self, block: Block, place: str) -> ContentPart:
        match block.get("type"):
            case "text":
                return TextPart(self._text_block(block, place))
            case "image":
                return _image(asked_object(block.get("source"), f"{place}.source"), f"{place}.source")
            case "document":
                name = block.get("title") or "document"
                source = asked_object(block.get("source"), f"{place}.source")
                return _document(asked_text(name, f"{place}.title"), source, f"{place}.source")
            case kind:
                raise _unknown(kind, place)

    def _assistant_part(self, block: Block, place: str) -> Part:
        match block.get("type"):
            case "text":
                return TextPart(self._text_block(block, place))
            case "thinking":
                signature = asked_text(block.get("signature") or "", f"{place}.signature")
                opaque = Opaque(NAME, self._model, {"signature": signature}) if signature else None
                return ReasoningPart(asked_text(block.get("thinking"), f"{place}.thinking"), opaque)
            case "redacted_thinking":
                data = asked_text(block.get("data"), f"{place}.data")
                return ReasoningPart("", Opaque(NAME, self._model, {"redacted": data}))
            case "tool_use":
                return self._call(block, place)
            case kind:
                raise _unknown(kind, place)

    def _call(self, block: Block, place: str) -> ToolCall:
        given = optional_text(block.get("id"), f"{place}.id")
        name = asked_name(block.get("name"), f"{place}.name")
        arguments = asked_object(block.get("input"), f"{place}.input")
        call = ToolCall(self._calls.own_id(given), name, arguments, given or None)
        self._calls.add(given, call, self._turn)
        return call

    def _text_block(self, block: Block, place: str) -> str:
        if block.get("type") != "text":
            raise _unknown(block.get("type"), place)
        return asked_text(block.get("text"), f"{place}.text")


def _image(source: Block, place: str) -> ImagePart:
    match source.get("type"):
        case "url":
            return ImagePart(ANY_IMAGE, url=asked_text(source.get("url"), f"{place}.url"))
        case "base64":
            media_type = asked_text(source.get("media_type"), f"{place}.media_type")
            return ImagePart(media_type, _bytes(source.get("data"), f"{place}.data"))
        case _:
            raise FormatError(f"{place}.type: send the image itself ('base64') or its address ('url')")


def _document(name: str, source: Block, place: str) -> FilePart:
    match source.get("type"):
        case "base64":
            return FilePart(name, PDF, _bytes(source.get("data"), f"{place}.data"))
        case "text":
            return FilePart(
                name, PLAIN_TEXT, asked_text(source.get("data"), f"{place}.data").encode("utf-8", "replace")
            )
        case _:
            raise FormatError(f"{place}.type: send the document itself ('base64' or 'text')")


def _bytes(value: JSON, place: str) -> bytes:
    try:
        return base64.b64decode(asked_text(value, place), validate=True)
    except ValueError as error:
        raise wrong(place, "base64 text", value) from error


def _unknown(kind: JSON, place: str) -> FormatError:
    return FormatError(
        f"{place}.type: a block of the type {kind!r} cannot be taken here: nothing of Anthropic's own servers (their "
        "tools, files and searches) is behind this one; leave it out, or send what it says as text"
    )
