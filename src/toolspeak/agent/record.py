"""A turn as the event that is recorded of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolspeak.agent.history import hide_call, without_secrets
from toolspeak.agent.state import RunState
from toolspeak.data.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    InterceptorFailed,
    MetadataSet,
    ModelAnswered,
    ModelAsked,
    StopRequested,
    ToolFinished,
    ToolStarted,
)
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


class Estimate:
    """Estimates the tokens of a run's turns, whose history only grows."""

    def __init__(self) -> None:
        self._counted = self._characters = 0

    def of(self, history: Sequence[Message], prompt: str, turn: ParsedTurn) -> Usage:
        """Tokens at four characters each: the usual rule of thumb for English text and code."""
        for i in range(self._counted, len(history)):
            self._characters += characters(history[i])
        self._counted = len(history)
        return Usage((len(prompt) + self._characters) // 4, (characters(turn.message) + len(turn.reasoning)) // 4)


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


def step_of(event: Event, state: RunState | None) -> int:
    """The step a record of this event belongs to."""
    step = state.step if state else 0
    return step + 1 if isinstance(event, ModelAsked) else step


def call_of(event: Event) -> str | None:
    """The call an event is about."""
    match event:
        case ToolFinished(result):
            return result.call_id
        case (
            ToolStarted()
            | ApprovalRequested()
            | ApprovalDecided()
            | MetadataSet()
            | InterceptorFailed()
            | StopRequested()
        ):
            return event.call_id
        case _:
            return None
