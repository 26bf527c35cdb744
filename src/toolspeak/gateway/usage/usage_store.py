"""The usage of keys in a database that all workers share. Each transaction excludes all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial

from toolspeak.gateway.database import Database, Tables, open_database
from toolspeak.gateway.settings.api_keys import Key
from toolspeak.gateway.usage.usage_values import (
    COLUMNS,
    COUNT_FIELDS,
    DAY,
    WINDOW,
    Column,
    Counts,
    KeyUsage,
    UsageBatch,
    UsageDecision,
    UsageInProgress,
    UsageOutcome,
    UsageRow,
    day_of,
    usage_decision,
)
from toolspeak.journal.leases import Connection

SECONDS = 5.0
"""How long a transaction may take: a request waits for it."""

_TABLES = Tables(
    "the store of usage",
    "usage.store",
    "toolspeak_usage",
    0x74557367,  # "tUsg"
    (
        (
            f"""CREATE TABLE usage (day TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL,
                {", ".join(f"{name} {{integer}} NOT NULL" for name in COUNT_FIELDS)}, PRIMARY KEY (key, day, model))""",
            "CREATE INDEX usage_by_day ON usage (day)",
            """CREATE TABLE arrivals (
                key TEXT NOT NULL, at {real} NOT NULL, count {integer} NOT NULL, PRIMARY KEY (key, at))""",
            """CREATE TABLE loads (
                key TEXT NOT NULL, worker TEXT NOT NULL, streams {integer} NOT NULL, tokens {integer} NOT NULL,
                until {real} NOT NULL, PRIMARY KEY (key, worker))""",
        ),
    ),
    exclusive=True,
)
"""Version 1: usage by day, key and model; the requests of the last minute; the load of each worker, with its lease."""

_ADD = (
    f"INSERT INTO usage (day, key, model, {', '.join(COUNT_FIELDS)})"
    f" VALUES ({', '.join(f'${i + 1}' for i in range(3 + len(COUNT_FIELDS)))})"
    f" ON CONFLICT (key, day, model) DO UPDATE SET {', '.join(f'{c} = usage.{c} + excluded.{c}' for c in COUNT_FIELDS)}"
)
_ARRIVE = (
    "INSERT INTO arrivals (key, at, count) VALUES ($1, $2, $3)"
    " ON CONFLICT (key, at) DO UPDATE SET count = arrivals.count + excluded.count"
)
_CARRY = (
    "INSERT INTO loads (key, worker, streams, tokens, until) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (key, worker) DO UPDATE SET"
    " streams = excluded.streams, tokens = excluded.tokens, until = excluded.until"
)
_STANDING = """SELECT
    (SELECT coalesce(sum(count), 0) FROM arrivals WHERE key = $1),
    (SELECT min(at) FROM arrivals WHERE key = $1),
    (SELECT max(at) FROM arrivals WHERE key = $1),
    (SELECT coalesce(sum(streams), 0) FROM loads WHERE key = $1 AND worker <> $2),
    (SELECT coalesce(sum(tokens), 0) FROM loads WHERE key = $1 AND worker <> $2),
    (SELECT coalesce(sum(input + output), 0) FROM usage WHERE key = $1 AND day = $3)"""


class UsageStore:
    """The usage of all keys. Every method raises JournalError if the database fails or takes more than `SECONDS`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.open = database.open
        self.check = database.check
        self.aclose = database.aclose

    async def settle(self, batch: UsageBatch) -> UsageOutcome:
        """Stores the counts of a batch and decides on its requests, in one transaction."""
        return await self._database.do(partial(_settle, batch=batch))

    async def rows(self, by: Sequence[Column], since: str) -> Sequence[UsageRow]:
        """Sums by these columns, in their order, from a day on (`2026-11-23`)."""
        return await self._database.do(partial(_rows, by=by, since=since))

    async def standings(self) -> Mapping[str, KeyUsage]:
        """How the keys stand that have used something today or in the last minute. Changes nothing."""
        return await self._database.do(_standings)

    async def erase(self, key: str) -> int:
        """Removes everything about a key, permanently. Returns the number of its rows of usage, 0 without a store."""
        if not await self._database.exists():
            return 0
        rows = await self._database.do(partial(_erase, key=key))
        await self._database.scrub()
        return rows

    async def prune(self, days: int) -> None:
        """Removes the usage of all but the last days, and other rows that are no longer needed."""
        await self._database.do(partial(_prune, days=days))


def open_usage(where: str) -> UsageStore:
    """The store that a path (SQLite), a `sqlite://` URL or a `postgresql://` URL names. Nothing is opened yet. Raises
    ConfigurationError."""
    return UsageStore(open_database(where, SECONDS, _TABLES))


async def _now(db: Connection) -> float:
    """The database's clock (Unix seconds): the machines of several workers may differ."""
    ((now,),) = await db.rows("SELECT {now}")
    return now


