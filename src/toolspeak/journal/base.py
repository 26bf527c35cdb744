"""The contract of a journal: an append-only list of records per run, leases on runs, what comes for a run from outside,
and sessions of runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Literal, Protocol

from toolspeak.data.events import Record
from toolspeak.data.messages import JSON, Message
from toolspeak.data.run_values import RunStatus
from toolspeak.data.values import quick


@quick()
class Lease:
    """The right to drive a run, until another process takes the run over. Every takeover has a higher epoch.

    - `followed`: a process follows the run (`Requests.follow`).
    - `took_over`: the holder before did not release its lease: its process was lost.
    """

    run_id: str
    owner: str
    epoch: int
    followed: bool = False
    took_over: bool = False


@quick()
class Requests:
    """What other processes ask of the holder of a lease.

    - `suspend`: to suspend the run.
    - `follow`: to publish the run's deltas, because a process follows the run.
    - `read`: to read the run's inputs, because a message came for it.
    """

    suspend: bool = False
    follow: bool = False
    read: bool = False


InputKind = Literal["decision", "event", "message", "resume"]


@quick()
class RunInput:
    """An input for a run from another process. It is stored beside the records, because only the holder of the lease
    writes those. The next process that drives the run turns it into a record.

    - `kind`: a decision about a call, an event, a user's message, or the wish that a suspended run goes on.
    - `name`: the call's id, or the event's name.
    - `key`: of the same kind and key, the first one counts.
    - `data`: the decision, the payload or the message.
    - `principal`: who sent it.
    - `time`: when it was stored, in Unix seconds.
    - `taken_by`: the run that has it, which may be a sub-run. None: no run yet.
    """

    run_id: str
    kind: InputKind
    name: str
    key: str
    data: JSON = None
    principal: str | None = None
    time: float = 0.0
    taken_by: str | None = None


@quick()
class RunInfo:
    """A run as lists show it, derived from the run's records and its lease.

    - `created`: the run's start, in Unix seconds.
    - `updated`: the last change of its status, in Unix seconds.
    - `records`: the number of its records.
    - `owner`: the holder of its lease; None without a lease.
    - `held_until`: the end of its lease, in Unix seconds.
    - `due`: from when on a worker may drive the run, in Unix seconds. None: not before something comes from outside.
    - `folder`, `dialect`: those in the run's settings (`RunStarted.setup`); None if they do not say.
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
    due: float | None = None
    folder: str | None = None
    dialect: str | None = None


