"""A worker: drives the runs that an engine delivers to it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from inspect import isawaitable
from typing import Any, TypeAlias

from toolspeak.agent import Agent, Run
from toolspeak.agent.storage.runs import suspend_run
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.engines.base import Delivery, Engine, WorkLimits
from toolspeak.engines.embedded_engine import EmbeddedEngine
from toolspeak.engines.handler_calls import cancel_and_wait
from toolspeak.errors import ConfigurationError, JournalError, LeaseLost, ProviderError, RunBusy, RunError, RunStuck
from toolspeak.journal import Journal
from toolspeak.journal.base import RunInfo

_LOG = logging.getLogger("toolspeak.worker")

DepsOf: TypeAlias = Callable[[RunInfo], Any | Awaitable[Any]]
"""Returns the `deps` of a run's tools."""

MOST_ATTEMPTS = 5
"""How many times in a row a run may be resumed without getting any further before it is suspended."""

_NO_LIMITS = WorkLimits()
_BUSY_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_SWEEP_SECONDS = 15.0


class Worker:
    """Drives the runs of agents that an engine delivers.

        await Worker([support, billing], journal).run()

    - `agents`: the agents whose runs it drives, by their names. Each must have the journal.
    - `journal`: where the runs are.
    - `engine`: which worker drives a run, and when. None: the embedded engine.
    - `limits`: how many runs it drives at the same time.
    - `deps`: returns the `deps` of a run (also an async function).
    - `drain_seconds`: how long `stop` waits for the turn or the calls under way of each run before it cancels them.

    Raises ConfigurationError for no agent, two agents of one name, and an agent with another journal.
    """

    def __init__(
        self,
        agents: Iterable[Agent[Any, Any]],
        journal: Journal,
        engine: Engine | None = None,
        *,
        limits: WorkLimits = _NO_LIMITS,
        deps: DepsOf | None = None,
        drain_seconds: float = 30.0,
    ) -> None:
        self._agents: dict[str, Agent[Any, Any]] = {}
        for agent in agents:
            if self._agents.setdefault(agent.name, agent) is not agent:
                raise ConfigurationError(f"two agents have the name {agent.name!r}: a run's agent is found by its name")
            if agent.journal is not journal:
                raise ConfigurationError(f"the agent {agent.name!r} has not the worker's journal: Agent(journal=…)")
        if not self._agents:
            raise ConfigurationError("a worker needs an agent")
        self.journal = journal
        self.engine: Engine = EmbeddedEngine("embedded:", journal) if engine is None else engine
        self._limits = limits
        self._deps = deps
        self._drain_seconds = drain_seconds
        self._stop = asyncio.Event()
        self._runs: dict[str, tuple[Run, asyncio.Task[Any]]] = {}
        self._failures: dict[str, tuple[int, int]] = {}  # of a run: its records, and how often it failed there

    async def run(self) -> None:
        """Drives runs until `stop` is called, and returns once none is under way."""
        sweeping = asyncio.ensure_future(self._sweep())
        draining = asyncio.ensure_future(self._drain())
        try:
            await self.engine.work(self.handle, agents=tuple(self._agents), limits=self._limits, stop=self._stop)
        finally:
            await cancel_and_wait((sweeping, draining))

    def stop(self) -> None:
        """Takes no further run, and lets those under way step aside before their next turn or call: another worker goes
        on with them. Call it in the event loop's thread."""
        self._stop.set()

    async def handle(self, delivery: Delivery) -> float | None:
        """Drives a run if it is due: the `RunHandler`."""
        run_id, now = delivery.run_id, time.time()
        info = await self.journal.run(run_id)
        if info is None or info.status not in UNFINISHED_STATUSES:
            return None
        agent = self._agents.get(info.agent)
        if agent is None:
            _LOG.warning("run %s is one of the agent %r, which this worker does not have", run_id, info.agent)
            return now + _BUSY_SECONDS
        if info.status != "running" and (info.due is None or info.due > now):
            return info.due
        if self._stop.is_set():
            return now
        try:
            await self._drive(agent, info, delivery)
        except RunBusy:
            return time.time() + _BUSY_SECONDS
        except LeaseLost:
            _LOG.warning("run %s was taken over by another worker", run_id)
            return None
        except RunStuck as error:
            _LOG.error("%s", error)
            try:
                await suspend_run(self.journal, run_id)
            except (RunError, JournalError):  # it waits for a person, too
                return time.time() + _LONGEST_PAUSE
            return None
        except ProviderError as error:
            _LOG.warning("run %s failed: %s", run_id, error)  # the run has ended
        except asyncio.CancelledError:
            if not self._stop.is_set():
                raise
            _LOG.warning("run %s did not step aside in time, and was cut off", run_id)
            return time.time()
        except Exception as error:  # noqa: BLE001 - of one run, and a worker drives many
            if isinstance(error, RunError) and not await self._is_open(run_id):
                return None
            return await self._retry_time(info, error)
        self._failures.pop(run_id, None)
        after = await self.journal.run(run_id)
        if after is None:
            return None  # its session was deleted
        _LOG.info("run %s of %s is %s", run_id, info.agent, after.status.replace("_", " "))
        return after.due if after.status in UNFINISHED_STATUSES else None

    async def _drive(self, agent: Agent[Any, Any], info: RunInfo, delivery: Delivery) -> None:
        deps = None if self._deps is None else self._deps(info)
        if isawaitable(deps):
            deps = await deps
        run = agent.reopen(info.run_id, deps=deps, most_attempts=MOST_ATTEMPTS)
        run.drive_for(self.engine.name, takes_over=delivery.takes_over == self.engine.name)
        task = asyncio.ensure_future(agent.finish(run))
        self._runs[info.run_id] = run, task
        try:
            if self._stop.is_set():
                run.step_aside()
            await task
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            if self._runs.get(info.run_id, (None, None))[1] is task:
                del self._runs[info.run_id]

    async def _is_open(self, run_id: str) -> bool:
        info = await self.journal.run(run_id)
        return info is not None and info.status in UNFINISHED_STATUSES

    async def _retry_time(self, before: RunInfo, error: Exception) -> float:
        """When to try again after an error that is not the run's own: a journal that is away, say, or a programming
        error in `deps`."""
        records = before.records
        with suppress(JournalError):
            info = await self.journal.run(before.run_id)
            records = records if info is None else info.records
        earlier, count = self._failures.get(before.run_id, (records, 0))
        count = count + 1 if earlier == records else 1
        self._failures[before.run_id] = records, count
        pause = min(_FIRST_PAUSE * 2 ** (count - 1), _LONGEST_PAUSE)
        _LOG.error("run %s broke off; it is tried again in %.0f seconds", before.run_id, pause, exc_info=error)
        return time.time() + pause

    async def _drain(self) -> None:
        await self._stop.wait()
        for run, _ in tuple(self._runs.values()):
            run.step_aside()
        await asyncio.sleep(self._drain_seconds)
        for _, task in tuple(self._runs.values()):
            task.cancel()

    async def _sweep(self) -> None:
        """Tells the engine of runs that it should know and may not: a process may die between submitting a run and
        enqueuing it, and another program's run may be interrupted."""
        if isinstance(self.engine, EmbeddedEngine):
            return  # it does nothing else
        while True:
            with suppress(JournalError):
                for info in await self.journal.due_runs(time.time() - _SWEEP_SECONDS, agents=tuple(self._agents)):
                    if info.run_id not in self._runs:
                        await self.engine.enqueue(info.run_id, agent=info.agent, principal=info.principal)
            await asyncio.sleep(_SWEEP_SECONDS)
