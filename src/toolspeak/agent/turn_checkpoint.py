"""What is recorded of a model's turn: its text while it streams, so that a crash does not lose it, and its end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.history import hide_call, without_secrets
from toolspeak.data.deltas import ArgumentsDelta, CallStarted, Delta, ReasoningDelta, TextDelta
from toolspeak.data.events import Event, ModelAnswered, ModelTextReceived
from toolspeak.data.messages import (
    MalformedCall,
    Message,
    ReasoningPart,
    TextPart,
    ToolCall,
    Usage,
    characters,
)
from toolspeak.data.values import quick
from toolspeak.dialects import ParsedTurn
from toolspeak.errors import ToolspeakError
from toolspeak.execute import Secrets

FLUSH_SECONDS = 0.5
"""How long a piece of a turn waits for its record at most. A killed process loses no more than that."""

FLUSH_CHARACTERS = 4096
"""How many characters of a turn wait for their record at most."""


@quick()
class UnrecordedText:
    """The part of a complete turn that its records lack, as the provider sent it, with placeholders for secrets.

    - `text`, `reasoning`: since the last `ModelTextReceived` of the turn.
    - `own_text`: `text` without the API's own calls at its end.
    - `has_records`: the turn has such a record.
    """

    text: str
    reasoning: str
    own_text: str
    has_records: bool

    def beside(self, message: Message) -> tuple[str | None, str | None]:
        """The text and the reasoning to record beside the turn's message. None for what the message shows already."""
        if self.has_records:
            return self.text, self.reasoning
        parts = message.parts
        text = "".join([part.text for part in parts if type(part) is TextPart])
        thoughts = "".join([part.text for part in parts if type(part) is ReasoningPart])
        return (
            None if self.own_text.strip() == text.strip() else self.text,
            None if self.reasoning == thoughts or self.reasoning.strip() == thoughts.strip() else self.reasoning,
        )


class TurnCheckpoint:
    """Records the text and the reasoning of a turn while it streams, as the provider sent them (`ModelTextReceived`).
    They are not lost with the process; a resumed run asks the model again.

    `add_raw` and `add_read` never wait. The reader of the turn awaits `save` when `is_due`, so that no more than
    `FLUSH_CHARACTERS` wait.
    """

    def __init__(self, secrets: Secrets, record: Callable[[Event], Awaitable[None]]) -> None:
        self._secrets = secrets
        self._record = record
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._size = 0  # characters in both
        self._call_size = 0  # of them, those of the API's own calls
        self._has_records = False  # of this turn
        self._most = FLUSH_CHARACTERS + secrets.longest
        self._look_at = 0  # the number of characters at which `add_raw` looks whether to record them
        self.is_raw = False
        """Whether the driver calls `add_raw`. If it does not, the pieces are the deltas that it yields."""
        self.is_due = False
        """Whether the reader must await `save`."""
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None

    def add_raw(self, delta: Delta) -> None:
        """Adds a piece as the provider sent it, the text of calls included."""
        self.is_raw = True
        if type(delta) is TextDelta:
            text = delta.text
            self._text.append(text)
        elif type(delta) is ArgumentsDelta:
            text = delta.text
            self._text.append(text)
            self._call_size += len(text)
        elif type(delta) is ReasoningDelta:
            text = delta.text
            self._reasoning.append(text)
        elif type(delta) is CallStarted:  # a call of the API's own; in a dialect a call is text
            text = f"\n{delta.name} "
            self._text.append(text)
            self._call_size += len(text)
        else:
            return
        self._size += len(text)
        if self._size < self._look_at:
            return
        saving = self._saving
        if saving is not None and saving.done():
            if saving.cancelled() or saving.exception() is not None:
                self.is_due = True  # `save` raises the error to the reader
                return
            saving = self._saving = None
        if self._size < self._most:
            self._look_at = self._most
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._on_timer)
            return
        self._stop_timer()
        self.is_due = True
        if saving is None:  # at once: a driver may yield nothing for long
            self._begin_saving(self._secrets.longest)
        else:
            self._look_at = sys.maxsize  # until the last record is written

    def add_read(self, delta: Delta) -> None:
        """Adds a piece as the driver yielded it, for a driver that does not call `add_raw`."""
        self.add_raw(delta)
        self.is_raw = False

    async def save(self) -> None:
        """Waits until at most `FLUSH_CHARACTERS` are unrecorded. Raises the error of the last record, if it failed."""
        self.is_due, self._look_at = False, 0
        await self._wait_for_save()
        if self._size >= self._most:
            # The end is held back: it may be a part of a secret.
            await self._save(self._secrets.longest)

    async def save_rest(self) -> None:
        """Records the rest of a turn that broke off. An error of the journal is left to the next record."""
        self._stop_timer()
        try:
            with suppress(ToolspeakError):
                await self._wait_for_save()
                await self._save(0)
        finally:
            self._begin_turn()

    async def end(self) -> UnrecordedText:
        """Ends a turn that is complete, and returns what no record has of it. Raises the error of the last record, if
        it failed."""
        # The timer keeps running: most turns end before it fires.
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        own_text = text[: len(text) - self._call_size] if self._call_size and not self._has_records else text
        if self._secrets.has_values:
            text, reasoning, own_text = map(self._secrets.hide_text, (text, reasoning, own_text))
        raw_end = UnrecordedText(text, reasoning, own_text, self._has_records)
        self._begin_turn()
        if self._saving is not None:
            await self._wait_for_save()
        return raw_end

    def _begin_turn(self) -> None:
        self._text, self._reasoning, self._size, self._call_size = [], [], 0, 0
        self._has_records = self.is_raw = self.is_due = False

    async def close(self) -> None:
        """Waits until nothing is being recorded any more."""
        self._stop_timer()
        saving, self._saving = self._saving, None
        if saving is not None:
            await asyncio.wait([saving])
            if not saving.cancelled():
                saving.exception()  # otherwise asyncio logs the error as never retrieved

    def _on_timer(self) -> None:
        self._timer, self._look_at = None, 0
        saving = self._saving
        if saving is not None and not saving.done():
            # The disk is slow: the next record takes all pieces.
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._on_timer)
        elif saving is None or (not saving.cancelled() and saving.exception() is None):
            self._begin_saving(self._secrets.longest)  # else the next `save` raises the error

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._look_at = None, 0

    def _begin_saving(self, held_back: int) -> None:
        piece = self._take(held_back)
        if piece is not None:
            self._saving = asyncio.ensure_future(self._record(piece))
            self._saving.add_done_callback(self._on_saved)

    def _on_saved(self, _: asyncio.Task[None]) -> None:
        self._look_at = 0  # the next piece sees whether it failed

    async def _save(self, held_back: int) -> None:
        """Records what waits. A timeout interrupts the wait, never the recording."""
        self._begin_saving(held_back)
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def _wait_for_save(self) -> None:
        if self._saving is not None:
            await asyncio.shield(self._saving)
            self._saving = None

    def _take(self, held_back: int) -> ModelTextReceived | None:
        # Secrets are hidden before the text is divided, so that no complete secret is cut in two.
        text, rest = _divide(self._secrets.hide_text("".join(self._text)), held_back)
        reasoning, later = _divide(self._secrets.hide_text("".join(self._reasoning)), held_back)
        self._text, self._reasoning, self._size = [rest], [later], len(rest) + len(later)
        if not text and not reasoning:
            return None
        self._has_records = True
        return ModelTextReceived(text, reasoning)


