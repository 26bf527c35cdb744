"""The journal in PostgreSQL, for runs on many machines. Needs the extra `postgres` (asyncpg)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it has none

from toolspeak.data.events import Record
from toolspeak.errors import JournalError
from toolspeak.journal.base import Lease
from toolspeak.journal.commits import unbroken
from toolspeak.journal.schema import SPAN, VERSION, newer, steps_from
from toolspeak.journal.sql import SqlJournal
from toolspeak.journal.stored import Row

_TYPES = {
    "integer": "BIGINT",
    "number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "key": "BIGINT PRIMARY KEY",
    "real": "DOUBLE PRECISION",
    "bytes": "BYTEA",
    "found": "CREATE TABLE found (pos BIGINT PRIMARY KEY, words TSVECTOR NOT NULL);\n"
    "CREATE INDEX found_by_words ON found USING gin (words)",
    "arrivals": "",  # its tables are in that order anyway
    "sums": "",  # the server sees to it (data_checksums)
    "clocks": "",  # it has one
}
_FILL = {
    "{now}": "extract(epoch FROM clock_timestamp())::double precision",
    "{held}": "held_until",
    "{share}": "FOR SHARE",
    "{update}": "FOR UPDATE",
    "{found}": "pos",
    "{end}": f"""(
        SELECT max(pos) + 1 FROM records WHERE pos >= runs.number * {SPAN} AND pos < (runs.number + 1) * {SPAN})""",
    "{unless}": "ON CONFLICT (pos) DO NOTHING",
}
_MIGRATING = 0x7453706B  # the advisory lock under which tables are made: any number that is ours
_TRIES = 5

_AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.ForeignKeyViolationError)
"""What two transactions may do to each other (an equal content stored and removed at once): one is done again."""

_REMEDIES: Sequence[tuple[type[BaseException], str]] = (
    (asyncpg.DiskFullError, "the server's disk is full: free some space there"),
    (asyncpg.ReadOnlySQLTransactionError, "the server takes no changes (a standby?): name the primary"),
    (asyncpg.InsufficientPrivilegeError, "give the user the right to create and write tables in the schema"),
    (asyncpg.InvalidAuthorizationSpecificationError, "check the user and the password"),
    (asyncpg.InvalidCatalogNameError, "make the database first (createdb)"),
    (asyncpg.DataCorruptedError, "the server's data is damaged: restore it from a backup"),
    (asyncpg.TooManyConnectionsError, "the server has no connection left: raise max_connections, or lower pool_size"),
    (asyncpg.InternalClientError, "the connection was cut: try again, and see the server's log"),
    (OSError, "check that the server runs and can be reached there"),
    (TimeoutError, "the server did not answer in time: check that it runs and can be reached"),
)


class PostgresJournal(SqlJournal):
    """Implements `Journal` in a PostgreSQL database (12 or newer), in tables of the given schema, made when needed.

    `dsn` is a connection URL (`postgresql://user@host/database`). Every record is durable as the server's
    `synchronous_commit` says: by default, on its disk. Leases go by the server's clock. `seconds` is how long one
    statement may take.
    """

    def __init__(self, dsn: str, *, schema: str = "toolspeak", pool_size: int = 10, seconds: float = 60.0) -> None:
        self._dsn = dsn
        self._schema = schema
        self._size = pool_size
        self._seconds = seconds
        # A pool belongs to its event loop, and a journal may be used from several, one after the other.
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Any]] = (
            weakref.WeakKeyDictionary()
        )

    def __str__(self) -> str:
        parts = urlsplit(self._dsn)
        return f"postgresql://{parts.hostname or ''}{parts.path}"  # without the password

    async def append(self, record: Record, lease: Lease | None = None) -> None:
        # Broken off, it would leave open whether the server has committed it.
        await unbroken(asyncio.ensure_future(self._append(record, lease)))

    async def _append(self, record: Record, lease: Lease | None) -> None:
        for _ in range(_TRIES - 1):
            try:
                return await super().append(record, lease)
            except _AgainError:
                continue
        return await super().append(record, lease)

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[_Connection]:
        async with self._connection() as connection, connection.transaction():
            yield _Connection(connection)

    @asynccontextmanager
    async def _reading(self) -> AsyncGenerator[_Connection]:
        async with self._connection() as connection, connection.transaction(isolation="repeatable_read"):
            yield _Connection(connection)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Any]:
        try:
            pool = await self._pool()
            async with pool.acquire() as connection:
                yield connection
        except _AGAIN as error:
            raise _AgainError(self._problem(error)) from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            raise JournalError(self._problem(error)) from error

    def _problem(self, error: BaseException) -> str:
        remedy = next((text for kind, text in _REMEDIES if isinstance(error, kind)), "see the server's log")
        return f"the journal {self}: {error or type(error).__name__}; {remedy}. Nothing was done that is not recorded"

    async def _pool(self) -> Any:
        loop = asyncio.get_running_loop()
        opening = self._pools.get(loop)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
            opening = self._pools[loop] = loop.create_task(self._open())
        return await asyncio.shield(opening)

    async def _open(self) -> Any:
        pool: Any = await asyncpg.create_pool(  # pyright: ignore[reportUnknownMemberType]
            self._dsn,
            min_size=0,
            max_size=self._size,
            command_timeout=self._seconds,
            server_settings={"search_path": self._schema, "application_name": "toolspeak"},
        )
        try:
            async with pool.acquire() as connection, connection.transaction():
                await self._prepare(connection)
        except BaseException:
            await pool.close()
            raise
        return pool

    async def _prepare(self, connection: Any) -> None:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATING)
        version = 0
        if await connection.fetchval("SELECT to_regclass($1)", f'"{self._schema}".schema_version') is not None:
            version = await connection.fetchval("SELECT version FROM schema_version")
        if version > VERSION:
            raise JournalError(newer(f"the journal {self}", version))
        if version == VERSION:
            return
        if version == 0:
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
            await connection.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
            await connection.execute("INSERT INTO schema_version VALUES (0)")
        for statement in steps_from(version, _TYPES):
            await connection.execute(statement)
        await connection.execute("UPDATE schema_version SET version = $1", VERSION)

    async def _rows(self, db: Any, start: int, end: int, limit: int) -> Sequence[Row]:
        rows = await db.rows(
            "SELECT pos, data, places FROM records WHERE pos >= $1 AND pos < $2 ORDER BY pos LIMIT $3",
            start,
            end,
            limit,
        )
        return [tuple(row) for row in rows]

    async def _delete_records(self, db: Any, number: int) -> None:
        await db.change("DELETE FROM records WHERE pos >= $1 AND pos < $2", number * SPAN, (number + 1) * SPAN)

    async def _index(self, db: Any, pos: int, text: Sequence[str]) -> None:
        await db.change(
            "INSERT INTO found (pos, words) VALUES ($1, array_to_tsvector($2::text[]))", pos, sorted(set(text))
        )

    async def _matches(
        self, db: Any, wanted: Sequence[str], principal: str | None, private: bool, limit: int
    ) -> Sequence[int]:
        query = " & ".join(f"'{word}'" for word in wanted) + ":*"
        rows = await db.rows(
            f"SELECT found.pos FROM found JOIN runs ON runs.number = found.pos / {SPAN}"
            " WHERE found.words @@ $1::text::tsquery AND (runs.principal IS NOT DISTINCT FROM $2::text"
            " OR ($2::text IS NULL AND NOT $4::boolean))"
            " ORDER BY runs.created DESC, found.pos DESC LIMIT $3",
            query,
            principal,
            limit,
            private,
        )
        return [row[0] for row in rows]

    async def aclose(self) -> None:
        """Closes this event loop's connections."""
        opening = self._pools.pop(asyncio.get_running_loop(), None)
        if opening is not None and not opening.cancelled() and opening.exception() is None:
            await opening.result().close()


class _AgainError(JournalError):
    """Undone because of another transaction; the same may succeed now."""


class _Connection:
    """Implements `Connection` over an asyncpg connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        return await self._connection.fetch(_own(sql), *arguments)

    async def change(self, sql: str, *arguments: Any) -> int:
        done: str = await self._connection.execute(_own(sql), *arguments)
        return int(done.rpartition(" ")[2])


def _own(sql: str) -> str:
    for name, text in _FILL.items():
        sql = sql.replace(name, text)
    return sql
