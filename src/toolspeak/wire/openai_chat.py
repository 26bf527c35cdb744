"""OpenAI Chat Completions, client role in text mode: requests to JSON, answers to deltas. Sans-IO.

Source: the OpenAI API reference, "Chat Completions", and what compatible servers (llama.cpp, vLLM, SGLang,
LM Studio, Ollama, OpenRouter) send besides: `reasoning_content` or `reasoning` next to `content`, `error` objects
inside a stream, content as a list of text parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolspeak.data.deltas import Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FinishReason, Usage
from toolspeak.errors import ProviderError, UsageError
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.reading import as_object, count, ill_formed, reported_error, without_lone_surrogates

FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",  # the deprecated predecessor of tool_calls
    "content_filter": "content_filter",
    # Not the API's own: what compatible servers send.
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "max_length": "length",
}
"""The API's `finish_reason` as ours; any other is `error`: nobody knows whether the turn is whole."""

_OWN_FIELDS = ("model", "messages")


def encode_request(request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
    """The body of a request.

    Role `tool` is sent as `user`: in text mode there is no `tool_call_id`, and many servers insist on one. A lone
    surrogate, which UTF-8 cannot carry, is sent as U+FFFD.

    Raises UsageError for an option named `model` or `messages`.
    """
    for name in _OWN_FIELDS:
        if name in request.options:
            raise UsageError(f"the option {name!r} cannot be set: the request's own {name} goes there")
    body: dict[str, JSON] = {
        "model": model,
        "messages": [
            {"role": "user" if message.role == "tool" else message.role, "content": message.text}
            for message in request.messages
        ],
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    body.update(request.options)
    return {name: without_lone_surrogates(value) for name, value in body.items() if value is not None}


def decode_response(body: JSON) -> list[Delta]:
    """The deltas of an answer that was not streamed, `TurnEnded` last. Raises ProviderError for an ill-formed one."""
    answer = as_object(body, "the response")
    choices = answer.get("choices")
    if isinstance(choices, list):
        answer = {**answer, "choices": [_message_as_delta(choice) for choice in cast("list[Any]", choices)]}
    decoder = ChunkDecoder()
    deltas = decoder.feed(answer)
    if not choices:
        raise ProviderError("the response has no choices: is this an OpenAI-compatible chat API?")
    return deltas + decoder.finish()


class ChunkDecoder:
    """Reads the chunks of one streamed answer. `finished` tells whether a chunk has given a finish reason."""

    def __init__(self) -> None:
        self.finished = False
        self._finish: FinishReason = "stop"
        self._refused = False
        self._usage = Usage()
        self._model: str | None = None

    def feed(self, chunk: JSON) -> list[Delta]:
        """What one decoded chunk says. Raises ProviderError for an error object and for an ill-formed chunk."""
        data = as_object(chunk, "a chunk of the stream")
        if data.get("error"):
            raise reported_error(data["error"])
        model = data.get("model")
        if isinstance(model, str) and model:
            self._model = model
        if isinstance(data.get("usage"), dict):
            # Some servers repeat a running count in every chunk: the last one holds.
            self._usage = _usage(data["usage"])
        choices: JSON = data.get("choices") or []
        if not isinstance(choices, list):
            raise ill_formed("'choices'", "a list", choices)
        deltas: list[Delta] = []
        for choice in cast("list[Any]", choices):
            deltas += self._choice(as_object(choice, "a choice"))
        return deltas

    def finish(self) -> list[Delta]:
        """The stream is over; call it once. Without a finish reason the turn ended with `stop`."""
        finish: FinishReason = "refusal" if self._refused and self._finish == "stop" else self._finish
        return [TurnEnded(finish, self._usage, self._model)]

    def _choice(self, choice: dict[str, JSON]) -> list[Delta]:
        if choice.get("index"):
            return []  # `n` above 1: a turn is one answer, the first
        delta = as_object(choice.get("delta") or {}, "'delta'")
        if delta.get("tool_calls") or delta.get("function_call"):
            raise ProviderError(
                "the server took the model's tool calls out of its text, although no tools were sent to it; switch "
                "its own tool-call parser off (vLLM: start it without --enable-auto-tool-choice)"
            )
        deltas: list[Delta] = []
        reasoning = _text(delta, "reasoning_content") or _text(delta, "reasoning")
        if reasoning:
            deltas.append(ReasoningDelta(reasoning))
        content = _text(delta, "content")
        if content:
            deltas.append(TextDelta(content))
        refusal = _text(delta, "refusal")
        if refusal:
            self._refused = True
            deltas.append(TextDelta(refusal))
        reason = choice.get("finish_reason")
        if reason is not None:
            if not isinstance(reason, str):
                raise ill_formed("'finish_reason'", "text", reason)
            if reason:  # some servers send "" until the last chunk
                self.finished = True
                self._finish = FINISH_REASONS.get(reason, "error")
        return deltas


def _message_as_delta(choice: JSON) -> JSON:
    """A whole answer's choice as one chunk's: the same reader serves both."""
    if not isinstance(choice, dict):
        return choice
    known = cast("dict[str, JSON]", choice)
    return {**known, "delta": known.get("message")}


def _text(delta: dict[str, JSON], field: str) -> str:
    value = delta.get(field)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ill_formed(f"'{field}'", "text", value)
    texts: list[str] = []
    for part in cast("list[Any]", value):
        text = as_object(part, f"a part of '{field}'").get("text")
        if not isinstance(text, str):
            raise ill_formed(f"'text' of a part of '{field}'", "text", text)
        texts.append(text)
    return "".join(texts)


def _usage(usage: dict[str, JSON]) -> Usage:
    return Usage(
        input=count(usage, "prompt_tokens"),
        output=count(usage, "completion_tokens"),
        cached=count(usage.get("prompt_tokens_details"), "cached_tokens"),
        reasoning=count(usage.get("completion_tokens_details"), "reasoning_tokens"),
    )
