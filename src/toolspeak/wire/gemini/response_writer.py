"""Answers of Gemini's generateContent API as a server writes them, whole and streamed. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolspeak.data.deltas import CallCompleted, CallMalformed, Delta, PartEnded, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FinishReason, Usage, opaque_fields
from toolspeak.wire.base import StreamFrame, WireRequest
from toolspeak.wire.gemini.common import NAME

_STATUS_NAMES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL", 501: "UNIMPLEMENTED",
    503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
"""The name of google.rpc.Code, which clients check, by HTTP status."""


def encode_response(
    deltas: Iterable[Delta], *, model: str, response_id: str, created_at: int, request: WireRequest | None = None
) -> JSON:
    """See `WireFormat.encode_response`. The answer holds no time: `created_at` is not used."""
    parts, end = _joined_parts(deltas, _PartsWriter(response_id))
    return _response(parts, model, response_id, end)


def encode_error(message: str, status: int) -> JSON:
    """See `WireFormat.encode_error`."""
    name = _STATUS_NAMES.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    return {"error": {"code": status, "message": message, "status": name}}


class _PartsWriter:
    """Writes deltas as parts. Each call gets a unique id, by which clients match results."""

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
                fields = opaque_fields(opaque, NAME)
                text_field = {"text": ""} if set(fields) == {"thoughtSignature"} else {}
                thought = {"thought": True} if kind == "reasoning" else {}
                return [{**text_field, **thought, **fields}] if fields else []
            case CallCompleted(index, name, arguments, call_id):
                unique_id = f"{self._response_id}-{index}" if not call_id or call_id in self._ids else call_id
                self._ids.add(unique_id)
                call = {"id": unique_id, "name": name, "args": arguments}
                return [{"functionCall": call, **opaque_fields(delta.opaque, NAME)}]
            case CallMalformed(raw=raw):
                return [{"text": raw}] if raw else []  # calls are sent whole, so no part of this one has been sent
            case _:
                return []


def _joined_parts(deltas: Iterable[Delta], writer: _PartsWriter) -> tuple[list[dict[str, JSON]], TurnEnded]:
    """The parts of a turn, with adjacent texts joined, and its end."""
    parts: list[dict[str, JSON]] = []
    continues = False  # whether another text of the last part's kind belongs to it
    end = TurnEnded("stop")
    for delta in deltas:
        if isinstance(delta, TurnEnded):
            end = delta
        elif isinstance(delta, PartEnded) and continues and ("thought" in parts[-1]) == (delta.part == "reasoning"):
            parts[-1].update(opaque_fields(delta.opaque, NAME))
            continues = False
        else:
            for part in writer.of(delta):
                if continues and parts[-1].keys() == part.keys():
                    parts[-1]["text"] += part["text"]
                else:
                    parts.append(part)
                    continues = part.keys() <= {"text", "thought"}
    return parts, end


def _response(parts: list[dict[str, JSON]], model: str, response_id: str, end: TurnEnded | None) -> dict[str, JSON]:
    candidate: dict[str, JSON] = {"content": {"role": "model", "parts": parts}, "index": 0}
    response: dict[str, JSON] = {"candidates": [candidate], "modelVersion": model, "responseId": response_id}
    if end is not None:
        candidate["finishReason"] = _finish_reason(end.finish)
        response["usageMetadata"] = _usage(end.usage)
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


def _usage(usage: Usage) -> dict[str, JSON]:
    answer = None if usage.output is None else max(usage.output - (usage.reasoning or 0), 0)
    counts = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": answer,
        "thoughtsTokenCount": usage.reasoning,
        "cachedContentTokenCount": usage.cached,
        "totalTokenCount": usage.total,
    }
    return {name: number for name, number in counts.items() if number is not None}


class GeminiEncoder:
    """Writes one streamed answer; an `Encoder`. Each frame is a whole response with the next parts.

    The API's answers hold no time: `created_at` is not used.
    """

    def __init__(self, request: WireRequest, *, response_id: str, created_at: int) -> None:
        self._model = request.model
        self._response_id = response_id
        self._parts = _PartsWriter(response_id)

    def feed(self, delta: Delta) -> list[StreamFrame]:
        if isinstance(delta, TurnEnded):
            return [(None, _response([], self._model, self._response_id, delta))]
        parts = self._parts.of(delta)
        return [(None, _response(parts, self._model, self._response_id, None))] if parts else []

    def fail(self, message: str, status: int = 500) -> list[StreamFrame]:
        return [(None, encode_error(message, status))]
