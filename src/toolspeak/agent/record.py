"""A turn as the event that is recorded of it."""

from __future__ import annotations

from dataclasses import replace

from toolspeak.agent.history import hide_call, without_secrets
from toolspeak.data.events import ModelAnswered
from toolspeak.data.messages import JsonPart, MalformedCall, Message, Part, TextPart, ToolCall, ToolResult, Usage
from toolspeak.dialects import ParsedTurn
from toolspeak.execute import Secrets


def answered(turn: ParsedTurn, usage: Usage, estimated: bool, secrets: Secrets, *, wrapping_up: bool) -> ModelAnswered:
    """The event of a turn, with placeholders for secrets. In a wrap-up answer no call counts, so none enters the
    history."""
    message, ignored = turn.message, [entry.call for entry in turn.ignored]
    if wrapping_up and message.calls:
        ignored += message.calls
        kept = tuple(part for part in message.parts if not isinstance(part, ToolCall | MalformedCall))
        message = replace(message, parts=kept)
    return ModelAnswered(
        without_secrets(message, secrets),
        turn.finish,
        usage,
        estimated,
        tuple(hide_call(call, secrets) for call in ignored if isinstance(call, ToolCall)),
        tuple(map(secrets.hide_text, turn.forged)),
        turn.notes,
    )


def characters(message: Message) -> int:
    """How long a message is as text, for estimates of its tokens."""
    return sum(_part_characters(part) for part in message.parts)


def _part_characters(part: Part) -> int:
    match part:
        case TextPart(text):
            return len(text)
        case JsonPart(value):
            return len(str(value))
        case ToolCall(name=name, arguments=arguments):
            return len(name) + len(str(arguments))
        case MalformedCall(raw=raw):
            return len(raw)
        case ToolResult(content=content):
            return sum(_part_characters(inner) for inner in content)
        case _:
            return 0
