"""The lists of runs and sessions in a database. Statements are as in `journal.sql`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from toolspeak.data.codec import load, load_text
from toolspeak.data.messages import Message
from toolspeak.data.run_values import RunStatus
from toolspeak.journal.base import RunInfo, SessionInfo
from toolspeak.journal.records import plain
from toolspeak.journal.sql_inputs import RUN_COLUMNS, SqlInputs

RUN = f"{RUN_COLUMNS}runs WHERE created IS NOT NULL"

SESSION = """
SELECT session_id, title, created, updated, version, runs, last_run, principal, forked_run, forked_seq, {history}
FROM sessions"""


class SqlLists(SqlInputs):
    """The methods of `Journal` that list runs and sessions."""

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
        outside = " AND session_id IS NULL" if alone else ""
        query, arguments = _where(f"SELECT * FROM runs WHERE created IS NOT NULL{outside}", where)
        query, arguments = _after(query, arguments, "created", "run_id", after)
        order = "ORDER BY created DESC, run_id DESC"
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


def column_text(text: str | None) -> str | None:
    """A text as a column holds it."""
    return None if text is None else plain(text)


def session_info(row: Sequence[Any]) -> SessionInfo:
    """The session in a row of `SESSION`."""
    forked_run, forked_seq, history = row[8:]
    forked = None if forked_run is None else (forked_run, forked_seq)
    messages = cast("list[Any]", load_text(history)) if history else []
    message_values = tuple(cast("Message", load(message)) for message in messages)
    return SessionInfo(*row[:8], forked_from=forked, history=message_values)


def _where(sql: str, conditions: dict[str, Any]) -> tuple[str, list[Any]]:
    """The statement with each condition whose value is not None, and these values."""
    arguments = [value for value in conditions.values() if value is not None]
    conditions_given = [condition for condition, value in conditions.items() if value is not None]
    for number, condition in enumerate(conditions_given, 1):
        sql += " AND " + condition.replace("$", f"${number}")
    return sql, arguments


def _after(
    sql: str, arguments: list[Any], time: str, name: str, after: tuple[float, str] | None
) -> tuple[str, list[Any]]:
    """The statement for the rows that come after one with this time and name, newest first."""
    if after is None:
        return sql, arguments
    first, second = len(arguments) + 1, len(arguments) + 2
    # The first condition is for the index on the time.
    sql += f" AND {time} <= ${first} AND ({time}, {name}) < (${first}, ${second})"
    return sql, [*arguments, float(after[0]), after[1]]


def _limit(limit: int | None) -> str:
    return "" if limit is None else f" LIMIT {int(limit)}"
