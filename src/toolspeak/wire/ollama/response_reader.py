"""Answers of Ollama's chat API as a client reads them, whole and streamed. Sans-IO."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from toolspeak.data.deltas import Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FinishReason, Usage
from toolspeak.errors import ProviderError
from toolspeak.wire.call_assembler import CallAssembler
from toolspeak.wire.error_table import reported_error
from toolspeak.wire.json_conversion import as_list, as_object, as_text, ill_formed, token_count

FINISH_REASONS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length"}
"""Finish reasons by the API's `done_reason`; any other is `error`, such as `load` (only the model was loaded) and
`unload`."""


def decode_response(body: JSON, *, model: str | None = None) -> list[Delta]:
    """See `WireFormat.decode_response`. The format has no opaque data: `model` is not used."""
    answer = as_object(body, "the response")
    decoder = OllamaDecoder()
    deltas = decoder.feed({**answer, "done": True})
    if "message" not in answer:
        raise ProviderError("the response has no message: is this Ollama's /api/chat?", code="ill_formed")
    return deltas + decoder.close()


class OllamaDecoder:
    """Reads one streamed answer; a `Decoder`. The format has no opaque data: `model` is not used."""

    def __init__(self, *, model: str | None = None) -> None:
        self.finished: bool = False
        self._calls = CallAssembler()
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
                fields = cast("dict[str, Any]", message)
                text = fields.get("content")
                if type(text) is str and text and len(fields) == 2 and "role" in fields:
                    return [TextDelta(text)]
        return self._line(as_object(data, "a line of the stream"))

    def close(self) -> list[Delta]:
        finish: FinishReason = "tool_calls" if self._calls.any and self._finish == "stop" else self._finish
        return [*self._calls.close(finish), TurnEnded(finish, self._usage, self._model)]

    def _line(self, line: dict[str, JSON]) -> list[Delta]:
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
        elif isinstance(arguments, str):  # some proxies send a JSON string, as OpenAI does
            text = arguments
        else:
            raise ill_formed("'arguments' of a call", "an object", arguments)
        key = self._count
        self._count += 1
        name, call_id = as_text(function.get("name"), "'name' of a call"), as_text(call.get("id"), "'id' of a call")
        out = self._calls.start(key, name, call_id)
        out += self._calls.add(key, text)
        return out + self._calls.complete(key)

    def _end(self, line: dict[str, JSON]) -> None:
        self.finished = True
        model = line.get("model")
        self._model = model if isinstance(model, str) and model else None
        reason = as_text(line.get("done_reason"), "'done_reason'")
        if reason:  # old servers send no reason
            self._finish = FINISH_REASONS.get(reason, "error")
        # A prompt that is completely in the server's cache may have no count.
        self._usage = Usage(token_count(line, "prompt_eval_count"), token_count(line, "eval_count"))
