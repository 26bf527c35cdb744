"""Responses as a database keeps them: a table of their own, in a SQLite file or a PostgreSQL database."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from toolspeak.data.values import quick
from toolspeak.errors import JournalError, UsageError
from toolspeak.journal.leases import Connection
from toolspeak.journal.sqlite_connection import SqliteConnection, at_once
from toolspeak.journal.sqlite_faults import told

ResultT = TypeVar("ResultT")

LEASE_SECONDS = 30.0
"""How long a worker that says nothing is believed to be at work on its background responses."""

_TRIES = 3
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_WHAT = "the store of responses"
_APPLICATION = 0x74537270  # "tSrp", in the file's header
_SCHEMA = "toolspeak_responses"
_BUSY_MILLISECONDS = 5000
_STEPS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE responses (
            id TEXT PRIMARY KEY, owner TEXT NOT NULL, created {real} NOT NULL, expires {real} NOT NULL,
            status TEXT NOT NULL, previous TEXT, items TEXT NOT NULL, body TEXT NOT NULL, size {integer} NOT NULL,
            worker TEXT, held_until {real})""",
        "CREATE INDEX responses_by_owner ON responses (owner, expires)",
        "CREATE INDEX responses_by_expiry ON responses (expires)",
        "CREATE INDEX responses_by_worker ON responses (worker) WHERE worker IS NOT NULL",
    ),
)
_UNFINISHED = "('queued', 'in_progress')"
_CHAIN = """WITH RECURSIVE chain (id, previous, size, depth) AS (
    SELECT id, previous, size, 0 FROM responses WHERE id = $1 AND owner = $2 AND expires > {now}
    UNION ALL SELECT r.id, r.previous, r.size, chain.depth + 1 FROM responses r JOIN chain ON r.id = chain.previous
    WHERE r.owner = $2 AND r.expires > {now})"""


@quick()
class StoredResponse:
    """`items` are the request's own input, `body` is the response, both as JSON. `worker` is at work on it."""

    id: str
    owner: str
    status: str
    previous: str | None
    items: str
    body: str
    worker: str | None = None

    @property
    def size(self) -> int:
        """Bytes; JSON is ASCII here."""
        return len(self.items) + len(self.body)


@quick()
class Kept:
    """How much is kept of one key's: `seconds` behind the last use, `responses`, and `size` (bytes) of all."""

    seconds: float
    responses: int
    size: int


