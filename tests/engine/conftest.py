"""A real llama.cpp server for the tests of this folder: `make test-engine` says where it is and runs them.

They are no part of `make test` (none is named `test_*.py`), for the server has to be built. What it logs is kept in
`build/engine.log`, and its end is shown with a test that failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import Engine
from server_process import BUILD, free_port, log_end, server_process

HERE = Path(__file__).parent
LOG = BUILD / "engine.log"
START_SECONDS = 120.0  # a 3 MB model loads in a moment; the machine may be busy
LOG_LINES = 30


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
    with server_process(
        "llama-server",
        [*server, *settings],
        f"{root}/health",
        LOG,
        log_lines=LOG_LINES,
        start_seconds=START_SECONDS,
    ):
        yield Engine(root)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and "engine" in getattr(item, "fixturenames", ()):
        report.sections.append((f"the end of {LOG}", log_end(LOG, LOG_LINES)))
    return report
