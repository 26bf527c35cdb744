"""Waiting for other processes."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path


async def until(condition, what: str) -> None:
    """Wait for something another process does; fail when it does not happen."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether the process runs no more; where nobody reaps orphans, a zombie is as good."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"
