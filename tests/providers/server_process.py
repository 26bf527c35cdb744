"""A server in a process of its own for tests: started, awaited, ended; what it logs is kept for a test that fails."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

BUILD = Path(__file__).parents[2] / "build"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def log_end(log: Path, lines: int) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


@contextmanager
def server_process(
    name: str,
    command: Sequence[str | Path],
    health: str,
    log: Path,
    *,
    log_lines: int,
    start_seconds: float,
    append: bool = False,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The process, once a GET of `health` is answered with 200. It must not end before it is ended here."""
    log.parent.mkdir(exist_ok=True)
    with log.open("ab" if append else "wb") as log_file:
        process = subprocess.Popen(command, env=env, stdout=log_file, stderr=log_file, stdin=subprocess.DEVNULL)
        try:
            _wait_until_ready(name, health, process, log, log_lines, start_seconds)
            yield process
            assert process.poll() is None, f"{name} ended with {process.returncode} during the tests"
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(
    name: str, health: str, process: subprocess.Popen[bytes], log: Path, log_lines: int, start_seconds: float
) -> None:
    deadline = time.monotonic() + start_seconds
    with httpx2.Client(trust_env=False) as client:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                if client.get(health, timeout=5).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass  # not listening yet
            time.sleep(0.05)
    state = "did not answer in time" if process.poll() is None else f"ended with {process.returncode}"
    pytest.fail(f"{name} {state}\n{log_end(log, log_lines)}", pytrace=False)
