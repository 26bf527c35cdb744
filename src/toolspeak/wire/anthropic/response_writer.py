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
from toolspeak.data.messages import JSON, NORMAL_END, FinishReason, Opaque, Usage
from toolspeak.wire.anthropic.common import ERROR_TYPES, NAME, STOP_REASONS, Block, accepted_id
from toolspeak.wire.base import Frame
from toolspeak.wire.call_assembler import read_arguments

_REASONS: Mapping[FinishReason, str] = {
    "content_filter": "refusal",
    **{finish: reason for reason, finish in reversed([*STOP_REASONS.items()])},
}

_NO_JSON = "\0"  # no reader of JSON takes it, wherever it stands, the lenient ones of half a document neither


def error_body(message: str, status: int) -> JSON:
    kind = ERROR_TYPES.get(status) or ("invalid_request_error" if 400 <= status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def write_message(deltas: Iterable[Delta], *, model: str, response_id: str) -> JSON:
    """A whole turn as one answer: the calls that count, malformed ones as text."""
    encoder = AnthropicEncoder(model, response_id)
    message: dict[str, JSON] = {}
    content: list[Block] = []
    for delta in _counting(list(deltas)):
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


def _counting(deltas: list[Delta]) -> Iterable[Delta]:
    """A turn without the calls that do not count, each call in one piece."""
    batches = [delta.selected for delta in deltas if isinstance(delta, BatchEnded)]
    selected = {index for batch in batches for index in batch}
    ignored = {delta.index for delta in deltas if isinstance(delta, CallIgnored)}
    for delta in deltas:
        match delta:
            case CallStarted() | ArgumentsDelta():
                pass
            case CallCompleted(index) | CallMalformed(index) if index in ignored:
                pass
            case CallCompleted(index) if batches and index not in selected:
                pass
            case _:
                yield delta


def _extend(block: Block, delta: Block) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case _:
            block["input"] = json.loads(delta["partial_json"])  # in one piece: see _counting


class AnthropicEncoder:
    """Writes one streamed answer; an `Encoder`.

    The API's blocks come one after the other. What is told of another block while a call is open waits until the call
    is complete, if it is not already. A call that turns out to be malformed when part of it was sent ends in
    something that nobody can read as arguments, so that nobody runs half a call.
    """

    def __init__(self, model: str, response_id: str) -> None:
        self._model, self._response_id = model, response_id
        self._begun = False
        self._index = -1
        self._kind = ""
        self._call: int | None = None
        self._pieces: list[str] = []
        self._broken = False
        self._done: set[int] = set()
        self._ids: set[str] = set()
        self._waiting: list[Delta] = []

    def feed(self, delta: Delta) -> list[Frame]:
        """The events that follow, each with its name."""
        # The ordinary delta goes on with the block that is open.
        if delta.__class__ is TextDelta:
            if self._kind == "text" and (text := cast("TextDelta", delta).text):
                return [self._delta({"type": "text_delta", "text": text})]
        elif delta.__class__ is ArgumentsDelta:
            text, index = cast("ArgumentsDelta", delta).text, cast("ArgumentsDelta", delta).index
            if index == self._call and not self._broken:
                self._pieces.append(text)
                return [self._delta({"type": "input_json_delta", "partial_json": text})]
        out: list[Frame] = []
        if not self._begun:
            self._begun = True
            out.append(("message_start", {"type": "message_start", "message": self._message()}))
        if isinstance(delta, TurnEnded):
            self._finish(delta, out)
        else:
            self._take(delta, out)
        return out

    def fail(self, message: str, status: int = 500) -> list[Frame]:
        return [("error", error_body(message, status))]

    def _message(self) -> Block:
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

    def _take(self, delta: Delta, out: list[Frame]) -> None:
        match delta:
            case TextDelta("") | ReasoningDelta("") | PartEnded("text"):
                return
            case ArgumentsDelta(index) | CallCompleted(index) if index in self._done:
                return
            case CallMalformed(index) | CallIgnored(index):
                # Nothing was sent of what still waits.
                self._waiting = [each for each in self._waiting if getattr(each, "index", None) != index]
                if isinstance(delta, CallIgnored):
                    return
            case TextDelta() | ReasoningDelta() | PartEnded() | CallStarted() | ArgumentsDelta() | CallCompleted():
                pass
            case _:
                return  # of the batch and the tools: nothing that this API has words for
        if self._call is None or getattr(delta, "index", None) == self._call:
            self._write(delta, out)
        elif self._broken or (not self._waiting and self._whole()):
            self._end_block(out)
            self._write(delta, out)
        else:
            self._waiting.append(delta)

    def _whole(self) -> bool:
        return read_arguments("".join(self._pieces), whole=False)[0] is not None

    def _half(self) -> bool:
        """Whether nobody reads arguments in what was sent; nothing at all is read as `{}`."""
        return "".join(self._pieces).strip() != "" and not self._whole()

    def _write(self, delta: Delta, out: list[Frame]) -> None:
        match delta:
            case TextDelta(text):
                self._begin(out, "text", text="")
                out.append(self._delta({"type": "text_delta", "text": text}))
            case ReasoningDelta(text):
                self._begin(out, "thinking", thinking="", signature="")
                out.append(self._delta({"type": "thinking_delta", "thinking": text}))
            case PartEnded(_, opaque):
                self._end_reasoning(opaque, out)
            case CallStarted(index, name, call_id):
                self._begin_call(index, name, call_id, out)
            case ArgumentsDelta(index, text) if index == self._call and not self._broken:  # one that has waited
                self._pieces.append(text)
                out.append(self._delta({"type": "input_json_delta", "partial_json": text}))
            case CallCompleted(index, name, arguments, call_id):
                if index != self._call:
                    self._begin_call(index, name, call_id, out)
                if not self._pieces:
                    text = json.dumps(arguments, ensure_ascii=False)
                    out.append(self._delta({"type": "input_json_delta", "partial_json": text}))
                self._end_block(out)
                self._release(out)
            case CallMalformed(index, raw):
                if index == self._call:
                    self._broken = True
                    self._release(out)
                elif raw and index not in self._done:
                    self._write(TextDelta(raw), out)
            case _:
                pass

    def _release(self, out: list[Frame]) -> None:
        """Goes on with what waited."""
        waiting, self._waiting = self._waiting, []
        for delta in waiting:
            self._take(delta, out)

    def _begin(self, out: list[Frame], kind: str, **fields: JSON) -> None:
        if self._kind == kind and self._call is None:
            return
        self._end_block(out)
        self._index, self._kind = self._index + 1, kind
        block = {"type": kind, **fields}
        out.append(
            ("content_block_start", {"type": "content_block_start", "index": self._index, "content_block": block})
        )

    def _begin_call(self, index: int, name: str, given: str | None, out: list[Frame]) -> None:
        call_id = accepted_id(given or f"toolu_{self._response_id}_{index}", self._ids)
        self._ids.add(call_id)
        self._end_block(out)
        self._begin(out, "tool_use", id=call_id, name=name, input={})
        self._call, self._pieces = index, []

    def _end_reasoning(self, opaque: Opaque | None, out: list[Frame]) -> None:
        data: JSON = opaque.data if opaque is not None and opaque.provider == NAME else {}
        if "redacted" in data:
            self._begin(out, "redacted_thinking", data=data["redacted"])
        elif "signature" in data:
            self._begin(out, "thinking", thinking="", signature="")
            out.append(self._delta({"type": "signature_delta", "signature": data["signature"]}))
        if self._kind in ("thinking", "redacted_thinking"):
            self._end_block(out)

    def _delta(self, delta: Block) -> Frame:
        return "content_block_delta", {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _end_block(self, out: list[Frame], *, cut: bool = False) -> None:
        if not self._kind:
            return
        if self._broken and not (cut and self._half()):
            out.append(self._delta({"type": "input_json_delta", "partial_json": _NO_JSON}))
        out.append(("content_block_stop", {"type": "content_block_stop", "index": self._index}))
        if self._call is not None:
            self._done.add(self._call)
        self._kind, self._call, self._broken = "", None, False

    def _finish(self, end: TurnEnded, out: list[Frame]) -> None:
        cut = end.finish == "length"  # which the client is told: it knows then what half a call is, if it is half
        while self._call is not None or self._waiting:
            self._broken = self._call is not None
            self._end_block(out, cut=cut)
            self._release(out)
        self._end_block(out)
        reason = _REASONS.get(end.finish)
        if end.finish in (*NORMAL_END, "closed_by_us"):
            reason = "tool_use" if self._done else "end_turn"
        changed = {"stop_reason": reason, "stop_sequence": None}
        out.append(("message_delta", {"type": "message_delta", "delta": changed, "usage": _written(end.usage)}))
        out.append(("message_stop", {"type": "message_stop"}))


def _written(usage: Usage) -> Block:
    """`input_tokens` are here those that no cache was read or written for."""
    counts: Block = {"output_tokens": usage.output or 0}
    if usage.input is not None:
        counts["input_tokens"] = max(0, usage.input - (usage.cached or 0) - (usage.cache_write or 0))
    if usage.cached is not None:
        counts["cache_read_input_tokens"] = usage.cached
    if usage.cache_write is not None:
        counts["cache_creation_input_tokens"] = usage.cache_write
    if usage.reasoning is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return counts
