"""A real llama.cpp server for the tests of this folder: `make test-engine` says where it is and runs them.

They are no part of `make test` (none is named `test_*.py`), for the server has to be built. What it logs is kept in
`build/engine.log`, and its end is shown with a test that failed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from asking import Engine

HERE = Path(__file__).parent
LOG = HERE.parents[1] / "build" / "engine.log"
START_SECONDS = 120.0  # a 3 MB model loads in a moment; the machine may be busy
LOG_LINES = 30


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def wait_until_ready(root: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    with httpx2.Client(trust_env=False) as client:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                if client.get(f"{root}/health", timeout=5).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass  # not listening yet
            time.sleep(0.05)
    state = "did not answer in time" if process.poll() is None else f"ended with {process.returncode}"
    pytest.fail(f"llama-server {state}\n{log_end()}", pytrace=False)


def log_end() -> str:
    lines = LOG.read_text(errors="replace").splitlines() if LOG.exists() else []
    return "\n".join(lines[-LOG_LINES:])


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    binary = os.environ.get("LLAMA_SERVER")
    if not binary:
        pytest.fail("LLAMA_SERVER is not set: run `make test-engine`, which builds the server", pytrace=False)
    model = tmp_path_factory.mktemp("model") / "tiny.gguf"
    subprocess.run([sys.executable, HERE / "make_model.py", model], check=True)
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    server = [binary, "--model", model, "--alias", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    settings = ["--jinja", "--ctx-size", "65536", "--parallel", "2", "--threads", "1", "--slots", "--offline"]
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("wb") as log:
        process = subprocess.Popen([*server, *settings], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            wait_until_ready(root, process)
            yield Engine(root)
            assert process.poll() is None, f"llama-server ended with {process.returncode} during the tests"
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and "engine" in getattr(item, "fixturenames", ()):
        report.sections.append((f"the end of {LOG}", log_end()))
    return report
