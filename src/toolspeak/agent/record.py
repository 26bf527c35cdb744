"""From a run to its records: the event of a turn, the stamp of an event; and what the records leave in doubt."""

from __future__ import annotations

from dataclasses import replace

from toolspeak.agent.history import hide_call, without_secrets
from toolspeak.agent.state import RunState
from toolspeak.data.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    ModelAnswered,
    ModelAsked,
    ToolFinished,
    ToolStarted,
)
from toolspeak.data.messages import MalformedCall, ToolCall, Usage
from toolspeak.dialects import ParsedTurn
from toolspeak.execute import Decision, Secrets


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


def step_of(event: Event, state: RunState | None) -> int:
    """The step an event belongs to."""
    step = state.step if state else 0
    return step + 1 if isinstance(event, ModelAsked) else step


def call_of(event: Event) -> str | None:
    """The call an event is about."""
    match event:
        case ToolFinished(result):
            return result.call_id
        case ToolStarted() | ApprovalRequested() | ApprovalDecided():
            return event.call_id
        case _:
            return None


def doubts_of(state: RunState) -> dict[str, Decision | None]:
    """The calls in doubt, each with what was decided of it since."""
    return {
        call_id: None if decided is None else Decision(decided.approved, decided.reason, decided.by)
        for call_id, decided in state.in_doubt.items()
    }
