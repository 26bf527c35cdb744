"""The `messages` of OpenAI Chat Completions, read and written. Sans-IO.

Source: the OpenAI API reference, "Chat Completions". Besides it: `reasoning_content` goes back to APIs that ask for it
(DeepSeek, "Thinking Mode"; Moonshot), `reasoning_details` to OpenRouter ("Reasoning Tokens"), `extra_content` of a call
to Gemini's compatible endpoint ("Thought signatures").
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

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
from toolspeak.wire.asked import asked_list, asked_name, asked_object, asked_text, wrong
from toolspeak.wire.asked_calls import GivenCalls, optional_text
from toolspeak.wire.fragments import read_arguments
from toolspeak.wire.history import call_ids, is_native, text_of
from toolspeak.wire.media import ANY_IMAGE, data_url, read_data_url
from toolspeak.wire.reading import shown

NAME = "openai-chat"
REASONING_FIELDS = ("reasoning_content", "reasoning")


# --- writing -----------------------------------------------------------------------------------------------------


def encode_messages(
    messages: Sequence[Message | TextMessage], model: str, *, short_ids: bool = False, keep_reasoning: bool = False
) -> list[JSON]:
    """A conversation as the API takes it.

    Results stand right behind their calls. What the role `tool` cannot carry (images, the result of a malformed call)
    follows in a message of the user. `short_ids` and `keep_reasoning` as in `OpenAIChat`.
    """
    ids = call_ids(messages)
    if short_ids:
        ids = {own: _short(sent) for own, sent in ids.items()}
    out: list[JSON] = []
    later: list[ContentPart] = []
    for message in messages:
        if isinstance(message, Message) and message.role == "tool":
            for part in message.parts:
                _add_result(part, ids, out, later)
            continue
        if later:
            out.append({"role": "user", "content": _content(later)})
            later = []
        if isinstance(message, TextMessage):
            # Of role `tool` where the server takes it without a `tool_call_id` (`Capabilities.tool_role`).
            named = {"name": message.name} if message.name else {}
            out.append({"role": message.role, **named, "content": message.text})
        elif message.role == "assistant":
            out.append(_assistant(message, ids, model, keep_reasoning))
        else:
            parts = [part for part in message.parts if isinstance(part, ContentPart)]
            content = _content(parts) if message.role == "user" else "".join(text_of([part]) for part in parts)
            out.append({"role": message.role, "content": content, **_own(message.extra)})
    if later:
        out.append({"role": "user", "content": _content(later)})
    return out


def _add_result(part: Part, ids: Mapping[str, str], out: list[JSON], later: list[ContentPart]) -> None:
    if not isinstance(part, ToolResult):
        if isinstance(part, ContentPart):
            later.append(part)
        return
    text = text_of(part.content)
    if part.status == "failure" and not text.lower().startswith("error"):
        text = f"ERROR: {text}"  # the API has no other way to say it
    if part.call_id not in ids:
        later.append(TextPart(text))
        return
    out.append({"role": "tool", "tool_call_id": ids[part.call_id], "content": text})
    images = [each for each in part.content if isinstance(each, ImagePart)]
    if images:
        later += [TextPart(f"Images from the result of {part.name} ({ids[part.call_id]}):"), *images]


def _assistant(message: Message, ids: Mapping[str, str], model: str, keep_reasoning: bool) -> JSON:
    text = ""
    fields: dict[str, JSON] = {}
    calls: list[JSON] = []
    for part in message.parts:
        match part:
            case ReasoningPart():
                _give_back(part, model, fields)
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
            # DeepSeek refuses a call without it, also one of a turn that another model made.
            fields.setdefault("reasoning_content", "")
    # "" and not null: llama-cpp-python answers null with HTTP 500.
    return {"role": "assistant", "content": text, **fields, **_own(message.extra)}


def _give_back(part: ReasoningPart, model: str, fields: dict[str, JSON]) -> None:
    data = opaque_fields(part.opaque, model)
    field = data.get("field")
    if field in REASONING_FIELDS:
        fields[field] = fields.get(field, "") + part.text
    if isinstance(data.get("reasoning_details"), list):
        details = cast("list[JSON]", data["reasoning_details"])
        fields["reasoning_details"] = [*fields.get("reasoning_details", ()), *details]


def opaque_fields(opaque: Opaque | None, model: str | None = None) -> Mapping[str, JSON]:
    """What a part brought with it: from this format, and from `model` if it is given."""
    if opaque is None or opaque.provider != NAME or model not in (None, opaque.model):
        return {}
    found: JSON = opaque.data
    return cast("Mapping[str, JSON]", found) if isinstance(found, Mapping) else {}


def _call(call: ToolCall, sent_id: str, model: str) -> JSON:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    function = {"name": call.name, "arguments": arguments}
    return {**opaque_fields(call.opaque, model), "id": sent_id, "type": "function", "function": function}


def _content(parts: Sequence[ContentPart]) -> JSON:
    """One text as text, anything else as a list of parts."""
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], TextPart) and not _own(parts[0].extra):
        return parts[0].text
    return [_content_part(part) for part in parts]


def _content_part(part: ContentPart) -> JSON:
    match part:
        case ImagePart():
            url = part.url if part.data is None else data_url(part.media_type, part.data)
            return {"type": "image_url", "image_url": {"url": url, **_own(part.extra)}}
        case FilePart():
            file = {"filename": part.name, "file_data": data_url(part.media_type, part.data)}
            return {"type": "file", "file": file}
        case _:
            return {"type": "text", "text": text_of([part]), **_own(part.extra)}


def _own(extra: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """The fields of this format that no other has (`name`, `cache_control`, …), as `decode_messages` keeps them."""
    found = extra.get(NAME)
    return cast("Mapping[str, JSON]", found) if isinstance(found, Mapping) else {}


def _short(given: str) -> str:
    """Nine letters and digits: what Mistral's API and chat templates ask of an id, or HTTP 400."""
    if re.fullmatch(r"[A-Za-z0-9]{9}", given):
        return given
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:9]


