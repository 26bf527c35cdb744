"""The engine over DBOS, a library that keeps its workflows in PostgreSQL. Needs the extra `dbos`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions, WorkflowStatus
from dbos import error as dbos_error
from sqlalchemy.exc import SQLAlchemyError

from toolspeak.engines.base import Delivery, RunHandler, WorkLimits
from toolspeak.errors import ConfigurationError, EngineError, JournalError
from toolspeak.journal.base import Journal
from toolspeak.journal.leases import is_held, new_owner

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_VERSION = "toolspeak"
_AGAIN_SECONDS, _MOST_AGAIN_SECONDS = 1.0, 60.0  # after a handler raised; doubled each time
_POLL_SECONDS, _SWEEP_SECONDS, _ORPHAN_SECONDS = 0.5, 1.0, 3.0
_EVER = 10**8


class DbosEngine:
    """Implements `Engine` with DBOS: each request to drive a run is a workflow in a queue, of which a run has one at a
    time under way.

    DBOS itself notices no dead worker. Here a workflow whose run nobody holds, by the journal's lease, starts again.

    - `url`: `dbos://user@host/database` for that database; `dbos:` for the journal's, which must be PostgreSQL then.
    """

    name = "dbos"

    def __init__(self, url: str, journal: Journal) -> None:
        parts = urlsplit(url)
        own = url.partition(":")[2].startswith("//")
        self._dsn = urlunsplit(("postgresql", *parts[1:])) if own else getattr(journal, "dsn", "")
        if not self._dsn:
            raise ConfigurationError(
                "the engine dbos: the journal is not in PostgreSQL; name one: dbos://host/database"
            )
        self._journal = journal
        self._client: DBOSClient | None = None
        self._threads = ThreadPoolExecutor(4, "toolspeak-dbos")
        self._since: dict[str, float] = {}  # workflow ids: since when nobody holds their run

    async def enqueue(self, run_id: str, *, agent: str, principal: str | None = None, at: float | None = None) -> None:
        """As in `Engine`. Raises EngineError if the database cannot be reached, or has no tables of DBOS yet."""
        try:
            await self._in_thread(self._enqueue, at, run_id, agent, principal, 0)
        except (dbos_error.DBOSException, SQLAlchemyError) as error:
            raise EngineError(f"the engine dbos: {error}; a worker that starts creates its tables") from error

    def _enqueue(self, at: float | None, run_id: str, agent: str, principal: str | None, failures: int) -> None:
        if self._client is None:
            self._client = DBOSClient(system_database_url=self._dsn, retry_connection_errors=False)
        prefix, queue = f"{run_id} ", _queue(agent)
        options = EnqueueOptions(
            queue_name=queue, workflow_name="drive", workflow_id=prefix + uuid4().hex, queue_partition_key=run_id,
            app_version=_VERSION,
        )  # fmt: skip
        if at is not None and at > time.time():
            options["delay_seconds"] = at - time.time()
        elif self._client.list_workflows(workflow_id_prefix=prefix, status="ENQUEUED", limit=1):
            return  # it begins later than this, so it sees what happened until now
        self._client.enqueue(options, run_id, agent, principal, failures)

    async def work(
        self, handler: RunHandler, *, agents: Collection[str], limits: WorkLimits, stop: asyncio.Event
    ) -> None:
        """As in `Engine`. A process has one such worker, for DBOS is one object. There is no limit for a principal."""
        if limits.per_principal is not None:
            raise ConfigurationError("the engine dbos: has no limit for a principal")
        loop, slots = asyncio.get_running_loop(), asyncio.Semaphore(limits.concurrency)
        under_way = set[asyncio.Task[float | None]]()

        async def drive(run_id: str, agent: str, principal: str | None, failures: int) -> None:
            async with slots:
                task = asyncio.ensure_future(handler(Delivery(run_id, agent, principal, failures + 1)))
                under_way.add(task)
                try:
                    again, failures = await task, 0
                except asyncio.CancelledError:
                    again = 0.0
                except Exception as error:  # noqa: BLE001 - one run's failure must not end the worker
                    _LOG.warning("run %s: %s; it is tried again", run_id, error, exc_info=error)
                    again = time.time() + min(_AGAIN_SECONDS * 2**failures, _MOST_AGAIN_SECONDS)
                    failures += 1
                finally:
                    under_way.discard(task)
            if again is not None:
                await self._in_thread(self._enqueue, again, run_id, agent, principal, failures)

        async def workflow(run_id: str, agent: str, principal: str | None, failures: int) -> None:
            calling = asyncio.run_coroutine_threadsafe(drive(run_id, agent, principal, failures), loop)
            await asyncio.wrap_future(calling)

        most = {agent: (limits.per_agent or {}).get(agent, limits.concurrency) for agent in agents}
        stopped = asyncio.create_task(stop.wait())
        try:
            await self._in_thread(self._launch, workflow, most)
            while not stop.is_set():
                await self._resume_orphans(agents)
                await asyncio.wait((stopped,), timeout=_SWEEP_SECONDS)
        except (dbos_error.DBOSException, SQLAlchemyError) as error:
            raise EngineError(f"the engine dbos: {error}; check that the server runs and may be written") from error
        except asyncio.CancelledError:
            for task in under_way:
                task.cancel()
            raise
        finally:
            stopped.cancel()
            # It takes nothing more, and waits for what is under way.
            await asyncio.shield(self._in_thread(self._destroy))

    def _launch(self, workflow: Callable[..., Awaitable[None]], most: Mapping[str, int]) -> None:
        # The version is ours: by default DBOS leaves the workflows of other code alone, and they replay none here.
        DBOS(config=DBOSConfig(
            name="toolspeak", system_database_url=self._dsn, executor_id=new_owner(), application_version=_VERSION,
            log_level="WARNING",
        ))  # fmt: skip
        DBOS.workflow(name="drive")(workflow)
        DBOS.listen_queues([_queue(agent) for agent in most])
        DBOS.launch()
        for agent, limit in most.items():
            DBOS.register_queue(
                _queue(agent), worker_concurrency=limit, partition_concurrency=1, polling_interval_sec=_POLL_SECONDS
            )

    @staticmethod
    def _destroy() -> None:
        DBOS.destroy(destroy_registry=True, workflow_completion_timeout_sec=_EVER)

    def _in_thread(self, act: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        # DBOS's asynchronous functions would make its threads those of the whole event loop, and end them.
        return asyncio.get_running_loop().run_in_executor(self._threads, act, *arguments)

    async def _resume_orphans(self, agents: Collection[str]) -> None:
        """Starts again what another process began whose run nobody holds, if that stays so for a while."""
        try:
            since, self._since = self._since, {}
            for each in await self._in_thread(self._pending, [_queue(agent) for agent in agents]):
                info = await self._journal.run(each.workflow_id.partition(" ")[0])
                if each.executor_id != DBOS.executor_id and not (info is not None and is_held(info)):
                    first = self._since[each.workflow_id] = since.get(each.workflow_id, time.monotonic())
                    if time.monotonic() - first >= _ORPHAN_SECONDS:
                        await self._in_thread(self._resume, each)
        except (dbos_error.DBOSException, SQLAlchemyError, JournalError) as error:
            _LOG.warning("the engine dbos: %s", error)

    @staticmethod
    def _pending(queues: list[str]) -> list[WorkflowStatus]:
        return DBOS.list_workflows(status="PENDING", queue_name=queues, load_output=False)

    @staticmethod
    def _resume(workflow: WorkflowStatus) -> None:
        DBOS.resume_workflow(workflow.workflow_id, queue_name=workflow.queue_name)

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._in_thread(self._client.destroy)
            self._client = None
        self._threads.shutdown(wait=False)


def _queue(agent: str) -> str:
    return f"toolspeak {agent}"
