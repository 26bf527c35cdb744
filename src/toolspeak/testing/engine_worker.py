"""Workers in processes of their own, for the contract of engines.

A worker drives real runs whose model does what the task says. It writes a line of JSON for whatever it does.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from toolspeak.agent import Agent
from toolspeak.data.messages import Message, TextMessage
from toolspeak.data.tools import Effects
from toolspeak.data.values import quick
from toolspeak.engines.base import Delivery, Engine, WorkLimits
from toolspeak.engines.worker import Worker
from toolspeak.errors import ConfigurationError
from toolspeak.journal.base import Journal
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools.context import RunContext
from toolspeak.tools.decorator import tool

OpenEngine: TypeAlias = Callable[[], tuple[Engine, Journal]]
"""Opens an engine and its journal. Workers call it too, so `pickle` must be able to name it: a function of a module, or
`functools.partial` of one. The journal is one that processes share."""

AGENTS = ("buyer", "clerk")
"""The agents of the workers. They have the same tools."""

FAILING = "failing-"
"""How the id of a run begins whose handler raises until the file `gate` is in the folder."""

_PROGRAM = "from toolspeak.testing.engine_worker import main; main()"
_NO_LIMITS = WorkLimits()
_SECONDS = 120.0  # a limit for what hangs; nothing is measured by it


@quick()
class Report:
    """What a worker did.

    - `event`: "works" (it has started), "delivered" (its handler was called), "raises", "enters" and "leaves" (the tool
      `hold`), "notes" (the tool `note`), "stops" (it got SIGTERM), "refused" (the engine does not have these limits).
    - `run_id`: of the run that it is about, or "".
    - `pid`: of the worker's process.
    - `time`: Unix seconds.
    """

    event: str
    run_id: str
    pid: int
    time: float


class WorkerProcesses:
    """Workers of one engine.

    - `open_engine`: opens the engine in each of them.
    - `folder`: shared with them. The tool `hold(name)` returns once a file of that name is there.
    """

    def __init__(self, open_engine: OpenEngine, folder: Path) -> None:
        self._open_engine, self._folder = open_engine, folder
        self._processes: dict[int, tuple[asyncio.subprocess.Process, asyncio.Task[None]]] = {}
        self._news = asyncio.Condition()
        self.reports: list[Report] = []

    async def start(self, limits: WorkLimits = _NO_LIMITS) -> int:
        """Starts a worker, and returns the id of its process once it works."""
        work = pickle.dumps((self._open_engine, self._folder, limits))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROGRAM, base64.b64encode(work)),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=asyncio.subprocess.PIPE,
        )
        self._processes[process.pid] = process, asyncio.create_task(self._read(process))
        await self.wait_for("works", pid=process.pid)
        return process.pid

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.startswith(b"{"):
                async with self._news:
                    self.reports.append(Report(**json.loads(line)))
                    self._news.notify_all()

    async def wait_for(
        self, event: str, run_id: str | None = None, *, count: int = 1, pid: int | None = None
    ) -> Report:
        """Waits for so many reports of an event, of one run or of all, and returns the last of them."""
        try:
            async with asyncio.timeout(_SECONDS), self._news:
                await self._news.wait_for(lambda: len(self.those(event, run_id, pid)) >= count)
                return self.those(event, run_id, pid)[count - 1]
        except TimeoutError:
            raise AssertionError(
                f"{event!r} of {run_id or 'any run'} did not come {count} times within {_SECONDS:.0f} seconds; the"
                f" workers reported {self.reports[-20:]}"
            ) from None

    def those(self, event: str, run_id: str | None = None, pid: int | None = None) -> list[Report]:
        """The reports of an event until now."""
        return [
            each
            for each in self.reports
            if each.event == event and run_id in (None, each.run_id) and pid in (None, each.pid)
        ]

    def send(self, pid: int, number: signal.Signals) -> None:
        """Sends a worker a signal."""
        self._processes[pid][0].send_signal(number)

    async def wait_for_exit(self, pid: int) -> int:
        """Waits for the end of a worker and its last report, and returns its exit code."""
        process, reader = self._processes.pop(pid)
        async with asyncio.timeout(_SECONDS):
            await reader
            return await process.wait()

    async def aclose(self) -> None:
        """Kills those that are left."""
        for process, _ in self._processes.values():
            process.kill()
        for process, reader in self._processes.values():
            await asyncio.gather(reader, process.wait())


def _report(event: str, run_id: str | None = None) -> None:
    line = {"event": event, "run_id": run_id or "", "pid": os.getpid(), "time": time.time()}
    os.write(1, json.dumps(line).encode() + b"\n")


def _turn(messages: Sequence[Message | TextMessage]) -> ScriptedTurn:
    """The task is JSON: a list of calls, each `[name, arguments]`, made one a turn."""
    calls = json.loads(next(each for each in messages if each.role == "user").text)
    call_count = sum(each.role == "assistant" for each in messages)
    if call_count == len(calls):
        return ScriptedTurn("done")
    name, arguments = calls[call_count]
    return ScriptedTurn("", calls=(ScriptedCall(name, arguments),))


def _agent(name: str, journal: Journal, folder: Path) -> Agent[Any, Any]:
    @tool(effects=Effects(writes=frozenset({"file:hold"}), idempotent=True))
    async def hold(name: str, ctx: RunContext[Any]) -> str:
        """Returns once the file is there."""
        _report("enters", ctx.run_id)
        while not (folder / name).exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)
        _report("leaves", ctx.run_id)
        return "held"

    @tool(effects=Effects(writes=frozenset({"file:note"})))
    def note(ctx: RunContext[Any]) -> str:
        """Has an effect that must not happen twice."""
        _report("notes", ctx.run_id)
        return "noted"

    @tool(read_only=True)
    def wait(event: str, seconds: float, ctx: RunContext[Any]) -> str:
        """Waits for an event."""
        ctx.wait_for(event, timeout=seconds)
        return "waited"

    model = ScriptedProvider([_turn] * 1000, tools=True)
    return Agent(model, [hold, note, wait], dialect="native", name=name, journal=journal, approve="all")


async def _work(open_engine: OpenEngine, folder: Path, limits: WorkLimits) -> None:
    engine, journal = open_engine()
    worker, stop = Worker([_agent(name, journal, folder) for name in AGENTS], journal, engine), asyncio.Event()

    def end() -> None:
        stop.set()
        _report("stops")

    async def handle(delivery: Delivery) -> float | None:
        _report("delivered", delivery.run_id)
        if delivery.run_id.startswith(FAILING) and not (folder / "gate").exists():
            _report("raises", delivery.run_id)
            raise RuntimeError("this handler raises, as the contract of engines wants it")
        return await worker.handle(delivery)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    _report("works")
    try:
        # Not `worker.run`, which looks into the journal for runs that an engine has lost.
        await engine.work(handle, agents=AGENTS, limits=limits, stop=stop)
    except ConfigurationError:
        _report("refused")
    finally:
        await engine.aclose()
        await journal.aclose()


def main() -> None:
    """Works until SIGTERM, as the program's argument says."""
    asyncio.run(_work(*pickle.loads(base64.b64decode(sys.argv[1]))))
