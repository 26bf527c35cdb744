"""Gemini's generateContent API, both roles. Sans-IO.

`POST /v1beta/models/{model}:generateContent`, and `:streamGenerateContent?alt=sse` for a stream, each event of which
is a whole response with the next parts. Source: the Gemini API reference (v1beta) and the types of its published
Python SDK (google-genai 3.4). What it does otherwise than others: calls come whole and often without an id; the
finish reason is STOP with calls too; a call the model wrote wrongly is a finish reason, MALFORMED_FUNCTION_CALL;
tokens spent thinking are not in `candidatesTokenCount`; any part may carry a `thoughtSignature`.

Requests are written in `request_writer` and read in `request_reader`; answers, both ways, here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from toolspeak.data.deltas import (
    CallCompleted,
    CallMalformed,
    Delta,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import JSON, FinishReason, Opaque, Usage
from toolspeak.data.values import quick
from toolspeak.errors import ProviderError
from toolspeak.wire.base import Decoder, Encoder, Frame, ModelRequest, WireRequest
from toolspeak.wire.fragments import CallFragments
from toolspeak.wire.gemini import request_reader, request_writer
from toolspeak.wire.gemini.request_writer import NAME, short_name
from toolspeak.wire.reading import as_list, as_object, as_text, count
from toolspeak.wire.reported import reported_error

FINISH_REASONS: Mapping[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "CONTINUATION": "length",
}
"""The API's `finishReason` as ours; any other is `error`."""

_UNREADABLE: Mapping[str, tuple[str, str]] = {
    "MALFORMED_FUNCTION_CALL": (
        "invalid_arguments",
        "the call could not be read, so nothing of the turn ran; make it again, with arguments that fit the tool",
    ),
    "UNEXPECTED_TOOL_CALL": (
        "unknown_tool",
        "the call names no tool that was offered, so nothing of the turn ran; call one that was, or answer in words",
    ),
}
"""Finish reasons of a turn whose call the API took away, as a malformed call's code and reason."""

_NOT_YET = ("", "FINISH_REASON_UNSPECIFIED")

_STATUS_NAMES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL", 501: "UNIMPLEMENTED",
    503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
"""HTTP's status as the name of google.rpc.Code that clients look at."""


@quick()
class Gemini:
    """Implements `WireFormat`. There is no switch for `ModelRequest.parallel`, and none is needed for its `cache`."""

    name: str = NAME

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        """The body. Model and `stream` stand in the path: `/v1beta/models/{model}:generateContent` or
        `:streamGenerateContent?alt=sse`."""
        return request_writer.encode_request(request, model)

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        answer = as_object(body, "the response")
        decoder = GeminiDecoder(model, whole=True)
        deltas = decoder.feed(answer)
        if not decoder.finished and not answer.get("candidates"):
            raise ProviderError("the response has no candidates: is this the Gemini API?", code="ill_formed")
        return deltas + decoder.close()

    def decoder(self, *, model: str | None = None) -> Decoder:
        return GeminiDecoder(model)

    def decode_request(self, body: JSON) -> WireRequest:
        """What the body says; `model` is read if it is there, as in the API's batches, and `stream` is False. Whoever
        knows the request's path asks `decode_request_at`."""
        return request_reader.decode_request(body)

    def decode_request_at(self, path: str, body: JSON) -> WireRequest:
        """The request of a body and the path it was sent to, which names the model and says whether to stream.

        Raises FormatError naming the field.
        """
        model, stream = request_reader.read_path(path)
        fields = {**cast("dict[str, JSON]", body), "model": model} if isinstance(body, dict) else body
        return replace(request_reader.decode_request(fields), stream=stream)

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, asked: WireRequest | None = None
    ) -> JSON:
        """`created` has no place in this format."""
        parts, end = _whole(deltas, _Parts(response_id))
        return _response(parts, model, response_id, end)

    def encoder(self, asked: WireRequest, *, response_id: str, created: int) -> Encoder:
        return GeminiEncoder(asked.model, response_id)

    def encode_error(self, message: str, status: int) -> JSON:
        name = _STATUS_NAMES.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        return {"error": {"code": status, "message": message, "status": name}}


GEMINI = Gemini()