# --- reading -----------------------------------------------------------------------------------------------------


def decode_messages(value: JSON, model: str) -> list[Message]:
    """The conversation of a request to `model`. Raises FormatError naming the place.

    Ids that come again are made unique; neighbouring results are one message. A result of no call before it keeps the
    id that it names, which is "" if it names none. Fields of a message that have no place elsewhere stand in its
    `extra`, under the format's name.
    """
    items = asked_list(value, "messages")
    if not items:
        raise FormatError("messages: at least one message is needed")
    reader = _Conversation(model)
    for i, item in enumerate(items):
        reader.add(asked_object(item, f"messages[{i}]"), f"messages[{i}]")
    reader.end_results()
    return reader.messages


class _Conversation:
    def __init__(self, model: str) -> None:
        self.messages: list[Message] = []
        self._model = model
        self._calls = GivenCalls()
        self._results: list[Part] = []

    def add(self, item: dict[str, JSON], place: str) -> None:
        role = asked_text(item.get("role"), f"{place}.role")
        if role not in ("tool", "function"):
            self.end_results()
        match role:
            case "system" | "developer":
                self._add("system", _read_content(item.get("content"), f"{place}.content", media=False), item)
            case "user":
                self._add("user", _read_content(item.get("content"), f"{place}.content"), item)
            case "assistant":
                self._add("assistant", self._assistant(item, place), item)
            case "tool":
                self._add_result(optional_text(item.get("tool_call_id"), f"{place}.tool_call_id"), item, place)
            case "function":
                self._add_result("", item, place)
            case _:
                raise FormatError(
                    f"{place}.role: {shown(role)} is none; write system, developer, user, assistant or tool"
                )

    def _add(self, role: Role, parts: Sequence[Part], item: dict[str, JSON]) -> None:
        self.messages.append(Message(role, tuple(parts), _extra(item, _KNOWN_FIELDS)))

    def _assistant(self, item: dict[str, JSON], place: str) -> list[Part]:
        parts: list[Part] = list(self._reasoning(item, place))
        parts += _read_content(item.get("content"), f"{place}.content", media=False)
        if item.get("refusal") is not None:
            parts.append(TextPart(asked_text(item["refusal"], f"{place}.refusal")))
        for i, call in enumerate(asked_list(item.get("tool_calls"), f"{place}.tool_calls")):
            parts.append(self._call(call, f"{place}.tool_calls[{i}]"))
        if item.get("function_call") is not None:  # as before 2023-11: one call, and no id
            parts.append(self._function("", item["function_call"], {}, f"{place}.function_call"))
        return parts

    def end_results(self) -> None:
        """What was read of results is a message."""
        if self._results:
            self.messages.append(Message("tool", tuple(self._results)))
            self._results.clear()

    def _reasoning(self, item: dict[str, JSON], place: str) -> list[ReasoningPart]:
        found: list[ReasoningPart] = []
        for field in REASONING_FIELDS:
            if item.get(field) is not None:
                text = asked_text(item[field], f"{place}.{field}")
                found.append(ReasoningPart(text, Opaque(NAME, self._model, {"field": field})))
        details = asked_list(item.get("reasoning_details"), f"{place}.reasoning_details")
        if details:
            found.append(ReasoningPart("", Opaque(NAME, self._model, {"reasoning_details": details})))
        return found

    def _call(self, value: JSON, place: str) -> ToolCall | MalformedCall:
        item = asked_object(value, place)
        if item.get("type", "function") != "function":
            raise FormatError(f"{place}.type: only 'function' is supported, found {shown(item['type'])}")
        rest = {key: each for key, each in item.items() if key not in _CALL_FIELDS and each is not None}
        return self._function(optional_text(item.get("id"), f"{place}.id"), item.get("function"), rest, place)

    def _function(self, given: str, value: JSON, rest: dict[str, JSON], place: str) -> ToolCall | MalformedCall:
        at = place if place.endswith(".function_call") else f"{place}.function"
        function = asked_object(value, at)
        name = asked_name(function.get("name"), f"{at}.name")
        raw = function.get("arguments")
        if isinstance(raw, dict):
            raw = json.dumps(raw, ensure_ascii=False)
        raw = asked_text(raw if raw is not None else "", f"{at}.arguments")
        own = self._calls.own_id(given)
        arguments, notes, reason = read_arguments(raw)
        if arguments is None:
            call = MalformedCall(own, raw, "invalid_arguments", reason, name)
        else:
            opaque = Opaque(NAME, self._model, rest) if rest else None
            call = ToolCall(own, name, arguments, given or None, notes, opaque)
        self._calls.add(given, call, len(self.messages))
        return call

    def _add_result(self, given: str, item: dict[str, JSON], place: str) -> None:
        call = self._calls.answered(given)
        content = _read_content(item.get("content"), f"{place}.content", media=False)
        if call is None:
            name = optional_text(item.get("name"), f"{place}.name")
            self._results.append(ToolResult(given, name, "success", tuple(content)))
        else:
            self._results.append(ToolResult(call.id, call.name or "", "success", tuple(content)))


