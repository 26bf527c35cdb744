"""A database of the gateway: the tables of one purpose, in a SQLite file or in a schema of a PostgreSQL database."""

from __future__ import annotations

import asyncio
import importlib
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from toolspeak.errors import ConfigurationError, JournalError
from toolspeak.journal.leases import Connection
from toolspeak.journal.sqlite_connection import SqliteConnection, at_once, is_busy, journal_error

ResultT = TypeVar("ResultT")
Work: TypeAlias = Callable[[Connection], Coroutine[Any, Any, ResultT]]
"""The statements of one transaction."""

_TRIES = 3
_WAIT = 0.005
"""Seconds between two tries of a statement that SQLite refuses without waiting."""

_TABLE_NAMES = "SELECT tablename FROM pg_tables WHERE schemaname = $1"
_SCRUB_SECONDS = 86_400.0

_IDLE_MILLISECONDS = 5000
"""PostgreSQL ends an exclusive transaction whose process is silent for so long."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one purpose.

    `what`: the beginning of each error ("the store of usage"). `setting`: the setting that names the database.
    `schema`: their schema in PostgreSQL. `application`: the number in the header of a SQLite file
    (https://www.sqlite.org/fileformat2.html#application_id). `steps`: statements, with `{integer}` and `{real}` for
    types; step n - 1 migrates version n - 1 to version n. `exclusive`: PostgreSQL runs one transaction at a time, as
    SQLite does.
    """

    what: str
    setting: str
    schema: str
    application: int
    steps: Sequence[Sequence[str]]
    exclusive: bool = False

    def statements_from(self, version: int, integer: str, real: str) -> Sequence[str]:
        """The statements that migrate tables from a version to the newest."""
        return [statement.format(integer=integer, real=real) for step in self.steps[version:] for statement in step]

    def newer(self, place: str, version: int) -> str:
        """The error for tables of a later toolspeak."""
        return f"{place} was written by a later toolspeak (version {version}): upgrade toolspeak, or name another one"


class Database(ABC):
    """Opens at its first use, and creates its tables then. Several processes may share one."""

    seconds: float

    async def do(self, work: Work[ResultT]) -> ResultT:
        """Runs the work in one transaction, and returns its result. Raises JournalError if the database fails or takes
        more than `seconds`."""
        try:
            async with asyncio.timeout(self.seconds):
                return await self._do(work)
        except TimeoutError:
            raise JournalError(f"{self}: the database took more than {self.seconds:g} seconds") from None

    async def open(self) -> None:
        """Creates missing tables, without a time limit. Raises JournalError."""
        await self._do(_nothing)

    @abstractmethod
    async def check(self) -> None:
        """Raises JournalError if the database could not be opened. Creates and changes nothing."""

    @abstractmethod
    async def exists(self) -> bool:
        """Whether the tables are there. Creates nothing. Raises JournalError."""

    @abstractmethod
    async def scrub(self) -> None:
        """Removes what deleted rows left in the database's files, without a time limit. Raises JournalError."""

    @abstractmethod
    async def _do(self, work: Work[ResultT]) -> ResultT: ...

    @abstractmethod
    async def aclose(self) -> None: ...


def open_database(where: str, seconds: float, tables: Tables) -> Database:
    """The database at a path (SQLite), a `sqlite://` URL or a `postgresql://` URL. Does not open it yet. Raises
    ConfigurationError."""
    scheme, separator, rest = where.partition("://")
    if not separator:
        return _Sqlite(Path(where), seconds, tables)
    if scheme == "sqlite" and rest:
        return _Sqlite(Path(rest), seconds, tables)
    if scheme not in ("postgresql", "postgres"):
        raise ConfigurationError(
            f"{tables.setting}: {scheme}:// is not supported; write a file's path or a postgresql:// URL"
        )
    try:
        postgres: Any = importlib.import_module("toolspeak.journal.postgres")  # asyncpg is an extra
    except ImportError as error:
        raise ConfigurationError(f"{tables.what} in PostgreSQL needs: pip install 'toolspeak[postgres]'") from error
    return _Postgres(where, seconds, tables, postgres)


