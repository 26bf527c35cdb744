"""The contract of a journal: an append-only list of records per run, leases on runs, and sessions of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolspeak.data.events import Record, RunStatus
from toolspeak.data.messages import Message
from toolspeak.data.values import quick


@quick()
class Lease:
    """The right to continue with a run, until another process takes it over. Every takeover has a higher epoch."""

    run_id: str
    owner: str
    epoch: int


@quick()
class RunInfo:
    """A run as lists show it. All of it follows from the run's records and its lease.

    - `created`, `updated`: when it started and when its status changed last, in Unix seconds.
    - `records`: the number of its records.
    - `owner`: the holder of its lease, None without one.
    - `held_until`: the end of the lease, in Unix seconds.
    """

    run_id: str
    status: RunStatus
    title: str
    model: str
    agent: str
    created: float
    updated: float
    records: int
    session_id: str | None = None
    principal: str | None = None
    parent_run_id: str | None = None
    owner: str | None = None
    held_until: float | None = None


@quick()
class SessionInfo:
    """Runs that share a history.

    - `version`: counts the changes of the session (a run started, a new title).
    - `last_run`: the run that the next one follows.
    - `forked_from`: of a fork, the run it comes from, and how many of its records are shared.
    - `history`: the messages that a fork begins with; left out of lists.
    """

    session_id: str
    title: str
    created: float
    updated: float
    version: int = 0
    runs: int = 0
    last_run: str | None = None
    principal: str | None = None
    forked_from: tuple[str, int] | None = None
    history: tuple[Message, ...] = ()


@quick()
class SearchHit:
    """One hit of a search: the record, and the text around the words."""

    run_id: str
    seq: int
    session_id: str | None
    title: str
    time: float
    role: str
    snippet: str


class Journal(Protocol):
    """Stores the records of runs. Several processes may use one store at the same time.

    Every method raises JournalError if the store cannot be read or written. Then it has changed nothing.
    """

    async def append(self, record: Record, lease: Lease | None = None) -> None:
        """Returns once the record is durable.

        If the caller is cancelled meanwhile, either the cancellation is raised and the record is not written, or this
        returns, and the cancellation is raised at the caller's next `await`. So the caller always knows which.

        A `RunStarted` in a session creates the session (version 0) or changes it. Raises RunConflict if `seq` is not
        the run's next or `session_version` is not the session's: another process continued it. Raises LeaseLost if
        the lease is not the run's newest, or the run has one and none is passed.
        """
        ...

    async def read(self, run_id: str, start: int = 0, most: int | None = None) -> Sequence[Record]:
        """Returns the run's records in order, from number `start` on, at most `most` (None: all); empty for an unknown
        run."""
        ...

    async def run(self, run_id: str) -> RunInfo | None:
        """Returns what lists show of a run; None for a run without records."""
        ...

    async def runs(
        self,
        *,
        prefix: str = "",
        session_id: str | None = None,
        status: RunStatus | None = None,
        principal: str | None = None,
        alone: bool = False,
        limit: int | None = None,
    ) -> Sequence[RunInfo]:
        """Returns the runs whose id begins with `prefix`, the newest first. `alone`: only runs outside a session."""
        ...

    async def acquire(self, run_id: str, owner: str, seconds: float) -> Lease:
        """Takes the lease of a run, new or not, for so many seconds. Raises RunBusy while another holds one.

        A lease ends early if its owner was a process of this machine and is dead (see `journal.leases`).
        """
        ...

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Extends the lease to so many seconds from now. Returns whether its holder was asked to suspend the run.

        Raises LeaseLost if the run was taken over or released.
        """
        ...

    async def ask_to_suspend(self, run_id: str) -> bool:
        """Asks the holder of the run to suspend it: `renew` returns that. False if the run has no holder.

        The request ends with the lease: a later holder does not get it.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Ends the lease. Nothing happens if the run was taken over."""
        ...

    async def session(self, session_id: str) -> SessionInfo | None:
        """Returns a session with its `history`; None for an unknown one."""
        ...

    async def sessions(self, *, principal: str | None = None, limit: int | None = None) -> Sequence[SessionInfo]:
        """Returns the sessions, the last used first."""
        ...

    async def add_session(self, session: SessionInfo, records: Sequence[Record] = ()) -> None:
        """Adds a session as it is, with the records of its runs, as a whole or not at all: a fork, an import.

        Raises RunConflict if the session or one of the runs exists.
        """
        ...

    async def rename_session(self, session_id: str, title: str, version: int) -> SessionInfo:
        """Gives a session another title. Raises RunConflict unless it exists with this version."""
        ...

    async def delete_session(self, session_id: str) -> None:
        """Removes a session for good, with its runs and the runs that their tools started.

        Raises RunBusy if one of them is held, and RunConflict if the session does not exist.
        """
        ...

    async def search(
        self, query: str, *, principal: str | None = None, private: bool = False, limit: int = 20
    ) -> Sequence[SearchHit]:
        """Returns the texts that contain all words of the query, the newest first. The last word may be a beginning.

        Searches what the user said, what the model answered and what the tools returned, in the runs of this principal;
        with None in all runs, or if `private` in those without a principal.
        """
        ...

    async def aclose(self) -> None:
        """Closes files and connections."""
        ...
