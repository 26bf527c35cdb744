"""OpenAI Chat Completions, client role in text mode: requests to JSON, answers to deltas. Sans-IO.

Source: the OpenAI API reference, "Chat Completions", and what compatible servers (llama.cpp, vLLM, SGLang,
LM Studio, Ollama, OpenRouter) send besides: `reasoning_content` or `reasoning` next to `content`, `error` objects
inside a stream, content as a list of text parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolspeak.data.deltas import Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FinishReason, TextMessage, Usage
from toolspeak.errors import ProviderError, UsageError

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

RETRYABLE_ERRORS = ("overloaded", "rate_limit", "server_error", "timeout", "unavailable")
"""Parts of an error object's `type` or `code` after which the same request may succeed later."""

_OWN_FIELDS = ("model", "messages")


def encode_request(
    messages: Sequence[TextMessage], *, model: str, stream: bool, options: Mapping[str, object]
) -> dict[str, JSON]:
    """The body of a request.

    `options` go in as they are; one that is None removes the field of that name (`stream_options: None` for a
    server that refuses it). Role `tool` is sent as `user`: in text mode there is no `tool_call_id`, and many
    servers insist on one. A lone surrogate, which UTF-8 cannot carry, is sent as U+FFFD.

    Raises UsageError for an option named `model` or `messages`.
    """
    for name in _OWN_FIELDS:
        if name in options:
            raise UsageError(f"the option {name!r} cannot be set: the request's own {name} goes there")
    body: dict[str, JSON] = {
        "model": model,
        "messages": [
            {"role": "user" if message.role == "tool" else message.role, "content": message.text}
            for message in messages
        ],
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    body.update(options)
    return {name: _without_lone_surrogates(value) for name, value in body.items() if value is not None}


def decode_response(body: JSON) -> list[Delta]:
    """The deltas of an answer that was not streamed, `TurnEnded` last. Raises ProviderError for an ill-formed one."""
    answer = _object(body, "the response")
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
        data = _object(chunk, "a chunk of the stream")
        if data.get("error"):
            raise _reported_error(data["error"])
        model = data.get("model")
        if isinstance(model, str) and model:
            self._model = model
        if isinstance(data.get("usage"), dict):
            # Some servers repeat a running count in every chunk: the last one holds.
            self._usage = _usage(data["usage"])
        choices: JSON = data.get("choices") or []
        if not isinstance(choices, list):
            raise _ill_formed("'choices'", "a list", choices)
        deltas: list[Delta] = []
        for choice in cast("list[Any]", choices):
            deltas += self._choice(_object(choice, "a choice"))
        return deltas

    def finish(self) -> list[Delta]:
        """The stream is over; call it once. Without a finish reason the turn ended with `stop`."""
        finish: FinishReason = "refusal" if self._refused and self._finish == "stop" else self._finish
        return [TurnEnded(finish, self._usage, self._model)]

    def _choice(self, choice: dict[str, JSON]) -> list[Delta]:
        if choice.get("index"):
            return []  # `n` above 1: a turn is one answer, the first
        delta = _object(choice.get("delta") or {}, "'delta'")
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
                raise _ill_formed("'finish_reason'", "text", reason)
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


def _object(value: JSON, what: str) -> dict[str, JSON]:
    if not isinstance(value, dict):
        raise _ill_formed(what, "an object", value)
    return cast("dict[str, JSON]", value)


def _text(delta: dict[str, JSON], field: str) -> str:
    value = delta.get(field)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise _ill_formed(f"'{field}'", "text", value)
    texts: list[str] = []
    for part in cast("list[Any]", value):
        text = _object(part, f"a part of '{field}'").get("text")
        if not isinstance(text, str):
            raise _ill_formed(f"'text' of a part of '{field}'", "text", text)
        texts.append(text)
    return "".join(texts)


def _usage(usage: dict[str, JSON]) -> Usage:
    return Usage(
        input=_count(usage, "prompt_tokens"),
        output=_count(usage, "completion_tokens"),
        cached=_count(usage.get("prompt_tokens_details"), "cached_tokens"),
        reasoning=_count(usage.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _count(counts: JSON, field: str) -> int | None:
    # A count that is none is unknown: no reason to throw a good answer away.
    value = cast("dict[str, JSON]", counts).get(field) if isinstance(counts, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _reported_error(error: JSON) -> ProviderError:
    details = cast("dict[str, JSON]", error) if isinstance(error, dict) else {"message": error}
    message, code, kind = details.get("message"), details.get("code"), details.get("type")
    status = code if isinstance(code, int) and 400 <= code <= 599 else None
    words = f"{kind} {code}".lower() if isinstance(kind, str) or isinstance(code, str) else ""
    retryable = status in (408, 429) or (status or 0) >= 500 or any(word in words for word in RETRYABLE_ERRORS)
    told = message if isinstance(message, str) and message else _shown(error)
    return ProviderError(f"the server reported an error: {_shortened(told)}", status=status, retryable=retryable)


def _ill_formed(what: str, expected: str, found: JSON) -> ProviderError:
    return ProviderError(f"the server sent an ill-formed answer: {what} should be {expected}, found {_shown(found)}")


def _shown(value: JSON) -> str:
    """`null`, `'text'`, `a list`, `an object`, …: short whatever the value."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(_shortened(value, 60))
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return "a number" if not isinstance(value, bool) else str(value).lower()


def _shortened(text: str, limit: int = 300) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text[: 2 * limit])
    collapsed = " ".join(printable.split())
    return collapsed if len(collapsed) <= limit else collapsed[: limit - 1] + "…"


def _without_lone_surrogates(value: JSON) -> JSON:
    """The value with each lone surrogate in its text replaced by U+FFFD."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            # Through UTF-16, so that two halves side by side become their character.
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, list | tuple):
        return [_without_lone_surrogates(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, Mapping):
        return {
            _without_lone_surrogates(key): _without_lone_surrogates(item)
            for key, item in cast("Mapping[Any, Any]", value).items()
        }
    return value
