"""Answers of Gemini's generateContent API as a client reads them, whole and streamed. Sans-IO."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from toolspeak.data.deltas import Delta, PartEnded, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FinishReason, Opaque, Usage
from toolspeak.errors import ProviderError
from toolspeak.wire.call_assembler import CallAssembler
from toolspeak.wire.error_table import reported_error
from toolspeak.wire.gemini.common import NAME, short_name
from toolspeak.wire.json_conversion import as_list, as_object, as_text, token_count

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
"""Finish reasons by the API's `finishReason`; any other is `error`."""

_MALFORMED_CALLS: Mapping[str, tuple[str, str]] = {
    "MALFORMED_FUNCTION_CALL": (
        "invalid_arguments",
        "the call could not be read, so none of the turn's calls ran; make it again, with arguments that fit the tool",
    ),
    "UNEXPECTED_TOOL_CALL": (
        "unknown_tool",
        "the call names an unknown tool, so none of the turn's calls ran; call one of the tools, or answer in words",
    ),
}
"""The code and the reason of a malformed call, by the finish reason of a turn whose call the API did not send."""

_NO_FINISH_REASON = ("", "FINISH_REASON_UNSPECIFIED")


def decode_response(body: JSON, *, model: str | None = None) -> list[Delta]:
    """See `WireFormat.decode_response`."""
    answer = as_object(body, "the response")
    decoder = GeminiDecoder(model=model, whole=True)
    deltas = decoder.feed(answer)
    if not decoder.finished and not answer.get("candidates"):
        raise ProviderError("the response has no candidates: is this the Gemini API?", code="ill_formed")
    return deltas + decoder.close()


class GeminiDecoder:
    """Reads one streamed answer; a `Decoder`. `whole`: the answer was not streamed, and its parts stay separate."""

    def __init__(self, *, model: str | None = None, whole: bool = False) -> None:
        self.finished: bool = False
        self._request_model = None if model is None else short_name(model)
        self._whole = whole
        self._has_started = False
        self._open_kind: str | None = None  # the kind of the last part, if the next one of the kind is another part
        self._calls = CallAssembler()
        self._count = 0
        self._finish: FinishReason = "stop"
        self._malformed_call: tuple[str, str, str] | None = None
        self._usage: JSON = None
        self._model: JSON = None
        self._id: JSON = None

    def feed(self, data: JSON) -> list[Delta]:
        # The ordinary chunk: one text and nothing else, after the first chunk.
        if self._has_started and type(data) is dict and not ("error" in data or "promptFeedback" in data):
            chunk = cast("dict[str, Any]", data)
            text = _plain_text(chunk.get("candidates"))
            if text:
                self._note_turn(chunk)
                return [TextDelta(text)]
        return self._chunk(as_object(data, "a chunk of the stream"))

    def _note_turn(self, chunk: dict[str, JSON]) -> None:
        self._usage = chunk.get("usageMetadata") or self._usage  # each is a total so far
        self._model = chunk.get("modelVersion") or self._model
        self._id = chunk.get("responseId") or self._id

    def _chunk(self, chunk: dict[str, JSON]) -> list[Delta]:
        if chunk.get("error"):
            raise reported_error(chunk["error"])
        self._has_started = not self._whole
        self._note_turn(chunk)
        deltas: list[Delta] = []
        for candidate in as_list(chunk.get("candidates"), "'candidates'"):
            fields = as_object(candidate, "a candidate")
            if fields.get("index"):
                continue  # `candidateCount` above 1: only the first answer counts
            content = as_object(fields.get("content") or {}, "'content'")
            for part in as_list(content.get("parts"), "'parts'"):
                deltas += self._part(as_object(part, "a part"))
            if fields.get("finishReason"):
                self._end(as_text(fields["finishReason"], "'finishReason'"), fields)
        feedback = chunk.get("promptFeedback")
        if feedback and as_object(feedback, "'promptFeedback'").get("blockReason"):
            self.finished, self._finish = True, "content_filter"
        return deltas

    def close(self) -> list[Delta]:
        if self._malformed_call is not None:
            deltas, self._finish = self._calls.fail(*self._malformed_call), "tool_calls"
        else:
            if self._calls.any and self._finish == "stop":
                self._finish = "tool_calls"
            deltas = self._calls.close(self._finish)
        return [*deltas, TurnEnded(self._finish, _usage(self._usage), _text(self._model), _text(self._id))]

    def _end(self, reason: str, candidate: Mapping[str, JSON]) -> None:
        if reason in _NO_FINISH_REASON:
            return
        self.finished = True
        if reason in _MALFORMED_CALLS:
            code, why = _MALFORMED_CALLS[reason]
            self._malformed_call = as_text(candidate.get("finishMessage"), "'finishMessage'"), code, why
        else:
            self._finish = FINISH_REASONS.get(reason, "error")

    def _part(self, part: dict[str, JSON]) -> list[Delta]:
        if part.get("functionCall"):
            self._open_kind = None
            return self._call(as_object(part["functionCall"], "'functionCall'"), self._opaque(part, "functionCall"))
        kind = "reasoning" if part.get("thought") else "text"
        text = as_text(part.get("text"), "'text'")
        opaque = self._opaque(part, "text", "thought")
        out: list[Delta] = []
        if text:
            if self._open_kind == kind:
                out.append(PartEnded(kind))
            out.append(ReasoningDelta(text) if kind == "reasoning" else TextDelta(text))
            self._open_kind = kind if self._whole else None
        if opaque is not None:
            out.append(PartEnded(kind, opaque))
            self._open_kind = None
        return out

    def _opaque(self, part: dict[str, JSON], *fields_read: str) -> Opaque | None:
        """The other fields of a part (a signature, data of the API's own tools), which are sent back with it."""
        fields = {name: value for name, value in part.items() if name not in fields_read and value is not None}
        return Opaque(NAME, self._request_model or _text(self._model) or "", fields) if fields else None

    def _call(self, call: dict[str, JSON], opaque: Opaque | None) -> list[Delta]:
        arguments = as_object(call.get("args") or {}, "'args' of a function call")
        name, call_id = (
            as_text(call.get("name"), "'name' of a function call"),
            as_text(call.get("id"), "'id' of a call"),
        )
        key = self._count
        self._count += 1
        out = self._calls.start(key, name, call_id, opaque)
        out += self._calls.add(key, json.dumps(arguments, ensure_ascii=False))
        return out + self._calls.complete(key)


def _plain_text(candidates: Any) -> str:
    """The text of a candidate with one text part and nothing else; else empty."""
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
    """Tokens of reasoning count as output; tokens that the API's own tools read count as input."""
    answer, thoughts = token_count(counts, "candidatesTokenCount"), token_count(counts, "thoughtsTokenCount")
    prompt, tools = token_count(counts, "promptTokenCount"), token_count(counts, "toolUsePromptTokenCount")
    return Usage(
        input=None if prompt is None else prompt + (tools or 0),
        output=None if answer is None and thoughts is None else (answer or 0) + (thoughts or 0),
        cached=token_count(counts, "cachedContentTokenCount"),
        reasoning=thoughts,
    )
