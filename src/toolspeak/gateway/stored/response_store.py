"""A database table of responses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.database import Database, Tables, open_database
from toolspeak.journal.leases import Connection

LEASE_SECONDS = 30.0
"""Seconds of silence after which the background responses of a worker count as lost."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_TABLES = Tables(
    "the store of responses",
    "responses.store",
    "toolspeak_responses",
    0x74537270,  # "tSrp"
    (
        (
            """CREATE TABLE responses (
                id TEXT PRIMARY KEY, owner TEXT NOT NULL, created {real} NOT NULL, expires {real} NOT NULL,
                status TEXT NOT NULL, previous TEXT, items TEXT NOT NULL, body TEXT NOT NULL, size {integer} NOT NULL,
                worker TEXT, held_until {real})""",
            "CREATE INDEX responses_by_owner ON responses (owner, expires)",
            "CREATE INDEX responses_by_expiry ON responses (expires)",
            "CREATE INDEX responses_by_worker ON responses (worker) WHERE worker IS NOT NULL",
        ),
    ),
)
_OPEN_STATUSES = "('queued', 'in_progress')"
_CHAIN = """WITH RECURSIVE chain (id, previous, size, depth) AS (
    SELECT id, previous, size, 0 FROM responses WHERE id = $1 AND owner = $2 AND expires > {now}
    UNION ALL SELECT r.id, r.previous, r.size, chain.depth + 1 FROM responses r JOIN chain ON r.id = chain.previous
    WHERE r.owner = $2 AND r.expires > {now})"""


@quick()
class StoredResponse:
    """A stored response. `items`: the request's own input. `body`: the response. Both are JSON. `worker`: the worker
    that makes it, while it is unfinished."""

    id: str
    owner: str
    status: str
    previous: str | None
    items: str
    body: str
    worker: str | None = None

    @property
    def size(self) -> int:
        """Its size in bytes: the JSON is ASCII."""
        return len(self.items) + len(self.body)


@quick()
class Retention:
    """The limits of one key: `seconds` since the last use, number of `responses`, and their `size` in bytes."""

    seconds: float
    responses: int
    size: int


