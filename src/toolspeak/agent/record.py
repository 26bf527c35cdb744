"""A turn as the event that is recorded of it."""

from __future__ import annotations

from dataclasses import replace

from toolspeak.agent.history import hide_call, without_secrets
from toolspeak.data.events import ModelAnswered
from toolspeak.data.messages import MalformedCall, ToolCall, Usage
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
