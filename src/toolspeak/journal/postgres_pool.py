"""A pool of connections to a PostgreSQL database: opens them when needed, and creates or upgrades the tables."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs] - the package has none

from toolspeak.errors import JournalError

_MIGRATING = 0x7453706B  # the advisory lock for creating tables: a number that no other program uses
_AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.ForeignKeyViolationError)
"""Errors when two transactions collide (one stores a content, the other deletes it): one of them is repeated."""

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


_CHECK_SECONDS = 5.0
_CLOSE_SECONDS = 5.0

_DEAD_PEER_SETTINGS = {
    "tcp_keepalives_idle": "2",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "2",
    "tcp_user_timeout": "4000",
}
"""After 4 seconds the server ends a transaction whose client cannot be reached, and its locks with it. By default that
takes two hours, in which nobody could take over a run of a host that is gone. The kernel of a busy client answers."""


class AgainError(JournalError):
    """Another transaction undid this one, which may succeed if it is repeated."""


async def _reset(connection: Any) -> None:
    """Makes a connection ready for its next user. Nothing here changes a session's settings, so asyncpg's own reset,
    which is one more round trip, is needed only where a transaction broke off."""
    if connection.is_in_transaction():
        await connection.reset()


class PostgresPool:
    """Connections to a database, for the tables of one schema. The first connection creates or upgrades the tables.

    - `dsn`: a connection URL (`postgresql://user@host/database`).
    - `what`: the beginning of each error ("the journal").
    - `schema`: the name of the schema.
    - `version`: the newest version of the tables.
    - `steps`: returns the statements that upgrade a version to the newest.
    - `newer`: returns the error text for a version that a later toolspeak wrote.
    - `promise`: the end of each error.
    - `size`: the most open connections.
    - `seconds`: the time limit of one statement.
    """

    def __init__(
        self,
        dsn: str,
        what: str,
        schema: str,
        version: int,
        steps: Callable[[int], Sequence[str]],
        newer: Callable[[str, int], str],
        *,
        promise: str = "",
        size: int = 10,
        seconds: float = 60.0,
    ) -> None:
        self._dsn = dsn
        self._what = what
        self._schema = schema
        self._version = version
        self._steps = steps
        self._newer = newer
        self._promise = promise
        self._size = size
        self._seconds = seconds
        # An asyncpg pool belongs to one event loop. Several loops may use this object, one after the other.
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Any]] = (
            weakref.WeakKeyDictionary()
        )

    def __str__(self) -> str:
        parts = urlsplit(self._dsn)
        return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"  # without the password

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Any]:
        """Yields an asyncpg connection. Raises JournalError (for a collision its subclass AgainError)."""
        try:
            pool = await self._pool()
            async with pool.acquire() as connection:
                yield connection
        except _AGAIN as error:
            raise AgainError(self._problem(error)) from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            raise JournalError(self._problem(error)) from error

    async def listening(self) -> Any:
        """Opens a connection of asyncpg that does not belong to the pool, to listen on."""
        asyncpg_module: Any = asyncpg
        return await asyncpg_module.connect(
            self._dsn, timeout=_CHECK_SECONDS, server_settings={"application_name": "toolspeak"}
        )

    async def check(self) -> None:
        """Opens and closes one connection. Creates no tables. Raises JournalError."""
        asyncpg_module: Any = asyncpg
        try:
            connection = await asyncpg_module.connect(self._dsn, timeout=_CHECK_SECONDS)
            await connection.close()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            raise JournalError(self._problem(error)) from error

    async def has_tables(self) -> bool:
        """Whether the schema is there. Creates no tables. Raises JournalError."""
        asyncpg_module: Any = asyncpg
        try:
            connection = await asyncpg_module.connect(self._dsn, timeout=_CHECK_SECONDS)
            try:
                return await connection.fetchval("SELECT to_regclass($1)", self._version_table) is not None
            finally:
                await connection.close()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            raise JournalError(self._problem(error)) from error

    @property
    def _version_table(self) -> str:
        return f'"{self._schema}".schema_version'

    def _problem(self, error: BaseException) -> str:
        remedy = next((text for kind, text in _REMEDIES if isinstance(error, kind)), "see the server's log")
        return f"{self._what} {self}: {error or type(error).__name__}; {remedy}.{self._promise}".rstrip(".")

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
            reset=_reset,
            server_settings={"search_path": self._schema, "application_name": "toolspeak", **_DEAD_PEER_SETTINGS},
        )
        try:
            async with pool.acquire() as connection, connection.transaction():
                await self._prepare(connection)
        except BaseException:
            await pool.close()
            raise
        return pool

    async def _prepare(self, connection: Any) -> None:
        encoding = connection.get_settings().server_encoding
        if encoding != "UTF8":
            raise JournalError(
                f"{self._what} {self}: the database's encoding is {encoding}, which cannot hold every text; make one"
                " with `createdb --encoding UTF8 --template template0`"
            )
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATING)
        version = 0
        if await connection.fetchval("SELECT to_regclass($1)", self._version_table) is not None:
            version = await connection.fetchval("SELECT version FROM schema_version")
        if version > self._version:
            raise JournalError(self._newer(f"{self._what} {self}", version))
        if version == self._version:
            return
        if version == 0:
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
            await connection.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
            await connection.execute("INSERT INTO schema_version VALUES (0)")
        for statement in self._steps(version):
            await connection.execute(statement)
        await connection.execute("UPDATE schema_version SET version = $1", self._version)

    async def aclose(self) -> None:
        """Closes this event loop's connections. One whose server does not answer is cut off after some seconds."""
        opening = self._pools.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    (pool,) = await asyncio.gather(opening, return_exceptions=True)  # it may still be opening
                    if not isinstance(pool, BaseException):
                        await pool.close()
