"""From a run to its records: the event of a turn, and of a time that is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from toolspeak.agent.state.compaction import characters
from toolspeak.agent.state.history import hide_call, without_secrets
from toolspeak.agent.state.state import RunState
from toolspeak.data.events import (
    LimitReached,
    ModelAnswered,
)
from toolspeak.data.messages import MalformedCall, Message, ToolCall, Usage
from toolspeak.dialects import ParsedTurn
from toolspeak.execute import Secrets


def answered(
    turn: ParsedTurn, usage: Usage, estimated: bool, cost: float | None, secrets: Secrets, *, wrapping_up: bool
) -> ModelAnswered:
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
        cost,
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


def seconds_left(state: RunState, clock: Callable[[], float]) -> float | None:
    """Until the run's time is over; None without a limit. `clock` gives Unix seconds."""
    limit = state.limits.seconds
    return None if limit is None else max(0.0, state.started + limit - clock())


def time_is_over(state: RunState, clock: Callable[[], float]) -> LimitReached:
    """That the run's time is over, whatever the clock says."""
    allowed = state.limits.seconds or 0.0
    return LimitReached("seconds", max(allowed, clock() - state.started), allowed)
