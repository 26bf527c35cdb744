"""Runs on every engine while workers and servers die: nothing lost, nothing twice, and the caller gets its answer."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import TypeVar

import pytest
from engine_servers import EngineServer
from new_code import check_new_code
from run_program import AGENT, ANSWER, CALLS
from worker_processes import Workers

from toolspeak.data.events import ToolFinished
from toolspeak.engines import RunClient, open_engine
from toolspeak.errors import EngineError, JournalError
from toolspeak.journal import Journal, open_journal

KILLS = int(os.environ.get("KILLS", "8"))
ANSWER_SECONDS = 120.0  # a limit for what hangs
T = TypeVar("T")


class Caller:
    """A program that submits runs and waits for their answers."""

    def __init__(self, client: RunClient, journal: Journal) -> None:
        self._client, self.journal = client, journal
        self.answers: dict[str, asyncio.Task[None]] = {}
        self.runs = 0

    async def submit(self, count: int) -> None:
        """Submits runs under ids of its own, so that it may try again."""
        for _ in range(count):
            run_id = f"order-{time.time_ns()}"
            await until_done(lambda run_id=run_id: self._client.submit(AGENT, "Pay all.", run_id=run_id))
            self.answers[run_id] = asyncio.create_task(self._answer(run_id))
            self.runs += 1

    async def _answer(self, run_id: str) -> None:
        result = await until_done(lambda: self._client.result(run_id, ANSWER_SECONDS))
        assert (result.status, result.answer) == ("answered", ANSWER), result

    async def wait_for_answers(self) -> None:
        """Waits for the answers. Each run has all its records, and one result for each call."""
        await asyncio.gather(*self.answers.values())
        while self.answers:
            run_id, _ = self.answers.popitem()
            records = await self.journal.read(run_id)
            assert [record.seq for record in records] == list(range(len(records)))
            results = Counter(each.event.call_id for each in records if isinstance(each.event, ToolFinished))
            assert list(results.values()) == [1] * CALLS

    def check_effects(self, folder: Path) -> None:
        """Each call had its effect outside, once."""
        effects = Counter((folder / "effects").read_text().splitlines())
        assert [key for key, count in effects.items() if count > 1] == []
        assert len(effects) == CALLS * self.runs


async def until_done(act: Callable[[], Awaitable[T]]) -> T:
    """What a patient caller does while a server is away."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return await act()
        except (EngineError, JournalError, OSError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


@asynccontextmanager
async def calling(server: EngineServer) -> AsyncIterator[Caller]:
    journal = open_journal(server.journal)
    client = RunClient(journal, open_engine(server.url, journal))
    caller = Caller(client, journal)
    try:
        yield caller
    finally:
        for answer in caller.answers.values():
            answer.cancel()
        await client.aclose()
        await journal.aclose()


@pytest.fixture
def workers(server: EngineServer, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers("run_program.py", server.url, server.journal, str(tmp_path), "pay")
    try:
        yield workers
    finally:
        workers.end()


async def a_call(workers: Workers, *pids: int) -> str:
    """Waits for the next call of a run in one of these workers, or in any; returns the run's id."""
    report = await asyncio.to_thread(
        workers.wait_for, lambda report: report.event == "calls" and (not pids or report.pid in pids)
    )
    return report.run


def takeovers(workers: Workers, deaths: dict[int, float], restarts: list[float]) -> list[float]:
    """Of each run that a killed worker drove: how many seconds after its death the next call begins elsewhere. Those
    in which a server was restarted are left out."""
    gaps: list[float] = []
    calls: dict[str, list[tuple[float, int]]] = {}
    for report in sorted(workers.reports, key=lambda report: report.time):
        if report.event == "calls":
            calls.setdefault(report.run, []).append((report.time, report.pid))
    for starts in calls.values():
        for (_, before), (start, after) in pairwise(starts):
            death = deaths.get(before, start)
            if before != after and death < start and not any(death - 5 < each < start for each in restarts):
                gaps.append(start - death)
    return gaps


def test_killed_workers_and_restarted_servers_lose_and_repeat_nothing(
    server: EngineServer, workers: Workers, tmp_path: Path
):
    """Three workers, of which one after another is killed at a random time while runs come. After every fourth a server
    is restarted."""
    dice, deaths, restarts = random.Random(7), dict[int, float](), list[float]()

    async def act() -> None:
        async with calling(server) as caller:
            for _ in range(3):
                await asyncio.to_thread(workers.start)
            for number in range(KILLS):
                await caller.submit(4)
                await a_call(workers)
                await asyncio.sleep(dice.uniform(0, 0.3))
                pid = dice.choice(sorted(workers.processes))
                deaths[pid] = time.time()
                await asyncio.to_thread(workers.kill, pid)
                await asyncio.to_thread(workers.start)
                if number % 4 == 3:
                    await caller.wait_for_answers()
                    await caller.submit(4)
                    await a_call(workers)
                    restarts.append(time.time())
                    await asyncio.to_thread(server.restarts[number // 4 % len(server.restarts)])
                    restarts.append(time.time())
            await caller.wait_for_answers()
            caller.check_effects(tmp_path)
            workers.read_all()
            gaps = takeovers(workers, deaths, restarts)
            if len(gaps) > 1:
                last = quantiles(gaps, n=100, method="inclusive")[98]
                print(
                    f"\n{server.name}: {KILLS} workers killed, {len(restarts) // 2} restarts of servers:"
                    f" {caller.runs} runs, all answered, no call lost, none twice. {len(gaps)} runs were taken"
                    f" over; the next call begins after {median(gaps):.2f} s (median), {last:.2f} s (99 %),"
                    f" {max(gaps):.2f} s (longest)"
                )

    asyncio.run(act())


def test_new_code_leaves_no_run_of_older_code_behind(server: EngineServer):
    async def act() -> None:
        journal = open_journal(server.journal)
        await check_new_code(journal, server.url)
        await journal.aclose()

    asyncio.run(act())


def test_new_code_goes_on_with_runs_that_a_dead_worker_drove(server: EngineServer, workers: Workers, tmp_path: Path):
    """The tool of the older code is gone in the newer one. Calls whose outcome nobody knows are not repeated."""

    async def act() -> None:
        async with calling(server) as caller:
            older = await asyncio.to_thread(workers.start)
            await caller.submit(4)
            await a_call(workers)
            await asyncio.to_thread(workers.kill, older)
            workers.arguments[-1] = "transfer"
            await asyncio.to_thread(workers.start)
            await caller.wait_for_answers()
            effects = Counter((tmp_path / "effects").read_text().splitlines())
            assert [key for key, count in effects.items() if count > 1] == []

    asyncio.run(act())


def test_workers_that_stand_still_for_a_while_do_no_harm(server: EngineServer, workers: Workers):
    """A worker that is stopped (SIGSTOP) is believed dead, and goes on later: its records are refused. Its call may
    have had its effect while another worker asked `verify`, so effects are not counted."""
    dice = random.Random(8)

    async def act() -> None:
        async with calling(server) as caller:
            pids = [await asyncio.to_thread(workers.start) for _ in range(2)]
            for _ in range(max(2, KILLS // 4)):
                await caller.submit(3)
                await a_call(workers)
                pid = dice.choice(pids)
                workers.send(pid, signal.SIGSTOP)
                await asyncio.sleep(6)  # longer than any engine here waits
                workers.send(pid, signal.SIGCONT)
            await caller.wait_for_answers()

    asyncio.run(act())
