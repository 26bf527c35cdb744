"""What engines share: the calls of a handler, and the database that a URL names."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from toolspeak.engines.base import Delivery, RunHandler, WorkLimits
from toolspeak.errors import ConfigurationError
from toolspeak.journal.base import Journal

_LOG = logging.getLogger("toolspeak.worker")
_T = TypeVar("_T")

_AGAIN_SECONDS = 0.25  # between attempts to reach a database that is away
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # after a handler raised; doubled each time
_MOST_DOUBLINGS = 6
_CANCEL_SECONDS = 1.0


class HandlerCalls:
    """The calls of a handler by one worker, within its limits. A call waits for the limits of its principal and its
    agent before it takes one of the worker's places, so it keeps no place from others."""

    def __init__(self, handler: RunHandler, limits: WorkLimits) -> None:
        self._handler, self._limits = handler, limits
        self._all = asyncio.Semaphore(limits.concurrency)
        self._of_agents = {name: asyncio.Semaphore(most) for name, most in (limits.per_agent or {}).items()}
        self._of_principals: dict[str, asyncio.Semaphore] = {}
        self._under_way = set[asyncio.Future[float | None]]()
        self._draining = False

    async def call(self, delivery: Delivery, failures: int = 0) -> tuple[float | None, int]:
        """Calls the handler. Returns when to deliver the run again, as the handler does, and how many calls of this run
        have raised in a row, `failures` being those before. If the worker drains, or the call is cancelled, the run is
        to be delivered at once."""
        async with AsyncExitStack() as stack:
            for limit in self._limits_of(delivery):
                await stack.enter_async_context(limit)
            if self._draining:
                return 0.0, failures
            task = asyncio.ensure_future(self._handler(delivery))
            self._under_way.add(task)
            try:
                return await task, 0
            except asyncio.CancelledError:
                return 0.0, failures
            except Exception as error:  # noqa: BLE001 - one run's failure must not end the worker
                _LOG.warning("run %s: %s; it is tried again", delivery.run_id, error, exc_info=error)
                pause = min(_FIRST_PAUSE * 2 ** min(failures, _MOST_DOUBLINGS), _LONGEST_PAUSE)
                return time.time() + pause, failures + 1
            finally:
                self._under_way.discard(task)

    def _limits_of(self, delivery: Delivery) -> list[asyncio.Semaphore]:
        limits = [self._all]
        if delivery.agent in self._of_agents:
            limits.insert(0, self._of_agents[delivery.agent])
        if delivery.principal is not None and self._limits.per_principal is not None:
            limit = asyncio.Semaphore(self._limits.per_principal)
            limits.insert(0, self._of_principals.setdefault(delivery.principal, limit))
        return limits

    def drain(self) -> None:
        """From here on the handler is not called."""
        self._draining = True

    def cancel(self) -> None:
        """Cancels the calls that are under way."""
        self.drain()
        for task in self._under_way:
            task.cancel()


async def retry_during_outage(act: Callable[[], Awaitable[_T]], is_outage: Callable[[Exception], bool]) -> _T:
    """The result of `act`, which is repeated while `is_outage` says that its error means an unreachable database."""
    while True:
        try:
            return await act()
        except Exception as error:
            if not is_outage(error):
                raise
            await asyncio.sleep(_AGAIN_SECONDS)


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks, again every second until they have ended. Before Python 3.12 `asyncio.wait_for`, which psycopg
    waits with, loses a cancellation that comes together with its result."""
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_CANCEL_SECONDS)


def refuse_principals(engine: str, limits: WorkLimits) -> None:
    """Raises ConfigurationError for a limit for principals, which an engine does not have."""
    if limits.per_principal is not None:
        raise ConfigurationError(f"the engine {engine}: has no limit for a principal")


def database_of(engine: str, url: str, journal: Journal) -> str:
    """The URL of the PostgreSQL database that an engine's URL names: its own, or the journal's.

    Raises ConfigurationError if it names none and the journal is elsewhere.
    """
    if url.partition(":")[2].startswith("//"):
        return urlunsplit(("postgresql", *urlsplit(url)[1:]))
    if not (dsn := getattr(journal, "dsn", "")):
        raise ConfigurationError(
            f"the engine {engine}: keeps its jobs in the journal's database, and the journal is not in PostgreSQL;"
            f" name a database: {engine}://user@host/database"
        )
    return dsn
