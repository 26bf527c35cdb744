"""Ollama's own chat API, both roles. Sans-IO.

`POST /api/chat`; a stream is one JSON object a line, the last with `done`. Source: Ollama's API documentation and its
server's `api/types.go`. What it does otherwise than others: calls come whole, their arguments as an object, and only
recent servers give them ids; the end says `stop` with calls too; an error is a line with `error`; a prompt longer than
the context (`num_ctx`) is cut at its beginning without a word, unless the request says `truncate: false`.

Requests are written and read in `request_writer`; answers, both ways, here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from toolspeak.data.deltas import CallCompleted, CallMalformed, Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FinishReason, Usage
from toolspeak.data.values import quick
from toolspeak.errors import ProviderError
from toolspeak.wire.base import Decoder, Encoder, Frame, ModelRequest, WireRequest
from toolspeak.wire.fragments import CallFragments
from toolspeak.wire.ollama import request_writer
from toolspeak.wire.ollama.request_writer import NAME
from toolspeak.wire.reading import as_list, as_object, as_text, count, ill_formed
from toolspeak.wire.reported import reported_error

FINISH_REASONS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length"}
"""The API's `done_reason` as ours; any other is `error`, as `load` (the model was only loaded) and `unload` are."""


@quick()
class Ollama:
    """Implements `WireFormat`.

    The API has no tool choice: a tool that must not be called is not told, and `required` is not enforced. It has no
    switch for `ModelRequest.parallel`, and needs none for its `cache`.
    """

    name: str = NAME

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        return request_writer.encode_request(request, model, stream)

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        answer = as_object(body, "the response")
        decoder = OllamaDecoder()
        deltas = decoder.feed({**answer, "done": True})
        if "message" not in answer:
            raise ProviderError("the response has no message: is this Ollama's /api/chat?", code="ill_formed")
        return deltas + decoder.close()

    def decoder(self, *, model: str | None = None) -> Decoder:
        """There are no opaque data in this format."""
        return OllamaDecoder()

    def decode_request(self, body: JSON) -> WireRequest:
        """What a client asks; without `stream` it wants a stream. A result without an id belongs to the first call of
        its tool that has none. Raises FormatError naming the field."""
        return request_writer.decode_request(body)

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, asked: WireRequest | None = None
    ) -> JSON:
        writer = _Writer(model, response_id, created)
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
        told: dict[str, JSON] = {"role": "assistant", "content": "".join(texts)}
        if any(thoughts):
            told["thinking"] = "".join(thoughts)
        if calls:
            told["tool_calls"] = calls
        return writer.line(told, end)

    def encoder(self, asked: WireRequest, *, response_id: str, created: int) -> Encoder:
        return OllamaEncoder(_Writer(asked.model, response_id, created))

    def encode_error(self, message: str, status: int) -> JSON:
        return {"error": message}


OLLAMA = Ollama()


