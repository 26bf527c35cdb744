"""What operators do with a journal in a database: check it, count what it holds, and remove runs for good."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

from toolspeak.data.events import Record
from toolspeak.data.run_values import UNFINISHED_STATUSES, RunStatus
from toolspeak.data.values import quick
from toolspeak.journal.base import Journal, RunInfo, SessionInfo


@quick()
class JournalFinding:
    """Something that a check of a journal found.

    - `kind`: `damage` if something that was recorded cannot be read, or is missing. `note` if nothing is lost.
    - `run_id`: the run that it is about; None for the store as a whole.
    """

    kind: Literal["damage", "note"]
    text: str
    run_id: str | None = None


@quick()
class RunGroup:
    """Runs that belong together: those of a session, or one run outside of sessions; each with the runs that its tools
    started.

    - `session`: the session with its history; None for a run outside of sessions.
    - `runs`: each run after the run whose tool started it.
    """

    session: SessionInfo | None
    runs: Sequence[RunInfo]

    @property
    def is_finished(self) -> bool:
        """Whether no run of the group can go on."""
        return not any(run.status in UNFINISHED_STATUSES for run in self.runs)

    @property
    def name(self) -> str:
        """The group for people: a session, or a run."""
        return f"run {self.runs[0].run_id}" if self.session is None else f"session {self.session.session_id}"


@quick()
class MonthCount:
    """The runs that began in a month (`2026-11`, UTC) and have a status. `size`: the bytes of their records, without
    large contents."""

    month: str
    status: RunStatus
    runs: int
    records: int
    size: int


@quick()
class JournalStatistics:
    """What a journal holds.

    - `months`: by the month in which runs began, and their status.
    - `sessions`: the number of sessions.
    - `contents`, `contents_size`: the number of contents that are stored separately, and their bytes.
    - `size`: the bytes that the store takes. `free`: those of them that later records use, where the store says so.
    - `schema`: the version of the tables.
    """

    months: Sequence[MonthCount]
    sessions: int
    contents: int
    contents_size: int
    size: int
    free: int | None
    schema: int


@quick()
class OpenRuns:
    """The runs of a journal that have not ended.

    - `counts`: by status. Runs that a process left without an end count as `running`.
    - `due`: how many a worker may drive now, and none does.
    - `due_since`: since when the first of them waits, in Unix seconds; None without one.
    - `waiting_since`: by status, when the oldest run came to it, in Unix seconds.
    """

    counts: Mapping[RunStatus, int]
    due: int
    due_since: float | None
    waiting_since: Mapping[RunStatus, float]


@runtime_checkable
class MaintainedJournal(Journal, Protocol):
    """A journal in a database, with what its operators need. Every method raises JournalError as those of `Journal`."""

    async def run_page(self, after: int = 0, limit: int = 200) -> Sequence[tuple[int, RunInfo]]:
        """Returns at most `limit` runs in the order in which the journal got them, each with its number. `after`: the
        number of the last run of the page before."""
        ...

    async def faults(self) -> Sequence[JournalFinding]:
        """Checks the tables as a whole: what no single run shows."""
        ...

    async def statistics(self) -> JournalStatistics:
        """Counts what the journal holds. Reads all of it."""
        ...

    async def open_runs(self) -> OpenRuns:
        """Counts the runs that have not ended. Reads no records."""
        ...

    def groups(
        self, *, since: float = 0.0, before: float = math.inf, principal: str | None = None
    ) -> AsyncGenerator[RunGroup]:
        """Yields the groups whose session or first run last changed from `since` up to but not including `before` (Unix
        seconds). `principal`: only those on whose behalf it acts."""
        ...

    async def group_of(self, run_id: str) -> RunGroup | None:
        """Returns the group that a run belongs to; None for a run that the journal does not have."""
        ...

    async def session_group(self, session_id: str) -> RunGroup | None:
        """Returns the group of a session; None for an unknown session."""
        ...

    async def add_runs(self, groups: Sequence[Sequence[Record]]) -> None:
        """Adds runs outside of sessions, each with the runs that its tools started, in one transaction.

        Raises RunConflict if the journal has one of the runs, and JournalError unless the records of each run are
        complete and in order. Then it adds none.
        """
        ...

    async def delete_group(self, group: RunGroup) -> None:
        """Deletes a group permanently, as it is in `group`.

        Raises RunConflict if it has changed since, and RunBusy if a process holds one of its runs.
        """
        ...

    async def erase_principal(self, principal: str) -> tuple[int, int]:
        """Deletes the runs and sessions of a principal permanently, whatever their status, and what their tools
        started. Returns how many runs and sessions. Removes their text from the store's files too, as far as the store
        can: see the guide about operating a journal.

        Raises RunBusy if a process holds one of the runs, and JournalError if other processes keep the store from
        removing the text.
        """
        ...

    async def vacuum(self, *, full: bool = False) -> tuple[int, int]:
        """Gives space that deleted runs took back to the system. Returns the bytes of the store before and after.

        Other processes can go on meanwhile. `full` rebuilds the store, which keeps them out; raises JournalError if the
        store cannot be rebuilt while they use it.
        """
        ...
