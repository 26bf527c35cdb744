"""Requests of Gemini's generateContent API as a client writes them. Sans-IO.

Source: the Gemini API reference (v1beta, `GenerateContentRequest`) and the types of its published Python SDK
(google-genai 3.4): `FunctionDeclaration.parametersJsonSchema` accepts plain JSON Schema and excludes `parameters`, a
subset of OpenAPI's; the object `FunctionResponse.response` is the output as a whole, unless it has the key `output` or
`error`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import cast

from toolspeak.data.messages import (
    JSON,
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
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.gemini.common import GENERATION_FIELDS, NAME, short_name
from toolspeak.wire.json_conversion import call_ids, check_request, text_of, without_lone_surrogates

_OWN_FIELDS = ("contents", "systemInstruction", "tools", "toolConfig", "model")
"""Fields that options cannot set."""

_RESULT_KEYS = frozenset({"result", "output", "error"})
"""Keys with a meaning in a function's response: an object with one of them is wrapped."""

NO_SIGNATURE = "skip_thought_signature_validator"
"""The signature of calls that another model or a person made. From its third generation on, Gemini answers 400 to a
conversation in which the first call of a step has no signature ("Function call is missing a thought_signature").

Source: Gemini API, "Thought signatures" (ai.google.dev/gemini-api/docs/thought-signatures), FAQ on conversations from
another model: this text, or `context_engineering_is_the_way_to_go`, skips the check, and makes the model's answers
somewhat worse. Google's own gemini-cli and vercel/ai (#15550) send this text unchanged: it is already base64."""

_EARLIER_GENERATION = re.compile(r"gemini-[12](?:\D|$)")


def _is_third_generation(model: str) -> bool:
    """Whether a model is a Gemini of the third generation or later, which requires signatures and accepts media in a
    function's response."""
    return model.startswith("gemini-") and not _EARLIER_GENERATION.match(model)


def encode_request(request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
    """See `WireFormat.encode_request`. The path holds the model and `stream`: `/v1beta/models/{model}:generateContent`
    or `:streamGenerateContent?alt=sse`. The API has no field for `ModelRequest.parallel`, and needs none for
    `cache`."""
    check_request(request, _OWN_FIELDS, format_name=NAME)
    writer = _ContentsWriter(request.messages, short_name(model))
    body: dict[str, JSON] = {"contents": writer.contents}
    if writer.system:
        body["systemInstruction"] = {"parts": writer.system}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
        if request.choice.mode != "auto":
            body["toolConfig"] = {"functionCallingConfig": _calling_config(request.choice)}
    generation: dict[str, JSON] = {}
    if request.output is not None:
        generation = {"responseMimeType": "application/json", "responseJsonSchema": request.output.schema}
    for name, value in request.options.items():
        if name == "generationConfig":
            generation = {**cast("Mapping[str, JSON]", value or {}), **generation}
        elif name in GENERATION_FIELDS:
            generation[name] = value
        else:
            body[name] = value
    if any(value is not None for value in generation.values()):
        body["generationConfig"] = {name: value for name, value in generation.items() if value is not None}
    return {name: without_lone_surrogates(value) for name, value in body.items() if value is not None}


def _declaration(tool: ToolSpec) -> dict[str, JSON]:
    description_field = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **description_field, "parametersJsonSchema": tool.parameters}


def _calling_config(choice: ToolChoice) -> dict[str, JSON]:
    if choice.mode == "none":
        return {"mode": "NONE"}
    return {"mode": "ANY"} if choice.mode == "required" else {"mode": "ANY", "allowedFunctionNames": [choice.name]}


