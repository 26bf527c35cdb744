"""Compares the loop's cost with a floor measured in the same run, and with other runtimes.

    python benchmarks/loop.py [--peers PYTHON] [--only toolspeak floor …] [--rounds 7] [--out results.jsonl]

The floor (`loops/floor.py`) is the minimum for a careful loop: validation, a task and a deadline per call, and typed
events. Each runtime has its own process (`loops/worker.py`) with a scripted model. The other runtimes use the
environment of `--peers` (`make bench-loop`). The processes take turns. Figures are medians over the rounds, in
microseconds of CPU time. Compare only ratios within one run.

- `step`: one turn with one call and its result. `late/early` is the ratio of a step near the end to a step at the
  start. It excludes the body of the request, which is the history and is reported separately.
- `model call`: a model call in 1,000 concurrent runs with five calls of 5 ms each.
- `delta`: a piece of four characters, of text or of arguments, from the model to the user (`Agent.stream`).
- `chunk`: the same from a loopback server, with HTTP, server-sent events and JSON. The floor reads the socket, splits
  events, calls `json.loads` and makes one frozen delta.
- `agent`: an agent built from existing tools, and the memory that it keeps.
- `import`: CPU ms of a process, minus those of a process that imports nothing.

The targets are ratios to the floor: 3 for a step, and 4 for a delta, a chunk and a model call. A step must cost the
same from step 10 to 10,000. `import toolspeak` may cost twice `import pydantic`. An agent may cost 10 µs and 4 KiB. If
a cost grows, the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "loops"
OURS = ("floor", "toolspeak")
OTHERS = ("llm", "agno", "langgraph", "pydantic-ai", "openai-agents")
IMPORTS = {
    "pydantic": "import pydantic",
    "toolspeak": "import toolspeak",
    "toolspeak.Agent": "from toolspeak import Agent",
    "toolspeak, a tool": "from toolspeak import Agent, tool\ndef read(path: str) -> str: 'Reads.'\ntool(read)",
    "llm": "import llm",
    "agno": "from agno.agent import Agent",
    "langgraph": "from langchain.agents import create_agent",
    "pydantic-ai": "from pydantic_ai import Agent",
    "openai-agents": "from agents import Agent, Runner",
}
LARGEST_GROWTH = 1.5
"""The largest allowed ratio of a step near the end to a step at the start. Above it, the exit code is 1. Noise stays
far below it, and a copy of the history is far above it."""

Figures = dict[str, float]


class Worker:
    """A runtime in its process."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self._process = process

    def ask(self, metric: str, **job: Any) -> Figures | str:
        """Returns the figures, or the reason why there are none."""
        assert self._process.stdin is not None, "it is a pipe"
        assert self._process.stdout is not None, "it is a pipe"
        self._process.stdin.write(json.dumps({"metric": metric, **job}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        reply = json.loads(line) if line else {"error": "the process ended"}
        return reply.get("error") or reply


@contextmanager
def process(python: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [python, str(HERE / arguments[0]), *arguments[1:]]
    # Switches off the runtimes' own telemetry.
    quiet = {"AGNO_TELEMETRY": "false", "LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **quiet}
    ) as running:
        try:
            yield running
        finally:
            assert running.stdin is not None, "it is a pipe"
            running.stdin.close()


def measure(
    workers: Sequence[Worker], rounds: int, metric: str, *, warm: bool = True, **job: Any
) -> dict[str, Figures]:
    """Returns the figures of each runtime that has them. `warm` adds a first round that does not count."""
    measurements: dict[str, list[Figures]] = {}
    silent: set[str] = set()
    for number in range(rounds + warm):
        for worker in workers:
            if worker.name in silent:
                continue
            reply = worker.ask(metric, **job)
            if isinstance(reply, str):
                silent.add(worker.name)
                if reply != "not of this runtime":
                    print(f"  {worker.name}: {reply}", file=sys.stderr)
            elif number or not warm:
                measurements.setdefault(worker.name, []).append(reply)
    return {
        name: {key: statistics.median(each[key] for each in figures) for key in figures[0]}
        for name, figures in measurements.items()
    }


def imports(pythons: dict[str, str], rounds: int) -> dict[str, Figures]:
    """Returns CPU milliseconds of each import, minus those of a bare interpreter."""
    times: dict[str, list[float]] = {name: [] for name in pythons}
    for _ in range(rounds + 1):
        for name, python in pythons.items():
            times[name].append(_cpu(python, IMPORTS[name]) - _cpu(python, "pass"))
    return {name: {"import": statistics.median(each[1:]) * 1e3} for name, each in times.items()}


def _cpu(python: str, statement: str) -> float:
    # Compiles once, like an installation. Otherwise every process would compile a clone again.
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen([python, "-c", statement], stderr=subprocess.DEVNULL, env=environ) as running:
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise RuntimeError(f"{python} -c {statement!r} ended with {running.returncode}")
    return usage.ru_utime + usage.ru_stime


class Table:
    """Prints figures as they arrive and stores them for `--out`."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def add(self, title: str, measurements: dict[str, Figures], key: str, floor: str = "floor") -> None:
        base = measurements.get(floor, {}).get(key)
        for name, figures in measurements.items():
            ratio = f"{figures[key] / base:8.1f} ×" if base and name != floor else ""
            growth = f"   late/early {figures['late'] / figures['early']:5.2f}" if "late" in figures else ""
            memory = f"   {figures['kib']:,.1f} KiB" if "kib" in figures else ""
            print(f"{title:28} {name:16} {figures[key]:10,.2f} {ratio:>10}{growth}{memory}", flush=True)
            self.records.append({"metric": title, "subject": name, **figures})
        print()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="the Python of the environment that has the other runtimes")
    parser.add_argument("--only", nargs="+", choices=(*OURS, *OTHERS), help="these runtimes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="the figures as JSON Lines")
    options = parser.parse_args()
    names = [name for name in (*OURS, *(OTHERS if options.peers else ())) if not options.only or name in options.only]
    pythons = {name: sys.executable if name in OURS else options.peers for name in names}
    table, rounds = Table(), options.rounds
    with ExitStack() as stack:
        workers = [Worker(name, stack.enter_context(process(pythons[name], "worker.py", name))) for name in names]
        ours = [worker for worker in workers if worker.name in OURS]
        server = stack.enter_context(process(sys.executable, "server.py"))
        assert server.stdout is not None, "it is a pipe"
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        print(f"{'CPU time (µs)':28} {'':16} {'':10} {'by floor':>10}")
        table.add("step, of 100", measure(workers, rounds, "loop", steps=100), "step")
        table.add("step, of 1,000", measure(workers, 1, "loop", warm=False, steps=1000), "step")
        long = measure(ours, 2, "loop", steps=10_000)
        table.add("step, of 10,000", long, "step")
        table.add("request body, 100 steps", measure(ours, 1, "request", steps=100), "request")
        table.add("request body, 1,000 steps", measure(ours, 1, "request", steps=1000), "request")
        calls = measure(workers, min(rounds, 2), "runs", warm=False, runs=1000, calls=5, seconds=0.005)
        table.add("model call, 1,000 runs", calls, "call")
        for kind in ("text", "arguments"):
            table.add(f"delta of {kind}", measure(workers, rounds, "deltas", kind=kind, count=16_384), "delta")
            table.add(f"chunk of {kind}", measure(ours, rounds, "deltas", kind=kind, count=16_384, url=url), "delta")
        table.add("agent, ready tools", measure(workers, rounds, "agents", count=200), "agent", floor="")
    available_pythons = {
        name: pythons.get(name, sys.executable) for name in IMPORTS if name not in OTHERS or name in pythons
    }
    table.add("import (ms)", imports(available_pythons, rounds), "import", floor="pydantic")
    if options.out is not None:
        options.out.write_text("".join(json.dumps(record) + "\n" for record in table.records), encoding="utf-8")
    mine = long.get("toolspeak")
    if mine is not None and mine["late"] > LARGEST_GROWTH * mine["early"]:
        print("a step costs more the longer the run is", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
