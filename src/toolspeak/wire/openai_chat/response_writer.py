"""Answers of OpenAI Chat Completions as a server writes them, whole and streamed. Sans-IO.

Source: the OpenAI API reference, "Chat Completions". A call's id, type and name are sent only once: some clients join
repeated ones (the openai package's stream helper, LangChain and others).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolspeak.data.deltas import (
    ArgumentsDelta,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import JSON, FinishReason, Usage, opaque_fields
from toolspeak.wire.base import ModelRequest, StreamFrame, WireRequest
from toolspeak.wire.json_conversion import excerpt
from toolspeak.wire.openai_chat.common import NAME

LAST_EVENT = "[DONE]"
"""The data of the event after the last chunk."""

_FINISH_REASONS: Mapping[FinishReason, str] = {
    "stop": "stop",
    "tool_calls": "stop",  # without a call; with one it is `tool_calls`
    "closed_by_us": "stop",
    "length": "length",
    "pause": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    # Not one of the API's reasons, so that clients notice that the turn is incomplete.
    "cancelled": "error",
    "error": "error",
}

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def encode_response(
    deltas: Iterable[Delta], *, model: str, response_id: str, created_at: int, request: WireRequest | None = None
) -> JSON:
    """See `WireFormat.encode_response`. Builds the answer from the chunks, with the usage whatever `request` says."""
    encoder = ChunkEncoder(WireRequest(ModelRequest(()), model), response_id=response_id, created_at=created_at)
    answer = _MessageBuilder()
    for delta in deltas:
        answer.is_refused = answer.is_refused or (isinstance(delta, TurnEnded) and delta.finish == "refusal")
        for _, chunk in encoder.feed(delta):
            if chunk != LAST_EVENT:
                answer.add(chunk)
    whole: dict[str, JSON] = {
        "id": response_id,
        "object": "chat.completion",
        "created": created_at,
        "model": model,
        "choices": [{"index": 0, "message": answer.message(), "logprobs": None, "finish_reason": answer.finish}],
    }
    return whole if answer.usage is None else {**whole, "usage": answer.usage}


def encode_error(message: str, status: int) -> JSON:
    """See `WireFormat.encode_error`."""
    kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class ChunkEncoder:
    """Writes the chunks of one streamed answer; an `Encoder`.

    A malformed call becomes text. If a part of it was sent as a call, its arguments end in text that is not JSON, so
    that no client runs it. Results that the model wrote itself are left out.
    """

    def __init__(self, request: WireRequest, *, response_id: str, created_at: int) -> None:
        self._head: dict[str, JSON] = {
            "id": response_id,
            "object": "chat.completion.chunk",
            "created": created_at,
            "model": request.model,
        }
        self._usage_wanted = request.usage_wanted
        self._has_started = False
        # The place in `tool_calls` by a call's index, and the calls with arguments that have been sent.
        self._places: dict[int, int] = {}
        self._with_arguments: set[int] = set()
        self._ids: set[str] = set()

    def feed(self, delta: Delta) -> list[StreamFrame]:
        """See `Encoder`."""
        if isinstance(delta, TextDelta) and self._has_started:  # most deltas of a turn
            choice: JSON = {"index": 0, "delta": {"content": delta.text}, "finish_reason": None}
            return [(None, {**self._head, "choices": [choice]})]
        match delta:
            case ArgumentsDelta(index, text) if index in self._places:
                self._with_arguments.add(index)
                return [self._chunk({"tool_calls": [{"index": self._places[index], "function": {"arguments": text}}]})]
            case TextDelta(text):
                return self._frames({"content": text})
            case ReasoningDelta(text):
                return self._frames({"reasoning_content": text})
            case PartEnded("reasoning", opaque):
                details = opaque_fields(opaque, NAME).get("reasoning_details")
                return self._frames({"reasoning_details": details}) if details else []
            case CallStarted(index, name, call_id):
                return self._start(index, name, call_id)
            case CallCompleted():
                return self._complete(delta)
            case CallMalformed(index, raw, _, reason):
                if index in self._places:
                    # JSON never ends in a parenthesis.
                    return self.feed(ArgumentsDelta(index, f" ({excerpt(reason)})"))
                return self._frames({"content": raw}) if raw else []
            case TurnEnded(finish, usage):
                return self._end(finish, usage)
            case _:
                return []

    def fail(self, message: str, status: int = 500) -> list[StreamFrame]:
        """See `Encoder`. No `[DONE]` follows: the answer is incomplete."""
        return [(None, encode_error(message, status))]

    def _chunk(self, delta: JSON, finish: str | None = None) -> StreamFrame:
        return None, {**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def _frames(self, delta: JSON) -> list[StreamFrame]:
        frames = [] if self._has_started else [self._chunk({"role": "assistant", "content": ""})]
        self._has_started = True
        return [*frames, self._chunk(delta)]

    def _start(self, index: int, name: str, call_id: str | None) -> list[StreamFrame]:
        place = self._places[index] = len(self._places)
        unique_id = call_id or f"call_{self._head['id']}_{index}"
        while unique_id in self._ids:
            unique_id = f"{unique_id}-{index}"
        self._ids.add(unique_id)
        function = {"name": name, "arguments": ""}
        call = {"index": place, "id": unique_id, "type": "function", "function": function}
        return self._frames({"tool_calls": [call]})

    def _complete(self, call: CallCompleted) -> list[StreamFrame]:
        frames = [] if call.index in self._places else self._start(call.index, call.name, call.id)
        item: dict[str, JSON] = {}
        if call.index not in self._with_arguments:
            item["function"] = {"arguments": json.dumps(call.arguments, ensure_ascii=False)}
        item.update(opaque_fields(call.opaque, NAME))
        if item:
            frames += self._frames({"tool_calls": [{"index": self._places[call.index], **item}]})
        return frames

    def _end(self, finish: FinishReason, usage: Usage) -> list[StreamFrame]:
        reason = _FINISH_REASONS[finish]
        frames = self._frames({}) if not self._has_started else []
        frames.append(self._chunk({}, "tool_calls" if self._places and reason == "stop" else reason))
        counts = _usage(usage)
        if self._usage_wanted and counts is not None:
            frames.append((None, {**self._head, "choices": [], "usage": counts}))
        return [*frames, (None, LAST_EVENT)]


class _MessageBuilder:
    """Builds a message from chunks."""

    def __init__(self) -> None:
        self.is_refused = False
        self.usage: JSON = None
        self._finish = "error"
        self._texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
        self._details: list[JSON] = []
        self._calls: list[dict[str, JSON]] = []
        self._arguments: list[list[str]] = []

    @property
    def finish(self) -> str:
        return "stop" if self.is_refused else self._finish

    def add(self, chunk: dict[str, JSON]) -> None:
        self.usage = chunk.get("usage", self.usage)
        for choice in chunk["choices"]:
            self._finish = choice["finish_reason"] or self._finish
            delta: dict[str, Any] = choice["delta"]
            for field, pieces in self._texts.items():
                pieces.append(delta.get(field, ""))
            self._details += delta.get("reasoning_details", ())
            for item in delta.get("tool_calls", ()):
                self._add_call(item)

    def _add_call(self, item: dict[str, Any]) -> None:
        if "id" in item:
            self._calls.append({})
            self._arguments.append([])
        function = item.get("function", {})
        if "name" in function:
            self._calls[-1]["function"] = {"name": function["name"]}
        place: int = item["index"]
        self._arguments[place].append(function.get("arguments", ""))
        self._calls[place].update((k, v) for k, v in item.items() if k not in ("index", "function"))

    def message(self) -> JSON:
        text, reasoning = ("".join(pieces) for pieces in self._texts.values())
        message: dict[str, JSON] = {"role": "assistant", "content": text, "refusal": None}
        if self.is_refused:
            message |= {"content": None, "refusal": text}
        elif not text and self._calls:
            message["content"] = None
        if reasoning:
            message["reasoning_content"] = reasoning
        if self._details:
            message["reasoning_details"] = self._details
        for call, pieces in zip(self._calls, self._arguments, strict=True):
            call["function"]["arguments"] = "".join(pieces)
        if self._calls:
            message["tool_calls"] = self._calls
        return message


def _usage(usage: Usage) -> JSON:
    """The API's counts; None if one of the two is unknown, since the API has no value for that."""
    if usage.input is None or usage.output is None:
        return None
    counts: dict[str, JSON] = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
    }
    if usage.cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached}
    if usage.reasoning is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return counts