class _ContentsWriter:
    """Writes a conversation as `contents`, and its leading system messages as the parts of `systemInstruction`.

    The results of a turn are one content, in the order of its calls, before the user's other content.
    """

    def __init__(self, messages: Sequence[Message | TextMessage], model: str) -> None:
        self.system: list[JSON] = []
        self.contents: list[JSON] = []
        self._model = model
        self._ids = call_ids(messages)
        self._order = {id: place for place, id in enumerate(self._ids)}  # noqa: A001
        self._results: list[ToolResult] = []
        for message in messages:
            self._add(message)
        self._flush()

    def _add(self, message: Message | TextMessage) -> None:
        parts: Sequence[Part] = message.parts if isinstance(message, Message) else (TextPart(message.text),)
        if message.role == "assistant":
            self._flush()
            self._content("model", self._model_parts(parts))
        elif message.role == "system" and not (self.contents or self._results):
            self.system += self._parts_without_results(parts)
        else:
            self._results += [part for part in parts if isinstance(part, ToolResult)]
            others = self._parts_without_results(parts)
            if others:
                self._flush()
                self._content("user", others)

    def _content(self, role: str, parts: list[JSON]) -> None:
        if parts:  # the API refuses a content without parts
            self.contents.append({"role": role, "parts": parts})

    def _parts_without_results(self, parts: Sequence[Part]) -> list[JSON]:
        return [item for part in parts if not isinstance(part, ToolResult) for item in self._part(part)]

    def _model_parts(self, parts: Sequence[Part]) -> list[JSON]:
        all_parts = [part_json for part in parts for part_json in self._part(part)]
        calls = [part for part in all_parts if "functionCall" in part]
        if calls and _is_third_generation(self._model) and "thoughtSignature" not in calls[0]:
            calls[0]["thoughtSignature"] = NO_SIGNATURE
        return cast("list[JSON]", all_parts)

    def _part(self, part: Part) -> list[dict[str, JSON]]:
        """The part in the API's form, if it has one. Reasoning is sent only with the same model's signature."""
        match part:
            case TextPart(text):
                data = opaque_fields(part.opaque, NAME, self._model)
                # An empty text may have a signature. A part that is not text is in the opaque data.
                text_field = {"text": text} if text or set(data) == {"thoughtSignature"} else {}
                return [{**text_field, **data}] if text_field or data else []
            case ReasoningPart(text):
                data = opaque_fields(part.opaque, NAME, self._model)
                return [{"text": text, "thought": True, **data}] if data else []
            case ToolCall():
                call = {"id": self._ids.get(part.id, part.id), "name": part.name, "args": dict(part.arguments)}
                return [{"functionCall": call, **opaque_fields(part.opaque, NAME, self._model)}]
            case MalformedCall():
                return [{"text": part.raw}] if part.raw else []
            case ToolResult():
                return []
            case JsonPart():
                return [{"text": text_of([part])}]
            case ImagePart() | FilePart():
                return [{**_medium(part), **opaque_fields(part.opaque, NAME, self._model)}]

    def _flush(self) -> None:
        results, self._results = self._results, []
        results.sort(key=lambda result: self._order.get(result.call_id, len(self._order)))
        native = [result for result in results if result.call_id in self._ids]
        parts: list[JSON] = []
        media: list[JSON] = []
        for result in native:
            response: dict[str, JSON] = {
                "id": self._ids[result.call_id], "name": result.name, "response": _response(result)
            }  # fmt: skip
            result_media = [_medium(part) for part in result.content if isinstance(part, ImagePart | FilePart)]
            if result_media and _is_third_generation(self._model):
                response["parts"] = result_media
            else:
                media += result_media
            parts.append({"functionResponse": response})
        self._content("user", parts + media)
        # A result whose call was sent as text (`json_conversion.is_native`) is text too.
        self._content("user", [{"text": text_of(result.content)} for result in results if result not in native])


def _medium(part: ImagePart | FilePart) -> dict[str, JSON]:
    if isinstance(part, ImagePart) and part.data is None:
        type_field = {} if part.media_type.endswith("/*") else {"mimeType": part.media_type}
        return {"fileData": {**type_field, "fileUri": part.url}}
    data = base64.b64encode(part.data or b"").decode()
    return {"inlineData": {"mimeType": part.media_type, "data": data}}


def _response(result: ToolResult) -> Mapping[str, JSON]:
    """A result as an object, as the API requires."""
    content = [part for part in result.content if not isinstance(part, ImagePart | FilePart)] or result.content
    if result.status == "failure":
        return {"error": text_of(content)}
    if len(content) == 1 and isinstance(content[0], JsonPart):
        value = content[0].value
        plain = isinstance(value, Mapping) and not _RESULT_KEYS & cast("Mapping[str, JSON]", value).keys()
        return cast("Mapping[str, JSON]", value) if plain else {"result": value}
    return {"result": text_of(content)}
