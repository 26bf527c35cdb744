"""Work in processes that are killed: a child that does jobs, each in a process of its own, and the test's side of it.

The child reads one job a line from standard input (JSON), forks a process for it, and writes how that ended. A job
names a `folder`, and when to die: `die_at` a record's number ("before" or "after" it is durable), or `die_after`
seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, Any

from toolspeak import SqliteJournal
from toolspeak.data.events import Record


class CrashJobs:
    """Starts the jobs of a child, on one folder after the other."""

    def __init__(self, child: Path, path: Path, stderr: IO[bytes] | None = None) -> None:
        self._path = path
        self._numbers = itertools.count()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment
        )

    def close(self) -> None:
        self._process.communicate()

    def folder(self, runs: int = 1) -> Path:
        """A new folder, with one for each run in it that has a file."""
        folder = self._path / str(next(self._numbers))
        for number in range(runs):
            (folder / str(number)).mkdir(parents=True)
            (folder / str(number) / "in.txt").write_text("something to read")
        return folder

    def perform(self, folder: Path, **job: Any) -> tuple[int, float]:
        """How the job ended (minus the signal, or 0), and the seconds it took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"folder": str(folder), **job}).encode() + b"\n")
        self._process.stdin.flush()
        code, seconds = json.loads(self._process.stdout.readline())
        return code, seconds


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class MortalJournal(SqliteJournal):
    """Dies when a certain record is appended."""

    def __init__(self, path: Path, number: int | None = None, when: str = "after") -> None:
        super().__init__(path)
        self._number, self._when, self._count = number, when, 0

    async def append(self, record: Record, lease: Any = None) -> None:
        mine = self._count == self._number
        self._count += 1
        if mine and self._when == "before":
            die()
        await super().append(record, lease)
        if mine:
            die()


def write_line(path: Path, line: str) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def perform(job: Mapping[str, Any], work: Callable[[Any], Awaitable[None]]) -> int:
    """Does a job (`work`) in a process of its own; its exit code, or minus the signal that ended it."""
    child = os.fork()
    if not child:
        try:
            asyncio.run(work(job))  # type: ignore[arg-type]
        except BaseException:  # noqa: BLE001 - told to whoever reads standard error
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if "die_after" in job:
        time.sleep(job["die_after"])
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(work: Callable[[Any], Awaitable[None]]) -> None:
    for line in sys.stdin:
        start = time.monotonic()
        code = perform(json.loads(line), work)
        print(json.dumps([code, time.monotonic() - start]), flush=True)
