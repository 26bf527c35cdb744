"""Restate's connections to a worker."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest
from engine_servers import LOG, Restate
from engines_runs import until_done

from toolspeak.engines import Delivery, WorkLimits, open_engine
from toolspeak.journal import MemoryJournal

RUNS = 40
SECONDS = 60.0  # a limit for what hangs


@pytest.mark.parametrize("calls_per_connection", [1, 128], ids=["as the guide says", "as the server's default"])
def test_runs_that_begin_at_once_wait_for_no_other(
    calls_per_connection: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """All of them are called before one returns, and no connection breaks. The worker warns if they share one."""

    async def act(url: str) -> None:
        worker, client = open_engine(url, MemoryJournal()), open_engine(url, MemoryJournal())
        stop, under_way, registration = asyncio.Event(), asyncio.Barrier(RUNS + 1), asyncio.Event()

        async def handle(delivery: Delivery) -> None:
            if delivery.run_id == "first":
                registration.set()
            else:
                await under_way.wait()

        working = asyncio.create_task(worker.work(handle, agents=["buyer"], limits=WorkLimits(RUNS), stop=stop))
        async with asyncio.timeout(SECONDS):
            await until_done(lambda: client.enqueue("first", agent="buyer"))
            await registration.wait()
            errors_before = LOG.read_text().count("connection error")
            await asyncio.gather(*(client.enqueue(f"run-{number}", agent="buyer") for number in range(RUNS)))
            await under_way.wait()
        stop.set()
        await working
        await worker.aclose()
        await client.aclose()
        assert LOG.read_text().count("connection error") == errors_before
        assert ("STREAMS_PER_CONNECTION_LIMIT=1" in caplog.text) == (calls_per_connection > 1)

    restate = Restate(tmp_path, calls_per_connection=calls_per_connection)
    restate.start()
    try:
        asyncio.run(act(restate.url))
    finally:
        restate.kill()


def test_more_runs_than_the_server_calls_at_once_are_all_driven(tmp_path: Path):
    """No call keeps one of the server's places while it waits for another call, and none is lost that came while as
    many were under way."""

    async def act(url: str) -> None:
        worker, client = open_engine(url, MemoryJournal()), open_engine(url, MemoryJournal())
        stop, all_driven, deliveries = asyncio.Event(), asyncio.Event(), Counter[str]()

        async def handle(delivery: Delivery) -> None:
            deliveries[delivery.run_id] += 1
            if deliveries[delivery.run_id] == 1:
                await client.enqueue(delivery.run_id, agent="buyer")
            if len(deliveries) > RUNS and min(deliveries.values()) > 1:
                all_driven.set()

        working = asyncio.create_task(worker.work(handle, agents=["buyer"], limits=WorkLimits(4), stop=stop))
        async with asyncio.timeout(SECONDS):
            await until_done(lambda: client.enqueue("first", agent="buyer"))
            due = time.time() + 3
            await asyncio.gather(*(client.enqueue(f"run-{number}", agent="buyer", at=due) for number in range(RUNS)))
            await all_driven.wait()
        stop.set()
        await working
        await worker.aclose()
        await client.aclose()

    restate = Restate(tmp_path, calls_at_once=1)
    restate.start()
    try:
        asyncio.run(act(restate.url))
    finally:
        restate.kill()
