"""SQLite as `journal.sql` writes to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from toolspeak.journal.stretches import END

ResultT = TypeVar("ResultT")

_WALL = "((julianday('now') - 2440587.5) * 86400.0)"
_FILL = {
    "{now}": "lease_now()",  # made by `sqlite_file.clocked`
    "{held}": f"held_until + CASE WHEN abs(lease_now() - {_WALL}) < 1 THEN 0 ELSE {_WALL} - lease_now() END",
    "{share}": "",
    "{update}": "",
    "{found}": "rowid",
    "{end}": END,
    "{unless}": "",
}


class SqliteConnection:
    """Implements `Connection` without ever waiting: what is done in it is done at one go."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        return self._execute(sql, arguments).fetchall()

    async def change(self, sql: str, *arguments: Any) -> int:
        return self._execute(sql, arguments).rowcount

    def _execute(self, sql: str, arguments: Sequence[Any]) -> sqlite3.Cursor:
        # To SQLite `$1` is a name, and from Python 3.14 on a name is only filled from a mapping.
        return self.db.execute(_own(sql), dict(zip(_NUMBERS, arguments, strict=False)))


@lru_cache(256)
def _own(sql: str) -> str:
    for name, text in _FILL.items():
        sql = sql.replace(name, text)
    return sql


_NUMBERS = [str(number) for number in range(1, 100)]


def at_once(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Runs a coroutine that never waits, and gives what it returns."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a statement waited inside of a transaction")
