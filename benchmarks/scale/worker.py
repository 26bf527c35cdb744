"""A worker process of `benchmarks/scale.py`: `worker.py ENGINE JOURNAL STEPS CONCURRENCY`. SIGTERM stops it.

Its model calls a tool in each of STEPS turns, and then answers. Every half second it prints how many calls and runs it
has finished, how many runs another worker took over from it, and its CPU time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from toolspeak import Agent, Limits, Usage, tool
from toolspeak.data.deltas import ArgumentsDelta, BatchEnded, CallCompleted, CallStarted, Delta, TextDelta, TurnEnded
from toolspeak.engines import Worker, WorkLimits, open_engine
from toolspeak.journal import Journal, open_journal
from toolspeak.providers import Capabilities, ModelRequest

AGENT = "scale"
LIMITS = Limits(steps=None, tokens=None, seconds=None, calls=None, repeats=None, failures=None)
counts = {"calls": 0, "runs": 0, "lost": 0}


class Model:
    """Decides from the conversation alone, so that any worker may continue a run."""

    name = "fake:model"
    capabilities = Capabilities(tools=True)

    def __init__(self, steps: int, tool_name: str = "read") -> None:
        self._steps, self._tool_name = steps, tool_name

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        step = (len(request.messages) - 1) // 2
        if step >= self._steps:
            counts["runs"] += 1
            yield TextDelta("done")
            yield TurnEnded("stop", Usage(1, 1))
            return
        call_id, path = f"c{step}", f"src/part_{step}.py"
        yield TextDelta("I look at the next file, as the task says.")
        yield CallStarted(0, self._tool_name, call_id)
        yield ArgumentsDelta(0, json.dumps({"path": path}))
        yield CallCompleted(0, self._tool_name, {"path": path}, call_id)
        yield BatchEnded((0,), ok=True)
        yield TurnEnded("tool_calls", Usage(1000, 20))

    async def aclose(self) -> None:
        """Does nothing: no connection is open."""


@tool(read_only=True)
async def read(path: str) -> str:
    """Reads a file."""
    counts["calls"] += 1
    return f"{path}: " + "x = 1\n" * 40


def an_agent(journal: Journal, steps: int) -> Agent[Any, Any]:
    return Agent(Model(steps), [read], name=AGENT, journal=journal, limits=LIMITS)


class LostRuns(logging.Handler):
    """Counts the runs that another worker took over."""

    def emit(self, record: logging.LogRecord) -> None:
        counts["lost"] += "was taken over" in record.getMessage()


async def report() -> None:
    while True:
        print(json.dumps({"time": time.time(), "cpu": time.process_time(), **counts}), flush=True)
        await asyncio.sleep(0.5)


async def main(engine_url: str, journal_url: str, steps: str, concurrency: str) -> None:
    logging.getLogger("toolspeak").propagate = False  # it is stopped in the middle of its runs
    logging.getLogger("toolspeak.worker").addHandler(LostRuns(logging.WARNING))
    journal = open_journal(journal_url)
    agent = an_agent(journal, int(steps))

    worker = Worker(
        [agent],
        journal,
        open_engine(engine_url, journal),
        limits=WorkLimits(concurrency=int(concurrency)),
        drain_seconds=1,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    reporting = asyncio.ensure_future(report())
    try:
        await worker.run()
    finally:
        reporting.cancel()
        await worker.engine.aclose()
        await journal.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
