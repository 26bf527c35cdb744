"""The engine over DBOS, a library that keeps its workflows in PostgreSQL. Needs the extra `dbos`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

from dbos import DBOS, DBOSClient, EnqueueOptions
from dbos import error as dbos_error
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from toolspeak.engines.base import Delivery, RunHandler, WorkLimits
from toolspeak.engines.handler_calls import HandlerCalls, database_of, refuse_principals, retry_during_outage
from toolspeak.errors import EngineError
from toolspeak.journal.base import Journal

_LOG = logging.getLogger(__name__)
_VERSION = "toolspeak"
_POLL_SECONDS, _LOOK_SECONDS = 0.5, 0.5
_SILENT_SECONDS, _GRACE_SECONDS = 2.0, 1.0
_LOCKED_SECONDS = 5.0  # the longest that one workflow takes to be put back
_FORGOTTEN_SECONDS = 10.0  # after which DBOS has lost a workflow that it took: it does so while the server ends
_RECONNECTING_SECONDS = 8.0  # after which all workers have sessions again on a server that has started
_EVER = 10**8
_RESUMING = 0x74736462  # the advisory lock of the worker that resumes: a number that no other program uses
_ORPHANS = text("""
    SELECT workflow_uuid, queue_name, executor_id FROM dbos.workflow_status
    WHERE status = 'PENDING' AND queue_name LIKE 'toolspeak %' AND (executor_id = :own OR executor_id NOT IN (
        SELECT application_name FROM pg_stat_activity
        WHERE application_name IS NOT NULL AND coalesce(state_change, now()) > now() - :silent * interval '1 second'
    )) AND pg_postmaster_start_time() < now() - :reconnecting * interval '1 second'
