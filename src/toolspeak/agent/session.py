"""A session: runs of one agent that share their history."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Generic, Unpack, cast, overload

from toolspeak.agent.agent import Agent, RunResult
from toolspeak.agent.options import CommonOptions, DepsT, RunOptions
from toolspeak.agent.run import Run
from toolspeak.agent.state.output import OutputT
from toolspeak.agent.storage.runs import suspend_run
from toolspeak.agent.storage.sessions import (
    SessionTip,
    WhenOpen,
    end_of_session,
    fork_session,
    known_session,
    new_session_id,
    place_for,
    session_messages,
)
from toolspeak.agent.streams import StreamedOutput, stream_output, stream_text
from toolspeak.data.events import HistoryCompacted
from toolspeak.data.messages import Message
from toolspeak.errors import ConfigurationError, RunError
from toolspeak.journal.base import SessionInfo


class Session(Generic[DepsT, OutputT]):
    """Runs that share history, kept in the agent's journal.

        session = Session(Agent(model, tools, journal=SqliteJournal("work.db")))
        await session.run("What is in notes.md?")
        await session.run("Translate it.")        # knows what "it" is, in this process or another

    - `session_id`: None makes a new session, which its first run creates. A session may continue with another agent:
      another model, other tools, another dialect.
    - `principal`: on whose behalf the session is held. Another principal cannot continue it.

    Raises ConfigurationError for an agent without a journal, and for an id or a principal that is not a string.
    """

    def __init__(
        self, agent: Agent[DepsT, OutputT], session_id: str | None = None, *, principal: str | None = None
    ) -> None:
        if not isinstance(cast("object", agent), Agent):
            raise ConfigurationError(
                f"Session needs an Agent, not a {type(agent).__name__}: Session(Agent(…), session_id)"
            )
        if agent.journal is None:
            raise ConfigurationError("Session needs an agent with a journal: Agent(journal=SqliteJournal(…))")
        for name, value in (("session_id", session_id), ("principal", principal)):
            if value is not None and not (isinstance(cast("object", value), str) and value):
                raise ConfigurationError(f"{name} must be a string that is not empty, or None, not {value!r}")
        self._agent = agent
        self._journal = agent.journal
        self._principal = principal
        self.session_id = new_session_id() if session_id is None else session_id

    @overload
    async def start(
        self: Session[None, OutputT],
        task: str | Message,
        *,
        when_open: WhenOpen = "refuse",
        deps: None = None,
        **options: Unpack[CommonOptions],
    ) -> Run[OutputT]: ...

    @overload
    async def start(
        self,
        task: str | Message,
        *,
        when_open: WhenOpen = "refuse",
        deps: DepsT,
        **options: Unpack[CommonOptions],
    ) -> Run[OutputT]: ...

    async def start(self, task: str | Message, *, when_open: WhenOpen = "refuse", **options: Any) -> Run[OutputT]:
        """Returns the session's next run, not yet driven. Options as in `Agent.start`.

        `when_open` is for a last run that waits for approval or is suspended: "refuse" raises RunError, "close" ends
        that run, and its calls never run. A last run that was interrupted is closed.

        Raises RunBusy while another process drives the last run. If another run continues the session before this
        one begins, driving this one raises RunConflict.
        """
        place = await self._place(when_open, options.get("run_id"))
        return self._agent.start_after(place, task, cast("RunOptions", {**options, "principal": self._principal}))

    async def submit(
        self,
        task: str | Message,
        *,
        at: float | None = None,
        when_open: WhenOpen = "refuse",
        **options: Unpack[CommonOptions],
    ) -> RunResult[OutputT]:
        """Records the session's next run for a worker. See `Agent.submit`; `when_open` as in `start`."""
        place = await self._place(when_open, options.get("run_id"))
        own = cast("RunOptions", {**options, "principal": self._principal})
        return await self._agent.submit_after(place, task, at, own)

    async def _place(self, when_open: WhenOpen, run_id: str | None) -> SessionTip:
        return await place_for(self._journal, self.session_id, run_id, self._principal, when_open)

    @overload
    async def run(
        self: Session[None, OutputT],
        task: str | Message,
        *,
        when_open: WhenOpen = "refuse",
        deps: None = None,
        **options: Unpack[CommonOptions],
    ) -> RunResult[OutputT]: ...

    @overload
    async def run(
        self,
        task: str | Message,
        *,
        when_open: WhenOpen = "refuse",
        deps: DepsT,
        **options: Unpack[CommonOptions],
    ) -> RunResult[OutputT]: ...

    async def run(self, task: str | Message, *, when_open: WhenOpen = "refuse", **options: Any) -> RunResult[OutputT]:
        """Runs a task after the session's messages. Parameters as in `start`, raises as `Agent.run`."""
        return await self._agent.finish(await self.start(task, when_open=when_open, **options))

    @overload
    def stream_text(
        self: Session[None, OutputT],
        task: str | Message,
        *,
        accumulated: bool = False,
        when_open: WhenOpen = "refuse",
        deps: None = None,
        **options: Unpack[CommonOptions],
    ) -> AsyncGenerator[str]: ...

    @overload
    def stream_text(
        self,
        task: str | Message,
        *,
        accumulated: bool = False,
        when_open: WhenOpen = "refuse",
        deps: DepsT,
        **options: Unpack[CommonOptions],
    ) -> AsyncGenerator[str]: ...

    async def stream_text(
        self,
        task: str | Message,
        *,
        accumulated: bool = False,
        when_open: WhenOpen = "refuse",
        **options: Any,
    ) -> AsyncGenerator[str]:
        """Yields the model's text as it comes. See `toolspeak.agent.stream_text`; other parameters as in `start`."""
        run = await self.start(task, when_open=when_open, **options)
        async with aclosing(stream_text(run, accumulated=accumulated)) as texts:
            async for text in texts:
                yield text

    @overload
    def stream_output(
        self: Session[None, OutputT],
        task: str | Message,
        *,
        when_open: WhenOpen = "refuse",
        deps: None = None,
        **options: Unpack[CommonOptions],
    ) -> AsyncGenerator[StreamedOutput[OutputT]]: ...

    @overload
    def stream_output(
        self,
        task: str | Message,
        *,
        when_open: WhenOpen = "refuse",
        deps: DepsT,
        **options: Unpack[CommonOptions],
    ) -> AsyncGenerator[StreamedOutput[OutputT]]: ...

    async def stream_output(
        self, task: str | Message, *, when_open: WhenOpen = "refuse", **options: Any
    ) -> AsyncGenerator[StreamedOutput[OutputT]]:
        """Yields the answer so far. See `toolspeak.agent.stream_output`; parameters as in `start`."""
        run = await self.start(task, when_open=when_open, **options)
        async with aclosing(stream_output(run)) as values:
            async for value in values:
                yield value

    async def info(self) -> SessionInfo:
        """The session's title, version and so on. Raises RunError before its first run."""
        return await known_session(self._journal, self.session_id)

    async def messages(self) -> Sequence[Message]:
        """All messages of the session. Raises RunError before its first run."""
        return await session_messages(self._journal, self.session_id)

    async def rename(self, title: str) -> SessionInfo:
        """Changes the title. Raises RunConflict if the session changes at the same time."""
        return await self._journal.rename_session(self.session_id, title, (await self.info()).version)

    async def fork(self, run_id: str | None = None, count: int | None = None) -> Session[DepsT, OutputT]:
        """Returns a new session with a copy of this one's messages: until the first `count` records of the run `run_id`
        (None: all), or all messages without a `run_id`. Raises RunError if there is no such run or record."""
        fork = await fork_session(self._journal, self.session_id, run_id, count)
        return Session(self._agent, fork.session_id, principal=fork.principal)

    async def compact(self) -> HistoryCompacted | None:
        """Makes the history that the next run begins with shorter, at once: the model writes a summary of all but the
        newest messages. Adds a record to the last run, and returns it; None if nothing was said yet, or an interceptor
        refuses.

        Raises RunError for a last run that has not ended and if there is nothing to summarise, RunBusy while a process
        drives the run. Raises ProviderError if the model writes no summary, or none that is shorter: the history stays
        as it was.
        """
        info = await self._journal.session(self.session_id)
        if info is None:
            return None
        if info.principal != self._principal:
            raise RunError(f"session {self.session_id} belongs to another user")
        end = await end_of_session(self._journal, info)
        return None if end is None else await self._agent.compact(end.run_id)

    async def suspend(self) -> bool:
        """Suspends the session's last run; see `Agent.suspend`. Raises RunError before its first run."""
        last = (await self.info()).last_run
        if last is None:
            raise RunError(f"session {self.session_id} has no run yet: there is nothing to suspend")
        return await suspend_run(self._journal, last)

    async def delete(self) -> None:
        """Deletes the session and its runs. Raises RunBusy while one of them is in progress."""
        await self._journal.delete_session(self.session_id)
