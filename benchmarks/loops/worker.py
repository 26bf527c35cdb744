"""Measures one runtime's loop, in its own process and environment.

    python benchmarks/loops/worker.py SUBJECT

Reads one job per line, `{"metric": …, …}` with the parameters of the metric's method below. Writes one result per line:
its figures, or `{"error"}`. The model is scripted: deciding its next turn costs the same at any length of the history.
Each run checks the numbers of model calls and tool calls. Figures are microseconds of CPU time (all threads) unless a
docstring says otherwise.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import os
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

ARGUMENTS = '{"a": 1, "b": 2}'
PIECE = "abcd"
OPENING, CLOSING = '{"text": "', '"}'
WINDOW = 100  # number of single steps in a median

Turn = list[tuple[str, str, str]] | None
"""The calls of a turn (id, tool, arguments as JSON), or None for the answer `done`."""

SUBJECTS = {
    "floor": "floor:Careful",
    "toolspeak": "ours:Toolspeak",
    "llm": "others:Llm",
    "agno": "others:Agno",
    "langgraph": "others:LangGraph",
    "pydantic-ai": "others:PydanticAi",
    "openai-agents": "others:OpenAiAgents",
}


@dataclass(slots=True)
class Script:
    """The model's turns in one run: `steps` turns of one call each, then the answer; or one turn of `pieces`."""

    steps: int = 0
    tool: str = "add"
    seconds: float = 0.0
    pieces: int = 0
    turns: int = 0
    calls: int = 0
    stamps: list[float] = field(default_factory=list[float])

    def turn(self) -> Turn:
        number = self.turns
        self.turns += 1
        self.stamps.append(time.process_time())
        return [(f"c{id(self)}_{number}", self.tool, ARGUMENTS)] if number < self.steps else None


RUN: ContextVar[Script] = ContextVar("run")


async def next_turn() -> Turn:
    script = RUN.get()
    if script.seconds:
        await asyncio.sleep(script.seconds)
    return script.turn()


async def add(a: int, b: int) -> int:
    """Add two integers."""
    RUN.get().calls += 1
    return a + b


async def put(text: str) -> int:
    """Store a text."""
    RUN.get().calls += 1
    return len(text)


class Subject:
    """One runtime. Its agent has the tools `add` and `put`."""

    def __init__(self) -> None:
        self.tools = self.wrap([add, put])
        self.agent = self.make(self.tools)

    def wrap(self, functions: Sequence[Callable[..., Any]]) -> Any:
        """Returns the functions as the runtime's tools."""
        raise NotImplementedError

    def make(self, tools: Any) -> Any:
        """Returns an agent."""
        raise NotImplementedError

    async def run(self) -> str:
        """Runs the script until the answer."""
        raise NotImplementedError

    async def stream(self) -> int:
        """Streams the script's only turn. Returns how many characters of the pieces a user saw."""
        raise NotImplementedError

    async def chunks(self, url: str) -> int:
        """Like `stream`, from a server that speaks OpenAI's Chat Completions."""
        raise NotImplementedError

    async def request(self, steps: int) -> dict[str, Any]:
        """The request body after a number of steps: the cost of building and writing it, and its KiB."""
        raise NotImplementedError

    # --- metrics -----------------------------------------------------------------------------------------------

    async def loop(self, steps: int) -> dict[str, Any]:
        """The cost of a step: over all steps, and the median of single steps early and late."""
        script = await self._check(Script(steps))
        stamps = script.stamps
        each = [(after - before) * 1e6 for before, after in pairwise(stamps)]
        figures = {"step": (stamps[-1] - stamps[0]) / steps * 1e6}
        if steps > 2 * WINDOW + 10:
            figures["early"] = statistics.median(each[10 : 10 + WINDOW])
            figures["late"] = statistics.median(each[-WINDOW:])
        return figures

    async def runs(self, runs: int, calls: int, seconds: float) -> dict[str, Any]:
        """The cost of a model call in `runs` concurrent runs of `calls` model calls, each of which takes `seconds`."""
        gc.collect()
        start = time.process_time()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(runs):
                tasks.create_task(self._check(Script(calls - 1, seconds=seconds)))
        return {"call": (time.process_time() - start) / runs / calls * 1e6}

    async def deltas(self, kind: str, count: int, url: str = "") -> dict[str, Any]:
        """The cost of a piece of text or of arguments, from the model, or the server at `url`, to the user."""
        script = Script(steps=int(kind == "arguments"), tool="put", pieces=count)
        token = RUN.set(script)
        gc.collect()
        start = time.process_time()
        length = await (self.chunks(f"{url}/{kind}/{count}") if url else self.stream())
        cpu_seconds = time.process_time() - start
        RUN.reset(token)
        if length not in (count * len(PIECE), -1):
            raise AssertionError(f"{length} characters were seen, not {count * len(PIECE)}")
        return {"delta": cpu_seconds / count * 1e6}

    async def agents(self, count: int) -> dict[str, Any]:
        """The cost of an agent built from existing tools, and the KiB that it keeps."""
        self.make(self.tools)
        gc.collect()
        start = time.process_time()
        for _ in range(count):
            self.make(self.tools)
        cpu_seconds = time.process_time() - start
        agents = [None] * 100
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for i in range(len(agents)):
            agents[i] = self.make(self.tools)
        gc.collect()
        size = (tracemalloc.get_traced_memory()[0] - before) / len(agents)
        tracemalloc.stop()
        return {"agent": cpu_seconds / count * 1e6, "kib": size / 1024}

    async def _check(self, script: Script) -> Script:
        token = RUN.set(script)
        try:
            answer = await self.run()
        finally:
            RUN.reset(token)
        if (answer, script.calls, script.turns) != ("done", script.steps, script.steps + 1):
            raise AssertionError(f"{answer!r} after {script.calls} calls in {script.turns} turns of {script.steps + 1}")
        return script


def subject_named(name: str) -> Subject:
    module, _, attribute = SUBJECTS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)()


async def work(subject: Subject, job: dict[str, Any]) -> dict[str, Any]:
    metric: Callable[..., Awaitable[dict[str, Any]]] = getattr(subject, job.pop("metric"))
    try:
        return await metric(**job)
    except NotImplementedError:
        return {"error": "not of this runtime"}
    except Exception as error:  # noqa: BLE001 (a peer may raise anything; it is told and the next job runs)
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of a runtime is not a result
    subject = subject_named(sys.argv[1])
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            print(json.dumps(runner.run(work(subject, json.loads(line)))), file=out, flush=True)


if __name__ == "__main__":
    # Imported under its own name, so that the subjects' modules use the same script.
    importlib.import_module("worker").main()
