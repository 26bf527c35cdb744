"""The gateway's processes: listening, draining, workers."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, TypeAlias, cast

import uvicorn
from prometheus_client.metrics_core import Metric
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from toolspeak.errors import ToolspeakError
from toolspeak.gateway.app import Gateway
from toolspeak.gateway.config_reload import LoadedSettings, Reloader, load, on_hangup, reloading
from toolspeak.gateway.http.asgi import Receive, Scope, Send
from toolspeak.gateway.listening_socket import listen
from toolspeak.gateway.observability import (
    MULTIPROCESS,
    RequestTracer,
    families_of_workers,
    log,
    log_to_stderr,
    worker_gone,
)
from toolspeak.gateway.ready_server import ReadyServer
from toolspeak.gateway.running_streams import RunningStream, oldest_streams, publish_streams, streams_of_workers
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.settings_sources import Sources
from toolspeak.gateway.settings_generation import check_settings

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: 25\r\n\r\nthe headers are too large"
)


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose headers exceed `Bounds.header_bytes`: they fill the memory before the application sees
    them.

    Sends each piece of an answer at once (TCP_NODELAY). Otherwise a piece may wait 40 ms until the client's system
    acknowledges the piece before it (RFC 896, RFC 1122 4.2.3.2). asyncio sets the option only for sockets that name
    their protocol.
    """

    _in_head = True
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        with suppress(OSError):  # the client has already left
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            application = cast("Application", self.config.app)
            if self._head_bytes > application.settings.bounds.header_bytes and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()


@dataclass(frozen=True, slots=True)
class GatewayObserver:
    """What the process that started a gateway sees of it, in any thread: its settings as they are now, the metrics of
    all its workers, and the requests that they answer."""

    settings: Callable[[], Settings]
    metrics: Callable[[], Iterable[Metric]]
    streams: Callable[[], Sequence[RunningStream]]


Beside: TypeAlias = Callable[[GatewayObserver], AbstractContextManager[None]]
"""What runs in the process that started the gateway, from when it serves until it ends."""


_LOOKS = 60
"""The supervisor looks at its workers twice a second, and replaces one that has not answered for so many looks: a
worker imports for some seconds on a busy machine. It counts looks and no time, as the whole machine may stand still."""

_STOP_SECONDS = 1.0
"""Seconds for cancelled requests to send their clients an error."""


@dataclass(frozen=True)
class Application:
    """A factory of the application. uvicorn passes it to its workers, and each calls it."""

    settings: Settings
    owns_process: bool = True
    """The process runs nothing else. Its log then goes to standard error, and its garbage collector is tuned."""
    loaded_settings: LoadedSettings | None = None
    """The sources of the settings, if the gateway reloads them when they change."""
    tracer: Callable[[], RequestTracer] | None = None
    """Makes the tracer of a process."""
    on_made: Callable[[Gateway], object] | None = None
    """Gets the gateway that this process has made."""

    def __call__(self) -> Any:
        if self.owns_process:
            log_to_stderr()
            _tune_collector()
        tracer = None if self.tracer is None else self.tracer()
        gateway = Gateway(self.settings, os.environ, tracer=tracer)
        if self.on_made is not None:
            self.on_made(gateway)
        return _WithLifespan(gateway, self.loaded_settings)


