"""What a model has written of a turn so far: recorded now and then, so that it is not lost with the process."""

from __future__ import annotations

from toolspeak.data.deltas import Delta, ReasoningDelta, TextDelta
from toolspeak.data.events import ModelTextReceived
from toolspeak.execute import Secrets

EVERY = 2.0
"""Seconds between two records of one turn: most turns are over before the first."""


class PartialTurn:
    """The text and the reasoning of one turn that no record holds yet. `now` is in seconds, of any clock."""

    def __init__(self, secrets: Secrets, now: float) -> None:
        self._secrets = secrets
        self._since = now
        self._text = self._reasoning = ""

    def add(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text):
                self._text += text
            case ReasoningDelta(text):
                self._reasoning += text
            case _:
                pass

    def due(self, now: float) -> ModelTextReceived | None:
        """What is to be recorded now, if it is time. The end is held back: a secret may have been cut there."""
        if now - self._since < EVERY:
            return None
        self._since = now
        return self._take(self._secrets.longest)

    def rest(self) -> ModelTextReceived | None:
        """What is left when the turn was cut off."""
        return self._take(0)

    def _take(self, held_back: int) -> ModelTextReceived | None:
        # Hidden before it is divided: then the division cuts no secret that is complete.
        text, self._text = _divided(self._secrets.hide_text(self._text), held_back)
        reasoning, self._reasoning = _divided(self._secrets.hide_text(self._reasoning), held_back)
        return ModelTextReceived(text, reasoning) if text or reasoning else None


def _divided(text: str, held_back: int) -> tuple[str, str]:
    at = max(0, len(text) - held_back)
    return text[:at], text[at:]
