"""The conversation: messages become runs of one session, and commands change how it goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from toolspeak.agent import Agent, Run, RunState, Session
from toolspeak.agent.storage.runs import load_state
from toolspeak.agent.storage.sessions import end_of_session, new_session_id, session_messages, take_back
from toolspeak.chat.agent_keeper import NO_MODEL, LazyAgent
from toolspeak.chat.attachments import attachment_lines, message_with_files
from toolspeak.chat.call_approver import CallApprover
from toolspeak.chat.display.call_lanes import spinner
from toolspeak.chat.display.settings_row import settings_row
from toolspeak.chat.display.styled_text import StyledLine
from toolspeak.chat.display.transcript import Transcript
from toolspeak.chat.next_message import NextMessage
from toolspeak.chat.other_terminals import busy_note, messages_of_others, until_free
from toolspeak.chat.run_driver import RunDriver
from toolspeak.chat.terminal.front import ChatTerminal
from toolspeak.chat.undo_note import with_undo_note
from toolspeak.chat.unsent_messages import keep_unsent, take_unsent
from toolspeak.data.events import Limits
from toolspeak.data.messages import ImagePart, Message
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.errors import ConfigurationError, ProviderError, RunBusy, RunError, ToolspeakError
from toolspeak.journal import Journal, SessionInfo
from toolspeak.journal.leases import is_held
from toolspeak.project.run_setup import Setup
from toolspeak.ui.format import compaction_text, one_line

_TICK = 0.1
"""Seconds between two pictures of the spinner."""

_TOO_LONG = "The message does not fit into the model's window: shorten it, or begin a /new conversation."
_MOST_COMPACTIONS = 2
"""How often a conversation is made shorter for one message."""

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
        front: ChatTerminal,
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
        self.approver = CallApprover(
            front, setup.rules, self.transcript.show_with_result, lambda: self.driver.give_back_messages()
        )
        self.keeper = LazyAgent(journal, self.approver, self.transcript.note)
        self.servers_of = self.keeper.servers_of
        self.transcript.thoughts = thoughts
        self._continues = session
        self._model_before = ""  # until the model that was chosen after it has answered
        self.clock = clock
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self.next_message = NextMessage()
        self.driver = RunDriver(journal, front, self.transcript, self.approver.saw, self._keep_unsent)
        front.live, front.status = self._live, self._status
        front.take_back = self.driver.take_back_newest
        front.interrupt, front.show_thoughts = self.driver.interrupt, self.transcript.show_thoughts

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
    def state(self) -> RunState | None:
        """The state of the last run; None before the first one."""
        return self.driver.state

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

    def do(self, job: Job, command: str = "") -> None:
        """Does the job once the turn has ended, and at once between two turns. `command`: what the person typed."""

        async def begin() -> None:
            if command in self.driver.waiting.commands:
                self.driver.waiting.commands.remove(command)
            await job()

        if self.is_busy and command:
            self.driver.waiting.commands.append(command)
        self._jobs.put_nowait(begin)
        self.front.refresh()

    def say(self, text: str) -> None:
        """Takes a message: for the next step of the turn that is under way, else for a turn of its own. It follows the
        commands that wait."""
        if not self.is_busy:
            self.front.is_busy = True
            self._jobs.put_nowait(lambda: self.turn(text))
            return
        if self.driver.waiting.commands:  # a message after /new is for the new conversation
            self.do(lambda: self.turn(text), one_line(text.strip()))
            return
        try:
            message = message_with_files(text, self.folder)
        except ConfigurationError as error:
            self._give_back(text, str(error))
            return
        if self.driver.run is not None:
            with suppress(RunError):  # it has just ended: the message begins the next turn
                message = self.next_message.complete(message)
                self.driver.run.say(message)
                self.next_message.clear()
                self.driver.waiting.add_said(message, text)
                self.front.refresh()
                return
        self.driver.waiting.add_later(text)
        self.front.refresh()

    async def turn(self, text: str, prompt: Message | None = None) -> None:
        """Runs one turn of the model for a message: `prompt`, or what the text says."""
        self.front.is_busy = True
        self.transcript.wait_for("the agent to start")
        try:
            message = message_with_files(text, self.folder) if prompt is None else prompt
            message = await with_undo_note(self.journal, self.session_id, message)
            message = self.next_message.complete(message)
            run = await self._run_of(message)
            await self._show_others()
            self.next_message.clear()
            self.transcript.person(text, attachment_lines(message))
            await self._drive_message(run, text, message)
        except RunBusy as error:
            self._give_back(text, f"{error}. /new begins another conversation")
        except (ToolspeakError, OSError) as error:
            self._give_back(text, str(error))
        finally:
            self._end_turn()

    async def _show_others(self) -> None:
        """Shows what other terminals have said in this conversation since."""
        messages = await messages_of_others(self.journal, self.session_id, self.state)
        if messages:
            self.transcript.note("· another terminal has gone on with this conversation:")
            self.transcript.messages(messages)

    async def _run_of(self, message: Message) -> Run:
        session = Session(await self.agent(), self.session_id)
        return await session.start(message, limits=self.limits, setup=self.setup.as_json())

    async def _drive_message(self, run: Run, text: str, message: Message, *, compactions: int = 0) -> None:
        """Drives the run of a message. If it does not fit into the model's window, makes room and sends it again: at
        first as a run does by itself, then as /compact does. `compactions`: how often that was done."""
        try:
            if not await self.driver.drive(run):
                self._give_back(text, "The turn was interrupted before it began.")
            self._model_before = ""
            await self.keeper.ask_for_window()
        except ProviderError as error:
            has_begun = self.state is not None and self.state.totals.tokens > 0  # the model has answered before
            if error.code == "context_length" and compactions < _MOST_COMPACTIONS:
                problem = await self._make_room(run, has_begun=has_begun, thorough=compactions > 0)
                if problem:
                    self._give_back("" if has_begun else text, problem)
                elif has_begun:
                    self.transcript.note("· the turn has ended: say how to go on", "warning")
                else:
                    run = await self._run_of(message)
                    await self._drive_message(run, text, message, compactions=compactions + 1)
            elif error.code == "context_length" and not has_begun:
                await take_back(self.journal, run.run_id)
                self._give_back(text, _TOO_LONG)
            elif any(isinstance(part, ImagePart) for part in message.parts) and not error.retryable:
                await take_back(self.journal, run.run_id)
                self.transcript.note(f"✗ {error}", "error")
                self._give_back(
                    text,
                    "The conversation goes on without this message. Send it without the image, or choose "
                    "a /model that reads images.",
                )
            else:
                self.transcript.note(f"✗ {error}", "error")
                self.transcript.note("· your message stays in the conversation: say how to go on")
                if self._model_before:
                    self.transcript.note(f"· /model {self._model_before} goes back to the model before")

    async def _make_room(self, run: Run, *, has_begun: bool, thorough: bool) -> str:
        """Summarises the conversation after a run that was too long for the model. Returns why there is no room, for
        the person; "" if there is. `has_begun`: whether the run stays a part of the conversation. `thorough`: all but
        its newest messages are summarised."""
        if not has_begun:
            await take_back(self.journal, run.run_id)
        info = await self.journal.session(self.session_id)
        if info is None or await end_of_session(self.journal, info) is None:
            return _TOO_LONG
        what = "more of the conversation" if thorough else "the conversation"
        self.transcript.note(f"· the model's window is full: {what} is summarised to make room")
        try:
            line = await self.driver.interruptible("the summary", self.compact("auto", thorough=thorough))
        except ProviderError as error:
            return _TOO_LONG if error.code == "context_length" else str(error)
        except RunError as error:  # there is nothing to summarise
            if not thorough:
                return await self._make_room(run, has_begun=True, thorough=True)
            return f"{_TOO_LONG} ({error})"
        if not line:
            return f"Interrupted. {_TOO_LONG}" if line is None else _TOO_LONG
        self.transcript.note(line)
        return ""

    async def compact(self, trigger: Literal["auto", "manual"] = "manual", *, thorough: bool = False) -> str:
        """Makes the conversation shorter; see `Agent.compact`. Returns what that did, on one line; "" if a hook keeps
        it as it is. Raises as `Session.compact`."""
        agent = await self.agent()
        end = await end_of_session(self.journal, await Session(agent, self.session_id).info())
        event = None if end is None else await agent.compact(end.run_id, trigger, thorough=thorough)
        if event is None or end is None:
            return ""
        await self.driver.add_compaction(end.run_id, event)
        return f"· {compaction_text(event)}"

    def _end_turn(self) -> None:
        """Begins the next turn with the messages that came too late for this one."""
        texts = self.driver.waiting.take_later()
        self.front.is_busy = bool(texts)
        if texts:
            self._jobs.put_nowait(lambda: self.turn("\n\n".join(texts)))
        self.front.refresh()

    def _keep_unsent(self, texts: Sequence[str]) -> None:
        try:
            keep_unsent(self.session_id, texts)
        except OSError as error:
            self.transcript.note(f"! a message that waits would be lost with this terminal: {error}", "warning")

    def _give_back(self, text: str, problem: str) -> None:
        """Gives a message back that was not sent, with the reason."""
        self.transcript.note(f"✗ {problem}", "error")
        if text:
            self.front.write_message(text)

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
        self.session_id = session.session_id
        self.driver.begin_anew()
        messages = await session_messages(self.journal, session.session_id)
        last = None if session.last_run is None else await self.journal.run(session.last_run)
        is_open = last is not None and last.status in UNFINISHED_STATUSES
        if last is not None and is_open and (await load_state(self.journal, last.run_id)).pending.calls:
            messages = messages[:-1]  # the results of its calls are to come
        earlier = max(0, len(messages) - _SHOWN_MESSAGES)
        while earlier and messages[earlier].role != "user":
            earlier -= 1
        omission = f", after {earlier:,} earlier messages" if earlier else ""
        self.transcript.note(f"· conversation {session.session_id[:8]} goes on{omission}: {session.title}")
        self.transcript.messages(messages[earlier:])
        with suppress(OSError):
            if text := take_unsent(session.session_id):
                self.transcript.note(
                    "· what you had written and the model has not read is in the input again", "warning"
                )
                self.front.write_message(text)
        if last is None:
            return
        if is_held(last):
            self.transcript.note(busy_note(last), "warning")
            await self.wait("the other process", until_free(self.journal, last.run_id))
            session = await self.journal.session(session.session_id) or session
            last = await self.journal.run(session.last_run or last.run_id) or last
            if is_held(last):
                return  # the person does not wait
            self.transcript.messages((await session_messages(self.journal, session.session_id))[len(messages) :])
        self.driver.begin_anew(state := await load_state(self.journal, last.run_id))
        if last.status in UNFINISHED_STATUSES:
            self.transcript.note("· the last turn has not ended: it goes on (Esc interrupts)")
            agent = await self.agent()
            self.transcript.continue_calls(state.pending.calls, state.pending.results)
            try:
                await self.driver.drive(agent.reopen(last.run_id))
            finally:
                self._end_turn()

    async def begin_anew(self) -> None:
        """Begins another session with the same settings."""
        self.session_id = new_session_id()
        self.driver.begin_anew()
        self.next_message.clear()
        self.driver.cost = 0.0

    async def wait(self, whom: str, work: Awaitable[str]) -> None:
        """Does what lasts, between two turns, and shows the line that it returns. The person can interrupt it."""
        self.front.is_busy = True
        try:
            line = await self.driver.interruptible(whom, work)
            self.transcript.note("· interrupted" if line is None else line)
        finally:
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
        if self.setup.model != before.model:
            self._model_before = before.model

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
        queue = self.driver.waiting.rows(self.driver.unread, columns)
        most = max(1, most - len(queue))
        if self.approver.is_open:
            return [*self.approver.rows(columns)[-most:], *queue]
        return [*self.transcript.rows(columns, most), *queue]

    def _status(self, columns: int) -> StyledLine:
        if self.approver.is_open:
            line: StyledLine = [("class:status.asks", "waits for your answer")]
        elif self.front.is_busy:
            line = [("class:status.busy", f"{spinner(self.clock())} waits for {self.transcript.waiting_for}")]
            line.append(("", f" {self.transcript.seconds:.0f} s · Esc interrupts"))
        else:
            line = [("", "your turn")]
        setup = replace(self.setup, approve=self.approves)
        window = self.keeper.window or self.setup.window
        return [*line, *settings_row(setup, self.dialect, self.driver.tokens, window, self.driver.cost)]
