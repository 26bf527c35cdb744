"""The contract of a journal: an append-only list of records per run, leases on runs, and sessions of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolspeak.data.events import Record, RunStatus
from toolspeak.data.messages import Message
from toolspeak.data.values import quick


@quick()
class Lease:
    """The right to go on with a run, until somebody takes it over: every takeover has a higher epoch."""

    run_id: str
    owner: str
    epoch: int


@quick()
class RunInfo:
    """What a list of runs shows of one; all of it follows from the run's records, and from its lease.

    `created` and `updated` are Unix seconds: of its first record, and of its last change of status. `records` is
    how many there are. `owner` holds the run until `held_until` (Unix seconds); None: nobody does.
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
    """Runs that share history. `version` counts its changes (a run started, a new title).

    `last_run` is the run the next one follows. A fork begins with `history` and says where it comes from:
    `forked_from` is a run and how many of its records are behind the fork. `history` is left out of lists.
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
    """A place that a search found: the record, and the text around the words."""

    run_id: str
    seq: int
    session_id: str | None
    title: str
    time: float
    role: str
    snippet: str


class Journal(Protocol):
    """Several processes may use one store at the same time. Every method raises JournalError when the store cannot
    be read or written; then nothing of what was asked has happened."""

    async def append(self, record: Record, lease: Lease | None = None) -> None:
        """Returns once the record is durable. When the caller is cancelled meanwhile, either the cancellation is raised
        and the record is not written, or this returns all the same, and the caller meets the cancellation at its next
        `await`: it always knows.

        A `RunStarted` in a session makes the session (version 0) or changes it. Raises RunConflict for a record whose
        `seq` is not the next of its run and for a `session_version` that is not the session's: somebody else has gone
        on with it. Raises LeaseLost when the lease is not the run's newest, or there is one and none is given.
        """
        ...

    async def read(self, run_id: str, start: int = 0, most: int | None = None) -> Sequence[Record]:
        """The run's records in order, from number `start` on, `most` of them (None: all); empty for a run it does not
        know."""
        ...

    async def run(self, run_id: str) -> RunInfo | None:
        """What is known of a run; None for one that has no records."""
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
        """The runs whose id begins with `prefix`, the newest first; `alone`: those outside of a session."""
        ...

    async def acquire(self, run_id: str, owner: str, seconds: float) -> Lease:
        """Takes a run, new or not, for so many seconds. Raises RunBusy while another's lease lasts.

        A lease whose owner was a process of this machine and is dead does not last (see `journal.owner`).
        """
        ...

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Holds the run for so many seconds from now; whether somebody has asked its holder to suspend it.

        Raises LeaseLost when it was taken over or released.
        """
        ...

    async def ask_to_suspend(self, run_id: str) -> bool:
        """Asks whoever holds the run to suspend it: `renew` tells them. False when nobody holds it.

        What is asked is asked of one lease: nobody who takes the run later hears of it.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Lets go of the run; nothing happens if it was taken over."""
        ...

    async def session(self, session_id: str) -> SessionInfo | None:
        """A session with its `history`; None for one it does not know."""
        ...

    async def sessions(self, *, principal: str | None = None, limit: int | None = None) -> Sequence[SessionInfo]:
        """The sessions, the last used first."""
        ...

    async def add_session(self, session: SessionInfo, records: Sequence[Record] = ()) -> None:
        """Adds a session as it is, with the records of its runs, at once or not at all: a fork, an import.

        Raises RunConflict if the session or one of the runs is there already.
        """
        ...

    async def rename_session(self, session_id: str, title: str, version: int) -> SessionInfo:
        """Gives a session another title. Raises RunConflict if its version is another, or there is none."""
        ...

    async def delete_session(self, session_id: str) -> None:
        """Removes a session with its runs, and those that their tools started, for good. Raises RunBusy if one of them
        is held, and RunConflict if there is no such session."""
        ...

    async def search(
        self, query: str, *, principal: str | None = None, private: bool = False, limit: int = 20
    ) -> Sequence[SearchHit]:
        """Where all words of the query stand in one text, the newest first; the last word may be a beginning.

        Searched are what the user said, what the model answered and what the tools returned, in the runs of this
        principal; of None in all runs, unless it is `private`: then in those that have none.
        """
        ...

    async def aclose(self) -> None:
        """Lets go of files and connections."""
        ...
