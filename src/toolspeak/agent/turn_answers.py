"""The events of a run's turns that were read to their end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.history import hide_call, without_secrets
from toolspeak.agent.turn_checkpoint import RawEnd
from toolspeak.data.events import ModelAnswered
from toolspeak.data.messages import MalformedCall, Message, ToolCall, Usage, characters
from toolspeak.dialects import ParsedTurn


class TurnAnswers:
    """Makes the events, with placeholders for secrets, and estimates the tokens that a provider does not count."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._counted_messages = self._counted_characters = 0  # of the history

    def count_again(self) -> None:
        """Forgets how long the history is: other messages have taken its place."""
        self._counted_messages = self._counted_characters = 0

    def event(
        self,
        turn: ParsedTurn,
        history: Sequence[Message],
        prompt: str,
        request_digest: str,
        raw_end: RawEnd | None,
        *,
        costs: bool,
        wrapping_up: bool,
    ) -> ModelAnswered:
        """The event of a turn. `history`, `prompt`: what the model read. `raw_end`: what no record has of the turn;
        None if no model wrote it. `wrapping_up`: no call counts, so none enters the history."""
        settings, usage = self._settings, turn.usage
        secrets, price, estimated = settings.secrets, settings.price, usage.total is None
        if estimated:  # one token for each four characters, the usual rule of thumb for English text and code
            for i in range(self._counted_messages, len(history)):
                self._counted_characters += characters(history[i].parts)
            self._counted_messages = len(history)
            input_tokens = (len(prompt) + self._counted_characters) // 4
            usage = Usage(input_tokens, (characters(turn.message.parts) + len(turn.reasoning)) // 4)
        message, ignored = turn.message, [entry.call for entry in turn.ignored]
        if wrapping_up and message.calls:
            ignored += message.calls
            parts = tuple(part for part in message.parts if not isinstance(part, ToolCall | MalformedCall))
            message = replace(message, parts=parts)
        unused, forged = [call for call in ignored if isinstance(call, ToolCall)], turn.forged
        if secrets.has_values:
            message, unused = without_secrets(message, secrets), [hide_call(call, secrets) for call in unused]
            forged = tuple(map(secrets.hide_text, forged))
        cost = 0.0 if not costs else None if price is None else price.cost(usage)
        raw = (None, None) if raw_end is None or not settings.keeps else raw_end.beside(message)
        return ModelAnswered(
            message, turn.finish, usage, estimated, tuple(unused), forged, turn.notes, cost, request_digest, *raw
        )
