"""Runs the command as a user does: in a process of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from forked_commands import completed_process


def toolspeak(
    *arguments: str, reply: str | bytes = "", cwd: Path, terminal: bool = True
) -> subprocess.CompletedProcess[bytes]:
    """`terminal=False` starts a session of its own, in which there is no terminal device to ask at."""
    stdin = reply if isinstance(reply, bytes) else reply.encode("utf-8", "surrogatepass")
    return completed_process(arguments, stdin=stdin, cwd=cwd, session=not terminal)
