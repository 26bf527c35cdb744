"""The engine over Restate, a server for durable calls. Needs the extra `restate`."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections import Counter
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from threading import Thread
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlsplit

import httpx2
from hypercorn.asyncio import serve  # pyright: ignore[reportUnknownVariableType]
from hypercorn.config import Config
from restate import InvocationRetryPolicy, ObjectContext, ObjectSharedContext, RunOptions, VirtualObject
from restate.endpoint import app as restate_app

from toolspeak.engines.base import Delivery, RunHandler, WorkLimits
from toolspeak.engines.handler_calls import HandlerCalls
from toolspeak.errors import ConfigurationError, EngineError
from toolspeak.journal.base import Journal

_LOG = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0  # between attempts to register
_DAY = timedelta(days=1)  # the longest that one step of a run may take without a sign of life
_RETRIES = InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    exponentiation_factor=2.0,
    max_interval=timedelta(seconds=2),
    # As good as for ever: after the server's own 70 attempts, all runs would stand still until somebody resumes them.
    max_attempts=2**31,
)
_REQUEST_SECONDS = 10.0
_ONE_CALL_SETTING = "RESTATE_WORKER__INVOKER__HTTP2_STREAMS_PER_CONNECTION_LIMIT=1"
_CLOSING_SECONDS = 2.0


class RestateEngine:
    """Implements `Engine` with Restate: a virtual object for each run, whose calls the server makes one after another.

    The server calls the workers over HTTP/2 at one address, and calls again once the connection to a worker breaks. No
    step of a run is in Restate's journal, so new code never meets an old replay. At most one more call of a run waits.

    - `url`: `restate://host:8080`, the server's ingress. `?admin=` is the address of its admin API (`host:9070`),
      `?listen=` where a worker serves (`127.0.0.1:9080`), `?advertise=` the URL by which the server reaches the workers
      (that address). Workers on one machine may share the address. `?token=` is sent as a bearer token; with `?tls=1`
      the server is reached by https.
    """

    name = "restate"

    def __init__(self, url: str, journal: Journal) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        if not parts.hostname:
            raise ConfigurationError(f"{url}: name the server, as in restate://127.0.0.1:8080")
        scheme = "https" if options.pop("tls", "") == "1" else "http"
        token = options.pop("token", "")
        self._ingress = f"{scheme}://{parts.hostname}:{parts.port or 8080}"
        self._admin = f"{scheme}://{options.pop('admin', f'{parts.hostname}:9070')}"
        host, _, port = options.pop("listen", "127.0.0.1:9080").rpartition(":")
        if not port.isdigit():
            raise ConfigurationError(f"{url}: listen is an address and a port, as in 127.0.0.1:9080")
        self._listen = (host.strip("[]") or "0.0.0.0", int(port))
        self._advertise = options.pop("advertise", f"http://{host}:{port}")
        if options:
            raise ConfigurationError(
                f"{url}: unknown: {', '.join(options)}; known: admin, listen, advertise, token, tls"
            )
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.AsyncClient(headers=self._headers, timeout=_REQUEST_SECONDS)

    async def enqueue(self, run_id: str, *, agent: str, principal: str | None = None, at: float | None = None) -> None:
        """As in `Engine`. Raises EngineError if the server cannot be reached, or knows no worker of the agent yet."""
        delay = max(0, int(((at or 0) - time.time()) * 1000))
        path = f"{_service(agent)}/{quote(run_id, safe='')}/ring/send" + (f"?delay={delay}ms" if delay else "")
        response = await self._post(f"{self._ingress}/{path}", {"agent": agent, "principal": principal, "failures": 0})
        if response.status_code == 404:
            raise EngineError(
                f"the engine restate: the server knows no worker for the agent {agent!r}; start one, which registers"
            )
        if response.is_error:
            raise EngineError(f"the engine restate: {response.status_code} {response.text[:300]}")

    async def work(
        self, handler: RunHandler, *, agents: Collection[str], limits: WorkLimits, stop: asyncio.Event
    ) -> None:
        """As in `Engine`. Serves in a thread of its own: a tool that blocks this event loop is no dead worker."""
        desk = _CallDesk(handler, self.name, limits, asyncio.get_running_loop())
        server = _WorkerServer(restate_app(map(desk.object, agents), protocol="bidi"), self._listen)
        end_task = asyncio.create_task(server.wait_for_end())
        stop_task = asyncio.create_task(stop.wait())
        try:
            await self._register(end_task, stop_task)
            await asyncio.wait((stop_task, end_task), return_when=asyncio.FIRST_COMPLETED)
            if end_task.done():
                await end_task
            server.stop()
            desk.drain()
            while desk.under_way:
                await asyncio.wait(desk.under_way.values())
        finally:
            stop_task.cancel()
            for task in desk.under_way.values():
                task.cancel()
            server.stop()
            # The answers are sent by now; a connection may stay open all the same.
            await asyncio.wait((end_task,), timeout=_CLOSING_SECONDS)
            server.close()
            await end_task

    async def _register(self, *until: asyncio.Task[Any]) -> None:
        """Tells the server where the workers are. Repeated while it is away, until one of the tasks is done."""
        while not any(task.done() for task in until):
            try:
                response = await self._post(f"{self._admin}/deployments", {"uri": self._advertise, "force": True})
            except EngineError as error:
                _LOG.warning("%s; it is tried again", error)
            else:
                if not response.is_error:
                    return
                _LOG.warning("registering %s: %s %s", self._advertise, response.status_code, response.text[:300])
            await asyncio.wait(until, timeout=_AGAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)

    async def _post(self, url: str, content: Any) -> httpx2.Response:
        try:
            return await self._client.post(url, json=content)
        except httpx2.HTTPError as error:
            raise EngineError(
                f"the engine restate: {str(error) or type(error).__name__}; check that the server runs at {url}"
            ) from error

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


class _Draining(Exception):
    """The worker takes no more: the server calls another one."""


class _CallDesk:
    """One call of `work`. The server's thread calls `drive`, which drives the run in the worker's event loop."""

    def __init__(self, handler: RunHandler, engine: str, limits: WorkLimits, loop: asyncio.AbstractEventLoop) -> None:
        self._calls, self._draining = HandlerCalls(handler, limits), False
        self._engine = engine
        self._loop = loop
        self.under_way: dict[str, asyncio.Task[dict[str, Any]]] = {}

    def object(self, agent: str) -> VirtualObject:
        """The virtual object that stands for each run of an agent."""
        run = VirtualObject(
            _service(agent),
            inactivity_timeout=_DAY,
            abort_timeout=_DAY,
            idempotency_retention=timedelta(0),
            invocation_retry_policy=_RETRIES,
        )

        @run.handler("drive")
        async def drive(ctx: ObjectContext, request: dict[str, Any]) -> None:
            # From here on a ring means one more call: what it announces may come too late for this one. It calls
            # nothing for that, for the server may have no place for another call until this one ends.
            ctx.set("begun", await _calls_begun(ctx) + 1)
            await ctx.run_typed("begin", _confirmed)  # by the server, which has the new number then
            outcome = await ctx.run_typed("drive", self._outcome_of, RunOptions[dict[str, Any]](), ctx.key(), request)
            if outcome["again"] is not None:
                again = {**request, "failures": outcome["failures"]}
                ctx.object_send(ring, ctx.key(), again, send_delay=timedelta(seconds=outcome["again"]))

        @run.handler("ring", kind="shared")
        async def ring(ctx: ObjectSharedContext, request: dict[str, Any]) -> None:
            # A call with the same key waits already, if there is one.
            ctx.object_send(drive, ctx.key(), request, idempotency_key=str(await _calls_begun(ctx)))

        return run

    async def _outcome_of(self, run_id: str, request: dict[str, Any]) -> dict[str, Any]:
        future = asyncio.run_coroutine_threadsafe(self._join(run_id, request), self._loop)
        return await asyncio.wrap_future(future)

    async def _join(self, run_id: str, request: dict[str, Any]) -> dict[str, Any]:
        """Drives the run. Where the server lost its connection and calls again, the call under way counts."""
        task = self.under_way.get(run_id)
        if task is None:
            if self._draining:
                raise _Draining
            task = self.under_way[run_id] = asyncio.create_task(self._drive(run_id, request))
            task.add_done_callback(lambda _: self.under_way.pop(run_id, None))
        return await asyncio.shield(task)

    async def _drive(self, run_id: str, request: dict[str, Any]) -> dict[str, Any]:
        agent, principal = str(request["agent"]), cast("str | None", request["principal"])
        failures = int(request["failures"])
        # The server calls a run's object once at a time: who was called before this is gone.
        delivery = Delivery(run_id, agent, principal, failures + 1, takes_over=self._engine)
        again, failures = await self._calls.call(delivery, failures)
        return {"again": None if again is None else max(0.0, again - time.time()), "failures": failures}

    def drain(self) -> None:
        """From here on no handler is called."""
        self._draining = True
        self._calls.drain()


class _WorkerServer:
    """Serves an ASGI application at an address, in a thread with an event loop of its own.

    The SDK replaces the handler of SIGTERM of the loop that it runs in; in this thread it cannot.
    """

    def __init__(self, app: Any, address: tuple[str, int]) -> None:
        self._app = app
        self._calls = Counter[Any]()  # under way, by the connection's other end
        self._warns = True
        self._outcome: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._stopping, self._closing = asyncio.Event(), asyncio.Event()
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._socket = socket.socket(family)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            raise ConfigurationError(
                f"the engine restate: {address[0]}:{address[1]}: {error}; choose ?listen="
            ) from error
        self._thread = Thread(target=self._run, name="toolspeak-restate", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        config = Config()
        config.bind = [f"fd://{self._socket.detach()}"]
        config.errorlog = None
        # The worker itself does not limit the calls of a connection: the server sends 50 before it has read the limit.
        # Those beyond it would break the connection, or wait at the server's end until another call has ended.
        config.h2_max_concurrent_streams = config.keep_alive_max_requests = 2**31 - 1
        config.keep_alive_timeout = config.graceful_timeout = _DAY.total_seconds()
        try:
            self._loop.run_until_complete(self._until_ended(config))
            self._outcome.set_result(None)
        except BaseException as error:  # noqa: BLE001 - it is raised again in `wait_for_end`
            self._outcome.set_exception(error)
        finally:
            self._loop.close()

    async def _until_ended(self, config: Config) -> None:
        # Connections that break are the server's business, which calls again.
        self._loop.set_exception_handler(lambda _, problem: _LOG.debug("the server's connection: %s", problem))
        serving = asyncio.create_task(serve(self._answer, config, shutdown_trigger=self._stopping.wait))
        closing = asyncio.create_task(self._closing.wait())
        await asyncio.wait((serving, closing), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        # What is still open. Not awaited for ever: a connection's task may wait for one that was cancelled before it.
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=_CLOSING_SECONDS)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        connection = scope.get("client")
        self._calls[connection] += 1
        if self._warns and self._calls[connection] > 1:
            self._warns = False
            _LOG.warning(
                "the engine restate: the server sends many calls over one connection, so one worker gets them all while"
                " others may be idle; start the server with %s",
                _ONE_CALL_SETTING,
            )
        try:
            await self._app(scope, receive, send)
        finally:
            self._calls[connection] -= 1
            if not self._calls[connection]:
                del self._calls[connection]

    def stop(self) -> None:
        """Takes no further call, and ends when those under way have been answered."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stopping.set)

    def close(self) -> None:
        """Closes the connections."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._closing.set)

    async def wait_for_end(self) -> None:
        """Returns once the thread has ended. Raises what ended it."""
        await asyncio.shield(asyncio.wrap_future(self._outcome))


async def _calls_begun(ctx: ObjectContext | ObjectSharedContext) -> int:
    """How many calls of a run have begun."""
    return await ctx.get("begun", type_hint=int) or 0


async def _confirmed() -> bool:
    return True


def _service(agent: str) -> str:
    """The name of an agent's object in Restate: other characters than these may not stand in it."""
    return "toolspeak." + re.sub(r"[^A-Za-z0-9-]", lambda char: f"_{ord(char[0]):x}_", agent)