_KNOWN_FIELDS = frozenset(
    ("role", "content", "refusal", "tool_calls", "function_call", *REASONING_FIELDS, "reasoning_details")
)
_CALL_FIELDS = frozenset(("id", "type", "function", "index"))


def _extra(item: Mapping[str, JSON], known: frozenset[str]) -> dict[str, JSON]:
    rest = {name: value for name, value in item.items() if name not in known and value is not None}
    return {NAME: rest} if rest else {}


def _read_content(value: JSON, place: str, *, media: bool = True) -> list[ContentPart]:
    """Text, or parts: of text alone, unless `media`."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [TextPart(value)]
    if not isinstance(value, list):
        raise wrong(place, "text or a list of parts", value)
    return [_read_part(part, f"{place}[{i}]", media) for i, part in enumerate(cast("list[Any]", value))]


def _read_part(value: JSON, place: str, media: bool) -> ContentPart:
    part = asked_object(value, place)
    kind = part.get("type")
    if kind == "text":
        return TextPart(asked_text(part.get("text"), f"{place}.text"), extra=_extra(part, frozenset(("type", "text"))))
    if kind == "refusal" and not media:
        return TextPart(asked_text(part.get("refusal"), f"{place}.refusal"))
    if kind == "image_url" and media:
        return _read_image(part.get("image_url"), f"{place}.image_url")
    if kind == "file" and media:
        return _read_file(asked_object(part.get("file"), f"{place}.file"), f"{place}.file")
    allowed = "text, image_url and file" if media else "text"
    raise FormatError(f"{place}.type: {shown(kind)} cannot stand here; parts may be {allowed}")


def _read_image(value: JSON, place: str) -> ImagePart:
    image = {"url": value} if isinstance(value, str) else asked_object(value, place)
    url = asked_name(image.get("url"), f"{place}.url")
    extra = _extra(image, frozenset(("url",)))
    if not url.startswith("data:"):
        return ImagePart(ANY_IMAGE, url=url, extra=extra)
    media_type, data = read_data_url(url, f"{place}.url")
    return ImagePart(media_type or ANY_IMAGE, data, extra=extra)


def _read_file(file: dict[str, JSON], place: str) -> FilePart:
    if file.get("file_data") is None:
        raise FormatError(f"{place}: send the file itself, as file_data; files kept at OpenAI are not known here")
    media_type, data = read_data_url(asked_text(file["file_data"], f"{place}.file_data"), f"{place}.file_data")
    name = asked_text(file.get("filename") or "file", f"{place}.filename")
    return FilePart(name, media_type or "application/octet-stream", data)
