"""A session: runs of one agent that share their history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack, cast

from toolspeak.agent.agent import Agent, RunResult
from toolspeak.agent.options import RunOptions
from toolspeak.agent.run import Run
from toolspeak.agent.storage.runs import suspend_run
from toolspeak.agent.storage.sessions import (
    WhenOpen,
    fork_session,
    known_session,
    new_session_id,
    place_of,
    session_messages,
)
from toolspeak.data.messages import Message
from toolspeak.errors import ConfigurationError, RunError
from toolspeak.journal.base import SessionInfo


class Session:
    """Runs that share history, kept in the agent's journal.

        session = Session(Agent(model, tools, journal=SqliteJournal("work.db")))
        await session.run("What is in notes.md?")
        await session.run("Translate it.")        # knows what "it" is, in this process or another

    Without a `session_id` it is a new one, which its first run creates. It may go on with another agent: another
    model, other tools, another dialect. `principal` is on whose behalf it is held; others cannot go on with it.

    Raises ConfigurationError for an agent without a journal, and for an id or a principal that is no text.
    """

    def __init__(self, agent: Agent, session_id: str | None = None, *, principal: str | None = None) -> None:
        if not isinstance(cast("object", agent), Agent):
            raise ConfigurationError(
                f"a session is an Agent's, not a {type(agent).__name__}'s: Session(Agent(…), session_id)"
            )
        if agent.journal is None:
            raise ConfigurationError(
                "a session is kept in a journal: give the agent one, Agent(journal=SqliteJournal(…))"
            )
        for name, value in (("session_id", session_id), ("principal", principal)):
            if value is not None and not (isinstance(cast("object", value), str) and value):
                raise ConfigurationError(f"{name} is a text that is not empty, or None, not {value!r}")
        self._agent = agent
        self._journal = agent.journal
        self._principal = principal
        self.session_id = new_session_id() if session_id is None else session_id

    async def start(self, task: str | Message, *, when_open: WhenOpen = "refuse", **options: Unpack[RunOptions]) -> Run:
        """The session's next run, which has not begun. Options as in `Agent.start`.

        `when_open` says what happens if the last run waits for approval or is suspended: "refuse" raises RunError,
        "close" ends that run for good, and none of its calls runs later. A last run that was interrupted is closed.

        Raises RunBusy while another process is at work on its last run. If somebody else goes on with the session
        before this run begins, its first record is refused: RunConflict.
        """
        place = await place_of(self._journal, self.session_id, self._principal, when_open)
        return self._agent.start_behind(place, task, {**options, "principal": self._principal})

    async def run(
        self, task: str | Message, *, when_open: WhenOpen = "refuse", **options: Unpack[RunOptions]
    ) -> RunResult:
        """Runs a task behind all that was said before; as `start` and `Agent.run`."""
        return await self._agent.finish(await self.start(task, when_open=when_open, **options))

    async def info(self) -> SessionInfo:
        """Its title, version and so on. Raises RunError before its first run."""
        return await known_session(self._journal, self.session_id)

    async def messages(self) -> Sequence[Message]:
        """What was said in it. Raises RunError before its first run."""
        return await session_messages(self._journal, self.session_id)

    async def rename(self, title: str) -> SessionInfo:
        """Gives it another title. Raises RunConflict if somebody changes it at the same time."""
        return await self._journal.rename_session(self.session_id, title, (await self.info()).version)

    async def fork(self, run_id: str | None = None, count: int | None = None) -> Session:
        """Another session that begins with what was said until the first `count` records of one of its runs (all of
        them), or until its end; the two go on without each other. Raises RunError if there is no such place."""
        forked = await fork_session(self._journal, self.session_id, run_id, count)
        return Session(self._agent, forked.session_id, principal=forked.principal)

    async def suspend(self) -> bool:
        """Asks for its last run to be suspended; see `Agent.suspend`. Raises RunError before its first run."""
        last = (await self.info()).last_run
        if last is None:
            raise RunError(f"session {self.session_id} has no run yet: there is nothing to suspend")
        return await suspend_run(self._journal, last)

    async def delete(self) -> None:
        """Removes it with its runs, for good. Raises RunBusy while one of them goes on."""
        await self._journal.delete_session(self.session_id)