async def _settle(db: Connection, batch: UsageBatch) -> UsageOutcome:
    now = await _now(db)
    for (key, model), counts in sorted(batch.counts.items()):
        await db.change(_ADD, day_of(now), key, model, *astuple(counts))
    keys = {ask.key.name: ask.key for ask in batch.start_requests}
    standings = {name: await _standing(db, key, batch, now) for name, key in keys.items()}
    starts = dict.fromkeys(keys, 0)
    verdicts: list[UsageDecision] = []
    load = dict(batch.load)
    for ask in batch.start_requests:
        name = ask.key.name
        verdict = usage_decision(ask, standings[name])
        verdicts.append(verdict)
        standings[name] = verdict.standing
        if verdict.limit is None:
            starts[name] += 1
            load[name] = load.get(name, UsageInProgress()).plus(ask.load)
    for name, count in starts.items():
        if count and keys[name].requests_per_minute is not None:
            await db.change(_ARRIVE, name, now, count)
    await _carry(db, batch, load, now)
    return UsageOutcome(verdicts, load)


async def _standing(db: Connection, key: Key, batch: UsageBatch, now: float) -> KeyUsage:
    if key.requests_per_minute is not None:
        # A request in the future was written before the clock was set back.
        await db.change(
            "DELETE FROM arrivals WHERE key = $1 AND (at <= $2 OR at > $3)", key.name, now - WINDOW, now + 1
        )
    # The same holds for a lease that ends later than a new one would.
    latest = now + batch.lease + 1
    await db.change(
        "DELETE FROM loads WHERE key = $1 AND worker <> $2 AND (until <= $3 OR until > $4)",
        *(key.name, batch.worker, now, latest),
    )
    rows = await db.rows(_STANDING, key.name, batch.worker, day_of(now))
    ((requests, oldest, newest, streams, reserved_tokens, tokens),) = rows
    load = batch.load.get(key.name, UsageInProgress()).plus(UsageInProgress(int(streams), int(reserved_tokens)))
    standing = KeyUsage(now, int(requests), load, int(tokens))
    if key.requests_per_minute is None or newest is None:
        return standing
    excess = standing.requests - key.requests_per_minute + 1
    if excess > 1:  # the limit was lowered
        oldest = await _time_of(db, key.name, excess)
    return replace(standing, freed_at=oldest + WINDOW, emptied_at=newest + WINDOW)


async def _standings(db: Connection) -> Mapping[str, KeyUsage]:
    now = await _now(db)
    tokens = await db.rows("SELECT key, sum(input + output) FROM usage WHERE day = $1 GROUP BY key", day_of(now))
    arrivals = await db.rows("SELECT key, sum(count) FROM arrivals WHERE at > $1 GROUP BY key", now - WINDOW)
    loads = await db.rows("SELECT key, sum(streams), sum(tokens) FROM loads WHERE until > $1 GROUP BY key", now)
    standings = {key: KeyUsage(now, tokens=int(count)) for key, count in tokens}
    for key, count in arrivals:
        standings[key] = replace(standings.get(key, KeyUsage(now)), requests=int(count))
    for key, streams, reserved_tokens in loads:
        standings[key] = replace(
            standings.get(key, KeyUsage(now)), load=UsageInProgress(int(streams), int(reserved_tokens))
        )
    return standings


async def _time_of(db: Connection, key: str, number: int) -> float:
    """When a request arrived, by its number in the order of arrival."""
    for at, count in await db.rows("SELECT at, count FROM arrivals WHERE key = $1 ORDER BY at LIMIT $2", key, number):
        number -= count
        if number <= 0:
            return at
    raise AssertionError("fewer arrivals stored than counted")


async def _carry(db: Connection, batch: UsageBatch, load: Mapping[str, UsageInProgress], now: float) -> None:
    for name, one in sorted(load.items()):
        if one.streams:
            await db.change(_CARRY, name, batch.worker, one.streams, one.tokens, now + batch.lease)
        else:
            await db.change("DELETE FROM loads WHERE key = $1 AND worker = $2", name, batch.worker)


async def _rows(db: Connection, by: Sequence[Column], since: str) -> Sequence[UsageRow]:
    sums, names = ", ".join(f"sum({name})" for name in COUNT_FIELDS), ", ".join(by)
    query = f"SELECT {names}, {sums} FROM usage WHERE day >= $1 GROUP BY {names} ORDER BY {names}"
    rows: list[UsageRow] = []
    for row in await db.rows(query, since):
        row_by_column = {**dict.fromkeys(COLUMNS, ""), **dict(zip(by, row, strict=False))}
        rows.append(
            UsageRow(
                row_by_column["day"], row_by_column["key"], row_by_column["model"], Counts(*map(int, row[len(by) :]))
            )
        )
    return rows


async def _prune(db: Connection, days: int) -> None:
    now = await _now(db)
    await db.change("DELETE FROM usage WHERE day <= $1", day_of(now - days * DAY))
    await db.change("DELETE FROM arrivals WHERE at <= $1", now - WINDOW)
    await db.change("DELETE FROM loads WHERE until <= $1", now)


async def _erase(db: Connection, key: str) -> int:
    rows = await db.change("DELETE FROM usage WHERE key = $1", key)
    await db.change("DELETE FROM arrivals WHERE key = $1", key)
    await db.change("DELETE FROM loads WHERE key = $1", key)
    return rows
