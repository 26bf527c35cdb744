"""The gateway in a process of its own before a scripted model server, and the clients in processes of theirs.

They are no part of `make test` (none is named `test_*.py`), for the clients have to be installed: `make test-clients`
does it, and says by the environment where they are.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from conversations import CLIENTS, have, task_of
from loopback_server import serve
from upstream import CALLS, DIALECTS, Upstream

LOG = Path(__file__).parents[2] / "build" / "gateway.log"
START_SECONDS = 60.0
LOG_LINES = 30


@pytest.fixture(scope="session")
def upstream() -> Iterator[tuple[Upstream, str]]:
    """The model server, in a thread: what it was asked, and its address."""
    played, ready, over = Upstream(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    address: list[str] = []

    async def run() -> None:
        async with serve(played) as server:
            address.append(server.base_url.removesuffix("/v1"))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(START_SECONDS)
        yield played, address[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def log_end() -> str:
    return "\n".join(LOG.read_text(errors="replace").splitlines()[-LOG_LINES:]) if LOG.exists() else ""


def wait_until_ready(root: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    with httpx2.Client(trust_env=False) as client:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                if client.get(f"{root}/healthz", timeout=5).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass  # not listening yet
            time.sleep(0.05)
    state = "did not answer in time" if process.poll() is None else f"ended with {process.returncode}"
    pytest.fail(f"the gateway {state}\n{log_end()}", pytrace=False)


@contextmanager
def gateway(*arguments: str) -> Iterator[str]:
    """`toolspeak serve` with these arguments; gives its address."""
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "toolspeak", "serve", "--port", str(port), *arguments]
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            wait_until_ready(root, process)
            yield root
            assert process.poll() is None, f"the gateway ended with {process.returncode} during the tests"
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    assert process.returncode == 0, f"the gateway did not end in peace\n{log_end()}"


@pytest.fixture(scope="session")
def gateways(upstream: tuple[Upstream, str]) -> Iterator[dict[str, str]]:
    """The address of a gateway for each dialect, as a user starts it."""
    LOG.unlink(missing_ok=True)
    root = upstream[1]
    with ExitStack() as stack:
        yield {
            dialect: stack.enter_context(gateway("--upstream", f"{root}/{dialect}/v1", "--dialect", dialect))
            for dialect in DIALECTS
        }


@pytest.fixture(scope="session")
def told(gateways: dict[str, str]) -> Callable[[str], dict[str, Any]]:
    """What a client saw of all its conversations, by the task; it has them once, whichever test asks first."""

    @functools.cache
    def all_of(client: str) -> dict[str, Any]:
        return have(
            CLIENTS[client],
            [
                {"url": root, "task": task_of(topic, client, dialect, stream), "stream": stream}
                for dialect, root in gateways.items()
                for topic in CALLS
                for stream in (False, True)
            ],
        )

    return all_of


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and "gateways" in getattr(item, "fixturenames", ()):
        report.sections.append((f"the end of {LOG}", log_end()))
    return report
