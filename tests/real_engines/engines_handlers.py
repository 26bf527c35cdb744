"""The contract of engines, with handlers that drive nothing: what is enqueued is delivered, whoever dies."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import pytest
from engine_servers import EngineServer
from handler_program import AGENT
from worker_processes import Workers

from toolspeak.engines import open_engine
from toolspeak.errors import EngineError
from toolspeak.journal import open_journal

_numbers = count(1)


@pytest.fixture
def workers(server: EngineServer) -> Iterator[Workers]:
    """Two workers."""
    workers = Workers("handler_program.py", server.url, server.journal)
    try:
        expected = {workers.start(), workers.start()}
        # Until both have had a run: a worker that has just started may not have registered.
        while not expected <= {said.pid for said in workers.said if said.event == "returns"}:
            runs = [new_run("sleep-0.2") for _ in range(3)]
            enqueue(server, *runs)
            for _ in runs:
                workers.wait_for(lambda said: said.event == "returns")
        workers.said.clear()
        yield workers
    finally:
        workers.end()


def new_run(what: str) -> str:
    return f"run{next(_numbers)}.{time.time_ns()}-{what}"


def enqueue(server: EngineServer, *run_ids: str, at: float | None = None) -> None:
    async def put(repeat: Callable[[], Awaitable[None]]) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                return await repeat()
            except EngineError:  # no worker has registered yet
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def act() -> None:
        journal = open_journal(server.journal)
        engine = open_engine(server.url, journal)
        for run_id in run_ids:
            await put(lambda run_id=run_id: engine.enqueue(run_id, agent=AGENT, at=at))
        await engine.aclose()
        await journal.aclose()

    asyncio.run(act())


def test_a_run_is_delivered_once(server: EngineServer, workers: Workers):
    run = new_run("do-0")
    enqueue(server, run)
    assert workers.event("called", run).attempt == 1
    workers.event("returns", run)
    other = new_run("do-0")
    enqueue(server, other)
    workers.event("returns", other)
    assert [said.event for said in workers.said if said.run == run] == ["called", "returns"]


def test_a_wake_up_during_a_run_leads_to_one_more_delivery(server: EngineServer, workers: Workers):
    run = new_run("sleep-1")
    enqueue(server, run)
    workers.event("called", run)
    enqueue(server, run, run, run)
    workers.event("returns", run)
    workers.event("called", run)
    workers.event("returns", run)
    later = new_run("sleep-2")
    enqueue(server, later)
    workers.event("returns", later)
    assert [said.event for said in workers.said if said.run == run] == ["called", "returns"] * 2


def test_a_run_is_delivered_at_its_time_or_earlier(server: EngineServer, workers: Workers):
    run, due = new_run("do-0"), time.time() + 2
    enqueue(server, run, at=due)
    assert workers.event("called", run).time >= due - 0.05
    run = new_run("do-0")
    enqueue(server, run, at=time.time() + 3600)
    enqueue(server, run)
    workers.event("returns", run)


def test_a_handler_is_called_again_when_it_says_so_and_when_it_raises(server: EngineServer, workers: Workers):
    run, failing = new_run("again-2"), new_run("fail-2")
    enqueue(server, run)
    for _ in range(2):
        workers.event("returns", run)
    enqueue(server, failing)
    assert workers.event("returns", failing).attempt == 3


def test_another_worker_takes_over_from_a_dead_one(server: EngineServer, workers: Workers):
    gaps: list[float] = []
    for also_woken in (False, True, False, True):
        run = new_run("sleep-3")
        enqueue(server, run)
        first = workers.event("called", run)
        if also_woken:
            enqueue(server, run)
        workers.kill(first.pid)
        died = time.time()
        second = workers.event("called", run)
        gaps.append(second.time - died)
        assert second.pid != first.pid
        workers.event("returns", run)
        workers.start()
    print(
        f"{server.name}: the next call begins {', '.join(f'{gap:.2f}' for gap in gaps)} s after the death of a worker"
    )


def test_a_worker_that_drains_ends_what_it_drives(server: EngineServer, workers: Workers):
    run, next_run = new_run("sleep-6"), new_run("do-0")
    enqueue(server, run)
    first = workers.event("called", run)
    workers.send(first.pid, signal.SIGTERM)
    enqueue(server, next_run)
    assert workers.event("returns", next_run).pid != first.pid
    assert workers.event("returns", run).pid == first.pid
    workers.drain(first.pid)
    assert [said.pid for said in workers.said if (said.event, said.run) == ("called", run)] == [first.pid]


def test_a_restart_of_the_server_loses_nothing(server: EngineServer, workers: Workers):
    under_way, waiting = new_run("sleep-4"), new_run("do-0")
    enqueue(server, under_way)
    enqueue(server, waiting, at=time.time() + 3)
    workers.event("called", under_way)
    server.restarts[0]()
    workers.wait_for(lambda said: said.event == "returns" and said.run in (under_way, waiting))
    workers.wait_for(lambda said: said.event == "returns" and said.run in (under_way, waiting))
    after = new_run("do-0")
    enqueue(server, after)
    workers.event("returns", after)


def test_a_worker_that_was_believed_dead_does_no_harm(server: EngineServer, workers: Workers):
    if server.name == "dbos":
        pytest.skip("it believes the journal's lease, which these handlers do not take")
    run = new_run("sleep-3")
    enqueue(server, run)
    stopped = workers.event("called", run)
    workers.send(stopped.pid, signal.SIGSTOP)
    assert workers.event("called", run).pid != stopped.pid
    workers.send(stopped.pid, signal.SIGCONT)
    workers.event("returns", run)
    workers.event("returns", run)
    enqueue(server, run)
    workers.event("returns", run)
    for _ in range(6):  # both work again
        later = new_run("do-0")
        enqueue(server, later)
        workers.event("returns", later)