def _tune_collector() -> None:
    """Collects garbage after 20,000 new objects instead of 700, and ignores the objects of modules.

    With 1,500 streams, the default threshold took 30 % of the CPU and found next to nothing: the objects of a chunk
    have no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


class _WithLifespan:
    """The gateway with its lifespan: opens its stores, drains it on SIGTERM, and closes its connections at the end."""

    def __init__(self, gateway: Gateway, loaded_settings: LoadedSettings | None) -> None:
        self._gateway = gateway
        self._loaded_settings = loaded_settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._gateway(scope, receive, send)
            return
        await receive()
        try:
            await self._gateway.open()
        except ToolspeakError as error:
            log("start_failed", {"pid": os.getpid(), "problem": str(error)}, level=logging.ERROR)
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        follows = nullcontext() if self._loaded_settings is None else reloading(self._gateway, self._loaded_settings)
        folder = os.environ.get(MULTIPROCESS)
        lists = nullcontext() if folder is None else publish_streams(self._gateway.streams, folder)
        async with _drain_on_sigterm(self._gateway), follows, lists:
            if self._loaded_settings is not None:
                log("serving", {"pid": os.getpid()})
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await self._gateway.aclose()
        await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def _drain_on_sigterm(gateway: Gateway) -> AsyncGenerator[None]:
    """On SIGTERM, waits for the requests under way, at most `drain_seconds`, and then stops the server.

    The port stays open meanwhile: `/readyz` and new requests get a 503.
    """
    loop = asyncio.get_running_loop()
    stop = signal.getsignal(signal.SIGTERM)
    draining: list[asyncio.Task[None]] = []

    async def drain() -> None:
        seconds = gateway.current.settings.drain_seconds
        log("draining", {"active": gateway.admission.active, "seconds": seconds})
        await gateway.admission.wait_until_idle(seconds)
        if stopped_count := await gateway.admission.stop(_STOP_SECONDS):
            log("drained", {"ended": stopped_count, "problem": "drain_seconds were over: these requests got an error"})
        if callable(stop):
            stop(signal.SIGTERM, None)

    def begin(_number: int, _frame: FrameType | None) -> None:
        gateway.draining = True
        if not draining:
            loop.call_soon_threadsafe(lambda: draining.append(loop.create_task(drain())))

    try:
        signal.signal(signal.SIGTERM, begin)
    except ValueError:  # outside the main thread, the caller stops the server
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, stop)
        for task in draining:
            task.cancel()


def server_config(application: Application) -> uvicorn.Config:
    """uvicorn's settings for the application. `serve` makes the socket."""
    return uvicorn.Config(
        application,
        factory=True,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        workers=application.settings.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,  # uvicorn's is the time of the request
        timeout_keep_alive=75,  # longer than the 60 seconds that load balancers keep idle connections
        timeout_graceful_shutdown=2,  # draining comes before
    )


class _OneWorker(ReadyServer):
    """The gateway in this process. `beside` ends with it."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], beside: ExitStack) -> None:
        super().__init__(config, ready)
        self._beside = beside

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # Not after `run`: by then uvicorn has sent the signal again, and the process has ended.
        await asyncio.to_thread(self._beside.close)


class _GatewayWorker(Process):
    """A worker that is asked how it is, and not waited for. uvicorn waits for the answer of each: a worker that stands
    still, or dies before it answers, would hold up the replacement of all others, and signals too."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self.serves = False
        """Whether it accepts requests, as it last said."""
        self.reloads_late = False
        """A SIGHUP came before it accepted requests, and would have ended it."""
        self._looks_without_answer = 0

    def is_well(self) -> bool:
        """Whether it runs, and has answered one of the last questions. Asks the next question."""
        if not self.process.is_alive():
            return False
        with suppress(OSError, EOFError):  # it has just ended: the next look finds that
            while self.parent_conn.poll():
                self.serves, self._looks_without_answer = self.parent_conn.recv(), 0
            if not self._looks_without_answer:
                self.parent_conn.send(b"ping")
        self._looks_without_answer += 1
        return self._looks_without_answer <= _LOOKS


