"""A worker of the queue that stood still gets its own job again."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from engine_place import open_place
from engine_servers import engine_server

from toolspeak.engines import Delivery, RunClient, WorkLimits
from toolspeak.testing.engine_worker import AGENTS, WorkerProcesses
from toolspeak.testing.journal import new_id

STANDSTILL_SECONDS = 6  # longer than the queue trusts a silent worker
SECONDS = 60.0  # a limit for what hangs
DRAINS = 40


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