class ResponseStore:
    """The responses of all keys. Every method raises JournalError if the database fails or takes too long."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.open = database.open
        self.check = database.check
        self.aclose = database.aclose

    async def add(self, response: StoredResponse, retention: Retention) -> None:
        """Stores a response and renews the responses before it. Removes responses beyond the limits."""
        await self._database.do(partial(_add, response=response, retention=retention))

    async def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """Returns the response, or None if it does not exist, has expired, or belongs to another owner. The status is
        `lost` if its worker has ended."""
        if not _ID.fullmatch(response_id):
            return None
        return await self._database.do(partial(_get, owner=owner, response_id=response_id))

    async def chain(self, owner: str, response_id: str, most: int) -> Sequence[StoredResponse]:
        """The response and all responses before it, the oldest first; empty if it does not exist. Raises
        ConfigurationError for more than `most` bytes."""
        if not _ID.fullmatch(response_id):
            return ()
        return await self._database.do(partial(_chain, owner=owner, response_id=response_id, most=most))

    async def start(self, response_id: str) -> bool:
        """Marks a queued response as in progress. Returns whether it was queued."""
        sql = "UPDATE responses SET status = 'in_progress' WHERE id = $1 AND status = 'queued'"
        return await self._database.do(lambda db: db.change(sql, response_id)) == 1

    async def finish(self, response_id: str, status: str, body: str) -> bool:
        """Ends an unfinished response. Returns False if it has already ended or does not exist."""
        sql = (
            "UPDATE responses SET status = $2, body = $3, size = length(items) + length($3), worker = NULL"
            f" WHERE id = $1 AND status IN {_OPEN_STATUSES}"
        )
        return await self._database.do(lambda db: db.change(sql, response_id, status, body)) == 1

    async def delete(self, owner: str, response_id: str) -> bool:
        if not _ID.fullmatch(response_id):
            return False
        sql = "DELETE FROM responses WHERE id = $1 AND owner = $2 AND expires > {now}"
        return await self._database.do(lambda db: db.change(sql, response_id, owner)) == 1

    async def erase(self, owner: str) -> int:
        """Removes all responses of an owner, permanently. Returns their number; 0 if there is no store."""
        if not await self._database.exists():
            return 0
        sql = "DELETE FROM responses WHERE owner = $1"
        count = await self._database.do(lambda db: db.change(sql, owner))
        await self._database.scrub()
        return count

    async def beat(self, worker: str) -> frozenset[str]:
        """Renews the leases of a worker, and removes expired responses. Returns the ids of the worker's unfinished
        responses."""
        return await self._database.do(partial(_beat, worker=worker))


def open_store(where: str, seconds: float) -> ResponseStore:
    """The store at a path (SQLite), a `sqlite://` URL or a `postgresql://` URL. A transaction takes at most `seconds`.
    Does not open it yet. Raises ConfigurationError."""
    return ResponseStore(open_database(where, seconds, _TABLES))


# --- the transactions -------------------------------------------------------------------------------


async def _add(db: Connection, response: StoredResponse, retention: Retention) -> None:
    r = response
    await db.change(
        "INSERT INTO responses (id, owner, created, expires, status, previous, items, body, size, worker, held_until)"
        " VALUES ($1, $2, {now}, {now} + $3, $4, $5, $6, $7, $8, $9, {now} + $10)",
        *(r.id, r.owner, retention.seconds, r.status, r.previous, r.items, r.body, r.size, r.worker, LEASE_SECONDS),
    )
    if r.previous is not None:
        sql = _CHAIN + " UPDATE responses SET expires = {now} + $3 WHERE id IN (SELECT id FROM chain)"
        await db.change(sql, r.previous, r.owner, retention.seconds)
    await _remove_old(db)
    ((count, size),) = await db.rows("SELECT count(*), sum(size) FROM responses WHERE owner = $1", r.owner)
    if count > retention.responses or size > retention.size:
        await db.change(
            "DELETE FROM responses WHERE id IN (SELECT id FROM (SELECT id,"
            " row_number() OVER (ORDER BY expires DESC, created DESC, id) AS place,"
            " sum(size) OVER (ORDER BY expires DESC, created DESC, id) AS total"
            " FROM responses WHERE owner = $1) AS ranked WHERE place > $2 OR total > $3)"
            f" AND id <> $4 AND status NOT IN {_OPEN_STATUSES}",
            *(r.owner, retention.responses, retention.size, r.id),
        )


async def _remove_old(db: Connection) -> None:
    await db.change(f"DELETE FROM responses WHERE expires <= {{now}} AND status NOT IN {_OPEN_STATUSES}")


async def _get(db: Connection, owner: str, response_id: str) -> StoredResponse | None:
    rows = await db.rows(
        f"SELECT id, owner, CASE WHEN status IN {_OPEN_STATUSES} AND held_until < {{now}} THEN 'lost' ELSE status END,"
        " previous, items, body FROM responses WHERE id = $1 AND owner = $2 AND expires > {now}",
        *(response_id, owner),
    )
    return StoredResponse(*rows[0]) if rows else None


async def _chain(db: Connection, owner: str, response_id: str, most: int) -> Sequence[StoredResponse]:
    ((size,),) = await db.rows(_CHAIN + " SELECT sum(size) FROM chain", response_id, owner)
    if size is not None and size > most:
        raise ConfigurationError(
            f"previous_response_id: the conversation before it has more than {most} bytes; begin a new one"
        )
    rows = await db.rows(
        _CHAIN + " SELECT r.id, r.owner, r.status, r.previous, r.items, r.body FROM responses r JOIN chain"
        " ON r.id = chain.id ORDER BY chain.depth DESC",
        *(response_id, owner),
    )
    return [StoredResponse(*row) for row in rows]


async def _beat(db: Connection, worker: str) -> frozenset[str]:
    sql = f"UPDATE responses SET held_until = {{now}} + $2 WHERE worker = $1 AND status IN {_OPEN_STATUSES}"
    await db.change(sql, worker, LEASE_SECONDS)
    await _remove_old(db)
    return frozenset(row[0] for row in await db.rows("SELECT id FROM responses WHERE worker = $1", worker))
