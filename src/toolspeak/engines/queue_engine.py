"""The engine over procrastinate, a task queue in PostgreSQL. Needs the extra `queue`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException, UniqueViolation
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager, NotificationCallback
from procrastinate.worker import Worker as ProcrastinateWorker

from toolspeak.engines.base import Delivery, RunHandler, WorkLimits
from toolspeak.engines.handler_calls import (
    HandlerCalls,
    cancel_and_wait,
    database_of,
    refuse_principals,
    retry_during_outage,
)
from toolspeak.errors import ConfigurationError, EngineError
from toolspeak.journal.base import Journal

_LOG = logging.getLogger(__name__)

_MIGRATING = 0x7453717565  # the advisory lock for creating tables: a number that no other program uses
# To take a job, procrastinate looks for another one with its lock. Its own index begins with the job's number, so the
# server would read all of it each time.
_INDEX = "toolspeak_jobs_lock"
_CREATE_INDEX = f"CREATE INDEX {_INDEX} ON procrastinate_jobs (lock) WHERE status IN ('todo', 'doing')"
_AGAIN_SECONDS = 1.0  # between attempts to reach a server that is away
_POLL_SECONDS = 1.0  # new jobs are announced; due timers, and a second job of a run whose first one ended, are not
_OUTAGES = (psycopg.OperationalError, psycopg.InterfaceError)  # the server or the connection, not the statement


class QueueEngine:
    """Implements `Engine` with procrastinate: each request to drive a run is a job in PostgreSQL.

    A run's jobs share a lock, so that one of them is under way at a time, and a queueing lock, so that at most one more
    waits. A timer is a job that enqueues the run when it is due.

    - `url`: `queue://user@host/database` for that database; `queue:` for the journal's, which must be PostgreSQL then.
      `?schema=` names the schema of the tables (`toolspeak_queue`), `?dead_after=` the seconds after which a worker
      that shows no sign of life counts as dead (3).
    """

    def __init__(self, url: str, journal: Journal) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        schema = options.pop("schema", "toolspeak_queue")
        try:
            self._dead_after = float(options.pop("dead_after", "3"))
        except ValueError:
            raise ConfigurationError(f"{url}: dead_after is a number of seconds") from None
        if not schema.replace("_", "a").isalnum():
            raise ConfigurationError(f"{url}: the schema's name may hold letters, digits and _")
        self.name = f"queue:{schema}"
        dsn = database_of("queue", urlunsplit(parts._replace(query=urlencode(options))), journal)
        self._schema = schema

        async def configure(connection: Any) -> None:
            # Every statement of procrastinate is a transaction of its own: two round trips less for each.
            await connection.set_autocommit(True)
            await connection.execute(f'SET search_path TO "{schema}"')
            # Until the server has statistics of a queue that grew fast, it would read and sort all jobs for the next
            # one: minutes of its CPU. The jobs' index has them in their order.
            await connection.execute("SET enable_sort = off")

        self._dsn = dsn
        self._app = App(
            connector=PsycopgConnector(
                conninfo=dsn,
                min_size=0,
                max_size=5,
                kwargs={"application_name": "toolspeak"},
                configure=configure,
            )
        )
        self._app.job_manager = _SteadyManager(self._app.connector)
        self._app.task(name="drive", pass_context=True)(self._drive)
        self._app.task(name="timer")(self._ring)
        self._opening: asyncio.Task[None] | None = None

    async def enqueue(self, run_id: str, *, agent: str, principal: str | None = None, at: float | None = None) -> None:
        """As in `Engine`. Raises EngineError if the database cannot be reached or written."""
        await self._open()
        try:
            await self._defer(run_id, agent, principal, at)
        except ConnectorException as error:
            raise EngineError(f"the queue: {_cause(error)}; see the server's log") from error

    async def _defer(
        self, run_id: str, agent: str, principal: str | None, at: float | None = None, failures: int = 0
    ) -> None:
        arguments: dict[str, Any] = {"run_id": run_id, "agent": agent, "principal": principal, "failures": failures}
        if at is not None and at > time.time():
            due = datetime.fromtimestamp(at, UTC)
            # Below the others, for a worker that looks for due jobs reads those of a higher priority first.
            timer = self._app.configure_task("timer", queue=agent, schedule_at=due, priority=-1)
            await timer.defer_async(**arguments)
            return
        with suppress(AlreadyEnqueued):  # a job that waits begins later than this, so it sees what happened until now
            job = self._app.configure_task("drive", queue=agent, lock=run_id, queueing_lock=run_id)
            await job.defer_async(**arguments)

    async def work(
        self, handler: RunHandler, *, agents: Collection[str], limits: WorkLimits, stop: asyncio.Event
    ) -> None:
        """As in `Engine`. There is no limit for a principal."""
        refuse_principals("queue", limits)
        shares = _shares(agents, limits)
        await self._open()
        jobs = _JobsUnderWay(HandlerCalls(handler, limits))
        workers = [asyncio.create_task(self._serve(jobs, queues, most, stop)) for queues, most in shares]
        watches = [asyncio.create_task(self._find_dead_workers(agents)), asyncio.create_task(self._beat(jobs))]
        try:
            await asyncio.gather(*workers)
        finally:
            for each in workers:
                each.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await cancel_and_wait(watches)

    async def _serve(self, jobs: _JobsUnderWay, queues: Sequence[str], concurrency: int, stop: asyncio.Event) -> None:
        """Runs a worker of procrastinate for these queues, and another one when it ends for a reason of its own."""
        stop_task, is_cancelled = asyncio.create_task(stop.wait()), False
        while not stop.is_set() and not is_cancelled:
            worker = ProcrastinateWorker(
                self._app,
                queues=queues,
                concurrency=concurrency,
                install_signal_handlers=False,
                delete_jobs="always",
                fetch_job_polling_interval=_POLL_SECONDS,
                update_heartbeat_interval=self._dead_after / 4,
                stalled_worker_timeout=self._dead_after,
                additional_context={"jobs": jobs},
            )
            running = asyncio.create_task(worker.run())
            waiting: set[asyncio.Task[Any]] = {running, stop_task}
            while not running.done():
                try:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                except asyncio.CancelledError:
                    is_cancelled = True
                    jobs.calls.cancel()
                if not running.done():
                    waiting = {running}
                    worker.stop()  # it starts nothing more, and ends with what is under way
                    running.cancel()  # it may wait for the server, before it has begun
            error = None if running.cancelled() else running.exception()
            if error is not None:
                _LOG.warning("a worker of the queue ended and starts again: %s", _cause(error))
                await asyncio.wait((stop_task,), timeout=_AGAIN_SECONDS)
        stop_task.cancel()
        if is_cancelled:
            raise asyncio.CancelledError

    async def _drive(
        self, context: JobContext, run_id: str, agent: str, principal: str | None, failures: int = 0
    ) -> None:
        """The job that drives a run. Whatever happens, it arranges for what comes after it before it ends."""
        jobs = cast("_JobsUnderWay", context.additional_context["jobs"])  # type: ignore[reportUnknownMemberType]
        # The lock admits one such job of a run: where another one was under way, its worker is gone.
        delivery = Delivery(run_id, agent, principal, context.job.attempts + failures + 1, takes_over=self.name)
        # A worker that stood still may get its own job again, while it still runs it.
        jobs.workers[context.job.worker_id] += 1
        try:
            again, failures = await jobs.calls.call(delivery, failures)
        finally:
            jobs.workers[context.job.worker_id] -= 1
        if again is not None:
            await retry_during_outage(lambda: self._defer(run_id, agent, principal, again, failures), _is_outage)

    async def _ring(self, run_id: str, agent: str, principal: str | None, failures: int = 0) -> None:
        await retry_during_outage(lambda: self._defer(run_id, agent, principal, failures=failures), _is_outage)

    async def _beat(self, jobs: _JobsUnderWay) -> None:
        """Shows that the workers live, also while they end and procrastinate's own heartbeat has stopped."""
        while True:
            await asyncio.sleep(self._dead_after / 4)
            for worker in [each for each in jobs.workers if each is not None and jobs.workers[each]]:
                await self._app.job_manager.update_heartbeat(worker)

    async def _find_dead_workers(self, agents: Collection[str]) -> None:
        """Puts jobs of dead workers back into the queue."""
        jobs = self._app.job_manager
        while True:
            await asyncio.sleep(self._dead_after / 6)
            try:
                for job in await jobs.get_stalled_jobs(seconds_since_heartbeat=self._dead_after):
                    if job.queue in agents:
                        await self._put_back(job)
            except ConnectorException as error:  # another worker was faster, or the server is away
                _LOG.info("the queue: %s", _cause(error))

    async def _put_back(self, job: Job) -> None:
        assert job.id is not None
        try:
            await self._app.job_manager.retry_job(job)
        except UniqueViolation:  # another job of the run waits already, and the queueing lock admits one
            await self._app.job_manager.finish_job_by_id_async(job.id, Status.ABORTED, True)
        # Announces it: a job that is put back wakes nobody.
        await self._app.configure_task("timer", queue=job.queue).defer_async(**job.task_kwargs)

    async def _open(self) -> None:
        if self._opening is None or (self._opening.done() and self._opening.exception()):
            self._opening = asyncio.create_task(self._create())
        await asyncio.shield(self._opening)

    async def _create(self) -> None:
        """Opens the connections, and creates the tables where there are none."""
        try:
            async with await psycopg.AsyncConnection.connect(self._dsn) as connection:
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
                parts = {"procrastinate_jobs": self._app.schema_manager.get_schema(), _INDEX: _CREATE_INDEX}
                for name, statement in parts.items():
                    cursor = await connection.execute("SELECT to_regclass(%s)", (f'"{self._schema}"."{name}"',))
                    row = await cursor.fetchone()
                    if row is None or row[0] is None:
                        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')  # type: ignore[arg-type]
                        await connection.execute(f'SET search_path TO "{self._schema}"')  # type: ignore[arg-type]
                        await connection.execute(statement)  # type: ignore[arg-type]
            await self._app.open_async()
        except (psycopg.Error, ConnectorException) as error:
            raise EngineError(f"the queue: {_cause(error)}; check that the server runs and may be written") from error

    async def aclose(self) -> None:
        """Closes the connections."""
        open_task, self._opening = self._opening, None
        if open_task is not None:
            await asyncio.gather(open_task, return_exceptions=True)
            await self._app.close_async()