""")  # the time is hidden from another role, for which the session counts as alive then
_PROBLEMS = (dbos_error.DBOSException, SQLAlchemyError)


class DbosEngine:
    """Implements `Engine` with DBOS: each request to drive a run is a workflow in a queue, of which a run has one at a
    time under way.

    DBOS itself notices no dead worker. Here the workers look for each other's sessions in PostgreSQL, and resume the
    workflows of one that is gone or silent.

    - `url`: `dbos://user@host/database` for that database; `dbos:` for the journal's, which must be PostgreSQL then.
    """

    name = "dbos"

    def __init__(self, url: str, journal: Journal) -> None:
        self._dsn = database_of(self.name, url, journal)
        self._client: DBOSClient | None = None

    async def enqueue(self, run_id: str, *, agent: str, principal: str | None = None, at: float | None = None) -> None:
        """As in `Engine`. Raises EngineError if the database cannot be reached, or has no tables of DBOS yet."""
        try:
            await asyncio.to_thread(self._enqueue, at, run_id, agent, principal, 0)
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
            # DBOS has one workflow of a run under way: where another one was, its worker is gone.
            delivery = Delivery(run_id, agent, principal, failures + 1, takes_over=self.name)
            again, count = await calls.call(delivery, failures)
            if again is not None:
                request = partial(self._enqueue, again, run_id, agent, principal, count)
                await retry_during_outage(
                    lambda: asyncio.to_thread(request), lambda error: isinstance(error, _PROBLEMS)
                )

        @DBOS.workflow(name="drive")
        async def _workflow(run_id: str, agent: str, principal: str | None, failures: int) -> None:
            with sessions.running(str(DBOS.workflow_id)):
                driving = asyncio.run_coroutine_threadsafe(drive(run_id, agent, principal, failures), loop)
                await asyncio.wrap_future(driving)

        sessions = _WorkerSessions(self._dsn)
        watching: asyncio.Task[None] | None = None
        try:
            await asyncio.to_thread(self._launch, sessions.own, agents, limits)
            watching = asyncio.create_task(sessions.watch(stop))
            await stop.wait()
            calls.drain()
        except _PROBLEMS as error:
            raise EngineError(f"the engine dbos: {error}; check that the server runs and may be written") from error
        except asyncio.CancelledError:
            calls.cancel()
            raise
        finally:
            # It takes nothing more, and waits for what is under way.
            await asyncio.shield(
                asyncio.to_thread(DBOS.destroy, destroy_registry=True, workflow_completion_timeout_sec=_EVER)
            )
            if watching is not None:
                watching.cancel()
                await asyncio.wait((watching,))

    def _launch(self, executor: str, agents: Collection[str], limits: WorkLimits) -> None:
        # The version is ours: by default DBOS leaves the workflows of other code alone, and they replay none here.
        DBOS(config={
            "name": "toolspeak", "system_database_url": self._dsn, "executor_id": executor,
            "application_version": _VERSION, "log_level": "WARNING",
        })  # fmt: skip
        DBOS.listen_queues([_queue(agent) for agent in agents])
        DBOS.launch()
        for agent in agents:
            most = (limits.per_agent or {}).get(agent, limits.concurrency)
            DBOS.register_queue(
                _queue(agent), worker_concurrency=most, partition_concurrency=1, polling_interval_sec=_POLL_SECONDS
            )

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await asyncio.to_thread(self._client.destroy)
            self._client = None


class _WorkerSessions:
    """How workers see each other: each asks PostgreSQL twice a second who is there, in a session with a name of its
    own. A worker that was killed has no session; one that stands still, or whose host is cut off, asks nothing.

    - `own`: the name of this worker's session, which is its executor's id in DBOS.
    """

    def __init__(self, dsn: str) -> None:
        self.own = f"toolspeak {uuid4().hex}"
        self._under_way = set[str]()  # ids of workflows
        self._orphaned_since: dict[str, float] = {}
        self._thread = ThreadPoolExecutor(1, "toolspeak-dbos")  # of its own: others may wait for a server that is away
        self._database = create_engine(
            make_url(dsn).set(drivername="postgresql+psycopg"),
            connect_args={
                "application_name": self.own,
                "connect_timeout": 3,
                # A worker whose host is cut off while it resumes workflows must not keep the lock.
                "options": f"-c idle_in_transaction_session_timeout={int(_LOCKED_SECONDS * 1000)}",
            },
            pool_pre_ping=True,
        )

    @contextmanager
    def running(self, workflow_id: str) -> Generator[None]:
        """A block during which this worker runs a workflow."""
        self._under_way.add(workflow_id)
        try:
            yield
        finally:
            self._under_way.discard(workflow_id)

    async def watch(self, stop: asyncio.Event) -> None:
        """Shows the others that this worker lives, until it is cancelled, and resumes the workflows that nobody runs,
        until `stop` is set."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    await loop.run_in_executor(self._thread, self._look, stop.is_set())
                except _PROBLEMS as error:
                    _LOG.warning("the engine dbos: %s", error)
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._thread.shutdown(wait=False)
            self._database.dispose()

    def _look(self, stopping: bool) -> None:
        """Puts workflows back into their queues that nobody runs. One look does not count: a database that stood still
        has heard nobody."""
        parameters = {"own": self.own, "silent": _SILENT_SECONDS, "reconnecting": _RECONNECTING_SECONDS}
        with self._database.begin() as database:
            now, rows = time.monotonic(), database.execute(_ORPHANS, parameters).all()
            orphans = {row[0]: row[2] for row in rows if row[0] not in self._under_way}
            since = self._orphaned_since = {each: self._orphaned_since.get(each, now) for each in orphans}
            patience = {self.own: _FORGOTTEN_SECONDS}
            lost_workflows = [
                each for each in orphans if now - since[each] >= patience.get(orphans[each], _GRACE_SECONDS)
            ]
            if stopping or not lost_workflows:
                return
            # One worker at a time: none puts back what another one has taken up by now.
            database.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _RESUMING})
            for workflow_id, queue, _ in database.execute(_ORPHANS, parameters).all():
                if workflow_id in lost_workflows:
                    database.execute(text("SELECT 1"))  # raises if the server has ended this session, and its lock
                    DBOS.resume_workflow(workflow_id, queue_name=queue)


def _queue(agent: str) -> str:
    return f"toolspeak {agent}"
