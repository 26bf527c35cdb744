"""Runs in a database: their lists and those of sessions, what comes for a run from outside, which runs are due, and who
follows one. Statements are as in `journal.sql`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from toolspeak.data.codec import dump_text, load, load_text
from toolspeak.data.events import Record, RunConfigured, RunFinished, RunPaused
from toolspeak.data.messages import Message
from toolspeak.data.run_values import UNFINISHED_STATUSES, RunStatus
from toolspeak.journal.base import RunInfo, RunInput, SessionInfo
from toolspeak.journal.leases import Connection, SqlLeases, is_held
from toolspeak.journal.records import plain, status_after, unknown_run
from toolspeak.journal.sql_schema import SPAN

RUN_COLUMNS = f"""
SELECT run_id, status, title, model, agent, created, updated,
    {{end}} - number * {SPAN}, session_id, principal, parent_run_id, owner, {{held}}, due, folder, dialect
FROM """
"""The fields of a `RunInfo`. A table `runs` follows."""

RUN = f"{RUN_COLUMNS}runs WHERE created IS NOT NULL"

SESSION = """
SELECT session_id, title, created, updated, version, runs, last_run, principal, forked_run, forked_seq, {history}
FROM sessions"""

_OPEN = ", ".join(f"'{status}'" for status in UNFINISHED_STATUSES)
_INPUT = "SELECT run_id, kind, name, key, data, principal, time, taken_by, number, seen FROM inputs WHERE run_id = $1"

_PAUSE = """\
UPDATE runs SET status = $1, updated = $2, due = CASE
    WHEN EXISTS (SELECT 1 FROM inputs WHERE inputs.run_id = $3 AND seen = 0 AND ($1 <> 'suspended' OR kind = 'resume'))
    THEN $2 ELSE CAST($4 AS DOUBLE PRECISION) END