class OllamaDecoder:
    """Reads the lines of one answer."""

    def __init__(self) -> None:
        self.finished = False
        self._calls = CallFragments()
        self._count = 0
        self._finish: FinishReason = "stop"
        self._usage = Usage()
        self._model: str | None = None

    def feed(self, data: JSON) -> list[Delta]:
        # The ordinary line: a piece of text and nothing else.
        if type(data) is dict:
            line = cast("dict[str, Any]", data)
            message = line.get("message")
            if line.get("done") is False and type(message) is dict and "error" not in line:
                said = cast("dict[str, Any]", message)
                text = said.get("content")
                if type(text) is str and text and len(said) == 2 and "role" in said:
                    return [TextDelta(text)]
        return self._careful(as_object(data, "a line of the stream"))

    def close(self) -> list[Delta]:
        finish: FinishReason = "tool_calls" if self._calls.any and self._finish == "stop" else self._finish
        return [*self._calls.close(finish), TurnEnded(finish, self._usage, self._model)]

    def _careful(self, line: dict[str, JSON]) -> list[Delta]:
        if line.get("error"):
            raise reported_error(line["error"])
        message = as_object(line.get("message") or {}, "'message'")
        deltas: list[Delta] = []
        thinking = as_text(message.get("thinking"), "'thinking'")
        if thinking:
            deltas.append(ReasoningDelta(thinking))
        content = as_text(message.get("content"), "'content'")
        if content:
            deltas.append(TextDelta(content))
        for call in as_list(message.get("tool_calls"), "'tool_calls'"):
            deltas += self._call(as_object(call, "a call"))
        if line.get("done"):
            self._end(line)
        return deltas

    def _call(self, call: dict[str, JSON]) -> list[Delta]:
        function = as_object(call.get("function"), "'function' of a call")
        arguments = function.get("arguments")
        if arguments is None or isinstance(arguments, dict):
            text = json.dumps(arguments or {}, ensure_ascii=False)
        elif isinstance(arguments, str):  # as OpenAI writes them: proxies do
            text = arguments
        else:
            raise ill_formed("'arguments' of a call", "an object", arguments)
        key = self._count
        self._count += 1
        name, given = as_text(function.get("name"), "'name' of a call"), as_text(call.get("id"), "'id' of a call")
        out = self._calls.start(key, name, given)
        out += self._calls.add(key, text)
        return out + self._calls.complete(key)

    def _end(self, line: dict[str, JSON]) -> None:
        self.finished = True
        model = line.get("model")
        self._model = model if isinstance(model, str) and model else None
        reason = as_text(line.get("done_reason"), "'done_reason'")
        if reason:  # old servers give none
            self._finish = FINISH_REASONS.get(reason, "error")
        # A prompt that was in the server's cache as a whole may have no count.
        self._usage = Usage(count(line, "prompt_eval_count"), count(line, "eval_count"))


# --- server ------------------------------------------------------------------------------------------------------


class _Writer:
    """What deltas are as messages and lines. Each call gets an id of its own."""

    def __init__(self, model: str, response_id: str, created: int) -> None:
        self._head: dict[str, JSON] = {
            "model": model,
            "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self._response_id = response_id
        self._ids: set[str] = set()

    def message(self, delta: Delta) -> dict[str, JSON] | None:
        """The message that says it, if it is to be said."""
        match delta:
            case TextDelta(text) | CallMalformed(raw=text):  # calls are sent whole, so nothing of this one was
                return {"role": "assistant", "content": text} if text else None
            case ReasoningDelta(text):
                return {"role": "assistant", "content": "", "thinking": text} if text else None
            case CallCompleted(index, name, arguments, given):
                used = f"{self._response_id}-{index}" if not given or given in self._ids else given
                function = {"index": len(self._ids), "name": name, "arguments": arguments}
                self._ids.add(used)
                return {"role": "assistant", "content": "", "tool_calls": [{"id": used, "function": function}]}
            case _:
                return None

    def line(self, message: Mapping[str, JSON], end: TurnEnded | None) -> dict[str, JSON]:
        if end is None:
            return {**self._head, "message": message, "done": False}
        counts = {"prompt_eval_count": end.usage.input, "eval_count": end.usage.output}
        told = {name: number for name, number in counts.items() if number is not None}
        # Durations are unknown here; clients take their absence.
        return {**self._head, "message": message, "done": True, "done_reason": _done_reason(end.finish), **told}


def _done_reason(finish: FinishReason) -> str:
    """A turn that broke off says so in our own word: no client may take it for a whole one."""
    match finish:
        case "stop" | "tool_calls" | "closed_by_us" | "refusal" | "pause":
            return "stop"
        case "length" | "content_filter" | "cancelled" | "error":
            return finish


class OllamaEncoder:
    """Implements `Encoder`: each frame's data is one line."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    def feed(self, delta: Delta) -> list[Frame]:
        if isinstance(delta, TurnEnded):
            return [(None, self._writer.line({"role": "assistant", "content": ""}, delta))]
        message = self._writer.message(delta)
        return [] if message is None else [(None, self._writer.line(message, None))]

    def fail(self, message: str, status: int = 500) -> list[Frame]:
        return [(None, OLLAMA.encode_error(message, status))]
