"""What a model has written of a turn so far: recorded now and then, so that it is not lost with the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from toolspeak.data.deltas import Delta, ReasoningDelta, TextDelta
from toolspeak.data.events import Event, ModelTextReceived
from toolspeak.execute import Secrets

EVERY = 2.0
"""Seconds between two records of one turn: most turns are over before the first."""


class PartialTurn:
    """The text and the reasoning of a run's turn that no record holds yet."""

    def __init__(self, secrets: Secrets, record: Callable[[Event], Awaitable[None]]) -> None:
        self._secrets = secrets
        self._record = record
        self._since = 0.0
        self._text = self._reasoning = ""
        self._saving: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """A turn begins."""
        self._since = asyncio.get_running_loop().time()
        self._text = self._reasoning = ""

    async def add(self, delta: Delta) -> None:
        """One more piece; records what there is if it is time. A timeout may interrupt the wait for that, and never
        the recording."""
        match delta:
            case TextDelta(text):
                self._text += text
            case ReasoningDelta(text):
                self._reasoning += text
            case _:
                return
        now = asyncio.get_running_loop().time()
        if now - self._since < EVERY:
            return
        self._since = now
        # The end is held back: a secret may have been cut there.
        piece = self._take(self._secrets.longest)
        if piece is not None:
            await self._saved()
            self._saving = asyncio.ensure_future(self._record(piece))
            await asyncio.shield(self._saving)

    async def keep(self) -> None:
        """The turn was cut off: records what is left of it."""
        await self._saved()
        piece = self._take(0)
        if piece is not None:
            await self._record(piece)

    async def close(self) -> None:
        """The run has ended: nothing is being recorded any more."""
        saving, self._saving = self._saving, None
        if saving is not None:
            await asyncio.wait([saving])
            if not saving.cancelled():
                saving.exception()  # what ended the run has said more

    async def _saved(self) -> None:
        saving, self._saving = self._saving, None
        if saving is not None:
            await saving

    def _take(self, held_back: int) -> ModelTextReceived | None:
        # Hidden before it is divided: then the division cuts no secret that is complete.
        text, self._text = _divided(self._secrets.hide_text(self._text), held_back)
        reasoning, self._reasoning = _divided(self._secrets.hide_text(self._reasoning), held_back)
        return ModelTextReceived(text, reasoning) if text or reasoning else None


def _divided(text: str, held_back: int) -> tuple[str, str]:
    at = max(0, len(text) - held_back)
    return text[:at], text[at:]