@quick()
class SessionInfo:
    """Runs that share a history.

    - `version`: the number of changes to the session (a new run, a new title).
    - `last_run`: the newest run, whose history the next run continues.
    - `forked_from`: in a fork, the run that it was forked from and the number of that run's records that it shares.
    - `history`: in a fork, its first messages. Lists leave it out.
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
    """A record that a search found, and the text around the words."""

    run_id: str
    seq: int
    session_id: str | None
    title: str
    time: float
    role: str
    snippet: str


class Journal(Protocol):
    """Stores the records of runs. Several processes may use one store at the same time.

    Every method raises JournalError if the store cannot be read or written. In that case it changes nothing.
    """

    async def append(self, record: Record, lease: Lease | None = None) -> None:
        """Appends a record. Returns once it is durable.

        If the caller is cancelled during the call, there are two cases, so the caller always knows the outcome:

        - The record is not written, and this method raises the cancellation.
        - The record is written, and this method returns. The caller's next `await` raises the cancellation.

        A `RunStarted` in a session creates the session (version 0) or changes it.

        Raises RunConflict if `seq` is not the run's next number or `session_version` is not the session's version:
        another process has continued the run or the session. Raises LeaseLost if `lease` is not the run's newest lease,
        or if the run has a lease and `lease` is None.
        """
        ...

    async def read(self, run_id: str, start: int = 0, most: int | None = None) -> Sequence[Record]:
        """Returns the run's records in order: at most `most` of them (None: all), from number `start`. Returns an empty
        sequence for an unknown run."""
        ...

    async def run(self, run_id: str) -> RunInfo | None:
        """Returns the run's info; None for a run without records."""
        ...

    async def runs(
        self,
        *,
        prefix: str = "",
        session_id: str | None = None,
        status: RunStatus | None = None,
        principal: str | None = None,
        alone: bool = False,
        agent: str | None = None,
        model: str | None = None,
        folder: str | None = None,
        dialect: str | None = None,
        parent_run_id: str | None = None,
        after: tuple[float, str] | None = None,
        oldest_first: bool = False,
        limit: int | None = None,
    ) -> Sequence[RunInfo]:
        """Returns the runs with an id that begins with `prefix`, newest first or oldest first.

        - `alone`: only runs outside a session that no tool of another run started.
        - `agent`, `model`, `folder`, `dialect`, …: only runs with this value in their `RunInfo`.
        - `after`: only runs that come after the run with these values of `created` and `run_id`, which need not exist.
        """
        ...

    async def acquire(self, run_id: str, owner: str, seconds: float, *, takes_over: str | None = None) -> Lease:
        """Takes the lease of a run for `seconds`. The run may be new. Raises RunBusy while another owner holds a lease.

        A lease ends early if its owner is a process of this machine that has died (see `journal.leases`), or if it was
        taken for the engine `takes_over`, which knows that the owner is gone.
        """
        ...

    async def renew(self, lease: Lease, seconds: float) -> Requests:
        """Extends the lease to `seconds` from now. Returns what other processes ask of its holder.

        Raises LeaseLost if the run was taken over or released.
        """
        ...

    async def ask_to_suspend(self, run_id: str) -> bool:
        """Requests that the run's holder suspend it: the holder's next `renew` returns True. Returns False if the run
        has no holder.

        The request ends with the lease, so a later holder does not receive it.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Ends the lease. Does nothing if the run was taken over."""
        ...

    async def due_runs(
        self, now: float, *, agents: Collection[str], without: Collection[str] = (), limit: int = 100
    ) -> Sequence[RunInfo]:
        """Returns runs of these agents that a worker should drive: those whose process died, and then those that are
        due at `now` (Unix seconds), the longest due first. Leaves out runs that a process holds, runs that tools
        started, and the runs of the principals `without`."""
        ...

    async def add_input(self, new: RunInput) -> RunInput:
        """Stores what came for a run, and returns what is stored under its kind and key: this, or an earlier one.

        The run is due at once then, unless it has ended; a suspended one only by a `resume`. Raises RunError if the
        journal does not have the run.
        """
        ...

    async def inputs(self, run_id: str, *, driver: bool = False) -> Sequence[RunInput]:
        """Returns what came for a run, in order. `driver`: the run's driver asks, and has seen them now: a pause that
        follows does not make the run due for them again."""
        ...

    async def take_input(self, entry: RunInput, run_id: str) -> bool:
        """Gives an input to a run: its own, or the sub-run that waits for it. False if another run has it."""
        ...

    async def publish(self, run_id: str, text: str) -> None:
        """Shows a text to the processes that follow the run. It is not stored for long, and who reads slowly loses it.
        An empty text only says that there may be new records."""
        ...

    def follow(self, run_id: str) -> AsyncGenerator[str]:
        """Yields what is published of a run, and "" when there may be new records: at least every second. While it is
        read, `Requests.follow` is set for the holder of the run."""
        ...

    async def session(self, session_id: str) -> SessionInfo | None:
        """Returns a session with its `history`; None for an unknown session."""
        ...

    async def sessions(
        self, *, principal: str | None = None, after: tuple[float, str] | None = None, limit: int | None = None
    ) -> Sequence[SessionInfo]:
        """Returns the sessions, the most recently used first. `after`: only those that come after the session with
        these values of `updated` and `session_id`."""
        ...

    async def add_session(self, session: SessionInfo, records: Sequence[Record] = ()) -> None:
        """Adds a fork or an import: a session with the records of its runs, in one transaction.

        Raises RunConflict if the session or one of the runs already exists.
        """
        ...

    async def rename_session(self, session_id: str, title: str, version: int) -> SessionInfo:
        """Changes a session's title. Raises RunConflict unless the session exists at this version."""
        ...

    async def delete_session(self, session_id: str) -> None:
        """Deletes a session permanently, with its runs and the runs that their tools started.

        Raises RunBusy if another process holds one of the runs, and RunConflict if the session does not exist.
        """
        ...

    async def search(
        self, query: str, *, principal: str | None = None, private: bool = False, limit: int = 20
    ) -> Sequence[SearchHit]:
        """Returns the texts that contain all words of the query, newest first. The last word may be a prefix.

        Searches the user's messages, the model's answers and the tools' results, in the runs of `principal`. If
        `principal` is None, it searches all runs, or with `private` only runs without a principal.
        """
        ...

    async def aclose(self) -> None:
        """Closes files and connections."""
        ...
