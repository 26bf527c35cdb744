"""Answers of OpenAI Responses as a server writes them, whole and streamed. Sans-IO."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from toolspeak.data.deltas import (
    ArgumentsDelta,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    Delta,
    HostedCallEnded,
    HostedCallStarted,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import JSON, FinishReason, Opaque, Usage, opaque_fields
from toolspeak.wire.base import ModelRequest, StreamFrame, WireRequest
from toolspeak.wire.json_conversion import read_arguments
from toolspeak.wire.openai_responses.common import NAME, freeform_text, is_freeform, name_fields, search_query
from toolspeak.wire.openai_responses.request_writer import repeated_fields

_INCOMPLETE: Mapping[FinishReason, str] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    # The API has a content type for refusals, but the text was sent before the turn ended with one.
    "refusal": "content_filter",
}
_FAILURE_MESSAGES: Mapping[FinishReason, str] = {
    "error": "the model's turn ended in an error; send the request again",
    "cancelled": "the model's turn was cancelled; send the request again",
}

_REPEATED_FIELDS = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "temperature",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)
"""Fields of the request that the response repeats; `null` if they are not set."""


def encode_error(message: str, status: int) -> JSON:
    """See `WireFormat.encode_error`."""
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def encode_response(
    deltas: Iterable[Delta], *, model: str, response_id: str, created_at: int, request: WireRequest | None = None
) -> JSON:
    """See `WireFormat.encode_response`."""
    request = request or WireRequest(ModelRequest(()), model)
    encoder = ResponseEncoder(request, response_id=response_id, created_at=created_at)
    frames: list[StreamFrame] = []
    for delta in deltas:
        frames = encoder.feed(delta)
    _, last = frames[-1] if frames else encoder.feed(TurnEnded("error"))[-1]
    return last["response"]


_TEXT_EVENTS: Mapping[str, str] = {"message": "output_text", "reasoning": "reasoning_text"}
_LOGPROBS: Mapping[str, dict[str, JSON]] = {"message": {"logprobs": []}, "reasoning": {}}

_Kind: TypeAlias = Literal["message", "reasoning", "function_call", "custom_tool_call", "mcp_call", "web_search_call"]
_ID_PREFIXES: Mapping[_Kind, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "mcp_call": "mcp",
    "web_search_call": "ws",
}


@dataclass(slots=True)
class _OutgoingItem:
    """An output item that is not complete. `pieces` are its text or its arguments."""

    kind: _Kind
    index: int
    id: str
    fields: Mapping[str, JSON] = field(default_factory=dict[str, JSON])  # a call's name; all fields of a hosted call
    call_id: str = ""
    pieces: list[str] = field(default_factory=list[str])


class ResponseEncoder:
    """Writes one streamed answer, with the API's numbers and order of events; an `Encoder`.

    A call of a freeform tool is sent only when it is complete, since a client could run a part of its text.
    """

    def __init__(self, request: WireRequest, *, response_id: str, created_at: int) -> None:
        self._specs = {spec.name: spec for spec in request.request.tools if spec.extra}
        self._response = _response(repeated_fields(request), response_id, created_at)
        self._suffix = response_id.removeprefix("resp_")
        self._sequence = 0
        self._has_started = False
        self._open: _OutgoingItem | None = None  # text or reasoning
        self._calls: dict[int, _OutgoingItem] = {}
        self._hosted_calls: dict[int, _OutgoingItem] = {}
        self._call_ids: set[str] = set()
        self._output: dict[int, JSON] = {}
        self._item_count = 0

    def feed(self, delta: Delta) -> list[StreamFrame]:
        match delta:
            case TextDelta(text):
                return self._text_delta("message", text)
            case ReasoningDelta(text):
                return self._text_delta("reasoning", text)
            case PartEnded(part, opaque):
                return self._end_part("message" if part == "text" else "reasoning", opaque)
            case CallStarted(index, name, call_id):
                return [] if is_freeform(self._specs.get(name)) else self._start_call(index, name, call_id)
            case ArgumentsDelta(index, text):
                return self._arguments(self._calls[index], text) if index in self._calls else []
            case CallCompleted():
                return self._complete_call(delta)
            case CallMalformed(index, raw, _, reason):
                return self._fail_call(index, reason) if index in self._calls else self._text_delta("message", raw)
            case CallIgnored(index, reason):
                return self._fail_call(index, reason) if index in self._calls else []
            case HostedCallStarted():
                return self._start_hosted(delta)
            case HostedCallEnded(index, text, failed):
                return self._end_hosted(self._hosted_calls.pop(index), text, failed=failed)
            case TurnEnded(finish, usage):
                return self._end(finish, usage)
            case _:
                return []

    def fail(self, message: str, status: int = 500) -> list[StreamFrame]:
        return [*self._start_response(), *self._close_all("incomplete"), *self._failure_events(message, status)]

    # --- items ---------------------------------------------------------------------------------------------------

    def _text_delta(self, kind: Literal["message", "reasoning"], text: str) -> list[StreamFrame]:
        if not text:
            return []
        frames: list[StreamFrame] = []
        item = self._open
        if item is None or item.kind != kind:
            frames = self._close_open("completed")
            frames += self._open_part(kind)
            item = cast("_OutgoingItem", self._open)
        item.pieces.append(text)
        event = f"response.{_TEXT_EVENTS[kind]}.delta"
        frames.append(self._event(event, item, content_index=0, delta=text, **_LOGPROBS[kind]))
        return frames

    def _open_part(self, kind: Literal["message", "reasoning"]) -> list[StreamFrame]:
        item = self._open = self._new(kind)
        item_at_start = _message(item, "in_progress", {}) if kind == "message" else _reasoning(item, {})
        item_at_start["content"] = []
        part = _text_part("") if kind == "message" else {"type": "reasoning_text", "text": ""}
        return [
            *self._start_response(),
            self._event("response.output_item.added", item, item=item_at_start),
            self._event("response.content_part.added", item, content_index=0, part=part),
        ]

    def _new(self, kind: _Kind, item_id: str | None = None) -> _OutgoingItem:
        index = self._item_count
        self._item_count += 1
        return _OutgoingItem(kind, index, item_id or f"{_ID_PREFIXES[kind]}_{self._suffix}_{index}")

    def _end_part(self, kind: Literal["message", "reasoning"], opaque: Opaque | None) -> list[StreamFrame]:
        data = opaque_fields(opaque, NAME)
        if self._open is not None and self._open.kind == kind:
            return self._close_open("completed", data)
        if kind == "message" or not data:
            return []
        # Hidden reasoning: an item without text.
        item_id = data.get("id")
        frames = [*self._start_response(), *self._close_open("completed")]
        item = self._new("reasoning", item_id if isinstance(item_id, str) else None)
        finished_item = self._output[item.index] = _reasoning(item, data)
        names = ("response.output_item.added", "response.output_item.done")
        return [*frames, *(self._event(name, item, item=finished_item) for name in names)]

    def _close_open(self, status: str, data: Mapping[str, JSON] | None = None) -> list[StreamFrame]:
        item, self._open = self._open, None
        if item is None:
            return []
        text = "".join(item.pieces)
        if item.kind == "message":
            finished_item = _message(item, status, data or {})
            part = _text_part(text)
        else:
            finished_item = _reasoning(item, data or {})
            part = {"type": "reasoning_text", "text": text}
        self._output[item.index] = finished_item
        return [
            self._event(
                f"response.{_TEXT_EVENTS[item.kind]}.done", item, content_index=0, text=text, **_LOGPROBS[item.kind]
            ),
            self._event("response.content_part.done", item, content_index=0, part=part),
            self._event("response.output_item.done", item, item=finished_item),
        ]

    # --- calls ---------------------------------------------------------------------------------------------------

    def _start_call(self, index: int, name: str, call_id: str | None) -> list[StreamFrame]:
        frames = [*self._start_response(), *self._close_open("completed")]
        spec = self._specs.get(name)
        item = self._calls[index] = self._new("custom_tool_call" if is_freeform(spec) else "function_call")
        item.fields = name_fields(name, spec)
        unique = call_id if call_id and call_id not in self._call_ids else f"call_{self._suffix}_{index}"
        item.call_id = unique
        self._call_ids.add(unique)
        return [*frames, self._event("response.output_item.added", item, item=_call(item, "in_progress"))]

    def _arguments(self, item: _OutgoingItem, text: str) -> list[StreamFrame]:
        item.pieces.append(text)
        kind = "custom_tool_call_input" if item.kind == "custom_tool_call" else "function_call_arguments"
        return [self._event(f"response.{kind}.delta", item, delta=text)]

    def _complete_call(self, call: CallCompleted) -> list[StreamFrame]:
        frames = [] if call.index in self._calls else self._start_call(call.index, call.name, call.id)
        item = self._calls.pop(call.index)
        if item.kind == "custom_tool_call":
            frames += self._arguments(item, freeform_text(call.arguments))
        elif not item.pieces:
            frames += self._arguments(item, json.dumps(dict(call.arguments), ensure_ascii=False))
        return frames + self._close_call(item, "completed")

    def _fail_call(self, index: int, reason: str) -> list[StreamFrame]:
        """Ends a call that was partly sent and must not run: its arguments are not JSON, and its item is incomplete."""
        item = self._calls.pop(index)
        readable = read_arguments("".join(item.pieces))[0] is not None
        return [*(self._arguments(item, f" ({reason})") if readable else []), *self._close_call(item, "incomplete")]

    def _close_call(self, item: _OutgoingItem, status: str) -> list[StreamFrame]:
        finished_item = self._output[item.index] = _call(item, status)
        if item.kind == "custom_tool_call":
            arguments_done = self._event("response.custom_tool_call_input.done", item, input=finished_item["input"])
        else:
            item_fields: dict[str, JSON] = {"arguments": finished_item["arguments"], "name": item.fields["name"]}
            arguments_done = self._event("response.function_call_arguments.done", item, **item_fields)
        return [
            arguments_done,
            self._event("response.output_item.done", item, item=finished_item),
        ]

    # --- hosted calls --------------------------------------------------------------------------------------------

    def _start_hosted(self, call: HostedCallStarted) -> list[StreamFrame]:
        frames = [*self._start_response(), *self._close_open("completed")]
        kind: _Kind = "mcp_call" if call.kind == "mcp" else "web_search_call"
        item = self._hosted_calls[call.index] = self._new(kind)
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        if kind == "mcp_call":
            item.fields = {"server_label": call.server, "name": call.name, "arguments": arguments}
        else:
            item.fields = {"action": {"type": "search", "query": search_query(call.arguments)}}
        item_at_start = _hosted_call(item, "in_progress", None, None)
        if kind == "mcp_call":
            item_at_start["arguments"] = ""
        frames += [
            self._event("response.output_item.added", item, item=item_at_start),
            self._event(f"response.{kind}.in_progress", item),
        ]
        if kind == "web_search_call":
            return [*frames, self._event("response.web_search_call.searching", item)]
        return [
            *frames,
            self._event("response.mcp_call_arguments.delta", item, delta=arguments),
            self._event("response.mcp_call_arguments.done", item, arguments=arguments),
        ]

    def _end_hosted(self, item: _OutgoingItem, text: str, *, failed: bool) -> list[StreamFrame]:
        error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]} if failed else None
        finished_item = _hosted_call(item, "failed" if failed else "completed", None if failed else text, error)
        self._output[item.index] = finished_item
        outcome = "failed" if failed and item.kind == "mcp_call" else "completed"  # a search has no event for a failure
        return [
            self._event(f"response.{item.kind}.{outcome}", item),
            self._event("response.output_item.done", item, item=finished_item),
        ]

    # --- the response --------------------------------------------------------------------------------------------

    def _start_response(self) -> list[StreamFrame]:
        if self._has_started:
            return []
        self._has_started = True
        return [self._response_event(f"response.{event}", "in_progress") for event in ("created", "in_progress")]

    def _close_all(self, status: str) -> list[StreamFrame]:
        frames = self._close_open(status)
        for index in [*self._calls]:
            frames += self._fail_call(index, "the turn ended in the middle of the call")
        for item in self._hosted_calls.values():
            finished_item = self._output[item.index] = _hosted_call(item, "incomplete", None, None)
            frames.append(self._event("response.output_item.done", item, item=finished_item))
        self._hosted_calls.clear()
        return frames

    def _end(self, finish: FinishReason, usage: Usage) -> list[StreamFrame]:
        why = _INCOMPLETE.get(finish)
        frames = [*self._start_response(), *self._close_all("completed" if why is None else "incomplete")]
        self._response["usage"] = _usage(usage)
        if finish in _FAILURE_MESSAGES:
            return frames + self._failure_events(_FAILURE_MESSAGES[finish], 500)
        if why is not None:
            self._response["incomplete_details"] = {"reason": why}
            return [*frames, self._response_event("response.incomplete", "incomplete")]
        return [*frames, self._response_event("response.completed", "completed")]

    def _failure_events(self, message: str, status: int) -> list[StreamFrame]:
        code = "rate_limit_exceeded" if status == 429 else "invalid_prompt" if status < 500 else "server_error"
        self._response["error"] = {"code": code, "message": message}
        return [self._response_event("response.failed", "failed")]

    def _response_event(self, event: str, status: str) -> StreamFrame:
        output = [self._output[index] for index in sorted(self._output)]
        return self._numbered_event(event, {"response": {**self._response, "status": status, "output": output}})

    def _event(self, event: str, output_item: _OutgoingItem, **fields: JSON) -> StreamFrame:
        place = {} if "item" in fields else {"item_id": output_item.id}
        return self._numbered_event(event, {**place, "output_index": output_item.index, **fields})

    def _numbered_event(self, event: str, fields: dict[str, JSON]) -> StreamFrame:
        number = self._sequence
        self._sequence += 1
        return event, {"type": event, "sequence_number": number, **fields}


def _response(request_fields: Mapping[str, JSON], response_id: str, created_at: int) -> dict[str, JSON]:
    text: Any = request_fields.get("text")
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": request_fields["model"],
        "output": [],
        "parallel_tool_calls": request_fields.get("parallel_tool_calls") is not False,
        "previous_response_id": None,
        "store": False,
        "text": {"format": {"type": "text"}, **(cast("Mapping[str, JSON]", text) if isinstance(text, Mapping) else {})},
        "tool_choice": request_fields.get("tool_choice", "auto"),
        "tools": request_fields.get("tools", []),
        "usage": None,
        **{name: request_fields.get(name) for name in _REPEATED_FIELDS},
        **cast("Mapping[str, JSON]", request_fields.get("echo_fields", {})),
    }


def _message(item: _OutgoingItem, status: str, data: Mapping[str, JSON]) -> dict[str, JSON]:
    phase = {"phase": data["phase"]} if data.get("phase") else {}
    content = [_text_part("".join(item.pieces))]
    return {"type": "message", "id": item.id, "status": status, "role": "assistant", "content": content, **phase}


def _text_part(text: str) -> dict[str, JSON]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _reasoning(item: _OutgoingItem, data: Mapping[str, JSON]) -> dict[str, JSON]:
    secret = {"encrypted_content": data["encrypted_content"]} if data.get("encrypted_content") else {}
    content = [{"type": "reasoning_text", "text": "".join(item.pieces)}] if item.pieces else []
    return {"type": "reasoning", "id": item.id, "summary": [], "content": content, **secret}


def _hosted_call(item: _OutgoingItem, status: str, output: str | None, error: JSON) -> dict[str, JSON]:
    result = {"output": output, "error": error, "approval_request_id": None} if item.kind == "mcp_call" else {}
    return {"type": item.kind, "id": item.id, "status": status, **item.fields, **result}


def _call(item: _OutgoingItem, status: str) -> dict[str, JSON]:
    content_field = "input" if item.kind == "custom_tool_call" else "arguments"
    fields = {"call_id": item.call_id, **item.fields, content_field: "".join(item.pieces)}
    return {"type": item.kind, "id": item.id, "status": status, **fields}


def _usage(usage: Usage) -> JSON:
    if usage.input is None or usage.output is None:
        return None
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached or 0, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.input + usage.output,
    }