class GeminiDecoder:
    """Reads the responses of one stream. `whole`: the only response of a turn, so its parts are not to be joined."""

    def __init__(self, model: str | None = None, *, whole: bool = False) -> None:
        self.finished = False
        self._asked = None if model is None else short_name(model)
        self._whole = whole
        self._begun = False
        self._unsigned: str | None = None  # the kind of the part before, if it may not be joined to the next
        self._calls = CallFragments()
        self._count = 0
        self._finish: FinishReason = "stop"
        self._unreadable: tuple[str, str, str] | None = None
        self._usage: JSON = None
        self._model: JSON = None
        self._id: JSON = None

    def feed(self, data: JSON) -> list[Delta]:
        # The ordinary chunk: one text and nothing else, behind a first one that was read with care.
        if self._begun and type(data) is dict and not ("error" in data or "promptFeedback" in data):
            chunk = cast("dict[str, Any]", data)
            text = _only_text(chunk.get("candidates"))
            if text:
                self._usage = chunk.get("usageMetadata") or self._usage
                return [TextDelta(text)]
        return self._careful(as_object(data, "a chunk of the stream"))

    def _careful(self, chunk: dict[str, JSON]) -> list[Delta]:
        if chunk.get("error"):
            raise reported_error(chunk["error"])
        self._begun = not self._whole
        self._usage = chunk.get("usageMetadata") or self._usage  # each counts from the start
        self._model = chunk.get("modelVersion") or self._model
        self._id = chunk.get("responseId") or self._id
        deltas: list[Delta] = []
        for candidate in as_list(chunk.get("candidates"), "'candidates'"):
            found = as_object(candidate, "a candidate")
            if found.get("index"):
                continue  # `candidateCount` above 1: a turn is one answer, the first
            content = as_object(found.get("content") or {}, "'content'")
            for part in as_list(content.get("parts"), "'parts'"):
                deltas += self._part(as_object(part, "a part"))
            if found.get("finishReason"):
                self._end(as_text(found["finishReason"], "'finishReason'"), found)
        feedback = chunk.get("promptFeedback")
        if feedback and as_object(feedback, "'promptFeedback'").get("blockReason"):
            self.finished, self._finish = True, "content_filter"
        return deltas

    def close(self) -> list[Delta]:
        if self._unreadable is not None:
            deltas, self._finish = self._calls.spoil(*self._unreadable), "tool_calls"
        else:
            if self._calls.any and self._finish == "stop":
                self._finish = "tool_calls"
            deltas = self._calls.close(self._finish)
        return [*deltas, TurnEnded(self._finish, _usage(self._usage), _text(self._model), _text(self._id))]

    def _end(self, reason: str, candidate: Mapping[str, JSON]) -> None:
        if reason in _NOT_YET:
            return
        self.finished = True
        if reason in _UNREADABLE:
            code, why = _UNREADABLE[reason]
            self._unreadable = as_text(candidate.get("finishMessage"), "'finishMessage'"), code, why
        else:
            self._finish = FINISH_REASONS.get(reason, "error")

    def _part(self, part: dict[str, JSON]) -> list[Delta]:
        if part.get("functionCall"):
            self._unsigned = None
            return self._call(as_object(part["functionCall"], "'functionCall'"), self._rest(part, "functionCall"))
        kind = "reasoning" if part.get("thought") else "text"
        text = as_text(part.get("text"), "'text'")
        kept = self._rest(part, "text", "thought")
        out: list[Delta] = []
        if text:
            if self._unsigned == kind:
                out.append(PartEnded(kind))
            out.append(ReasoningDelta(text) if kind == "reasoning" else TextDelta(text))
            self._unsigned = kind if self._whole else None
        if kept is not None:
            out.append(PartEnded(kind, kept))
            self._unsigned = None
        return out

    def _rest(self, part: dict[str, JSON], *read: str) -> Opaque | None:
        """The signature, and what the API's own tools left: it goes back with the part."""
        rest = {name: value for name, value in part.items() if name not in read and value is not None}
        return Opaque(NAME, self._asked or _text(self._model) or "", rest) if rest else None

    def _call(self, call: dict[str, JSON], opaque: Opaque | None) -> list[Delta]:
        arguments = as_object(call.get("args") or {}, "'args' of a function call")
        name, given = as_text(call.get("name"), "'name' of a function call"), as_text(call.get("id"), "'id' of a call")
        key = self._count
        self._count += 1
        out = self._calls.start(key, name, given, opaque)
        out += self._calls.add(key, json.dumps(arguments, ensure_ascii=False))
        return out + self._calls.complete(key)


def _only_text(candidates: Any) -> str:
    """The text of a candidate that says one text and nothing else, or nothing."""
    try:
        [candidate] = candidates
        [part] = candidate["content"]["parts"]
        text = part["text"]
    except (KeyError, TypeError, ValueError):
        return ""
    alone = len(part) == 1 and "finishReason" not in candidate and not candidate.get("index")
    return text if alone and type(text) is str else ""


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) and value else None


