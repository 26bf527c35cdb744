"""Drives the runs of the conversation, one after the other, and sums up what they came to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

from toolspeak.agent import Run, RunState
from toolspeak.agent.storage.runs import close_run, load_state
from toolspeak.chat.attachments import attachment_lines
from toolspeak.chat.display.settings_row import tokens_of_conversation
from toolspeak.chat.display.transcript import Transcript
from toolspeak.chat.display.waiting_lines import WaitingLines
from toolspeak.chat.terminal.front import ChatTerminal
from toolspeak.data.events import HistoryCompacted, Record, RunStarted, UserMessageQueued
from toolspeak.data.messages import Message
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.errors import RunError
from toolspeak.journal import Journal
from toolspeak.project.run_lookup import short_id


class RunDriver:
    """Drives runs at a front.

    - `saw`: gets each item of a run after it was shown.
    - `keep`: gets the messages that wait each time when there are other ones.
    """

    def __init__(
        self,
        journal: Journal,
        front: ChatTerminal,
        transcript: Transcript,
        saw: Callable[[Any], None],
        keep: Callable[[Sequence[str]], object],
    ) -> None:
        self.waiting = WaitingLines(keep)
        self.run: Run | None = None
        """The run that is under way."""
        self.state: RunState | None = None
        """The state of the last run."""
        self.cost: float | None = 0.0
        """What the turns at this terminal cost in USD; None if nobody knows it."""
        self._journal, self._front, self._transcript, self._saw = journal, front, transcript, saw
        self._task: asyncio.Future[Any] | None = None
        self._tokens = 0  # at the end of the last run

    @property
    def unread(self) -> Sequence[Message]:
        """The messages that the run under way has not read."""
        return () if self.run is None else self.run.unread

    @property
    def tokens(self) -> int:
        """The tokens of the conversation, as the model's last turn counted them; estimated before its first one."""
        state = self.state
        if self.run is not None:
            with suppress(RunError):
                state = self.run.state
        return tokens_of_conversation(state, self._tokens)

    def begin_anew(self, state: RunState | None = None) -> None:
        """Forgets the runs before, for another session. `state`: that of its last run."""
        self.state, self._tokens = state, 0

    def add_cost(self, cost: float | None) -> None:
        """Adds to `cost`; None if nobody knows it."""
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    async def add_compaction(self, run_id: str, event: HistoryCompacted) -> None:
        """Takes that the conversation is shorter after a run."""
        self.state = await load_state(self._journal, run_id)
        self._tokens = event.tokens_after
        self.add_cost(event.cost)

    async def drive(self, run: Run) -> bool:
        """Drives a run to its end, its pause or its interruption. Returns whether the run was recorded. Raises
        ProviderError if the model's API fails."""
        self.run, self._front.is_busy = run, True
        self._transcript.wait_for("the model")
        task = self._task = asyncio.create_task(self._watch(run))
        try:
            await asyncio.wait([task])
            if task.cancelled():
                return await self._close_interrupted(run)
            task.result()
            self._tell_pause(run.state)
            return True
        finally:
            await _end(task)
            with suppress(RunError):
                self._tokens, self.state = self.tokens, run.state
                self.add_cost(None if run.state.totals.unpriced else run.state.totals.known_cost)
            self.waiting.end_run(self.unread)
            self.run = self._task = None
            self._transcript.end_run()

    async def interruptible(self, whom: str, work: Awaitable[str]) -> str | None:
        """Does what lasts, and returns the line that it returns; None if the person has interrupted it. `whom`: what
        the conversation waits for meanwhile."""
        self._transcript.wait_for(whom)
        task = self._task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task])
            return None if task.cancelled() else task.result()
        finally:
            await _end(task)
            self._task = None
            self._transcript.end_run()

    def interrupt(self) -> bool:
        """Ends the turn that is under way. Its session goes on with what was said. Returns whether there was one."""
        if self._task is None or self._task.done():
            return False
        self.give_back_messages()
        self._task.cancel()
        return True

    def give_back_messages(self) -> None:
        """Puts the messages that nobody has read back into the input."""
        if text := self.waiting.take_back(self._withdraw):
            self._front.write_message(text)

    def take_back_newest(self) -> str:
        """Removes the newest message that nobody has read, and returns it; "" if there is none."""
        return self.waiting.take_back(self._withdraw, newest=True)

    def _withdraw(self, message: Message) -> bool:
        return self.run is not None and self.run.take_back(message)

    async def _watch(self, run: Run) -> None:
        async with aclosing(run.stream()) as items:
            async for item in items:
                if isinstance(item, Record) and isinstance(item.event, RunStarted):
                    self.waiting.store()  # the message that begins the run needs no other place any more
                if isinstance(item, Record) and isinstance(item.event, UserMessageQueued):
                    message, text = self.waiting.take(item.event.message)
                    self._transcript.person(text, attachment_lines(message))
                else:
                    self._transcript.show(item)
                self._saw(item)
                self._front.refresh()

    async def _close_interrupted(self, run: Run) -> bool:
        partial_text = self._transcript.turn_text.strip()
        outputs = self._transcript.end_calls()
        self._transcript.end_run()
        try:
            await close_run(self._journal, run.run_id, partial_text=partial_text, outputs=outputs)
        except RunError as error:
            if await self._journal.run(run.run_id) is None:
                return False
            self._transcript.note(f"! {error}", "warning")
        self._transcript.note("· interrupted: what was said stays. Say how to go on.", "warning")
        return True

    def _tell_pause(self, state: RunState) -> None:
        note = self._transcript.note
        if state.status in UNFINISHED_STATUSES:
            condition = state.status.replace("_", " ")
            note(f"· the turn is {condition}: `toolspeak resume {short_id(state.run_id)}` continues it")
        elif state.status == "no_answer" and state.reason != "terminated":  # the person was told who ended it
            note(f"! the turn ended without an answer ({state.reason or 'no reason'})", "warning")


async def _end(task: asyncio.Future[Any]) -> None:
    """Ends a task that goes on because the person leaves: its run can be continued."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
