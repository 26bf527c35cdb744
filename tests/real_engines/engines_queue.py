"""A worker of the queue that stood still gets its own job again."""

from __future__ import annotations

import asyncio
import json
import signal
from functools import partial
from pathlib import Path

import pytest
from engine_place import open_place
from engine_servers import engine_server

from toolspeak.engines import RunClient, WorkLimits
from toolspeak.testing.engine_worker import AGENTS, WorkerProcesses
from toolspeak.testing.journal import new_id

STANDSTILL_SECONDS = 6  # longer than the queue trusts a silent worker
SECONDS = 60.0  # a limit for what hangs


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