WHERE run_id = $3"""
"""Shows that a run has paused ($1: how, $2: when, $4: until when). It is due at once for what came meanwhile."""

FOLLOW_SECONDS = 15.0
"""How long a process counts as a follower of a run without saying so again."""


class SqlRuns(SqlLeases):
    """The methods of `Journal` that list runs and sessions, and those about inputs and due runs."""

    @abstractmethod
    def _reading(self) -> AbstractAsyncContextManager[Connection]:
        """A transaction that sees one state of the database."""

    async def run(self, run_id: str) -> RunInfo | None:
        async with self._reading() as db:
            rows = await db.rows(f"{RUN} AND run_id = $1", run_id)
        return RunInfo(*rows[0]) if rows else None

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
        where = {
            f"substr(run_id, 1, {len(prefix)}) = $": prefix or None,
            "session_id = $": session_id,
            "status = $": status,
            "principal = $": column_text(principal),
            "agent = $": column_text(agent),
            "model = $": column_text(model),
            "folder = $": column_text(folder),
            "dialect = $": column_text(dialect),
            "parent_run_id = $": column_text(parent_run_id),
        }
        outside = " AND session_id IS NULL AND parent_run_id IS NULL" if alone else ""
        query, arguments = _where(f"SELECT * FROM runs WHERE created IS NOT NULL{outside}", where)
        query, arguments = _after(query, arguments, "created", "run_id", after, oldest_first=oldest_first)
        order = "ORDER BY created, run_id" if oldest_first else "ORDER BY created DESC, run_id DESC"
        # Counts only the records of the runs that are listed, not of those beyond the limit.
        sql = f"{RUN_COLUMNS}({query} {order}{_limit(limit)}) AS runs {order}"
        async with self._reading() as db:
            rows = await db.rows(sql, *arguments)
        return tuple(RunInfo(*row) for row in rows)

    async def sessions(
        self, *, principal: str | None = None, after: tuple[float, str] | None = None, limit: int | None = None
    ) -> Sequence[SessionInfo]:
        query, arguments = _where(
            SESSION.replace("{history}", "NULL") + " WHERE 1 = 1", {"principal = $": column_text(principal)}
        )
        query, arguments = _after(query, arguments, "updated", "session_id", after)
        async with self._reading() as db:
            rows = await db.rows(f"{query} ORDER BY updated DESC, session_id DESC{_limit(limit)}", *arguments)
        return tuple(session_info(row) for row in rows)

    async def due_runs(
        self, now: float, *, agents: Collection[str], without: Collection[str] = (), limit: int = 100
    ) -> Sequence[RunInfo]:
        names, others = [plain(name) for name in agents], [plain(name) for name in without]
        if not names:
            return ()
        # An expression, so that no database looks for them by the agent, whose finished runs are many more.
        base_condition = f"created IS NOT NULL AND parent_run_id IS NULL AND agent || '' IN ({_places(2, len(names))})"
        if others:
            base_condition += f" AND (principal IS NULL OR principal NOT IN ({_places(2 + len(names), len(others))}))"
        arguments = (float(now), *names, *others)
        # Whose holder is dead is no question for a database. A dead one does not renew its lease, so it is among those
        # that end first.
        free_condition = f"{base_condition} AND due <= $1 AND owner IS NULL ORDER BY due LIMIT {int(limit)}"
        held_condition = (
            f"{base_condition} AND owner IS NOT NULL AND (status = 'running' OR due <= $1) ORDER BY held_until"
        )
        infos: dict[str, RunInfo] = {}
        async with self._reading() as db:
            for condition in (f"{held_condition} LIMIT {int(limit)}", free_condition):
                rows = await db.rows(f"{RUN_COLUMNS}(SELECT * FROM runs WHERE {condition}) AS runs", *arguments)
                infos.update({row[0]: RunInfo(*row) for row in rows})
        return tuple([info for info in infos.values() if not is_held(info)][:limit])

    async def add_input(self, new: RunInput) -> RunInput:
        async with self._writing(synced=True) as db:
            rows = await db.rows(
                "SELECT status FROM runs WHERE run_id = $1 AND created IS NOT NULL {update}", new.run_id
            )
            if not rows:
                raise unknown_run(new.run_id)
            await db.change(
                "INSERT INTO inputs (run_id, kind, name, key, data, principal, time, taken_by)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
                *(new.run_id, new.kind, plain(new.name), plain(new.key), dump_text(new.data)),
                *(None if new.principal is None else plain(new.principal), new.time, new.taken_by),
            )
            rows = await db.rows(f"{_INPUT} AND kind = $2 AND key = $3", new.run_id, new.kind, plain(new.key))
            entry, is_seen = _input(rows[0]), rows[0][9]
            if not is_seen:
                await db.change(
                    f"UPDATE runs SET due = $2 WHERE run_id = $1 AND status IN ({_OPEN})"
                    + ("" if new.kind == "resume" else " AND status <> 'suspended'"),
                    new.run_id,
                    new.time,
                )
            return entry

    async def inputs(self, run_id: str, *, driver: bool = False) -> Sequence[RunInput]:
        async with self._reading() as db:
            rows = await db.rows(f"{_INPUT} ORDER BY number", run_id)
        if driver and any(not row[9] for row in rows):
            async with self._writing() as db:
                await db.change("UPDATE inputs SET seen = 1 WHERE run_id = $1 AND number <= $2", run_id, rows[-1][8])
        return tuple(_input(row) for row in rows)

    async def take_input(self, entry: RunInput, run_id: str) -> bool:
        async with self._writing() as db:
            changed_rows = await db.change(
                "UPDATE inputs SET taken_by = $4, seen = 1 WHERE run_id = $1 AND kind = $2 AND key = $3"
                " AND (taken_by IS NULL OR taken_by = $4)",
                *(entry.run_id, entry.kind, plain(entry.key), run_id),
            )
        return changed_rows == 1

    async def _show(self, db: Connection, record: Record) -> None:
        """Changes what lists show of a run."""
        event, status = record.event, status_after(record.event)
        if isinstance(event, RunPaused):
            until = record.time if event.reason == "queued" and event.until is None else event.until
            await db.change(_PAUSE, status, record.time, record.run_id, until)
        elif isinstance(event, RunConfigured):
            if event.model is not None:
                await db.change("UPDATE runs SET model = $1 WHERE run_id = $2", plain(event.model), record.run_id)
        else:
            due = ", due = NULL" if isinstance(event, RunFinished) else ""
            await db.change(
                f"UPDATE runs SET status = $1, updated = $2{due} WHERE run_id = $3", status, record.time, record.run_id
            )

    async def _follow(self, run_id: str) -> None:
        """Notes that a process follows the run, for `FOLLOW_SECONDS`."""
        async with self._writing() as db:
            await db.change(
                "UPDATE runs SET followed = {now} + $2 WHERE run_id = $1 AND created IS NOT NULL",
                run_id,
                FOLLOW_SECONDS,
            )


def _places(first: int, count: int) -> str:
    return ", ".join(f"${number}" for number in range(first, first + count))


def _input(row: Sequence[Any]) -> RunInput:
    run_id, kind, name, key, data, principal, time, taken_by, _, _ = row
    return RunInput(run_id, kind, name, key, load_text(data), principal, time, taken_by)


def column_text(text: str | None) -> str | None:
    """A text as a column holds it."""
    return None if text is None else plain(text)


def session_info(row: Sequence[Any]) -> SessionInfo:
    """The session in a row of `SESSION`."""
    forked_run, forked_seq, history = row[8:]
    fork_place = None if forked_run is None else (forked_run, forked_seq)
    messages = cast("list[Any]", load_text(history)) if history else []
    message_values = tuple(cast("Message", load(message)) for message in messages)
    return SessionInfo(*row[:8], forked_from=fork_place, history=message_values)


def _where(sql: str, conditions: dict[str, Any]) -> tuple[str, list[Any]]:
    """The statement with each condition whose value is not None, and these values."""
    arguments = [value for value in conditions.values() if value is not None]
    conditions_given = [condition for condition, value in conditions.items() if value is not None]
    for number, condition in enumerate(conditions_given, 1):
        sql += " AND " + condition.replace("$", f"${number}")
    return sql, arguments


def _after(
    sql: str,
    arguments: list[Any],
    time: str,
    name: str,
    after: tuple[float, str] | None,
    *,
    oldest_first: bool = False,
) -> tuple[str, list[Any]]:
    """The statement for the rows that come after one with this time and name, newest first or oldest first."""
    if after is None:
        return sql, arguments
    first, second = len(arguments) + 1, len(arguments) + 2
    # The first condition is for the index on the time.
    sign = ">" if oldest_first else "<"
    sql += f" AND {time} {sign}= ${first} AND ({time}, {name}) {sign} (${first}, ${second})"
    return sql, [*arguments, float(after[0]), after[1]]


def _limit(limit: int | None) -> str:
    return "" if limit is None else f" LIMIT {int(limit)}"