class _Sqlite(Database):
    """Uses a thread of its own, which waits for the locks of other processes."""

    def __init__(self, path: Path, seconds: float, tables: Tables) -> None:
        self.seconds = seconds
        self._path = path.absolute()
        self._tables = tables
        self._db: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, tables.schema)

    def __str__(self) -> str:
        return f"{self._tables.what} {self._path}"

    async def _do(self, work: Work[ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)

    def _work(self, work: Work[ResultT]) -> ResultT:
        try:
            db = self._db or self._open_file()
            db.execute("BEGIN IMMEDIATE")
            try:
                result = at_once(work(SqliteConnection(db)))
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise journal_error(error, self._path, self._tables.what, "") from error
        return result

    async def exists(self) -> bool:
        return self._path.exists()

    async def scrub(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._scrub)

    def _scrub(self) -> None:
        try:
            db = self._db or self._open_file()
            db.execute("VACUUM")
            (is_blocked, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise journal_error(error, self._path, self._tables.what, "") from error
        if is_blocked:
            raise JournalError(
                f"{self}: its log still holds what was deleted, because another process reads it: try again"
            )

    async def check(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._check)

    def _check(self) -> None:
        name_another = f"name another file ({self._tables.setting})"
        try:
            self._path.stat()
        except FileNotFoundError:
            folder = next(parent for parent in self._path.parents if parent.exists())
            if not os.access(folder, os.W_OK | os.X_OK):
                raise JournalError(f"{self}: nothing can be made in {folder}; {name_another}") from None
            return
        except OSError as error:
            raise JournalError(f"{self}: {error.strerror}; {name_another}") from error
        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as db:
                self._check_version(db)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise journal_error(error, self._path, self._tables.what, "") from error
        if not os.access(self._path, os.W_OK):
            raise JournalError(f"{self}: the file cannot be written; give yourself the right to, or {name_another}")

    def _open_file(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(
                f"{self._tables.what}: the folder {self._path.parent} cannot be made: {error.strerror}; name another"
                f" file ({self._tables.setting})"
            ) from error
        with suppress(OSError):  # SQLite says what is wrong
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        tables = self._tables
        # Half of the time: a transaction must not commit after `do` has given up on it.
        db.execute(f"PRAGMA busy_timeout = {int(self.seconds * 500)}")
        self._check_version(db)
        self._write_ahead(db)
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = FAST")
        db.create_function("lease_now", 0, time.time)
        db.execute("BEGIN IMMEDIATE")
        version = self._check_version(db)
        for statement in tables.statements_from(version, "INTEGER", "REAL"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {tables.application}")
        db.execute(f"PRAGMA user_version = {len(tables.steps)}")
        db.execute("COMMIT")

    def _check_version(self, db: sqlite3.Connection) -> int:
        """The version of the tables; 0 without tables. Raises JournalError for tables of another program, or of a later
        toolspeak."""
        # In this order: another process may create the tables meanwhile, and sets the application id with them.
        (count,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        if count and application != self._tables.application:
            raise JournalError(f"{self} is a database of another program: name another file")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > len(self._tables.steps):
            raise JournalError(self._tables.newer(str(self), version))
        return version

    def _write_ahead(self, db: sqlite3.Connection) -> None:
        # SQLite ignores busy_timeout here, because two processes could wait for each other for ever.
        until = time.monotonic() + self.seconds / 2
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.Error as error:
                if not is_busy(error) or time.monotonic() >= until:
                    raise
            time.sleep(_WAIT)

    async def aclose(self) -> None:
        def close() -> None:
            if self._db is not None:
                self._db.close()
                self._db = None

        await asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown(wait=False)


class _Postgres(Database):
    """Repeats a transaction that PostgreSQL rolled back because of another one. `module`:
    `toolspeak.journal.postgres`."""

    def __init__(self, dsn: str, seconds: float, tables: Tables, module: Any) -> None:
        self.seconds = seconds
        self._tables = tables
        self._module = module
        steps = partial(tables.statements_from, integer="BIGINT", real="DOUBLE PRECISION")
        self._pool = module.PostgresPool(dsn, tables.what, tables.schema, len(tables.steps), steps, tables.newer)

    def __str__(self) -> str:
        return f"{self._tables.what} {self._pool}"

    async def check(self) -> None:
        await self._pool.check()

    async def exists(self) -> bool:
        return await self._pool.has_tables()

    async def scrub(self) -> None:
        async with self._pool.connection() as connection:
            for (table,) in await connection.fetch(_TABLE_NAMES, self._tables.schema):
                await connection.execute(f'VACUUM (FULL, ANALYZE) "{table}"', timeout=_SCRUB_SECONDS)

    async def _do(self, work: Work[ResultT]) -> ResultT:
        for _ in range(_TRIES - 1):
            with suppress(self._module.AgainError):
                return await self._once(work)
        return await self._once(work)

    async def _once(self, work: Work[ResultT]) -> ResultT:
        async with self._pool.connection() as connection, connection.transaction():
            if self._tables.exclusive:
                await connection.execute(
                    "SELECT pg_advisory_xact_lock($1),"
                    f" set_config('idle_in_transaction_session_timeout', '{_IDLE_MILLISECONDS}', true)",
                    self._tables.application,
                )
            return await work(self._module.PostgresConnection(connection))

    async def aclose(self) -> None:
        await self._pool.aclose()


async def _nothing(_db: Connection) -> None:
    return None
