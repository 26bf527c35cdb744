"""The report of a turn, and estimates of the tokens that a server does not count."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolspeak.data.deltas import Delta, TurnEnded
from toolspeak.data.messages import FilePart, ImagePart, MalformedCall, Message, TextMessage, Usage
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import evolve
from toolspeak.gateway.turns.turn_gate import Note, text_size
from toolspeak.wire.base import ModelRequest, WireRequest

BYTES_PER_TOKEN = 4
"""Bytes of UTF-8. English has about four letters a token; scripts with two or three bytes a letter have fewer letters a
token. So bytes give a better estimate than characters."""

MEDIA_TOKENS = 1_600
"""Tokens of an image: the most that Anthropic's models count (API reference, "Vision"). A file counts the same."""


class SendDeltas(Protocol):
    """Sends deltas to the client, in order."""

    def __call__(self, deltas: Sequence[Delta], /) -> Awaitable[None]: ...


@dataclass(slots=True)
class TurnReport:
    """The result of a turn, for the client's notes, the log, the metrics and the key's account."""

    notes: list[Note] = field(default_factory=list[Note])
    attempts: int = 0
    """Requests to a model."""
    calls: int = 0
    malformed_calls: int = 0
    forged_results: int = 0
    end: TurnEnded = TurnEnded("error")
    usage: Usage = Usage()
    """Tokens of all attempts, failed ones included; estimated where the server does not count."""

    def back_to(self, before: TurnReport) -> None:
        """Undoes an attempt that sent the client nothing, except for its count and its tokens."""
        self.notes[:] = before.notes
        self.calls, self.malformed_calls, self.forged_results, self.end = (
            before.calls,
            before.malformed_calls,
            before.forged_results,
            before.end,
        )


# --- estimates of tokens ---------------------------------------------------------------------------------------------


def with_estimates(usage: Usage, prompt: int, completion: int) -> Usage:
    """The usage with estimates of the counts that are missing: the stream was closed after the calls, or the server
    does not count. `prompt` and `completion` are bytes."""
    return evolve(
        usage,
        input=tokens_of(prompt) if usage.input is None else usage.input,
        output=tokens_of(completion) if usage.output is None else usage.output,
    )


def tokens_of(size: int) -> int:
    """An estimate of the tokens in so many bytes, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


def message_size(message: Message | TextMessage) -> int:
    """About how many bytes of a message a model reads."""
    size = text_size(message.text)
    if isinstance(message, TextMessage):
        return size
    for call in message.calls:
        if isinstance(call, MalformedCall):
            size += text_size(call.raw)
        else:
            size += text_size(call.name) + _json_size(call.arguments)
    parts: list[Any] = [*message.parts]
    for result in message.results:
        size += text_size(result.text)
        parts += result.content
    media = sum(isinstance(part, ImagePart | FilePart) for part in parts)
    return size + media * MEDIA_TOKENS * BYTES_PER_TOKEN


def request_size(request: ModelRequest) -> int:
    """About how many bytes of a request a model reads."""
    output = 0 if request.output is None else _json_size(request.output.schema)
    return output + _tools_size(request.tools) + sum(map(message_size, request.messages))


def prompt_size(request: WireRequest) -> int:
    """About how many bytes a client's request has, without the prompt that a dialect adds."""
    return request_size(request.request)


def _tools_size(tools: Iterable[ToolSpec]) -> int:
    return sum(text_size(tool.name) + text_size(tool.description) + _json_size(tool.parameters) for tool in tools)


def _json_size(value: Mapping[str, Any]) -> int:
    return text_size(json.dumps(dict(value), ensure_ascii=False))
