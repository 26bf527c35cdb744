"""Answers of Anthropic's Messages API as a server writes them, whole and streamed. Sans-IO.

Source: Anthropic's API reference, "Messages", "Streaming messages" and "Errors", and the types of its Python SDK 2.12.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import cast

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    Delta,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import JSON, NORMAL_END, FinishReason, Opaque, Usage, opaque_fields
from toolspeak.wire.anthropic.common import ERROR_TYPES, NAME, STOP_REASONS, ContentBlock, valid_id
from toolspeak.wire.base import ModelRequest, StreamFrame, WireRequest
from toolspeak.wire.json_conversion import read_arguments

_REASONS: Mapping[FinishReason, str] = {
    "content_filter": "refusal",
    **{finish: reason for reason, finish in reversed([*STOP_REASONS.items()])},
}

_NO_JSON = "\0"  # no JSON parser accepts it anywhere, not even a lenient one for partial documents


def encode_error(message: str, status: int) -> JSON:
    """See `WireFormat.encode_error`."""
    kind = ERROR_TYPES.get(status) or ("invalid_request_error" if 400 <= status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def encode_response(
    deltas: Iterable[Delta], *, model: str, response_id: str, created_at: int, request: WireRequest | None = None
) -> JSON:
    """See `WireFormat.encode_response`. The answer has the calls that count, and malformed calls as text. It holds no
    time: `created_at` is not used."""
    encoder = AnthropicEncoder(WireRequest(ModelRequest(()), model), response_id=response_id, created_at=created_at)
    message: dict[str, JSON] = {}
    content: list[ContentBlock] = []
    for delta in _countable(list(deltas)):
        for _, data in encoder.feed(delta):
            match data["type"]:
                case "message_start":
                    message = dict(data["message"])
                case "content_block_start":
                    content.append(dict(data["content_block"]))
                case "content_block_delta":
                    _extend(content[-1], data["delta"])
                case "message_delta":
                    message.update(data["delta"], usage={**message["usage"], **data["usage"]})
                case _:
                    pass
    return {**message, "content": content}


def _countable(deltas: list[Delta]) -> Iterable[Delta]:
    """The deltas of a turn with each call in one piece, without the calls that do not count."""
    batches = [delta.selected for delta in deltas if isinstance(delta, BatchEnded)]
    selected_indexes = {index for batch in batches for index in batch}
    ignored_indexes = {delta.index for delta in deltas if isinstance(delta, CallIgnored)}
    for delta in deltas:
        match delta:
            case CallStarted() | ArgumentsDelta():
                pass
            case CallCompleted(index) | CallMalformed(index) if index in ignored_indexes:
                pass
            case CallCompleted(index) if batches and index not in selected_indexes:
                pass
            case _:
                yield delta


def _extend(block: ContentBlock, delta: ContentBlock) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case _:
            block["input"] = json.loads(delta["partial_json"])  # in one piece: see _countable


class AnthropicEncoder:
    """Writes one streamed answer; an `Encoder`.

    The API's blocks follow each other. While an open call's arguments are incomplete, deltas of other blocks are
    deferred. If a call turns out to be malformed after a part of it was sent, its arguments end in text that is not
    JSON, so that no client runs a part of a call. The API's answers hold no time: `created_at` is not used.
    """

    def __init__(self, request: WireRequest, *, response_id: str, created_at: int) -> None:
        self._model, self._response_id = request.model, response_id
        self._has_started = False
        self._index = -1
        self._kind = ""
        self._call: int | None = None
        self._pieces: list[str] = []
        self._malformed: bool = False
        self._completed_calls: set[int] = set()
        self._ids: set[str] = set()
        self._deferred_deltas: list[Delta] = []

    def feed(self, delta: Delta) -> list[StreamFrame]:
        """See `Encoder`."""
        # The ordinary delta continues the open block.
        if delta.__class__ is TextDelta:
            if self._kind == "text" and (text := cast("TextDelta", delta).text):
                return [self._delta({"type": "text_delta", "text": text})]
        elif delta.__class__ is ArgumentsDelta:
            text, index = cast("ArgumentsDelta", delta).text, cast("ArgumentsDelta", delta).index
            if index == self._call and not self._malformed:
                self._pieces.append(text)
                return [self._delta({"type": "input_json_delta", "partial_json": text})]
        out: list[StreamFrame] = []
        if not self._has_started:
            self._has_started = True
            out.append(("message_start", {"type": "message_start", "message": self._message()}))
        if isinstance(delta, TurnEnded):
            self._finish(delta, out)
        else:
            self._accept(delta, out)
        return out

    def fail(self, message: str, status: int = 500) -> list[StreamFrame]:
        return [("error", encode_error(message, status))]

    def _message(self) -> ContentBlock:
        return {
            "id": self._response_id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }

    def _accept(self, delta: Delta, out: list[StreamFrame]) -> None:
        match delta:
            case TextDelta("") | ReasoningDelta("") | PartEnded("text"):
                return
            case ArgumentsDelta(index) | CallCompleted(index) if index in self._completed_calls:
                return
            case CallMalformed(index) | CallIgnored(index):
                # The deferred deltas were not sent.
                self._deferred_deltas = [
                    each for each in self._deferred_deltas if getattr(each, "index", None) != index
                ]
                if isinstance(delta, CallIgnored):
                    return
            case TextDelta() | ReasoningDelta() | PartEnded() | CallStarted() | ArgumentsDelta() | CallCompleted():
                pass
            case _:
                return  # the API has no events for batches and tools
        if self._call is None or getattr(delta, "index", None) == self._call:
            self._write(delta, out)
        elif self._malformed or (not self._deferred_deltas and self._is_complete()):
            self._end_block(out)
            self._write(delta, out)
        else:
            self._deferred_deltas.append(delta)

    def _is_complete(self) -> bool:
        return read_arguments("".join(self._pieces), whole=False)[0] is not None

    def _is_partial(self) -> bool:
        """Whether the text so far is not JSON. Clients read an empty text as `{}`."""
        return "".join(self._pieces).strip() != "" and not self._is_complete()

    def _write(self, delta: Delta, out: list[StreamFrame]) -> None:
        match delta:
            case TextDelta(text):
                self._start_block(out, "text", text="")
                out.append(self._delta({"type": "text_delta", "text": text}))
            case ReasoningDelta(text):
                self._start_block(out, "thinking", thinking="", signature="")
                out.append(self._delta({"type": "thinking_delta", "thinking": text}))
            case PartEnded(_, opaque):
                self._end_reasoning(opaque, out)
            case CallStarted(index, name, call_id):
                self._start_call(index, name, call_id, out)
            case ArgumentsDelta(index, text) if index == self._call and not self._malformed:  # a deferred one
                self._pieces.append(text)
                out.append(self._delta({"type": "input_json_delta", "partial_json": text}))
            case CallCompleted(index, name, arguments, call_id):
                if index != self._call:
                    self._start_call(index, name, call_id, out)
                if not self._pieces:
                    text = json.dumps(arguments, ensure_ascii=False)
                    out.append(self._delta({"type": "input_json_delta", "partial_json": text}))
                self._end_block(out)
                self._release(out)
            case CallMalformed(index, raw):
                if index == self._call:
                    self._malformed = True
                    self._release(out)
                elif raw and index not in self._completed_calls:
                    self._write(TextDelta(raw), out)
            case _:
                pass

    def _release(self, out: list[StreamFrame]) -> None:
        """Continues with the deferred deltas."""
        deferred_deltas, self._deferred_deltas = self._deferred_deltas, []
        for delta in deferred_deltas:
            self._accept(delta, out)

    def _start_block(self, out: list[StreamFrame], kind: str, **fields: JSON) -> None:
        if self._kind == kind and self._call is None:
            return
        self._end_block(out)
        self._index, self._kind = self._index + 1, kind
        block = {"type": kind, **fields}
        out.append(
            ("content_block_start", {"type": "content_block_start", "index": self._index, "content_block": block})
        )

    def _start_call(self, index: int, name: str, wanted_id: str | None, out: list[StreamFrame]) -> None:
        call_id = valid_id(wanted_id or f"toolu_{self._response_id}_{index}", self._ids)
        self._ids.add(call_id)
        self._end_block(out)
        self._start_block(out, "tool_use", id=call_id, name=name, input={})
        self._call, self._pieces = index, []

    def _end_reasoning(self, opaque: Opaque | None, out: list[StreamFrame]) -> None:
        data = opaque_fields(opaque, NAME)
        if "redacted" in data:
            self._start_block(out, "redacted_thinking", data=data["redacted"])
        elif "signature" in data:
            self._start_block(out, "thinking", thinking="", signature="")
            out.append(self._delta({"type": "signature_delta", "signature": data["signature"]}))
        if self._kind in ("thinking", "redacted_thinking"):
            self._end_block(out)

    def _delta(self, delta: ContentBlock) -> StreamFrame:
        return "content_block_delta", {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _end_block(self, out: list[StreamFrame], *, cut: bool = False) -> None:
        if not self._kind:
            return
        if self._malformed and not (cut and self._is_partial()):
            out.append(self._delta({"type": "input_json_delta", "partial_json": _NO_JSON}))
        out.append(("content_block_stop", {"type": "content_block_stop", "index": self._index}))
        if self._call is not None:
            self._completed_calls.add(self._call)
        self._kind, self._call, self._malformed = "", None, False

    def _finish(self, end: TurnEnded, out: list[StreamFrame]) -> None:
        cut = end.finish == "length"  # the stop reason tells clients that a call is partial
        while self._call is not None or self._deferred_deltas:
            self._malformed = self._call is not None
            self._end_block(out, cut=cut)
            self._release(out)
        self._end_block(out)
        reason = _REASONS.get(end.finish)
        if end.finish in (*NORMAL_END, "closed_by_us"):
            reason = "tool_use" if self._completed_calls else "end_turn"
        end_fields = {"stop_reason": reason, "stop_sequence": None}
        out.append(("message_delta", {"type": "message_delta", "delta": end_fields, "usage": _usage(end.usage)}))
        out.append(("message_stop", {"type": "message_stop"}))


def _usage(usage: Usage) -> ContentBlock:
    """`input_tokens` do not include the tokens that the cache read or wrote."""
    counts: ContentBlock = {"output_tokens": usage.output or 0}
    if usage.input is not None:
        counts["input_tokens"] = max(0, usage.input - (usage.cached or 0) - (usage.cache_write or 0))
    if usage.cached is not None:
        counts["cache_read_input_tokens"] = usage.cached
    if usage.cache_write is not None:
        counts["cache_creation_input_tokens"] = usage.cache_write
    if usage.reasoning is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return counts
