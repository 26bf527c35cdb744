"""Fills a journal with finished runs, for `measure.py growth`, and measures what one operation costs beside them."""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import asyncpg
from worker import AGENT, LIMITS, Model, an_agent

from toolspeak import Agent, tool
from toolspeak.agent.storage.archives import archive
from toolspeak.engines import RunClient, open_engine
from toolspeak.journal import Journal, open_journal
from toolspeak.journal.leases import new_owner
from toolspeak.journal.maintenance import MaintainedJournal
from toolspeak.journal.records import sum_of
from toolspeak.journal.sql_schema import SPAN
from toolspeak.journal.sqlite_connection import NOTE

TASK = "Read all files of the project."
TIMES = 20  # of each operation, or as many as fit in the time below
SECONDS = 20.0
ARCHIVED_RUNS = 200  # runs


@tool
async def write(path: str) -> str:
    """Writes a file."""
    return path


async def fill(place: str, runs: int) -> None:
    """Creates finished runs of five steps: executes one run, and copies its rows under new ids."""
    journal = open_journal(place)
    run = an_agent(journal, 5).start(TASK)
    await run.finish()
    await journal.aclose()
    if place.startswith("postgresql:"):
        await _fill_postgres(place, run.run_id, runs)
    else:
        _fill_sqlite(place, run.run_id, runs)


async def _fill_postgres(place: str, run_id: str, runs: int) -> None:
    db = await asyncpg.connect(place)
    await db.execute("SET search_path = toolspeak, public")
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = $1 ORDER BY ordinal_position"
    own = {
        "number": "runs.number + n",
        "run_id": "'old-' || n",
        "created": "created - n",
        "updated": "updated - n",
        "pos": f"records.pos + n::bigint * {SPAN}",
    }
    numbers = f"generate_series(1, {runs}) AS n"
    for table, source in (
        ("runs", f"runs, {numbers} WHERE run_id = $1"),
        ("records", f"records, runs, {numbers} WHERE run_id = $1 AND records.pos / {SPAN} = runs.number"),
    ):
        columns = [row[0] for row in await db.fetch(query, table)]
        places = ", ".join(own.get(name, f"{table}.{name}") for name in columns)
        await db.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) OVERRIDING SYSTEM VALUE SELECT {places} FROM {source}",
            run_id,
            timeout=3600,
        )
    await db.execute("SELECT setval(pg_get_serial_sequence('runs', 'number'), (SELECT max(number) FROM runs))")
    await db.execute("VACUUM ANALYZE", timeout=3600)
    await db.execute("CHECKPOINT", timeout=3600)
    await db.close()


def _fill_sqlite(place: str, run_id: str, runs: int) -> None:
    with closing(sqlite3.connect(place, isolation_level=None)) as db:
        db.create_function("sum_of", 3, sum_of, deterministic=True)
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -200000")
        db.execute("PRAGMA journal_mode = OFF")  # the log would be as large as the file
        db.execute("BEGIN IMMEDIATE")
        for statement in NOTE:
            db.execute(statement)
        (number,) = db.execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        (last,) = db.execute("SELECT max(id) FROM records").fetchone()
        of_run = "FROM records WHERE pos >= ? * 4294967296 AND pos < (? + 1) * 4294967296"
        db.execute(f"CREATE TEMP TABLE one AS SELECT pos, data, places {of_run} ORDER BY pos", (number, number))
        (count,) = db.execute("SELECT count(*) FROM one").fetchone()
        db.execute(
            "CREATE TEMP TABLE numbers AS WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)"
            " SELECT n FROM n",
            (runs,),
        )
        columns = [row[1] for row in db.execute("PRAGMA table_info(runs)")]
        own = {
            "number": "number + n",
            "run_id": "'old-' || n",
            "created": "created - n",
            "updated": "updated - n",
        }
        places = ", ".join(own.get(name, name) for name in columns)
        db.execute(
            f"INSERT INTO runs ({', '.join(columns)}) SELECT {places} FROM numbers CROSS JOIN runs WHERE run_id = ?",
            (run_id,),
        )
        db.execute(
            "INSERT INTO records (pos, data, places, sum) SELECT p, data, places, sum_of(p, data, places) FROM"
            f" (SELECT pos + n * {SPAN} AS p, data, places FROM numbers CROSS JOIN one)"
        )
        # The rows of each run are one stretch.
        db.execute(
            f"INSERT INTO stretches SELECT ({number} + n) * {SPAN}, {last} + 1 + (n - 1) * {count}, {count}"
            " FROM numbers"
        )
        db.execute("UPDATE noted SET upto = (SELECT max(id) FROM records)")
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")


