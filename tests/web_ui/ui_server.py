"""The web view in a process of its own, as people start it, and a worker in another."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from page_runs import ASKS, HOSTILE, HOSTILE_AGENT, NASTY, SLOW, SlowProvider, page_agent

from toolspeak import Agent
from toolspeak.engines import RunClient, Worker
from toolspeak.journal import open_journal
from toolspeak.providers.scripted_provider import ScriptedProvider

HERE = Path(__file__).parent
PATIENCE = 300
"""Seconds after which something hangs. A busy machine takes long for what takes a moment elsewhere."""


class UiServer:
    """`toolspeak ui` over a journal. It can be killed and started again on the same port."""

    def __init__(self, journal: str, home: Path, *options: str) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self._command = [
            sys.executable,
            "-m",
            "toolspeak",
            "ui",
            "--port",
            str(self.port),
            "--journal",
            journal,
            *options,
        ]
        self._environ = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
        self.process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> str:
        """Starts it. Returns the address that logs a browser in."""
        self.process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True, env=self._environ)
        self.address = self.next_address()
        return self.address

    def next_address(self) -> str:
        """The address that it prints next."""
        assert self.process is not None
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        match = re.search(r"http://\S+", line)
        assert match, line + self.process.stderr.read()
        return match[0]

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Kills it as a crash does."""
        assert self.process is not None
        self.process.kill()
        self._end()

    def stop(self) -> int:
        """Ends it with SIGTERM. Returns its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self._end()

    def _end(self) -> int:
        assert self.process is not None
        assert self.process.stderr is not None
        self.process.stderr.close()
        return self.process.wait(PATIENCE)


def start_worker(journal: str) -> subprocess.Popen[bytes]:
    """A process that drives the runs of the pages."""
    return subprocess.Popen([sys.executable, str(Path(__file__)), journal], cwd=HERE)


async def fill(place: str) -> None:
    """Makes the runs of the pages."""
    journal = open_journal(place)
    await page_agent(journal, SLOW).run("What is the weather in Berlin, Oslo and Rome?", run_id="slow")
    await page_agent(journal, ASKS).run("Refund the damaged order 4711", run_id="asks", principal="customer-7")
    await page_agent(journal, HOSTILE, HOSTILE_AGENT).run(NASTY, run_id="hostile", setup={"workspace": NASTY})
    await RunClient(journal).submit("writer", "Write words", run_id="writer")
    await journal.aclose()


async def _work(place: str) -> None:
    journal = open_journal(place)
    writer = Agent(SlowProvider(Path(f"{place}.gate")), name="writer", journal=journal)
    listener = Agent(
        ScriptedProvider([lambda messages: f"heard: {messages[-1].text}"] * 50), name="ear", journal=journal
    )
    worker = Worker([page_agent(journal, ASKS[1:] * 50), writer, listener], journal, drain_seconds=1.0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()
    await journal.aclose()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_work(sys.argv[1]))
