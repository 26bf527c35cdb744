"""`toolspeak serve` in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from server_process import BUILD, free_port, log_end, server_process

LOG = BUILD / "gateway.log"
START_SECONDS = 60.0
LOG_LINES = 12


@contextmanager
def gateway(*arguments: str, **environ: str) -> Iterator[str]:
    """`toolspeak serve` with these arguments, and these variables besides; gives its address."""
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "toolspeak", "serve", "--port", str(port), *arguments]
    # Keys of whoever runs the tests would be asked of the clients.
    variables = {name: value for name, value in os.environ.items() if name != "TOOLSPEAK_API_KEYS"}
    with server_process(
        "the gateway",
        command,
        f"{root}/healthz",
        LOG,
        log_lines=LOG_LINES,
        start_seconds=START_SECONDS,
        append=True,
        env={**variables, **environ},
    ) as process:
        yield root
    # uvicorn ends as the signal would have ended it, once everything is closed.
    end = log_end(LOG, LOG_LINES)
    assert process.returncode in (0, -signal.SIGTERM), f"the gateway ended with {process.returncode}\n{end}"
