"""What a model has written of a turn so far: recorded now and then, so that it is not lost with the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from toolspeak.data.deltas import ArgumentsDelta, CallStarted, Delta, ReasoningDelta, TextDelta
from toolspeak.data.events import Event, ModelTextReceived
from toolspeak.errors import ToolspeakError
from toolspeak.execute import Secrets

EVERY = 0.5
"""Seconds that a piece waits for its record at most: a process that is killed loses no more of a turn."""

SIZE = 4096
"""Characters that wait at most."""


class PartialTurn:
    """The text and the reasoning of a run's turn that no record holds yet."""

    def __init__(self, secrets: Secrets, record: Callable[[Event], Awaitable[None]]) -> None:
        self._secrets = secrets
        self._record = record
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._size = 0  # characters in both
        self._most = SIZE + secrets.longest
        self._look_at = 0  # characters with which there is something to do
        self.heard = False
        """Whether the driver tells what it hears; else what was read of the turn counts."""
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """A turn begins."""
        self._text, self._reasoning, self._size = [], [], 0
        self.heard = False

    def hear(self, delta: Delta) -> Awaitable[None] | None:
        """One more piece as the provider sent it, the text of calls included. To be awaited, unless it is None: for
        most pieces there is nothing to wait for."""
        self.heard = True
        if type(delta) is TextDelta or type(delta) is ArgumentsDelta:
            text = delta.text
            self._text.append(text)
        elif type(delta) is ReasoningDelta:
            text = delta.text
            self._reasoning.append(text)
        elif type(delta) is CallStarted:  # of an API's own calls: in a dialect they are text
            text = f"\n{delta.name} "
            self._text.append(text)
        else:
            return None
        self._size += len(text)
        return self._keep_up() if self._size >= self._look_at else None

    def add(self, delta: Delta) -> Awaitable[None] | None:
        """`hear`, for what was read of a turn whose driver does not tell what it hears."""
        waits = self.hear(delta)
        self.heard = False
        return waits

    async def _keep_up(self) -> None:
        self._look_at = self._most
        if self._saving is not None and self._saving.done():
            await self._saved()  # raises what became of it
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._due)
        if self._size >= self._most:
            self._stop_timer()
            await self._saved()
            # The end is held back: a secret may have been cut there.
            await self._save(self._secrets.longest)

    async def keep(self) -> None:
        """The turn was cut off: records what is left of it. A journal that fails has said so, or says so again."""
        self._stop_timer()
        with suppress(ToolspeakError):
            await self._saved()
            await self._save(0)

    def end(self) -> Awaitable[None] | None:
        """The turn was read to its end: what is left of it is recorded with it. To be awaited, unless it is None."""
        # The timer goes on: most turns are over long before it is due.
        self._text, self._reasoning, self._size = [], [], 0
        return None if self._saving is None else self._saved()

    async def close(self) -> None:
        """The run has ended: nothing is being recorded any more."""
        self._stop_timer()
        saving, self._saving = self._saving, None
        if saving is not None:
            await asyncio.wait([saving])
            if not saving.cancelled():
                saving.exception()  # what ended the run has said more

    def _due(self) -> None:
        self._timer, self._look_at = None, 0
        saving = self._saving
        if saving is not None and not saving.done():
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._due)  # a slow disk: the next takes it all
        elif saving is None or (not saving.cancelled() and saving.exception() is None):
            self._begin_saving(self._secrets.longest)  # an error is for whoever comes next

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._look_at = None, 0

    def _begin_saving(self, held_back: int) -> None:
        piece = self._take(held_back)
        if piece is not None:
            self._saving = asyncio.ensure_future(self._record(piece))
            self._saving.add_done_callback(self._saving_is_over)

    def _saving_is_over(self, _: asyncio.Task[None]) -> None:
        self._look_at = 0  # what became of it is for the next piece

    async def _save(self, held_back: int) -> None:
        """A timeout may interrupt the wait for it, and never the recording."""
        self._begin_saving(held_back)
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def _saved(self) -> None:
        if self._saving is not None:
            await asyncio.shield(self._saving)
            self._saving = None

    def _take(self, held_back: int) -> ModelTextReceived | None:
        # Hidden before it is divided: then the division cuts no secret that is complete.
        text, rest = _divided(self._secrets.hide_text("".join(self._text)), held_back)
        reasoning, later = _divided(self._secrets.hide_text("".join(self._reasoning)), held_back)
        self._text, self._reasoning, self._size = [rest], [later], len(rest) + len(later)
        return ModelTextReceived(text, reasoning) if text or reasoning else None


def _divided(text: str, held_back: int) -> tuple[str, str]:
    at = max(0, len(text) - held_back)
    return text[:at], text[at:]
