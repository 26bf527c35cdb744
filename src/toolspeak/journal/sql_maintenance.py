"""What SQLite and PostgreSQL share of `MaintainedJournal`. Statements are as in `journal.sql`, with two more
placeholders: `{month}`, the month in which a row of `runs` began, and `{bytes}`, the size of a record's JSON."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

from toolspeak.data.events import Record
from toolspeak.data.run_values import UNFINISHED_STATUSES, RunStatus
from toolspeak.errors import JournalError, RunConflict
from toolspeak.journal.base import RunInfo
from toolspeak.journal.leases import Connection, busy, is_dead
from toolspeak.journal.maintenance import JournalFinding, JournalStatistics, MonthCount, OpenRuns, RunGroup
from toolspeak.journal.records import check_lone_runs, plain
from toolspeak.journal.sql import SqlJournal
from toolspeak.journal.sql_runs import RUN_COLUMNS
from toolspeak.journal.sql_schema import SPAN, VERSION

_PAGE = 200
_MOST = 100
"""The most findings of one kind."""

_COUNTS = f"""\
SELECT {{month}}, status, count(*), coalesce(sum(records), 0), coalesce(sum(size), 0) FROM runs LEFT JOIN (
    SELECT pos / {SPAN} AS number, count(*) AS records, sum({{bytes}}) AS size FROM records GROUP BY pos / {SPAN}
) AS sizes ON sizes.number = runs.number WHERE created IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"""

_MEMBERS = """\
WITH RECURSIVE mine(run_id) AS (
    SELECT run_id FROM runs WHERE created IS NOT NULL AND {which} = $1
    UNION SELECT runs.run_id FROM runs, mine WHERE runs.parent_run_id = mine.run_id AND runs.session_id IS NULL
)
SELECT run_id, number, owner, held_until, {now} FROM runs WHERE run_id IN (SELECT run_id FROM mine)
ORDER BY number {update}"""
"""The runs with a column's value, and the runs that their tools started."""

_LONE = """created IS NOT NULL AND session_id IS NULL AND NOT EXISTS (
    SELECT 1 FROM runs AS parents WHERE parents.run_id = runs.parent_run_id AND parents.created IS NOT NULL)"""
"""Runs outside of sessions that no run of this journal started."""

_OPEN = ", ".join(f"'{status}'" for status in UNFINISHED_STATUSES)

_OPEN_COUNTS = f"""\
SELECT status, count(*), min(updated) FROM runs WHERE created IS NOT NULL AND status IN ({_OPEN}) GROUP BY status"""

_DUE = """\
SELECT count(*), min(due) FROM runs
WHERE created IS NOT NULL AND parent_run_id IS NULL AND owner IS NULL AND due <= $1"""

_SUSPECT: Sequence[tuple[str, str]] = (
    (
        f"SELECT DISTINCT pos / {SPAN} FROM records WHERE pos / {SPAN} NOT IN (SELECT number FROM runs)",
        "there are records of a run that is not listed (number {})",
    ),
    (
        "SELECT DISTINCT run_id FROM inputs WHERE run_id NOT IN (SELECT run_id FROM runs)",
        "a decision or an event has come for run {}, which is missing",
    ),
    (
        "SELECT DISTINCT digest FROM blob_uses WHERE digest NOT IN (SELECT digest FROM blobs)",
        "the content {} of a record is missing",
    ),
    (
        "SELECT run_id FROM runs WHERE session_id IS NOT NULL AND session_id NOT IN (SELECT session_id FROM sessions)",
        "the session of run {} is missing",
    ),
    (
        "SELECT session_id FROM sessions WHERE last_run IS NOT NULL AND last_run NOT IN (SELECT run_id FROM runs)",
        "the last run of session {} is missing",
    ),
)
"""Queries for what is damaged, and the text for each row."""

_PARENTLESS = """\
SELECT run_id, parent_run_id FROM runs WHERE parent_run_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM runs AS parents WHERE parents.run_id = runs.parent_run_id)"""