class _JobsUnderWay:
    """One call of `work`: the calls of its handler, and how many jobs are under way of each of procrastinate's workers,
    by its number."""

    def __init__(self, calls: HandlerCalls) -> None:
        self.calls = calls
        self.workers = Counter[int | None]()


class _SteadyManager(JobManager):
    """procrastinate's store of jobs, for a worker that outlives its server's restarts and its own false death.

    procrastinate ends a worker at the first error of its connection: its heartbeat stops while its jobs go on, and
    other workers take them for dead. Here the worker tries again. And a job ends only for the worker that holds it: one
    that was stopped for a while and believed dead would otherwise end the job of its successor.
    """

    async def update_heartbeat(self, worker_id: int) -> None:
        await retry_during_outage(lambda: super(_SteadyManager, self).update_heartbeat(worker_id), _is_outage)

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        try:
            return await super().fetch_job(queues, worker_id)
        except UniqueViolation:  # another worker took another job of the same run at the same moment
            return None
        except ConnectorException as error:
            if not _is_outage(error):
                raise  # this worker was removed as dead: it registers anew
            return None  # asked again after the polling interval

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        async def finish() -> None:
            current = list(await self.list_jobs_async(id=job.id))
            if current and current[0].worker_id == job.worker_id and current[0].status == Status.DOING.value:
                await super(_SteadyManager, self).finish_job(job, status, delete_job)

        await retry_during_outage(finish, _is_outage)

    async def listen_for_jobs(
        self, *, on_notification: NotificationCallback, queues: Iterable[str] | None = None
    ) -> None:
        await retry_during_outage(
            lambda: super(_SteadyManager, self).listen_for_jobs(on_notification=on_notification, queues=queues),
            _is_outage,
        )


def _is_outage(error: Exception) -> bool:
    return isinstance(error, ConnectorException) and isinstance(error.__cause__, _OUTAGES)


def _shares(agents: Collection[str], limits: WorkLimits) -> list[tuple[list[str], int]]:
    """How many runs each worker of procrastinate drives at most, and of which agents."""
    agent_limits = {name: most for name, most in (limits.per_agent or {}).items() if name in agents}
    others = [name for name in agents if name not in agent_limits]
    rest = limits.concurrency - sum(agent_limits.values())
    if rest < (1 if others else 0):
        raise ConfigurationError(
            "the engine queue: the limits of the agents add up to more than `concurrency`, of which each has its share"
        )
    return [([name], most) for name, most in agent_limits.items()] + ([(others, rest)] if others else [])


def _cause(error: BaseException) -> str:
    cause = error.__cause__ or error
    return str(cause).strip() or type(cause).__name__
