"""The queue: a worker that stood still, one that is told to end, and many jobs at once."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from functools import partial
from pathlib import Path

import asyncpg
import pytest
from engine_place import open_place
from engine_servers import engine_server

from toolspeak.engines import Delivery, RunClient, WorkLimits
from toolspeak.testing.engine_worker import AGENTS, WorkerProcesses
from toolspeak.testing.journal import new_id

STANDSTILL_SECONDS = 6  # longer than the queue trusts a silent worker
SECONDS = 60.0  # a limit for what hangs
DRAINS = 40
MANY_JOBS = 10_000


def test_a_worker_may_get_its_own_job_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Another worker, which has no room, puts the job back. Both calls of the job come to their end, and the run's
    timer is set: nobody here looks into the journal for runs that the engine has lost."""

    async def act(engine_url: str, journal_url: str) -> None:
        open_engine = partial(open_place, engine_url, journal_url)
        engine, journal = open_engine()
        client, workers = RunClient(journal, engine), WorkerProcesses(open_engine, tmp_path)
        run_id, other_id = new_id(), new_id()
        calls = [("hold", {"name": "gate"}), ("wait", {"event": "paid", "seconds": 1.0}), ("note", {})]
        try:
            worker = await workers.start()
            await client.submit(AGENTS[0], json.dumps(calls), run_id=run_id)
            await workers.wait_for("enters", run_id)
            full = await workers.start(WorkLimits(1))
            workers.send(worker, signal.SIGSTOP)
            await client.submit(AGENTS[0], json.dumps([("hold", {"name": "other gate"})]), run_id=other_id)
            await workers.wait_for("enters", other_id, pid=full)
            await asyncio.sleep(STANDSTILL_SECONDS)
            workers.send(worker, signal.SIGCONT)
            await workers.wait_for("enters", run_id, count=2, pid=worker)
            (tmp_path / "gate").touch()
            assert (await client.result(run_id, SECONDS)).answer == "done"
            assert len(workers.those("notes", run_id)) == 1
        finally:
            await workers.aclose()
            await client.aclose()
            await journal.aclose()

    with engine_server("queue", tmp_path / "queue") as server:
        asyncio.run(act(server.url, server.journal))
    assert "ended with status: Error" not in capfd.readouterr().err


def test_a_worker_ends_whenever_it_is_told_to(tmp_path: Path):
    """Also while its event loop is busy: before Python 3.12 a cancellation may get lost on its way then."""
    dice = random.Random(1)

    async def handle(delivery: Delivery) -> None:
        raise AssertionError(delivery)

    async def keep_busy() -> None:
        while True:
            time.sleep(0.002)  # noqa: ASYNC251 - a tool may do so
            await asyncio.sleep(0)

    async def act(engine_url: str, journal_url: str) -> None:
        busy = asyncio.create_task(keep_busy())
        for _ in range(DRAINS):
            engine, journal = open_place(f"{engine_url}?dead_after=0.06", journal_url)
            stop = asyncio.Event()
            working = asyncio.create_task(engine.work(handle, agents=["a"], limits=WorkLimits(3), stop=stop))
            await asyncio.sleep(dice.uniform(0.05, 0.3))  # it begins, or looks for dead workers
            stop.set()
            async with asyncio.timeout(SECONDS):
                await working
            await engine.aclose()
            await journal.aclose()
        busy.cancel()

    with engine_server("queue", tmp_path / "queue") as server:
        asyncio.run(act(server.url, server.journal))


def test_the_server_does_not_read_the_whole_queue_for_each_job(tmp_path: Path):
    """Also before it has statistics of the table: it counts what it reads."""
    copies = f"""WITH one AS MATERIALIZED (SELECT queue_name, task_name, args FROM procrastinate_jobs)
        INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
        SELECT queue_name, task_name, 'run-' || n, 'run-' || n, args FROM one, generate_series(2, {MANY_JOBS}) AS n"""
    reads = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'procrastinate_jobs'"
    # The copies refer to themselves by the primary key.
    entries = """SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes
        WHERE relname = 'procrastinate_jobs' AND indexrelname <> 'procrastinate_jobs_pkey'"""

    async def ask(journal_url: str, *statements: str) -> list[int]:
        server = await asyncpg.connect(journal_url, server_settings={"search_path": "toolspeak_queue"})
        answers = [await server.fetchval(each) for each in statements]
        await server.close()
        return answers

    async def act(engine_url: str, journal_url: str) -> int:
        engine, journal = open_place(engine_url, journal_url)
        stop = asyncio.Event()

        async def handle(delivery: Delivery) -> None:
            stop.set()

        await engine.enqueue("run-1", agent="a")
        await ask(journal_url, copies)
        async with asyncio.timeout(SECONDS):
            await engine.work(handle, agents=["a"], limits=WorkLimits(1), stop=stop)
        await engine.aclose()
        await journal.aclose()
        return sum(await ask(journal_url, reads, entries))

    with engine_server("queue", tmp_path / "queue") as server:
        # The server reads the table once when a worker of procrastinate ends.
        assert asyncio.run(act(server.url, server.journal)) < 2 * MANY_JOBS
