"""Archives a journal in a process that dies at a step of it. A step is a call of the journal.

It reads a job a line from standard input, `[FILE, FOLDER, STEP]`, forks a process for it, and prints its exit code: the
number of steps if it came to the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from toolspeak.agent.storage.archives import archive
from toolspeak.journal import SqliteJournal


class Mortal(SqliteJournal):
    """Dies before its step number `last`."""

    def __init__(self, path: str, last: int) -> None:
        super().__init__(path)
        self.last, self.steps = last, 0

    def step(self) -> None:
        if self.steps == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1

    async def read(self, run_id, start=0, most=None):
        self.step()
        return await super().read(run_id, start, most)

    async def group_of(self, run_id):
        self.step()
        return await super().group_of(run_id)

    async def session_group(self, session_id):
        self.step()
        return await super().session_group(session_id)

    async def delete_group(self, group):
        self.step()
        await super().delete_group(group)
        self.step()


async def work(path: str, folder: str, last: int) -> int:
    journal = Mortal(path, last)
    async for _ in archive(journal, Path(folder), before=2_000_000_000.0):
        journal.step()
    await journal.aclose()
    return journal.steps


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            os._exit(asyncio.run(work(*json.loads(line))))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


main()
