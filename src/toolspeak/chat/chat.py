"""The conversation: messages become runs of one session, and commands change how it goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolspeak.agent import Agent, Run, RunState, Session
from toolspeak.agent.storage.runs import close_run, load_state
from toolspeak.agent.storage.sessions import new_session_id, session_as_before, session_messages
from toolspeak.chat.agent_keeper import NO_MODEL, AgentKeeper
from toolspeak.chat.attachments import attachment_lines, message_with_files
from toolspeak.chat.call_approver import CallApprover
from toolspeak.chat.call_lanes import spinner
from toolspeak.chat.front import Front
from toolspeak.chat.settings_row import settings_row, tokens_of_conversation
from toolspeak.chat.styled_text import StyledLine
from toolspeak.chat.transcript import Transcript, queued_rows
from toolspeak.data.events import Limits, Record, UserMessageQueued
from toolspeak.data.messages import ImagePart, Message
from toolspeak.data.run_values import UNFINISHED
from toolspeak.errors import ConfigurationError, ProviderError, RunError, ToolspeakError
from toolspeak.journal import Journal, SessionInfo
from toolspeak.project.run_lookup import short_id
from toolspeak.project.run_setup import Setup
from toolspeak.ui.format import compaction_text

_TICK = 0.1
"""Seconds between two pictures of the spinner."""

_SHOWN_MESSAGES = 4
"""How many messages of a conversation are shown when it is continued."""

Job = Callable[[], Awaitable[None]]


class Chat:
    """A conversation at a front. `work` holds it until it is cancelled.

    - `session`: the session to continue; None begins one.
    - `limits`: when a turn must wrap up.
    - `thoughts`: show the model's thoughts.
    """

    def __init__(
        self,
        front: Front,
        setup: Setup,
        journal: Journal,
        session: SessionInfo | None = None,
        *,
        limits: Limits = Limits(),
        thoughts: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.front = front
        self.setup = setup
        self.journal = journal
        self.limits = limits
        self.session_id = new_session_id() if session is None else session.session_id
        self.transcript = Transcript(front.print, lambda: front.columns, clock)
        self.approver = CallApprover(front, setup.rules, self.transcript.show_with_result)
        self.keeper = AgentKeeper(journal, self.approver, self.transcript.note)
        self.servers_of = self.keeper.servers_of
        self.transcript.thoughts = thoughts
        self.state: RunState | None = None
        """The state of the last run."""
        self._continues = session
        self._clock = clock
        self._queue: list[tuple[Message, str]] = []  # messages that the model reads at its next step
        self._later: list[str] = []  # messages that wait for the end of the turn
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._run: Run | None = None
        self._drive: asyncio.Future[Any] | None = None
        self._cost, self._unpriced = 0.0, False  # of the turns at this terminal
        self._tokens = 0  # at the end of the last turn
        self._too_long = ""  # the last message for which the conversation was summarised
        front.live, front.status = self._live, self._status
        front.interrupt, front.show_thoughts = self.interrupt, self.transcript.show_thoughts

    @property
    def folder(self) -> Path:
        """The folder of the tools, which the paths of attachments are relative to."""
        return Path(self.setup.workspace)

    def file_at(self, path: str) -> Path:
        """The place of a path that the person wrote. `~` is the home folder."""
        return self.folder / Path(path).expanduser()

    @property
    def dialect(self) -> str:
        """How the model writes calls; "" before that is known."""
        return self.keeper.dialect

    @property
    def approves(self) -> str:
        """Who decides about calls that change something: a choice of `--approve`. The person may have approved all."""
        return "all" if self.setup.approve == "ask" and self.approver.approves_all else self.setup.approve

    @property
    def is_busy(self) -> bool:
        """Whether a turn is under way, or begins."""
        return self.front.is_busy

    async def work(self) -> None:
        """Holds the conversation, one turn after the other."""
        ticks = asyncio.create_task(self._tick())
        try:
            await self._guard(self._begin)
            while True:
                await self._guard(await self._jobs.get())
        finally:
            ticks.cancel()
            await asyncio.wait([ticks])
            await self.keeper.close()

    def do(self, job: Job) -> None:
        """Does the job once the turn has ended, and at once between two turns."""
        self._jobs.put_nowait(job)

    def say(self, text: str) -> None:
        """Takes a message: for the next step of the turn that is under way, else for a turn of its own."""
        if not self.is_busy:
            self.front.is_busy = True
            self._jobs.put_nowait(lambda: self.turn(text))
            return
        try:
            message = message_with_files(text, self.folder)
        except ConfigurationError as error:
            self._return(text, str(error))
            return
        if self._run is not None:
            with suppress(RunError):  # it has just ended: the message begins the next turn
                self._run.say(message)
                self._queue.append((message, text))
                self.front.refresh()
                return
        self._later.append(text)
        self.front.refresh()

    async def turn(self, text: str, prompt: Message | None = None) -> None:
        """Runs one turn of the model for a message: `prompt`, or what the text says."""
        self.front.is_busy = True
        self.transcript.wait_for("the agent to start")
        message, before = Message.user(text), None
        try:
            message = message_with_files(text, self.folder) if prompt is None else prompt
            before = await self.journal.session(self.session_id)
            agent = await self.agent()
            run = await Session(agent, self.session_id).start(message, limits=self.limits, setup=self.setup.as_json())
            self.transcript.person(text, attachment_lines(message))
            if not await self.drive(run):
                self._return(text, "The turn was interrupted before it began.")
        except ProviderError as error:
            self.transcript.note(f"✗ {error}", "error")
            if error.code == "context_length":
                await self._make_room(text, before)
            elif any(isinstance(part, ImagePart) for part in message.parts) and not error.retryable:
                self.session_id = await session_as_before(self.journal, self.session_id, before)
                self._return(
                    text,
                    "The conversation goes on without this message. Send it without the image, or choose "
                    "a /model that reads images.",
                )
        except (ToolspeakError, OSError) as error:
            self._return(text, str(error))
        finally:
            self._end_turn()

    async def _make_room(self, text: str, before: SessionInfo | None) -> None:
        """Summarises a conversation that is too long for the model, and sends the message again, once."""
        goes_on = self.state is not None and self.state.totals.tokens > 0  # with what the turn has done
        last_run = "" if goes_on or before is None else before.last_run or ""
        summary_line = "" if self._too_long == text or not (goes_on or last_run) else await self.compact(last_run)
        self._too_long = text
        if not goes_on:
            self.session_id = await session_as_before(self.journal, self.session_id, before)
        if not summary_line:
            self._return(
                text, "The message does not fit into the model's window: shorten it, or begin a /new conversation."
            )
            return
        self.transcript.note(summary_line)
        if goes_on:
            self.transcript.note("· the turn has ended: say how to go on", "warning")
        else:
            self._later.insert(0, text)

    async def compact(self, run_id: str = "") -> str:
        """Summarises the conversation as it was after a run, by default the last one. Returns what that did, on one
        line; "" if it stays as it is."""
        agent = await self.agent()
        event = await (agent.compact(run_id) if run_id else Session(agent, self.session_id).compact())
        if event is None:
            return ""
        if self.state is not None:
            self.state = await load_state(self.journal, self.state.run_id)
        self._tokens = event.tokens_after
        self.add_cost(event.cost)
        return f"· {compaction_text(event)}"

    async def drive(self, run: Run) -> bool:
        """Drives a run to its end, its pause or its interruption. Returns whether the run was recorded. Raises
        ProviderError if the model's API fails."""
        self._run, self.front.is_busy = run, True
        self.transcript.wait_for("the model")
        task = self._drive = asyncio.create_task(self._watch(run))
        try:
            await asyncio.wait([task])
            if task.cancelled():
                return await self._close_interrupted(run)
            task.result()
            self._tell_pause(run.state)
            await self.keeper.ask_for_window()
            return True
        finally:
            if not task.done():  # the person leaves: the run can be continued
                task.cancel()
                await asyncio.wait([task])
            with suppress(RunError):
                self._add(run.state)
            self._later, self._queue = self._waiting_texts(), []
            self._run = self._drive = None
            self.transcript.end_run()

    async def _watch(self, run: Run) -> None:
        async with aclosing(run.stream()) as items:
            async for item in items:
                if isinstance(item, Record) and isinstance(item.event, UserMessageQueued):
                    queued_message = item.event.message
                    line = queued_message.text
                    for entry in self._queue:
                        if queued_message.parts[: len(entry[0].parts)] == entry[0].parts:  # a hook may add to it
                            self._queue.remove(entry)
                            line = entry[1]
                            break
                    self.transcript.person(line)
                else:
                    self.transcript.show(item)
                self.approver.saw(item)
                self.front.refresh()

    def _waiting_texts(self) -> list[str]:
        """The messages that the model has not read yet, and that no hook has left out."""
        unread = () if self._run is None else self._run.unread
        return [*(text for message, text in self._queue if any(each is message for each in unread)), *self._later]

    def interrupt(self) -> bool:
        """Ends the turn that is under way. Its session goes on with what was said. Returns whether there was one."""
        if self._drive is None or self._drive.done():
            return False
        texts, self._queue, self._later = self._waiting_texts(), [], []
        if texts:
            self.front.write_message("\n\n".join(texts))
        self._drive.cancel()
        return True

    async def _close_interrupted(self, run: Run) -> bool:
        partial_text = self.transcript.turn_text.strip()
        outputs = self.transcript.end_calls()
        self.transcript.end_run()
        try:
            await close_run(self.journal, run.run_id, partial_text=partial_text, outputs=outputs)
        except RunError as error:
            if await self.journal.run(run.run_id) is None:
                return False
            self.transcript.note(f"! {error}", "warning")
        self.transcript.note("· interrupted: what was said stays. Say how to go on.", "warning")
        return True

    def _end_turn(self) -> None:
        """Begins the next turn with the messages that came too late for this one."""
        texts, self._later = self._later, []
        self.front.is_busy = bool(texts)
        if texts:
            self._jobs.put_nowait(lambda: self.turn("\n\n".join(texts)))
        self.front.refresh()

    def _return(self, text: str, problem: str) -> None:
        """Gives a message back that was not sent, with the reason."""
        self.transcript.note(f"✗ {problem}", "error")
        self.front.write_message(text)

    def _tell_pause(self, state: RunState) -> None:
        if state.status in UNFINISHED:
            condition = state.status.replace("_", " ")
            self.transcript.note(f"· the turn is {condition}: `toolspeak resume {short_id(state.run_id)}` continues it")
        elif state.status == "no_answer" and state.reason != "terminated":  # the person was told who ended it
            self.transcript.note(f"! the turn ended without an answer ({state.reason or 'no reason'})", "warning")

    def _add(self, state: RunState) -> None:
        self._tokens = self._tokens_now()
        self.state = state
        self.add_cost(None if state.totals.unpriced else state.totals.known_cost)

    def add_cost(self, cost: float | None) -> None:
        """Adds to what the turns at this terminal cost in USD; None if nobody knows it."""
        self._cost, self._unpriced = self._cost + (cost or 0.0), self._unpriced or cost is None

    # --- how it begins and goes on -------------------------------------------------------------------------------

    async def _begin(self) -> None:
        session, self._continues = self._continues, None
        if session is not None:
            await self.continue_session(session)
        elif not self.setup.model:
            self.transcript.note(NO_MODEL, "warning")
        else:
            await self.agent()
        self.front.refresh()

    async def continue_session(self, session: SessionInfo) -> None:
        """Goes on with a session: shows its last messages, and drives its last run on if that has not ended."""
        self.session_id, self.state, self._tokens = session.session_id, None, 0
        messages = await session_messages(self.journal, session.session_id)
        earlier = max(0, len(messages) - _SHOWN_MESSAGES)
        while earlier and messages[earlier].role != "user":
            earlier -= 1
        hidden = f", after {earlier:,} earlier messages" if earlier else ""
        self.transcript.note(f"· conversation {session.session_id[:8]} goes on{hidden}: {session.title}")
        for message in messages[earlier:]:
            self.transcript.message(message)
        last = None if session.last_run is None else await self.journal.run(session.last_run)
        if last is None:
            return
        self.state = await load_state(self.journal, last.run_id)
        if last.status in UNFINISHED:
            self.transcript.note("· the last turn has not ended: it goes on (Esc interrupts)")
            agent = await self.agent()
            self.transcript.continue_calls(self.state.pending.calls, self.state.pending.results)
            try:
                await self.drive(agent.resumed(last.run_id))
            finally:
                self._end_turn()

    async def begin_anew(self) -> None:
        """Begins another session with the same settings."""
        self.session_id, self.state, self._tokens = new_session_id(), None, 0
        self._cost, self._unpriced = 0.0, False

    async def wait(self, whom: str, work: Awaitable[str]) -> None:
        """Does what lasts, between two turns, and shows the line that it returns. The person can interrupt it."""
        self.front.is_busy = True
        self.transcript.wait_for(whom)
        task = self._drive = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task])
            self.transcript.note("· interrupted" if task.cancelled() else task.result())
        finally:
            if not task.done():  # the person leaves
                task.cancel()
                await asyncio.wait([task])
            self._drive = None
            self.transcript.end_run()
            self._end_turn()

    async def use(self, **settings: str) -> None:
        """Goes on with other settings. Keeps the old ones, and raises ConfigurationError, if these cannot be used."""
        before, self.setup = self.setup, replace(self.setup, **settings)
        try:
            if self.setup.model:
                await self.agent()
        except ToolspeakError:
            self.setup = before
            raise

    async def agent(self) -> Agent:
        """The agent of the settings, opened at its first use."""
        return await self.keeper.agent(self.setup)

    async def _guard(self, job: Job) -> None:
        """Does a job. An error is shown, and the conversation goes on."""
        try:
            await job()
        except (ToolspeakError, OSError) as error:
            self.transcript.note(f"✗ {error}", "error")
        self.front.refresh()

    # --- what the person sees ------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Moves the spinner and the seconds while something is under way."""
        while True:
            await asyncio.sleep(_TICK)
            if self.front.is_busy and not self.approver.is_open:
                self.front.refresh()

    def _live(self, columns: int, most: int) -> list[StyledLine]:
        queue = queued_rows(self._waiting_texts(), columns)[-3:]
        most = max(1, most - len(queue))
        if self.approver.is_open:
            return [*self.approver.rows(columns)[-most:], *queue]
        return [*self.transcript.rows(columns, most), *queue]

    def _status(self, columns: int) -> StyledLine:
        if self.approver.is_open:
            line: StyledLine = [("class:status.asks", "waits for your answer")]
        elif self.front.is_busy:
            line = [("class:status.busy", f"{spinner(self._clock())} waits for {self.transcript.waiting_for}")]
            line.append(("", f" {self.transcript.seconds:.0f} s · Esc interrupts"))
        else:
            line = [("", "your turn")]
        cost = None if self._unpriced else self._cost
        setup = replace(self.setup, approve=self.approves)
        window = self.keeper.window or self.setup.window
        return [*line, *settings_row(setup, self.dialect, self._tokens_now(), window, cost)]

    def _tokens_now(self) -> int:
        """The tokens of the conversation, as the model's last turn counted them; estimated before its first one."""
        state = self.state
        if self._run is not None:
            with suppress(RunError):
                state = self._run.state
        return tokens_of_conversation(state, self._tokens)