class MaintainedSqlJournal(SqlJournal):
    """The methods of `MaintainedJournal` that SQLite and PostgreSQL share."""

    @abstractmethod
    async def _apart(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        """The rows of a query that may take long. Other tasks run meanwhile."""

    @abstractmethod
    async def _store_faults(self) -> Sequence[JournalFinding]:
        """What the database itself finds wrong with its tables."""

    @abstractmethod
    async def _store_size(self) -> tuple[int, int | None]:
        """The bytes that the store takes, and those of them that are free, if it says so."""

    @abstractmethod
    async def _before_erasing(self) -> None:
        """Raises JournalError if nothing can be erased now."""

    @abstractmethod
    async def _after_erasing(self) -> None:
        """Removes what deleted rows left in the store's files."""

    async def run_page(self, after: int = 0, limit: int = _PAGE) -> Sequence[tuple[int, RunInfo]]:
        page = f"SELECT * FROM runs WHERE created IS NOT NULL AND number > $1 ORDER BY number LIMIT {int(limit)}"
        columns = RUN_COLUMNS.rstrip().removesuffix("FROM")
        async with self._reading() as db:
            rows = await db.rows(f"{columns}, number FROM ({page}) AS runs ORDER BY number", after)
        return [(row[-1], RunInfo(*row[:-1])) for row in rows]

    async def faults(self) -> Sequence[JournalFinding]:
        findings = [*await self._store_faults()]
        for sql, text in _SUSPECT:
            for (each,) in await self._apart(f"{sql} LIMIT {_MOST}"):
                findings.append(JournalFinding("damage", text.format(each)))
        for run_id, parent in await self._apart(f"{_PARENTLESS} LIMIT {_MOST}"):
            text = f"run {run_id} was started by a tool of run {parent}, which this journal does not have"
            findings.append(JournalFinding("note", text, run_id))
        leases = f"SELECT run_id, owner, {{held}} FROM runs WHERE created IS NULL AND owner IS NOT NULL LIMIT {_MOST}"
        for run_id, owner, until in await self._apart(leases):
            if until <= time.time() or is_dead(owner):
                text = f"there is a lease on run {run_id}, which never began: its process died before"
                findings.append(JournalFinding("note", text, run_id))
        return findings

    async def statistics(self) -> JournalStatistics:
        months = [MonthCount(row[0], row[1], *map(int, row[2:])) for row in await self._apart(_COUNTS)]
        ((sessions,),) = await self._apart("SELECT count(*) FROM sessions")
        ((contents, contents_size),) = await self._apart("SELECT count(*), coalesce(sum(length(data)), 0) FROM blobs")
        size, free = await self._store_size()
        return JournalStatistics(months, sessions, contents, int(contents_size), size, free, VERSION)

    async def open_runs(self) -> OpenRuns:
        rows = await self._apart(_OPEN_COUNTS)
        ((due, since),) = await self._apart(_DUE, time.time())
        counts = cast("Mapping[RunStatus, int]", {status: count for status, count, _ in rows})
        return OpenRuns(counts, due, since, cast("Mapping[RunStatus, float]", {row[0]: row[2] for row in rows}))

    # --- groups -----------------------------------------------------------------------------------------------------

    async def groups(
        self, *, since: float = 0.0, before: float = math.inf, principal: str | None = None
    ) -> AsyncGenerator[RunGroup]:
        name = None if principal is None else plain(principal)
        where = "updated >= $1 AND updated < $2 AND (CAST($3 AS TEXT) IS NULL OR principal = $3)"
        arguments = (float(since), float(before), name)
        sessions = f"SELECT session_id FROM sessions WHERE {where} AND session_id > $4 ORDER BY session_id"
        async for (session_id,) in self._rows_in_pages(sessions, arguments, ""):
            group = await self.session_group(session_id)
            if group is not None:
                yield group
        runs = f"SELECT number, run_id FROM runs WHERE {where} AND number > $4 AND {_LONE} ORDER BY number"
        async for _, run_id in self._rows_in_pages(runs, arguments, 0):
            group = await self._lone_group(run_id)
            if group is not None:
                yield group

    async def _rows_in_pages(self, sql: str, arguments: Sequence[Any], last: Any) -> AsyncGenerator[Sequence[Any]]:
        """The rows of a query, read in pages. $4 is the first column of the row before, `last` at first."""
        while True:
            async with self._reading() as db:
                rows = await db.rows(f"{sql} LIMIT {_PAGE}", *arguments, last)
            for row in rows:
                yield row
            if len(rows) < _PAGE:
                return
            last = rows[-1][0]

    async def group_of(self, run_id: str) -> RunGroup | None:
        info = await self.run(run_id)
        while info is not None and info.session_id is None and info.parent_run_id is not None:
            parent = await self.run(info.parent_run_id)
            if parent is None:
                break
            info = parent
        if info is None:
            return None
        return await (self._lone_group(info.run_id) if info.session_id is None else self.session_group(info.session_id))

    async def session_group(self, session_id: str) -> RunGroup | None:
        async with self._reading() as db:
            session = await self._session(db, session_id)
            return None if session is None else RunGroup(session, await self._members(db, "session_id", session_id))

    async def _lone_group(self, run_id: str) -> RunGroup | None:
        async with self._reading() as db:
            runs = await self._members(db, "run_id", run_id)
        return RunGroup(None, runs) if runs else None

    async def _members(self, db: Connection, column: str, name: str) -> Sequence[RunInfo]:
        """A group's runs in the order in which they came: a tool's run comes after the run of the tool."""
        infos: list[RunInfo] = []
        for _, number, _, _, _ in await db.rows(_members(column).replace("{update}", ""), name):
            rows = await db.rows(f"{RUN_COLUMNS}runs WHERE created IS NOT NULL AND number = $1", number)
            infos += [RunInfo(*row) for row in rows]
        return infos

    async def add_runs(self, groups: Sequence[Sequence[Record]]) -> None:
        for records in groups:
            check_lone_runs(records)
        async with self._writing() as db:
            for records in groups:
                run_id = records[0].run_id
                conflict = RunConflict(f"run {run_id} or one that its tools started is in this journal already")
                await self._add_all(db, records, conflict)

    async def delete_group(self, group: RunGroup) -> None:
        session = group.session
        async with self._writing(synced=True) as db:
            column, name = ("run_id", group.runs[0].run_id) if session is None else ("session_id", session.session_id)
            rows = await db.rows(_members(column), name)
            _check_free(rows)
            now = [(info.run_id, info.status, info.records) for info in await self._members(db, column, name)]
            current_session = None if session is None else await self._session(db, session.session_id)
            if now != [(info.run_id, info.status, info.records) for info in group.runs] or current_session != session:
                raise RunConflict(f"{group.name} has changed meanwhile, so it was not deleted")
            await self._delete_runs(db, [(row[0], row[1]) for row in rows])
            if session is not None:
                await db.change("DELETE FROM sessions WHERE session_id = $1", session.session_id)

    async def erase_principal(self, principal: str) -> tuple[int, int]:
        if plain(principal) != principal or not principal:
            raise JournalError("the principal's name is empty or holds NUL or a lone surrogate: nothing was erased")
        await self._before_erasing()
        async with self._writing(synced=True) as db:
            rows = [*await db.rows(_members("principal"), principal)]
            _check_free(rows)
            sessions = await db.rows("SELECT session_id FROM sessions WHERE principal = $1", principal)
            await self._delete_runs(db, [(row[0], row[1]) for row in rows])
            await db.change("DELETE FROM sessions WHERE principal = $1", principal)
        await self._after_erasing()
        return len(rows), len(sessions)


def _members(column: str) -> str:
    return _MEMBERS.replace("{which}", column)


def _check_free(rows: Sequence[Sequence[Any]]) -> None:
    """Raises RunBusy if a process holds one of the runs in the rows of `_MEMBERS`."""
    for run_id, _, owner, until, now in rows:
        if owner is not None and until > now and not is_dead(owner):
            raise busy(run_id, owner, until - now)
