"""`toolspeak serve` in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

LOG = Path(__file__).parents[2] / "build" / "gateway.log"
START_SECONDS = 60.0
LOG_LINES = 12


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
def gateway(*arguments: str, **environ: str) -> Iterator[str]:
    """`toolspeak serve` with these arguments, and these variables besides; gives its address."""
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "toolspeak", "serve", "--port", str(port), *arguments]
    # Keys of whoever runs the tests would be asked of the clients.
    seen = {name: value for name, value in os.environ.items() if name != "TOOLSPEAK_API_KEYS"}
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("ab") as log:
        process = subprocess.Popen(command, env={**seen, **environ}, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
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
    # uvicorn ends as the signal would have ended it, once everything is closed.
    assert process.returncode in (0, -signal.SIGTERM), f"the gateway ended with {process.returncode}\n{log_end()}"
