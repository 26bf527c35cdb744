"""The contract of an engine, as checks for an engine of your own.

Each check takes `open_engine`, a function that opens the engine and its journal again and again, in workers in
processes of their own too. A check raises AssertionError. Ids are new in each check, so one queue serves them all.
"""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from toolspeak.agent import RunResult
from toolspeak.data.events import ToolFinished
from toolspeak.engines.base import WorkLimits
from toolspeak.engines.run_client import RunClient
from toolspeak.errors import EngineError
from toolspeak.journal.base import Journal
from toolspeak.testing.engine_worker import AGENTS, FAILING, OpenEngine, WorkerProcesses
from toolspeak.testing.journal import new_id

EngineCheck: TypeAlias = Callable[[OpenEngine], Awaitable[None]]

_SECONDS = 120.0  # a limit for what hangs
_LATER_SECONDS = 2.0
_NamedCall: TypeAlias = tuple[str, dict[str, Any]]
_NOTE: _NamedCall = ("note", {})
_HOLD: _NamedCall = ("hold", {"name": "gate"})


class _Stage:
    """Workers, and a program that submits runs to them."""

    def __init__(self, client: RunClient, journal: Journal, workers: WorkerProcesses, folder: Path) -> None:
        self.client, self.journal, self.workers, self._folder = client, journal, workers, folder

    async def submit(self, *calls: _NamedCall, run_id: str = "", agent: str = AGENTS[0], **options: Any) -> str:
        """Submits a run that makes these calls, one a turn. Repeated while the engine refuses it: some do until they
        know a worker."""
        run_id = run_id or new_id()
        async with asyncio.timeout(_SECONDS):
            while True:
                try:
                    await self.client.submit(agent, json.dumps(calls), run_id=run_id, **options)
                    return run_id
                except EngineError:
                    await asyncio.sleep(0.1)

    async def check_count(self, event: str, run_id: str, count: int) -> None:
        """Checks that something happened in a run so many times, and no more often."""
        await self.workers.wait_for(event, run_id, count=count)
        assert len(self.workers.those(event, run_id)) == count, f"{event!r} came too often: {self.workers.reports}"

    def open_gate(self) -> None:
        """Lets every call of `hold` return."""
        (self._folder / "gate").touch()

    async def check_answers(self, *run_ids: str) -> None:
        """Waits until the runs have been answered. Each has all its records, and one result for each call."""
        for run_id in run_ids:
            result = await self.client.result(run_id, _SECONDS)
            assert (result.status, result.answer) == ("answered", "done"), result
            records = await self.journal.read(run_id)
            assert [each.seq for each in records] == list(range(len(records)))
            results = [each.event.call_id for each in records if isinstance(each.event, ToolFinished)]
            assert len(results) == len(set(results)), f"a call of run {run_id} has two results"

    async def until(self, run_id: str, status: str) -> RunResult[Any]:
        """Waits until a run has this status."""
        async with asyncio.timeout(_SECONDS):
            async for _ in self.journal.follow(run_id):
                result = await self.client.status(run_id)
                if result.status == status:
                    return result
        raise AssertionError


@asynccontextmanager
async def _stage(open_engine: OpenEngine) -> AsyncGenerator[_Stage]:
    engine, journal = open_engine()
    with tempfile.TemporaryDirectory() as name:
        workers = WorkerProcesses(open_engine, Path(name))
        client = RunClient(journal, engine)
        try:
            yield _Stage(client, journal, workers, Path(name))
        finally:
            await workers.aclose()
            await client.aclose()
            await journal.aclose()


