"""The servers of the engines: PostgreSQL, and Restate's, which is a program in a package of npm."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2
import pytest
from postgres_server import postgres, restart_postgres
from server_process import BUILD, free_port, log_end

HERE = Path(__file__).parent
LOG = BUILD / "restate.log"
START_SECONDS = 60.0

# What the guide tells operators to set: a worker that is silent is noticed.
KEEP_ALIVE = ("1s", "2s")
PARTITIONS = 4
CALLS_AT_ONCE = 50  # of each partition


class EngineServer:
    """The URLs of an engine and of the journal, and how to restart each server as after a crash, the engine's first."""

    def __init__(self, name: str, url: str, journal: str, *restarts: Callable[[], None]) -> None:
        self.name, self.url, self.journal, self.restarts = name, url, journal, restarts


@contextmanager
def engine_server(
    name: str, folder: Path, keep_alive: tuple[str, str] = KEEP_ALIVE, listen: str = ""
) -> Iterator[EngineServer]:
    """`listen`: an address where the journal's server listens too."""
    with postgres(listen) as journal:
        restart_journal = partial(restart_postgres, journal)
        if name != "restate":
            yield EngineServer(name, f"{name}:", journal, restart_journal)
            return
        restate = Restate(folder, keep_alive)
        restate.start()
        try:
            yield EngineServer(name, restate.url, journal, restate.restart, restart_journal)
        finally:
            restate.kill()


class Restate:
    """A server of its own in a folder, on ports of 127.0.0.1."""

    def __init__(
        self,
        folder: Path,
        keep_alive: tuple[str, str] = KEEP_ALIVE,
        calls_per_connection: int = 1,
        calls_at_once: int = CALLS_AT_ONCE,
    ) -> None:
        self._folder, self._keep_alive = folder, keep_alive
        self._calls_per_connection, self._calls_at_once = calls_per_connection, calls_at_once
        self._ingress, self._admin, self._node, self._worker = (free_port() for _ in range(4))
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"restate://127.0.0.1:{self._ingress}?admin=127.0.0.1:{self._admin}&listen=127.0.0.1:{self._worker}"

    def start(self) -> None:
        machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        package = HERE / "npm/node_modules/@restatedev" / f"restate-server-{sys.platform}-{machine}"
        program = package / "bin/restate-server"
        if not program.exists():
            pytest.fail(f"{program} is missing: run `make test-engines`, which fetches it", pytrace=False)
        environ = {
            **os.environ,
            "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL": self._keep_alive[0],
            "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT": self._keep_alive[1],
            "RESTATE_WORKER__INVOKER__HTTP2_STREAMS_PER_CONNECTION_LIMIT": str(self._calls_per_connection),
            "RESTATE_WORKER__INVOKER__CONCURRENT_INVOCATIONS_LIMIT": str(self._calls_at_once),
            "DO_NOT_TRACK": "1",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_BIND_PORT": str(self._node),
            "RESTATE_INGRESS__BIND_PORT": str(self._ingress),
            "RESTATE_ADMIN__BIND_PORT": str(self._admin),
            "RESTATE_ADMIN__DISABLE_WEB_UI": "true",
            "RESTATE_BASE_DIR": str(self._folder / "restate"),
            "RESTATE_NODE_NAME": "tests",
            "RESTATE_DEFAULT_NUM_PARTITIONS": str(PARTITIONS),
            "RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE": "256MB",
            "RESTATE_LOG_FILTER": "warn",
            "RESTATE_LOG_DISABLE_ANSI_CODES": "true",
        }
        LOG.parent.mkdir(exist_ok=True)
        with LOG.open("ab") as log:
            self._process = subprocess.Popen([program, "--no-logo"], env=environ, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        with httpx2.Client(trust_env=False, timeout=2) as client:
            while time.monotonic() < deadline and self._process.poll() is None:
                try:
                    ingress = client.get(f"http://127.0.0.1:{self._ingress}/restate/health")
                    if ingress.is_success and client.get(f"http://127.0.0.1:{self._admin}/health").is_success:
                        return
                except httpx2.HTTPError:
                    pass  # not listening yet
                time.sleep(0.05)
        pytest.fail(f"Restate's server does not answer\n{log_end(LOG, 30)}", pytrace=False)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()