def _divide(text: str, held_back: int) -> tuple[str, str]:
    at = max(0, len(text) - held_back)
    return text[:at], text[at:]


class TurnAnswers:
    """Makes the events of turns that were read to their end, with placeholders for secrets, and estimates the tokens
    that a provider does not count."""

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
        raw_end: UnrecordedText | None,
        *,
        costs: bool,
        wrapping_up: bool,
    ) -> ModelAnswered:
        """The event of a turn. `history`, `prompt`: what the model read. `raw_end`: what no record has of the turn;
        None if no model wrote it. `wrapping_up`: no call counts, so none enters the history."""
        settings, usage = self._settings, turn.usage
        secrets, price, is_estimate = settings.secrets, settings.price, usage.total is None
        if is_estimate:  # one token for each four characters, the usual rule of thumb for English text and code
            for i in range(self._counted_messages, len(history)):
                self._counted_characters += characters(history[i].parts)
            self._counted_messages = len(history)
            input_tokens = (len(prompt) + self._counted_characters) // 4
            usage = Usage(input_tokens, (characters(turn.message.parts) + len(turn.reasoning)) // 4)
        message, ignored_calls = turn.message, [entry.call for entry in turn.ignored_calls]
        if wrapping_up and message.calls:
            ignored_calls += message.calls
            parts = tuple(part for part in message.parts if not isinstance(part, ToolCall | MalformedCall))
            message = replace(message, parts=parts)
        unused_calls, forged_results = (
            [call for call in ignored_calls if isinstance(call, ToolCall)],
            turn.forged_results,
        )
        if secrets.has_values:
            message, unused_calls = (
                without_secrets(message, secrets),
                [hide_call(call, secrets) for call in unused_calls],
            )
            forged_results = tuple(map(secrets.hide_text, forged_results))
        cost = 0.0 if not costs else None if price is None else price.cost(usage)
        raw = (None, None) if raw_end is None or not settings.keeps else raw_end.beside(message)
        return ModelAnswered(
            message,
            turn.finish,
            usage,
            is_estimate,
            tuple(unused_calls),
            forged_results,
            turn.notes,
            cost,
            request_digest,
            *raw,
        )
