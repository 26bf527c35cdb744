"""Real servers for the tests of this folder, which `make test-engine` and `make test-vllm` run.

They are no part of `make test` (none is named `test_*.py`), for llama.cpp's takes 30 MB, and vLLM takes gigabytes. What
they log is kept in `build/engine.log`, and its end is shown with a test that failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from asking import Engine
from server_process import BUILD, free_port, log_end, server_process

HERE = Path(__file__).parent
LOG = BUILD / "engine.log"
START_SECONDS = 120.0  # a 3 MB model loads in a moment; the machine may be busy
VLLM_START_SECONDS = 600.0  # it imports PyTorch in each of its processes
LOG_LINES = 30


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    model = tmp_path_factory.mktemp("model") / "tiny.gguf"
    subprocess.run([sys.executable, HERE / "make_model.py", model], check=True)
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    with server_process(
        "llama-server",
        [sys.executable, HERE / "llama_server.py", model, str(port)],
        f"{root}/health",
        LOG,
        log_lines=LOG_LINES,
        start_seconds=START_SECONDS,
    ):
        yield Engine(root)


@pytest.fixture(scope="session")
def vllm_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    subprocess.run([sys.executable, HERE / "make_hf_model.py", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def vllm(vllm_model: Path) -> Iterator[Engine]:
    with vllm_server(vllm_model, "--enable-auto-tool-choice", "--tool-call-parser", "hermes") as engine:
        yield engine


@pytest.fixture(scope="module")
def vllm_without_tools(vllm_model: Path) -> Iterator[Engine]:
    with vllm_server(vllm_model, "--exclude-tools-when-tool-choice-none") as engine:
        yield engine


@contextmanager
def vllm_server(model: Path, *settings: str) -> Generator[Engine]:
    binary = os.environ.get("VLLM")
    if not binary:
        pytest.fail("VLLM is not set: run `make test-vllm`, which installs it", pytrace=False)
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    address = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"]
    small = ["--dtype", "float32", "--max-model-len", "8192", "--max-num-seqs", "4", "--enforce-eager"]
    env = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with server_process(
        "vllm",
        [binary, "serve", model, *address, *small, *settings],
        f"{root}/health",
        LOG,
        log_lines=LOG_LINES,
        start_seconds=VLLM_START_SECONDS,
        env=env,
    ):
        yield Engine(root)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and {"engine", "vllm", "vllm_without_tools"} & {*getattr(item, "fixturenames", ())}:
        report.sections.append((f"the end of {LOG}", log_end(LOG, LOG_LINES)))
    return report