async def check_a_run_is_driven_once(open_engine: OpenEngine) -> None:
    """However often it is enqueued: before it is driven, meanwhile and after its end."""
    async with _stage(open_engine) as stage:
        await stage.workers.start()
        await stage.workers.start()
        run_id = new_id()
        for _ in range(3):
            await stage.submit(_NOTE, _HOLD, run_id=run_id)
        await stage.workers.wait_for("enters", run_id)
        for _ in range(3):
            await stage.submit(_NOTE, _HOLD, run_id=run_id)
        stage.open_gate()
        await stage.check_answers(run_id)
        engine, journal = open_engine()
        await engine.enqueue(run_id, agent=AGENTS[0])
        await stage.check_answers(await stage.submit(_NOTE))
        await engine.aclose()
        await journal.aclose()
        await stage.check_count("notes", run_id, 1)


async def check_a_run_begins_at_its_time(open_engine: OpenEngine) -> None:
    """Not before it, whoever enqueues it earlier; and a delivery that comes too early does not lose it."""
    async with _stage(open_engine) as stage:
        await stage.workers.start()
        await stage.check_answers(await stage.submit(_NOTE))
        at = time.time() + _LATER_SECONDS
        run_id = await stage.submit(_NOTE, at=at)
        early = await stage.submit(_NOTE, at=at)
        engine, journal = open_engine()
        await engine.enqueue(early, agent=AGENTS[0])
        await engine.aclose()
        await journal.aclose()
        await stage.check_answers(run_id, early)
        for each in (run_id, early):
            assert (await stage.workers.wait_for("notes", each)).time >= at, "a run began before its time"


async def check_a_wake_up_starts_a_waiting_run(open_engine: OpenEngine) -> None:
    """Also one that would wait for an hour, and one whose event comes while it is driven."""
    async with _stage(open_engine) as stage:
        await stage.workers.start()
        waiting = await stage.submit(("wait", {"event": "paid", "seconds": 3600.0}), _NOTE)
        driven_run = await stage.submit(_HOLD, ("wait", {"event": "paid", "seconds": 3600.0}), _NOTE)
        timed_run = await stage.submit(("wait", {"event": "paid", "seconds": _LATER_SECONDS}), _NOTE)
        await stage.until(waiting, "waiting")
        assert await stage.client.deliver(waiting, "paid", {})
        await stage.workers.wait_for("enters", driven_run)
        assert await stage.client.deliver(driven_run, "paid", {})
        stage.open_gate()
        await stage.check_answers(waiting, driven_run, timed_run)


async def check_a_dead_workers_run_is_taken_over(open_engine: OpenEngine) -> None:
    """By another worker, with what is recorded. What was woken while it was driven is taken over once, too."""
    async with _stage(open_engine) as stage:
        first = await stage.workers.start()
        run_id, woken_run = await stage.submit(_NOTE, _HOLD, _NOTE), await stage.submit(_NOTE, _HOLD, _NOTE)
        for each in (run_id, woken_run):
            await stage.workers.wait_for("enters", each)
        await stage.submit(_NOTE, _HOLD, _NOTE, run_id=woken_run)
        await stage.workers.start()
        stage.workers.send(first, signal.SIGKILL)
        await stage.workers.wait_for_exit(first)
        for each in (run_id, woken_run):
            assert (await stage.workers.wait_for("enters", each, count=2)).pid != first
        stage.open_gate()
        await stage.check_answers(run_id, woken_run)
        for each in (run_id, woken_run):
            await stage.check_count("notes", each, 2)  # a recorded call does not run again


async def check_a_worker_that_is_believed_dead_is_fenced(open_engine: OpenEngine) -> None:
    """A worker that stands still, and goes on when another one drives its run, does nothing more of it. This takes as
    long as the engine, or the run's lease (30 seconds), trusts a silent worker."""
    async with _stage(open_engine) as stage:
        first = await stage.workers.start()
        run_id = await stage.submit(_HOLD, _NOTE)
        await stage.workers.wait_for("enters", run_id)
        await stage.workers.start()
        stage.workers.send(first, signal.SIGSTOP)
        assert (await stage.workers.wait_for("enters", run_id, count=2)).pid != first
        stage.workers.send(first, signal.SIGCONT)
        stage.open_gate()
        await stage.workers.wait_for("leaves", run_id)
        await stage.check_answers(run_id)
        # The first worker is of use again, and ends when it is asked to.
        stage.workers.send(first, signal.SIGTERM)
        assert await stage.workers.wait_for_exit(first) == 0
        await stage.check_count("notes", run_id, 1)


