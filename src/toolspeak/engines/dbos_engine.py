"""The engine over DBOS, a library that keeps its workflows in PostgreSQL. Needs the extra `dbos`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import uuid4

from dbos import DBOS, DBOSClient, EnqueueOptions
from dbos import error as dbos_error
from sqlalchemy.exc import SQLAlchemyError

from toolspeak.engines.base import Delivery, RunHandler, WorkLimits
from toolspeak.engines.handler_calls import HandlerCalls, database_of, refuse_principals
from toolspeak.errors import EngineError, JournalError
from toolspeak.journal.base import Journal
from toolspeak.journal.leases import is_held, new_owner

_T = TypeVar("_T")
_VERSION = "toolspeak"
_POLL_SECONDS, _SWEEP_SECONDS, _ORPHAN_SECONDS = 0.5, 1.0, 3.0
_EVER = 10**8
_PROBLEMS = (dbos_error.DBOSException, SQLAlchemyError)


class DbosEngine:
    """Implements `Engine` with DBOS: each request to drive a run is a workflow in a queue, of which a run has one at a
    time under way.

    DBOS itself notices no dead worker. Here a workflow whose run nobody holds, by the journal's lease, starts again.

    - `url`: `dbos://user@host/database` for that database; `dbos:` for the journal's, which must be PostgreSQL then.
    """

    name = "dbos"

    def __init__(self, url: str, journal: Journal) -> None:
        self._dsn, self._journal = database_of(self.name, url, journal), journal
        self._client: DBOSClient | None = None
        self._threads = ThreadPoolExecutor(4, "toolspeak-dbos")
        self._since: dict[str, float] = {}  # workflow ids: since when nobody holds their run

    async def enqueue(self, run_id: str, *, agent: str, principal: str | None = None, at: float | None = None) -> None:
        """As in `Engine`. Raises EngineError if the database cannot be reached, or has no tables of DBOS yet."""
        try:
            await self._in_thread(self._enqueue, at, run_id, agent, principal, 0)
        except _PROBLEMS as error:
            raise EngineError(f"the engine dbos: {error}; a worker that starts creates its tables") from error

    def _enqueue(self, at: float | None, run_id: str, agent: str, principal: str | None, failures: int) -> None:
        if self._client is None:
            self._client = DBOSClient(system_database_url=self._dsn, retry_connection_errors=False)
        prefix, delay = f"{run_id} ", (at or 0) - time.time()
        options = EnqueueOptions(
            queue_name=_queue(agent), workflow_name="drive", workflow_id=prefix + uuid4().hex,
            queue_partition_key=run_id, app_version=_VERSION,
        )  # fmt: skip
        if delay > 0:
            options["delay_seconds"] = delay
        elif self._client.list_workflows(workflow_id_prefix=prefix, status="ENQUEUED", limit=1):
            return  # it begins later than this, so it sees what happened until now
        self._client.enqueue(options, run_id, agent, principal, failures)

    async def work(
        self, handler: RunHandler, *, agents: Collection[str], limits: WorkLimits, stop: asyncio.Event
    ) -> None:
        """As in `Engine`. A process has one such worker, for DBOS is one object. There is no limit for a principal."""
        refuse_principals(self.name, limits)
        calls, loop = HandlerCalls(handler, limits), asyncio.get_running_loop()

        async def drive(run_id: str, agent: str, principal: str | None, failures: int) -> None:
            again, failures = await calls.call(Delivery(run_id, agent, principal, failures + 1), failures)
            if again is not None:
                await self._in_thread(self._enqueue, again, run_id, agent, principal, failures)

        @DBOS.workflow(name="drive")
        async def _workflow(run_id: str, agent: str, principal: str | None, failures: int) -> None:
            driving = asyncio.run_coroutine_threadsafe(drive(run_id, agent, principal, failures), loop)
            await asyncio.wrap_future(driving)

        stopped = asyncio.create_task(stop.wait())
        try:
            await self._in_thread(self._launch, agents, limits)
            while not stop.is_set():
                await self._resume_orphans(agents)
                await asyncio.wait((stopped,), timeout=_SWEEP_SECONDS)
            calls.drain()
        except _PROBLEMS as error:
            raise EngineError(f"the engine dbos: {error}; check that the server runs and may be written") from error
        except asyncio.CancelledError:
            calls.cancel()
            raise
        finally:
            stopped.cancel()
            # It takes nothing more, and waits for what is under way.
            await asyncio.shield(
                self._in_thread(DBOS.destroy, destroy_registry=True, workflow_completion_timeout_sec=_EVER)
            )

    def _launch(self, agents: Collection[str], limits: WorkLimits) -> None:
        # The version is ours: by default DBOS leaves the workflows of other code alone, and they replay none here.
        DBOS(config={
            "name": "toolspeak", "system_database_url": self._dsn, "executor_id": new_owner(),
            "application_version": _VERSION, "log_level": "WARNING",
        })  # fmt: skip
        DBOS.listen_queues([_queue(agent) for agent in agents])
        DBOS.launch()
        for agent in agents:
            most = (limits.per_agent or {}).get(agent, limits.concurrency)
            DBOS.register_queue(
                _queue(agent), worker_concurrency=most, partition_concurrency=1, polling_interval_sec=_POLL_SECONDS
            )

    async def _in_thread(self, act: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        # DBOS's asynchronous functions would make its threads those of the whole event loop, and end them.
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: act(*arguments, **options))

    async def _resume_orphans(self, agents: Collection[str]) -> None:
        """Starts again what another process began whose run nobody holds, if that stays so for a while."""
        queues, since, self._since = [_queue(agent) for agent in agents], self._since, {}
        try:
            for each in await self._in_thread(
                DBOS.list_workflows, status="PENDING", queue_name=queues, load_output=False
            ):
                info = await self._journal.run(each.workflow_id.partition(" ")[0])
                if each.executor_id != DBOS.executor_id and not (info is not None and is_held(info)):
                    first = self._since[each.workflow_id] = since.get(each.workflow_id, time.monotonic())
                    if time.monotonic() - first >= _ORPHAN_SECONDS:
                        await self._in_thread(DBOS.resume_workflow, each.workflow_id, queue_name=each.queue_name)
        except (*_PROBLEMS, JournalError) as error:
            logging.getLogger(__name__).warning("the engine dbos: %s", error)

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._in_thread(self._client.destroy)
            self._client = None
        self._threads.shutdown(wait=False)


def _queue(agent: str) -> str:
    return f"toolspeak {agent}"
