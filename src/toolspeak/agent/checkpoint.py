"""What a model has written of a turn so far: recorded now and then, so that it is not lost with the process."""

from __future__ import annotations

import asyncio
import sys
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


class TurnCheckpoint:
    """The text and the reasoning of a run's turn, as the provider sent them, that no record holds yet.

    `add` never waits. Whoever reads the turn awaits `save` while `is_due`, so that no more than `SIZE` characters wait.
    """

    def __init__(self, secrets: Secrets, record: Callable[[Event], Awaitable[None]]) -> None:
        self._secrets = secrets
        self._record = record
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._size = 0  # characters in both
        self._most = SIZE + secrets.longest
        self._look_at = 0  # characters with which there is something to do
        self.is_raw = False
        """Whether the driver passes on what its provider sends; else the pieces are those that it yields."""
        self.is_due = False
        """Whether `save` is to be awaited."""
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """A turn begins."""
        self._text, self._reasoning, self._size = [], [], 0
        self.is_raw = False

    def add_raw(self, delta: Delta) -> None:
        """One more piece as the provider sent it, the text of calls included."""
        self.is_raw = True
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
            return
        self._size += len(text)
        if self._size >= self._look_at:
            self._look()

    def add_read(self, delta: Delta) -> None:
        """One more piece as a driver read it that does not pass on what its provider sends."""
        self.add_raw(delta)
        self.is_raw = False

    def _look(self) -> None:
        saving = self._saving
        if saving is not None and saving.done():
            if saving.cancelled() or saving.exception() is not None:
                self.is_due = True  # an error is for whoever reads the turn
                return
            saving = self._saving = None
        if self._size < self._most:
            self._look_at = self._most
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(EVERY, self._on_timer)
            return
        self._stop_timer()
        self.is_due = True
        if saving is None:  # at once, for a driver may yield nothing for long
            self._begin_saving(self._secrets.longest)
        else:
            self._look_at = sys.maxsize  # until that record is written

    async def save(self) -> None:
        """Waits until no more than `SIZE` characters are in no record. Raises what became of the last record."""
        self.is_due, self._look_at = False, 0
        await self._saved()
        if self._size >= self._most:
            # The end is held back: a secret may have been cut there.
            await self._save(self._secrets.longest)

    async def save_rest(self) -> None:
        """The turn was cut off: records what is left of it. A journal that fails has said so, or says so again."""
        self._stop_timer()
        with suppress(ToolspeakError):
            await self._saved()
            await self._save(0)

    async def discard(self) -> None:
        """The turn was read to its end: what is left of it is recorded with it. Raises what became of the last
        record."""
        # The timer goes on: most turns are over long before it is due.
        self._text, self._reasoning, self._size = [], [], 0
        self.is_due = False
        if self._saving is not None:
            await self._saved()

    async def close(self) -> None:
        """The run has ended: nothing is being recorded any more."""
        self._stop_timer()
        saving, self._saving = self._saving, None
        if saving is not None:
            await asyncio.wait([saving])
            if not saving.cancelled():
                saving.exception()  # what ended the run has said more

    def _on_timer(self) -> None:
        self._timer, self._look_at = None, 0
        saving = self._saving
        if saving is not None and not saving.done():
            # A slow disk: the next record takes it all.
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._on_timer)
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