async def check_a_worker_that_stops_ends_what_it_drives(open_engine: OpenEngine) -> None:
    """It gets nothing more, and another worker drives what comes."""
    async with _stage(open_engine) as stage:
        first = await stage.workers.start()
        run_id = await stage.submit(_HOLD, _NOTE)
        await stage.workers.wait_for("enters", run_id)
        second = await stage.workers.start()
        stage.workers.send(first, signal.SIGTERM)
        await stage.workers.wait_for("stops", pid=first)
        later = await stage.submit(_NOTE)
        await stage.check_answers(later)
        assert (await stage.workers.wait_for("delivered", later)).pid == second
        stage.open_gate()
        await stage.check_answers(run_id)
        assert await stage.workers.wait_for_exit(first) == 0
        assert [each.pid for each in stage.workers.those("delivered", run_id)] == [first]


async def check_a_handler_that_raises_is_called_again(open_engine: OpenEngine) -> None:
    """After a pause, as often as it takes. Meanwhile other runs have its place."""
    async with _stage(open_engine) as stage:
        await stage.workers.start(WorkLimits(1))
        run_id = await stage.submit(_NOTE, run_id=FAILING + new_id())
        await stage.workers.wait_for("raises", run_id, count=2)
        await stage.check_answers(await stage.submit(_NOTE))
        stage.open_gate()
        await stage.check_answers(run_id)


async def check_limits(open_engine: OpenEngine) -> None:
    """Of a worker's runs, of an agent's and of a principal's, or the engine refuses the limit."""
    many, few = AGENTS
    all_limits = (WorkLimits(3, {few: 1}), WorkLimits(3, per_principal=1))
    for limits, options in zip(all_limits, ({"agent": few}, {"principal": "ann"}), strict=True):
        async with _stage(open_engine) as stage:
            pid = await stage.workers.start(limits)
            if limits.per_principal is not None and await _is_refused(stage, pid):
                continue
            limited_runs = {await stage.submit(_HOLD, **options) for _ in range(3)}
            others = {await stage.submit(_HOLD, agent=many) for _ in range(3)}
            await stage.workers.wait_for("enters", count=3)
            stage.open_gate()
            await stage.check_answers(*limited_runs, *others)
            at_once, most, most_limited = set[str](), 0, 0
            for each in stage.workers.reports:
                if each.event in ("enters", "leaves"):
                    at_once ^= {each.run_id}
                    most, most_limited = max(most, len(at_once)), max(most_limited, len(at_once & limited_runs))
            assert (most, most_limited) == (3, 1)


async def _is_refused(stage: _Stage, pid: int) -> bool:
    """Whether the engine refuses the worker's limits; if it does not, a run is driven."""
    trial = asyncio.create_task(stage.submit(_NOTE))
    drive = asyncio.create_task(stage.workers.wait_for("notes"))
    refusal = asyncio.create_task(stage.workers.wait_for("refused", pid=pid))
    await asyncio.wait((drive, refusal), return_when=asyncio.FIRST_COMPLETED)
    for each in (trial, drive, refusal):
        each.cancel()
    await asyncio.gather(trial, drive, refusal, return_exceptions=True)
    return refusal.done() and not refusal.cancelled()


ENGINE_CHECKS: tuple[EngineCheck, ...] = (
    check_a_run_is_driven_once,
    check_a_run_begins_at_its_time,
    check_a_wake_up_starts_a_waiting_run,
    check_a_dead_workers_run_is_taken_over,
    check_a_worker_that_is_believed_dead_is_fenced,
    check_a_worker_that_stops_ends_what_it_drives,
    check_a_handler_that_raises_is_called_again,
    check_limits,
)
"""The checks of the contract. All of them hold for every engine."""
