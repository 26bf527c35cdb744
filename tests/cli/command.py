"""Runs the command as a user does: in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def toolspeak(
    *arguments: str, reply: str | bytes = "", cwd: Path, terminal: bool = True
) -> subprocess.CompletedProcess:
    """`terminal=False` starts a session of its own, in which there is no terminal device to ask at."""
    return subprocess.run(
        [sys.executable, "-m", "toolspeak", *arguments],
        input=reply if isinstance(reply, bytes) else reply.encode("utf-8", "surrogatepass"),
        capture_output=True,
        cwd=cwd,
        timeout=120,
        check=False,
        start_new_session=not terminal,
    )