async def wait_for_approval(place: str, count: int, prefix: str) -> list[tuple[str, str, str]]:
    """Runs that wait for an approval. Returns their ids, and the id and the digest of the question of each."""
    journal = open_journal(place)
    agent = Agent(Model(5, "write"), [write], name="asks", journal=journal, limits=LIMITS)
    waiting: list[tuple[str, str, str]] = []
    for number in range(count):
        result = await agent.run(TASK, run_id=f"{prefix}-{number}")
        waiting.append((result.run_id, result.requests[0].call_id, result.requests[0].digest))
    await journal.aclose()
    return waiting


async def median_ms(act: Callable[[int], Awaitable[Any]], times: int = TIMES) -> float:
    """The median time of an operation, which is called with 0, 1, …"""
    took: list[float] = []
    start = time.monotonic()
    while len(took) < times and (not took or time.monotonic() - start < SECONDS):
        before = time.monotonic()
        await act(len(took))
        took.append((time.monotonic() - before) * 1e3)
    return statistics.median(took)


async def costs(engine: str, place: str, early: list[tuple[str, str, str]]) -> dict[str, float]:
    """Milliseconds of each operation. `early`: runs that wait for an approval since before the tables were filled."""
    journal: Journal = open_journal(place)
    client = RunClient(journal, open_engine(engine, journal))
    late = await wait_for_approval(place, TIMES, "late")
    await journal.runs(limit=1)  # opens the connections

    async def decide(waiting: tuple[str, str, str]) -> None:
        await client.decide(waiting[0], waiting[1], True, digest=waiting[2])

    async def take(waiting: tuple[str, str, str]) -> None:
        lease = await journal.acquire(waiting[0], new_owner("embedded"), 30)
        await journal.read(waiting[0])
        await journal.release(lease)

    figures = {
        "list_ms": await median_ms(lambda _: journal.runs(limit=50)),
        "due_ms": await median_ms(lambda _: journal.due_runs(time.time(), agents=[AGENT], limit=50)),
        "submit_ms": await median_ms(lambda number: client.submit(AGENT, TASK, run_id=f"one-{number}"), 200),
        "decide_ms": await median_ms(lambda number: decide(late[number])),
        "resume_ms": await median_ms(lambda number: take(late[number])),
        "resume_early_ms": await median_ms(lambda number: take(early[number]), len(early)),
    }
    await client.aclose()
    await journal.aclose()
    return figures


async def takeover_ms(place: str) -> float:
    """Milliseconds to find, take and read a run whose worker was killed."""
    journal: Journal = open_journal(place)
    await journal.runs(limit=1)
    run_ids = [
        info.run_id for info in await journal.due_runs(time.time(), agents=[AGENT], limit=150) if info.owner is not None
    ]

    async def take(number: int) -> None:
        due = await journal.due_runs(time.time(), agents=[AGENT], limit=150)
        assert run_ids[number] in [info.run_id for info in due]
        lease = await journal.acquire(run_ids[number], new_owner("embedded"), 30)
        assert lease.took_over
        await journal.read(run_ids[number])

    figure = await median_ms(take, min(TIMES, len(run_ids)))
    await journal.aclose()
    return figure


async def archive_ms(place: str, finished_runs: int) -> float:
    """Milliseconds a run to move the oldest runs into a file."""
    journal = cast("MaintainedJournal", open_journal(place))
    info = await journal.run(f"old-{finished_runs}")
    assert info is not None
    with tempfile.TemporaryDirectory(prefix="tsscale-") as folder:
        start = time.monotonic()
        removals = [each async for each in archive(journal, Path(folder), before=info.updated + ARCHIVED_RUNS - 0.5)]
        seconds = time.monotonic() - start
    assert sum(each.runs for each in removals) == ARCHIVED_RUNS, removals
    await journal.aclose()
    return seconds * 1e3 / ARCHIVED_RUNS
