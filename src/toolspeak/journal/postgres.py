"""The journal in PostgreSQL, for runs on many machines. Needs the extra `postgres` (asyncpg)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from toolspeak.data.events import Record
from toolspeak.journal.base import Lease
from toolspeak.journal.commits import unbroken
from toolspeak.journal.maintenance import JournalFinding
from toolspeak.journal.postgres_listener import PostgresListener, channel_of
from toolspeak.journal.postgres_pool import AgainError, PostgresPool
from toolspeak.journal.records import CHANGES_OF_RUNS, Row, pack
from toolspeak.journal.sql_maintenance import MaintainedSqlJournal
from toolspeak.journal.sql_runs import FOLLOW_SECONDS
from toolspeak.journal.sql_schema import SPAN, VERSION, newer, steps_from

_TYPES = {
    "integer": "BIGINT",
    "number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "key": "BIGINT PRIMARY KEY",
    "real": "DOUBLE PRECISION",
    "bytes": "BYTEA",
    "found": "CREATE TABLE found (pos BIGINT PRIMARY KEY, words TSVECTOR NOT NULL);\n"
    "CREATE INDEX found_by_words ON found USING gin (words)",
    "arrivals": "",  # PostgreSQL's tables are in that order anyway
    "sums": "",  # the server computes checksums (data_checksums)
    "clocks": "",  # the server has one clock
    "pieces": "",  # NOTIFY carries them
    "vacuums": "",  # no process looks at the size of the server's files
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
    "{month}": "to_char(to_timestamp(created) AT TIME ZONE 'UTC', 'YYYY-MM')",
    "{bytes}": "octet_length(data)",
}


_TRIES = 5
_LONG_SECONDS = 86_400.0
"""The time limit of statements that read or rewrite whole tables."""
_TABLES = ("runs", "records", "blobs", "blob_uses", "sessions", "inputs", "found")


class PostgresJournal(MaintainedSqlJournal):
    """Implements `Journal` in a PostgreSQL database (12 or newer). Creates its tables when needed.

    - `dsn`: a connection URL (`postgresql://user@host/database`).
    - `schema`: the schema of the tables.
    - `pool_size`: the most open connections.
    - `seconds`: the time limit of one statement.

    The server's `synchronous_commit` decides when a record is durable: by default when it is on the server's disk.
    Leases use the server's clock.
    """

    def __init__(self, dsn: str, *, schema: str = "toolspeak", pool_size: int = 10, seconds: float = 60.0) -> None:
        self.dsn = dsn
        self._schema = schema
        self._listeners: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, PostgresListener] = (
            weakref.WeakKeyDictionary()
        )
        self._pool = PostgresPool(
            dsn,
            "the journal",
            schema,
            VERSION,
            lambda version: steps_from(version, _TYPES),
            newer,
            promise=" Nothing was done that is not recorded",
            size=pool_size,
            seconds=seconds,
        )

    def __str__(self) -> str:
        return str(self._pool)

    async def append(self, record: Record, lease: Lease | None = None) -> None:
        # If a statement breaks off, it is unknown whether the server committed it.
        await unbroken(asyncio.ensure_future(self._append(record, lease)))

    async def _append(self, record: Record, lease: Lease | None) -> None:
        row = pack(record)
        # One statement needs no transaction, which would be two more round trips.
        is_one_statement = record.seq and not row.blobs and type(record.event) not in CHANGES_OF_RUNS
        for tries_left in range(_TRIES - 1, -1, -1):
            try:
                async with self._autocommit() if is_one_statement else self._writing() as db:
                    await self._add(db, record, row, lease)
                break
            except AgainError:
                if not tries_left:
                    raise

    @asynccontextmanager
    async def _autocommit(self) -> AsyncGenerator[PostgresConnection]:
        """Each statement is committed by itself."""
        async with self._pool.connection() as connection:
            yield PostgresConnection(connection)

    @asynccontextmanager
    async def _writing(self, *, synced: bool = False) -> AsyncGenerator[PostgresConnection]:
        async with self._pool.connection() as connection, connection.transaction():
            yield PostgresConnection(connection)

    @asynccontextmanager
    async def _reading(self) -> AsyncGenerator[PostgresConnection]:
        async with self._pool.connection() as connection, connection.transaction(isolation="repeatable_read"):
            yield PostgresConnection(connection)

    async def _rows(self, db: Any, start: int, end: int, limit: int) -> Sequence[Row]:
        rows = await db.rows(
            "SELECT pos, data, places FROM records WHERE pos >= $1 AND pos < $2 ORDER BY pos LIMIT $3",
            start,
            end,
            limit,
        )
        return [tuple(row) for row in rows]

    async def _delete_records(self, db: Any, run_id: str, number: int) -> None:
        await db.change("DELETE FROM records WHERE pos >= $1 AND pos < $2", number * SPAN, (number + 1) * SPAN)

    async def _apart(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        async with self._pool.connection() as connection, connection.transaction(isolation="repeatable_read"):
            return await connection.fetch(_own(sql), *arguments, timeout=_LONG_SECONDS)

    async def _store_faults(self) -> Sequence[JournalFinding]:
        return ()  # the server checks the sums of its pages (data_checksums), and pg_amcheck its indexes

    async def _store_size(self) -> tuple[int, int | None]:
        sizes = ", ".join(f"pg_total_relation_size('{table}')" for table in _TABLES)
        ((*each,),) = await self._apart(f"SELECT {sizes}")
        return sum(each), None

    async def _before_erasing(self) -> None:
        pass  # rows are locked one by one

    async def _after_erasing(self) -> None:
        await self.vacuum(full=True)

    async def vacuum(self, *, full: bool = False) -> tuple[int, int]:
        before, _ = await self._store_size()
        async with self._pool.connection() as connection:
            for table in _TABLES:
                how = "FULL, ANALYZE" if full else "ANALYZE"
                await connection.execute(f"VACUUM ({how}) {table}", timeout=_LONG_SECONDS)
        after, _ = await self._store_size()
        return before, after

    async def _index(self, db: Any, pos: int, text: Sequence[str]) -> None:
        await db.change(
            "INSERT INTO found (pos, words) VALUES ($1, array_to_tsvector($2::text[]))", pos, sorted(set(text))
        )

    async def _matches(
        self, db: Any, words: Sequence[str], principal: str | None, private: bool, limit: int
    ) -> Sequence[int]:
        query = " & ".join(f"'{word}'" for word in words) + ":*"
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

    async def publish(self, run_id: str, text: str) -> None:
        async with self._pool.connection() as connection:
            await connection.execute("SELECT pg_notify($1, $2)", channel_of(self._schema, run_id), text)

    async def follow(self, run_id: str) -> AsyncGenerator[str]:
        loop = asyncio.get_running_loop()
        listener = self._listeners.get(loop)
        if listener is None:
            listener = self._listeners[loop] = PostgresListener(self._pool.listening)
        since = -FOLLOW_SECONDS
        async with aclosing(listener.texts(channel_of(self._schema, run_id), 1.0)) as texts:
            await self._follow(run_id)
            async for text in texts:
                if loop.time() - since > FOLLOW_SECONDS / 3:
                    await self._follow(run_id)
                    since = loop.time()
                yield text

    async def aclose(self) -> None:
        """Closes this event loop's connections."""
        await self._pool.aclose()


class PostgresConnection:
    """Implements `Connection` over an asyncpg connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        return await self._connection.fetch(_own(sql), *arguments)

    async def change(self, sql: str, *arguments: Any) -> int:
        command_tag: str = await self._connection.execute(_own(sql), *arguments)
        return int(command_tag.rpartition(" ")[2])


def _own(sql: str) -> str:
    for name, text in _FILL.items():
        sql = sql.replace(name, text)
    return sql