class ResponseStore(ABC):
    """The responses of all keys. Several processes may use one. Every method raises JournalError when the database
    cannot be read or written, or takes more than `seconds`."""

    seconds: float

    @abstractmethod
    async def _at_once(self, work: Callable[[Connection], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """What the work gives, done in one transaction."""

    async def _do(self, work: Callable[[Connection], Coroutine[Any, Any, ResultT]]) -> ResultT:
        try:
            async with asyncio.timeout(self.seconds):
                return await self._at_once(work)
        except TimeoutError:
            raise JournalError(f"{_WHAT}: the database took more than {self.seconds:g} seconds") from None

    @abstractmethod
    async def aclose(self) -> None: ...

    async def open(self) -> None:
        """Makes the tables, if they are not there, however long that takes."""
        await self._at_once(_nothing)

    async def add(self, response: StoredResponse, kept: Kept) -> None:
        """Keeps a response, and those that it goes on from as long; removes what is too old or too much."""
        await self._do(partial(_add, response=response, kept=kept))

    async def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """None for one that is not there, has expired, or is another's. One whose worker is gone has the status
        `lost`."""
        if not _ID.fullmatch(response_id):
            return None
        return await self._do(partial(_get, owner=owner, response_id=response_id))

    async def chain(self, owner: str, response_id: str, most: int) -> Sequence[StoredResponse]:
        """The response and those that it goes on from, the oldest first; empty if it is not there. Raises UsageError
        for more than `most` bytes."""
        if not _ID.fullmatch(response_id):
            return ()
        return await self._do(partial(_chain, owner=owner, response_id=response_id, most=most))

    async def start(self, response_id: str) -> bool:
        """Whether a queued response may begin; it is in progress then."""
        sql = "UPDATE responses SET status = 'in_progress' WHERE id = $1 AND status = 'queued'"
        return await self._do(lambda db: db.change(sql, response_id)) == 1

    async def finish(self, response_id: str, status: str, body: str) -> bool:
        """Ends an unfinished response. False if it is over already, or gone."""
        sql = (
            "UPDATE responses SET status = $2, body = $3, size = length(items) + length($3), worker = NULL"
            f" WHERE id = $1 AND status IN {_UNFINISHED}"
        )
        return await self._do(lambda db: db.change(sql, response_id, status, body)) == 1

    async def delete(self, owner: str, response_id: str) -> bool:
        if not _ID.fullmatch(response_id):
            return False
        sql = "DELETE FROM responses WHERE id = $1 AND owner = $2 AND expires > {now}"
        return await self._do(lambda db: db.change(sql, response_id, owner)) == 1

    async def beat(self, worker: str) -> frozenset[str]:
        """Says that the worker lives, and removes what is too old; its responses that are still to be finished."""
        return await self._do(partial(_beat, worker=worker))


def open_store(where: str, seconds: float) -> ResponseStore:
    """The store that a path (SQLite), a `sqlite://` URL or a `postgresql://` URL names; nothing is opened yet. Raises
    UsageError."""
    scheme, separator, rest = where.partition("://")
    if not separator:
        return SqliteResponses(Path(where), seconds)
    if scheme == "sqlite" and rest:
        return SqliteResponses(Path(rest), seconds)
    if scheme not in ("postgresql", "postgres"):
        raise UsageError(f"responses.store: {scheme}:// is none; write a file's path or a postgresql:// URL")
    try:
        pools: Any = importlib.import_module("toolspeak.journal.postgres_pool")  # asyncpg is an extra
    except ImportError as error:
        raise UsageError("responses in PostgreSQL need: pip install 'toolspeak[postgres]'") from error
    types = {"integer": "BIGINT", "real": "DOUBLE PRECISION"}
    steps = partial(_steps_from, types=types)
    return PostgresResponses(
        pools.PostgresPool(where, _WHAT, _SCHEMA, len(_STEPS), steps, _newer), pools.AgainError, seconds
    )


class SqliteResponses(ResponseStore):
    """One thread does everything: a lock of another process is waited for there."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.seconds = seconds
        self._path = path.absolute()
        self._db: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "responses")

    async def _at_once(self, work: Callable[[Connection], Coroutine[Any, Any, ResultT]]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)

    def _work(self, work: Callable[[Connection], Coroutine[Any, Any, ResultT]]) -> ResultT:
        try:
            db = self._db or self._opened()
            db.execute("BEGIN IMMEDIATE")
            try:
                result = at_once(work(SqliteConnection(db)))
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise told(error, self._path, _WHAT, "") from error
        return result

    def _opened(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(f"{_WHAT}: the folder {self._path.parent} cannot be made: {error.strerror}") from error
        with suppress(OSError):  # SQLite says what is wrong
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            db.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if tables and application != _APPLICATION:
                raise JournalError(f"{_WHAT} {self._path} is a database of another program: name another file")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA secure_delete = FAST")
            db.create_function("lease_now", 0, time.time)
            db.execute("BEGIN IMMEDIATE")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > len(_STEPS):
                raise JournalError(_newer(f"{_WHAT} {self._path}", version))
            for statement in _steps_from(version, {"integer": "INTEGER", "real": "REAL"}):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {len(_STEPS)}")
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    async def aclose(self) -> None:
        def close() -> None:
            if self._db is not None:
                self._db.close()
                self._db = None

        await asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown(wait=False)


class PostgresResponses(ResponseStore):
    """`again` is the error of a transaction that was undone because of another one: it is done again."""

    def __init__(self, pool: Any, again: type[JournalError], seconds: float) -> None:
        self.seconds = seconds
        self._pool = pool
        self._again = again

    async def _at_once(self, work: Callable[[Connection], Coroutine[Any, Any, ResultT]]) -> ResultT:
        for _ in range(_TRIES - 1):
            with suppress(self._again):
                return await self._once(work)
        return await self._once(work)

    async def _once(self, work: Callable[[Connection], Coroutine[Any, Any, ResultT]]) -> ResultT:
        async with self._pool.connection() as connection, connection.transaction():
            return await work(_Postgres(connection))

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Postgres:
    """Implements `Connection`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]:
        return await self._connection.fetch(_with_clock(sql), *arguments)

    async def change(self, sql: str, *arguments: Any) -> int:
        done: str = await self._connection.execute(_with_clock(sql), *arguments)
        return int(done.rpartition(" ")[2])


def _with_clock(sql: str) -> str:
    return sql.replace("{now}", "extract(epoch FROM clock_timestamp())::double precision")


def _steps_from(version: int, types: dict[str, str]) -> Sequence[str]:
    return [statement.format_map(types) for step in _STEPS[version:] for statement in step]


def _newer(place: str, version: int) -> str:
    return f"{place} was written by a later toolspeak (version {version}): upgrade toolspeak, or name another one"


# --- what is done in a transaction -------------------------------------------------------------------------------


async def _nothing(_db: Connection) -> None:
    return None


async def _add(db: Connection, response: StoredResponse, kept: Kept) -> None:
    r = response
    await db.change(
        "INSERT INTO responses (id, owner, created, expires, status, previous, items, body, size, worker, held_until)"
        " VALUES ($1, $2, {now}, {now} + $3, $4, $5, $6, $7, $8, $9, {now} + $10)",
        *(r.id, r.owner, kept.seconds, r.status, r.previous, r.items, r.body, r.size, r.worker, LEASE_SECONDS),
    )
    if r.previous is not None:
        sql = _CHAIN + " UPDATE responses SET expires = {now} + $3 WHERE id IN (SELECT id FROM chain)"
        await db.change(sql, r.previous, r.owner, kept.seconds)
    await _remove_old(db)
    ((count, size),) = await db.rows("SELECT count(*), sum(size) FROM responses WHERE owner = $1", r.owner)
    if count > kept.responses or size > kept.size:
        await db.change(
            "DELETE FROM responses WHERE id IN (SELECT id FROM (SELECT id,"
            " row_number() OVER (ORDER BY expires DESC, created DESC, id) AS place,"
            " sum(size) OVER (ORDER BY expires DESC, created DESC, id) AS total"
            " FROM responses WHERE owner = $1) AS ranked WHERE place > $2 OR total > $3)"
            f" AND id <> $4 AND status NOT IN {_UNFINISHED}",
            *(r.owner, kept.responses, kept.size, r.id),
        )


async def _remove_old(db: Connection) -> None:
    await db.change(f"DELETE FROM responses WHERE expires <= {{now}} AND status NOT IN {_UNFINISHED}")


async def _get(db: Connection, owner: str, response_id: str) -> StoredResponse | None:
    rows = await db.rows(
        f"SELECT id, owner, CASE WHEN status IN {_UNFINISHED} AND held_until < {{now}} THEN 'lost' ELSE status END,"
        " previous, items, body FROM responses WHERE id = $1 AND owner = $2 AND expires > {now}",
        *(response_id, owner),
    )
    return StoredResponse(*rows[0]) if rows else None


async def _chain(db: Connection, owner: str, response_id: str, most: int) -> Sequence[StoredResponse]:
    ((size,),) = await db.rows(_CHAIN + " SELECT sum(size) FROM chain", response_id, owner)
    if size is not None and size > most:
        raise UsageError(
            f"previous_response_id: the conversation that it goes on from has more than {most} bytes; begin a new one"
        )
    rows = await db.rows(
        _CHAIN + " SELECT r.id, r.owner, r.status, r.previous, r.items, r.body FROM responses r JOIN chain"
        " ON r.id = chain.id ORDER BY chain.depth DESC",
        *(response_id, owner),
    )
    return [StoredResponse(*row) for row in rows]


async def _beat(db: Connection, worker: str) -> frozenset[str]:
    sql = f"UPDATE responses SET held_until = {{now}} + $2 WHERE worker = $1 AND status IN {_UNFINISHED}"
    await db.change(sql, worker, LEASE_SECONDS)
    await _remove_old(db)
    return frozenset(row[0] for row in await db.rows("SELECT id FROM responses WHERE worker = $1", worker))