class _Workers(Multiprocess):
    """Replaces workers that have ended, and removes their gauges. On SIGHUP the workers reload their settings;
    uvicorn's supervisor would replace the workers. A new worker starts with the newest settings.

    A worker that cannot start ends the gateway only if no worker has ever served. uvicorn's supervisor would stop all
    workers if the database is down while it replaces one.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        sockets: list[socket.socket],
        loaded_settings: LoadedSettings,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(config, sockets)
        self.has_served = False
        self._ready = ready
        self._reloader = Reloader(loaded_settings)

    def init_processes(self) -> None:
        self.processes = [_GatewayWorker(self.config, self.sockets) for _ in range(self.processes_num)]
        for process in self.processes:
            process.start()

    @property
    def _workers(self) -> list[_GatewayWorker]:
        return cast("list[_GatewayWorker]", self.processes)

    def keep_subprocess_alive(self) -> None:
        if self.should_exit.is_set():
            return
        if self._reloader.changed():
            self._reload()
        for number, process in enumerate(self._workers):
            if process.is_well():
                if process.serves and not self.has_served:
                    self.has_served = True
                    self._ready()
                if process.serves and process.reloads_late and process.pid is not None:
                    process.reloads_late = False
                    os.kill(process.pid, signal.SIGHUP)
                continue
            process.kill()  # it may still run without an answer
            process.join()
            if process.exitcode == STARTUP_FAILURE and not self.has_served:
                self.should_exit.set()  # the others would fail, too
                return
            if process.pid is not None:
                worker_gone(process.pid)
                problem = "its requests have broken off; another worker starts"
                if process.exitcode == STARTUP_FAILURE:
                    problem = "it could not start (see above); another worker starts"
                log("worker_ended", {"pid": process.pid, "problem": problem}, level=logging.ERROR)
            self.processes[number] = _GatewayWorker(self.config, self.sockets)
            self.processes[number].start()

    def handle_hup(self) -> None:
        self._reload()
        for process in self._workers:
            if process.serves and process.pid is not None:
                os.kill(process.pid, signal.SIGHUP)
            else:
                process.reloads_late = True

    def settings(self) -> Settings:
        """The settings of new workers."""
        return self._reloader.loaded_settings.settings

    def _reload(self) -> None:
        with suppress(ToolspeakError):  # each worker logs it
            loaded_settings, _ = self._reloader.read()
            check_settings(loaded_settings.settings, os.environ)
            self._reloader.loaded_settings = loaded_settings
            self.config.app = replace(
                cast("Application", self.config.app), settings=loaded_settings.settings, loaded_settings=loaded_settings
            )


def serve(
    sources: Sources,
    ready: Callable[[str], None] = lambda _address: None,
    tracer: Callable[[], RequestTracer] | None = None,
    beside: Beside | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT. Calls `ready` with the address once a worker accepts requests, and `tracer` in
    each process (it must be a function of a module). `beside` runs in this process while the gateway serves. Raises
    ConfigurationError for invalid settings and for a port that is in use."""
    loaded_settings = load(sources)
    settings = loaded_settings.settings
    application = Application(settings, loaded_settings=loaded_settings, tracer=tracer)
    check_settings(settings, os.environ)  # once, not in each worker
    sock = listen(settings.host, settings.port, backlog=2048)
    sock.set_inheritable(True)  # by the workers
    host, port = sock.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    stack = ExitStack()

    def serves(sight: GatewayObserver) -> None:
        ready(address)
        if beside is not None:
            stack.enter_context(beside(sight))

    if settings.workers == 1:
        gateways: list[Gateway] = []
        config = server_config(replace(application, on_made=gateways.append))

        def one_serves() -> None:
            (gateway,) = gateways
            streams = partial(oldest_streams, gateway.streams)
            serves(GatewayObserver(lambda: gateway.current.settings, gateway.metrics.families, streams))

        _OneWorker(config, one_serves, stack).run(sockets=[sock])
        return
    folder = tempfile.mkdtemp(prefix="toolspeak-metrics-")
    os.environ[MULTIPROCESS] = folder
    try:
        log_to_stderr()
        workers = _Workers(server_config(application), [sock], loaded_settings, lambda: serves(sight))
        sight = GatewayObserver(workers.settings, families_of_workers, lambda: streams_of_workers(folder))
        with stack, on_hangup(lambda: workers.signal_queue.append(signal.SIGHUP)):
            workers.run()
        if not workers.has_served and any(process.exitcode == STARTUP_FAILURE for process in workers.processes):
            raise SystemExit(STARTUP_FAILURE)
    finally:
        del os.environ[MULTIPROCESS]
        shutil.rmtree(folder, ignore_errors=True)