def _usage(counts: JSON) -> Usage:
    """What thinking took is part of the output, what the API's own tools read part of the input."""
    said, thought = count(counts, "candidatesTokenCount"), count(counts, "thoughtsTokenCount")
    read, tools = count(counts, "promptTokenCount"), count(counts, "toolUsePromptTokenCount")
    return Usage(
        input=None if read is None else read + (tools or 0),
        output=None if said is None and thought is None else (said or 0) + (thought or 0),
        cached=count(counts, "cachedContentTokenCount"),
        reasoning=thought,
    )


# --- server ------------------------------------------------------------------------------------------------------


def _kept(opaque: Opaque | None) -> dict[str, JSON]:
    """A signature for the client to send back; one of another API would mean nothing to it."""
    if opaque is None or opaque.provider != NAME:
        return {}
    return dict(cast("Mapping[str, JSON]", opaque.data))


class _Parts:
    """What a delta is as parts. Each call gets an id of its own, for clients that match results by it."""

    def __init__(self, response_id: str) -> None:
        self._response_id = response_id
        self._ids: set[str] = set()

    def of(self, delta: Delta) -> list[dict[str, JSON]]:
        match delta:
            case TextDelta(text):
                return [{"text": text}] if text else []
            case ReasoningDelta(text):
                return [{"text": text, "thought": True}] if text else []
            case PartEnded(kind, opaque):
                kept = _kept(opaque)
                said = {"text": ""} if kept.keys() == {"thoughtSignature"} else {}
                thought = {"thought": True} if kind == "reasoning" else {}
                return [{**said, **thought, **kept}] if kept else []
            case CallCompleted(index, name, arguments, given):
                used = f"{self._response_id}-{index}" if not given or given in self._ids else given
                self._ids.add(used)
                return [{"functionCall": {"id": used, "name": name, "args": arguments}, **_kept(delta.opaque)}]
            case CallMalformed(raw=raw):
                return [{"text": raw}] if raw else []  # calls are sent whole, so nothing of this one was
            case _:
                return []


def _whole(deltas: Iterable[Delta], writer: _Parts) -> tuple[list[dict[str, JSON]], TurnEnded]:
    """A turn's parts, the texts of each joined, and its end."""
    parts: list[dict[str, JSON]] = []
    goes_on = False  # whether a further text of the last part's kind belongs to it
    end = TurnEnded("stop")
    for delta in deltas:
        if isinstance(delta, TurnEnded):
            end = delta
        elif isinstance(delta, PartEnded) and goes_on and ("thought" in parts[-1]) == (delta.part == "reasoning"):
            parts[-1].update(_kept(delta.opaque))
            goes_on = False
        else:
            for part in writer.of(delta):
                if goes_on and parts[-1].keys() == part.keys():
                    parts[-1]["text"] += part["text"]
                else:
                    parts.append(part)
                    goes_on = part.keys() <= {"text", "thought"}
    return parts, end


def _response(parts: list[dict[str, JSON]], model: str, response_id: str, end: TurnEnded | None) -> dict[str, JSON]:
    candidate: dict[str, JSON] = {"content": {"role": "model", "parts": parts}, "index": 0}
    response: dict[str, JSON] = {"candidates": [candidate], "modelVersion": model, "responseId": response_id}
    if end is not None:
        candidate["finishReason"] = _finish_reason(end.finish)
        response["usageMetadata"] = _counts(end.usage)
    return response


def _finish_reason(finish: FinishReason) -> str:
    match finish:
        case "stop" | "tool_calls" | "closed_by_us":
            return "STOP"
        case "length":
            return "MAX_TOKENS"
        case "content_filter" | "refusal":
            return "SAFETY"
        case "pause" | "cancelled" | "error":
            return "OTHER"


def _counts(usage: Usage) -> dict[str, JSON]:
    said = None if usage.output is None else max(usage.output - (usage.reasoning or 0), 0)
    counts = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": said,
        "thoughtsTokenCount": usage.reasoning,
        "cachedContentTokenCount": usage.cached,
        "totalTokenCount": usage.total,
    }
    return {name: number for name, number in counts.items() if number is not None}


class GeminiEncoder:
    """Implements `Encoder`: each frame is a whole response with the next parts."""

    def __init__(self, model: str, response_id: str) -> None:
        self._model = model
        self._response_id = response_id
        self._parts = _Parts(response_id)

    def feed(self, delta: Delta) -> list[Frame]:
        if isinstance(delta, TurnEnded):
            return [(None, _response([], self._model, self._response_id, delta))]
        parts = self._parts.of(delta)
        return [(None, _response(parts, self._model, self._response_id, None))] if parts else []

    def fail(self, message: str, status: int = 500) -> list[Frame]:
        return [(None, GEMINI.encode_error(message, status))]
