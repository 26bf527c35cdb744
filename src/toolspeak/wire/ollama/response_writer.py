"""Answers of Ollama's chat API as a server writes them, whole and streamed. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from toolspeak.data.deltas import CallCompleted, CallMalformed, Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FinishReason
from toolspeak.wire.base import StreamFrame, WireRequest


def encode_response(
    deltas: Iterable[Delta], *, model: str, response_id: str, created_at: int, request: WireRequest | None = None
) -> JSON:
    """See `WireFormat.encode_response`."""
    writer = _LineWriter(model, response_id, created_at)
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[JSON] = []
    end = TurnEnded("stop")
    for delta in deltas:
        if isinstance(delta, TurnEnded):
            end = delta
            continue
        message = writer.message(delta) or {}
        texts.append(message.get("content", ""))
        thoughts.append(message.get("thinking", ""))
        calls += message.get("tool_calls", ())
    fields: dict[str, JSON] = {"role": "assistant", "content": "".join(texts)}
    if any(thoughts):
        fields["thinking"] = "".join(thoughts)
    if calls:
        fields["tool_calls"] = calls
    return writer.line(fields, end)


def encode_error(message: str, status: int) -> JSON:
    """See `WireFormat.encode_error`. The body does not hold the status."""
    return {"error": message}


class _LineWriter:
    """Writes deltas as messages, and messages as lines. Each call gets a unique id."""

    def __init__(self, model: str, response_id: str, created_at: int) -> None:
        self._head: dict[str, JSON] = {
            "model": model,
            "created_at": datetime.fromtimestamp(created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self._response_id = response_id
        self._ids: set[str] = set()

    def message(self, delta: Delta) -> dict[str, JSON] | None:
        """The message for a delta, if it has one."""
        match delta:
            case (
                TextDelta(text) | CallMalformed(raw=text)
            ):  # calls are sent whole, so no part of this one has been sent
                return {"role": "assistant", "content": text} if text else None
            case ReasoningDelta(text):
                return {"role": "assistant", "content": "", "thinking": text} if text else None
            case CallCompleted(index, name, arguments, call_id):
                unique_id = f"{self._response_id}-{index}" if not call_id or call_id in self._ids else call_id
                function = {"index": len(self._ids), "name": name, "arguments": arguments}
                self._ids.add(unique_id)
                return {"role": "assistant", "content": "", "tool_calls": [{"id": unique_id, "function": function}]}
            case _:
                return None

    def line(self, message: Mapping[str, JSON], end: TurnEnded | None) -> dict[str, JSON]:
        if end is None:
            return {**self._head, "message": message, "done": False}
        counts = {"prompt_eval_count": end.usage.input, "eval_count": end.usage.output}
        fields = {name: number for name, number in counts.items() if number is not None}
        # Durations are unknown here; clients accept their absence.
        return {**self._head, "message": message, "done": True, "done_reason": _done_reason(end.finish), **fields}


def _done_reason(finish: FinishReason) -> str:
    """The API's reason. An incomplete turn gets a reason that the API does not have, so that clients notice it."""
    match finish:
        case "stop" | "tool_calls" | "closed_by_us" | "refusal" | "pause":
            return "stop"
        case "length" | "content_filter" | "cancelled" | "error":
            return finish


class OllamaEncoder:
    """Writes one streamed answer; an `Encoder`. Each frame is one line."""

    def __init__(self, request: WireRequest, *, response_id: str, created_at: int) -> None:
        self._writer = _LineWriter(request.model, response_id, created_at)

    def feed(self, delta: Delta) -> list[StreamFrame]:
        if isinstance(delta, TurnEnded):
            return [(None, self._writer.line({"role": "assistant", "content": ""}, delta))]
        message = self._writer.message(delta)
        return [] if message is None else [(None, self._writer.line(message, None))]

    def fail(self, message: str, status: int = 500) -> list[StreamFrame]:
        return [(None, encode_error(message, status))]
