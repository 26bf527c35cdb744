"""The embedded engine: the journal is the queue, and each worker looks into it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Collection, Mapping

from toolspeak.data.values import quick
from toolspeak.engines.base import Delivery, RunHandler, WorkLimits
from toolspeak.engines.handler_calls import HandlerCalls
from toolspeak.errors import ConfigurationError, JournalError
from toolspeak.journal import Journal
from toolspeak.journal.base import RunInfo

_LOG = logging.getLogger("toolspeak.worker")

_LOOK_SECONDS = 0.25
_WINDOW = 3
"""From how many of the oldest due runs, for each one that there is room for, a worker takes some by chance."""
_FORGET_SECONDS = 60.0


@quick()
class _Work:
    info: RunInfo
    task: asyncio.Task[tuple[float | None, int]]


@quick()
class _Pause:
    """Of a run that was delivered: when it was due, when to deliver it again, although it may be due, and how often
    its handler has raised in a row."""

    due: float | None
    until: float
    failures: int


class EmbeddedEngine:
    """Implements `Engine` with nothing but the journal: it delivers the runs that the journal says are due.

    Which of several workers drives a run is decided by the run's lease. A worker that died on this host is noticed at
    once, one on another host when its lease runs out (30 seconds).

    - `url`: `embedded:`.
    - `journal`: the journal of the runs.
    """

    name = "embedded"

    def __init__(self, url: str, journal: Journal) -> None:
        if url.rstrip("/") != "embedded:":
            raise ConfigurationError(f"the embedded engine has no settings: write embedded:, not {url!r}")
        self._journal = journal
        self._news = asyncio.Event()
        self._looked_at = 0.0

    async def enqueue(self, run_id: str, *, agent: str, principal: str | None = None, at: float | None = None) -> None:
        """Looks for due runs at once, if this object works. What is due stands in the journal."""
        self._news.set()

    async def work(
        self, handler: RunHandler, *, agents: Collection[str], limits: WorkLimits, stop: asyncio.Event
    ) -> None:
        calls = HandlerCalls(handler, limits)
        works: dict[str, _Work] = {}
        pauses: dict[str, _Pause] = {}
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                self._news.clear()
                for info in await self._due(agents, limits, works, pauses):
                    failures = pauses[info.run_id].failures if info.run_id in pauses else 0
                    delivery = Delivery(info.run_id, info.agent, info.principal, failures + 1)
                    task = asyncio.ensure_future(calls.call(delivery, failures))
                    works[info.run_id] = _Work(info, task)
                    task.add_done_callback(lambda _: self._news.set())
                news = asyncio.ensure_future(self._news.wait())
                await asyncio.wait([news, stopping], timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                for run_id in [run_id for run_id, work in works.items() if work.task.done()]:
                    work = works.pop(run_id)
                    again, failures = work.task.result()
                    if again or failures:
                        pauses[run_id] = _Pause(work.info.due, again or 0.0, failures)
                    else:
                        pauses.pop(run_id, None)
                # Those of the past are kept for a while: how often a handler has raised counts for the next pause.
                long_ago = time.time() - _FORGET_SECONDS
                pauses = {run_id: pause for run_id, pause in pauses.items() if pause.until > long_ago}
            if works:
                await asyncio.wait([work.task for work in works.values()])
        finally:
            stopping.cancel()
            calls.cancel()
            if works:
                await asyncio.wait([work.task for work in works.values()])

    async def _due(
        self,
        agents: Collection[str],
        limits: WorkLimits,
        works: Mapping[str, _Work],
        pauses: Mapping[str, _Pause],
    ) -> list[RunInfo]:
        """The runs to deliver now, within the limits."""
        per_agent, per_principal = limits.per_agent or {}, limits.per_principal
        of_agent = Counter(work.info.agent for work in works.values())
        of_principal = Counter(work.info.principal for work in works.values())
        free = [name for name in agents if of_agent[name] < per_agent.get(name, limits.concurrency)]
        room = limits.concurrency - len(works)
        # A look costs as much as a step of a run: a worker with many runs looks once for several of them.
        looked_just_now = time.monotonic() - self._looked_at < _LOOK_SECONDS
        if room <= 0 or not free or (room < limits.concurrency // 4 and looked_just_now):
            return []
        self._looked_at = time.monotonic()
        full = [
            name for name, count in of_principal.items() if name is not None and count >= (per_principal or count + 1)
        ]
        try:
            # Those under way are due too until their processes have their leases, and those that pause are, too.
            limit = _WINDOW * room + len(works) + len(pauses)
            due = await self._journal.due_runs(time.time(), agents=free, without=full, limit=limit)
        except JournalError as error:
            _LOG.error("the worker cannot read the journal: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)
            return []
        if len(due) > room:
            # Workers that look at the same time would all take the oldest runs, and only one gets each.
            due = random.sample(due, len(due))
        next_runs: list[RunInfo] = []
        for info in due:
            pause = pauses.get(info.run_id)
            # A run that pauses is delivered all the same if it is due anew: something has come for it.
            pausing = pause is not None and pause.until > time.time() and pause.due == info.due
            if info.run_id in works or pausing or len(next_runs) >= room:
                continue
            if of_agent[info.agent] >= per_agent.get(info.agent, limits.concurrency):
                continue
            if info.principal is not None and of_principal[info.principal] >= (per_principal or limits.concurrency):
                continue
            of_agent[info.agent] += 1
            of_principal[info.principal] += 1
            next_runs.append(info)
        return next_runs

    async def aclose(self) -> None:
        """Does nothing: the journal belongs to the caller."""
