"""What the gateway costs, a chunk and a request, against a proxy that decodes and encodes each event, in the same run.

    python benchmarks/gateway.py [--rounds 3] [--soak SECONDS]

Four processes: a model server (`gateways/upstream.py`), what is measured, clients (`gateways/client.py`) and this one.
CPU is that of the measured process alone (user and system, /proc). `floor` is `gateways/floor.py`; `native` the gateway
in front of a model with calls of its own; `native+tools` the same asked with three tools, so that calls left in the
text are looked for; `hermes+tools` a model whose calls are text. Streams are paced as a model writes, some 5,000 chunks
a second over all of them. The ratios are medians of rounds in which the kinds take turns. Target: 1.5 times the floor's
CPU a chunk, no chunk lost, twice or out of order (the clients check every one: any ends the run with 1).

`req/s` are short answers of 8 chunks, as fast as they go, 50 at a time. `KB/stream` is the memory that open streams
add. `--soak` keeps 500 streams open for so long instead, and says how the memory went: from the first third to the last
it must not grow by more than 5 %.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

HERE = Path(__file__).parent / "gateways"
TICKS = os.sysconf("SC_CLK_TCK")
TARGET = 1.5
GROWN = 1.05
KINDS = ("floor", "native", "native+tools", "hermes+tools")
LOADS = ((1, 2_000, 500.0), (100, 400, 50.0), (1_000, 50, 5.0))
"""Streams at once, chunks of each, chunks a second of each."""


@dataclass(frozen=True)
class Measured:
    """CPU in µs a chunk, requests a second, KB a stream, added milliseconds."""

    chunk: float
    rate: float
    memory: float
    p50: float
    p99: float


@contextlib.contextmanager
def running(*command: str) -> Iterator[tuple[int, str]]:
    """A process, and the first line it prints."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.terminate()


@contextlib.contextmanager
def measured_process(kind: str, upstream: str) -> Iterator[tuple[int, int]]:
    """Its process and port."""
    if kind == "floor":
        with running(str(HERE / "floor.py"), f"http://127.0.0.1:{upstream}") as (pid, said):
            yield pid, int(said)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dialect, address = kind.removesuffix("+tools"), f"http://127.0.0.1:{upstream}/v1"
    options = ["--dialect", dialect, "--port", str(port), "--max-streams", "4096"]
    process = subprocess.Popen(
        [sys.executable, "-m", "toolspeak", "serve", "--upstream", address, *options], stderr=subprocess.DEVNULL
    )
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(30)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_kilobytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def clients(port: int, streams: int, requests: int, kind: str) -> dict[str, object]:
    tools = "3" if kind.endswith("+tools") else "0"
    done = subprocess.run(
        [sys.executable, str(HERE / "client.py"), str(port), str(streams), str(requests), tools],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


class Watch:
    """The memory of a process while it is at work: `samples` in KB, each second or more often."""

    def __init__(self, pid: int, every: float = 0.25) -> None:
        self.samples: list[int] = []
        self._pid, self._every, self._over = pid, every, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            self.samples.append(resident_kilobytes(self._pid))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def measure(kind: str, streams: int, chunks: int, per_second: float) -> Measured:
    with (
        running(str(HERE / "upstream.py"), str(chunks), str(per_second)) as (_, upstream),
        measured_process(kind, upstream) as (pid, port),
    ):
        clients(port, 1, 1, kind)  # imports, connections and grammars of the first request
        before, memory = cpu_seconds(pid), resident_kilobytes(pid)
        with Watch(pid) as watch:
            told = clients(port, streams, streams, kind)
        spent = cpu_seconds(pid) - before
    checked(kind, told, streams * chunks)
    with (
        running(str(HERE / "upstream.py"), "8", "0") as (_, upstream),
        measured_process(kind, upstream) as (pid, port),
    ):
        clients(port, 1, 5, kind)
        short = clients(port, min(50, streams), 400, kind)
    checked(kind, short, 400 * 8)
    percentiles: dict[str, float] = told["ms"]  # type: ignore[assignment]
    return Measured(
        spent * 1e6 / (streams * chunks),
        400 / float(str(short["seconds"])),
        (max(watch.samples, default=memory) - memory) / streams,
        percentiles["p50"],
        percentiles["p99"],
    )


def checked(kind: str, told: dict[str, object], chunks: int) -> None:
    if told["wrong"] or told["chunks"] != chunks:
        raise SystemExit(f"{kind}: {told['wrong']} answers lost or moved chunks; {told['chunks']} of {chunks} came")


def middle(values: Iterable[float]) -> float:
    return statistics.median(values)


def compare(rounds: int) -> bool:
    """Whether every target is met."""
    met = True
    columns = ("µs/chunk", "x floor", "req/s", "x floor", "KB/stream", "p50 ms", "p99 ms")
    print(f"{'streams':>7} {'':14}" + "".join(f"{column:>10}" for column in columns))
    for streams, chunks, per_second in LOADS:
        found: dict[str, list[Measured]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind in KINDS:
                found[kind].append(measure(kind, streams, chunks, per_second))
        for kind, ours in found.items():
            pairs = list(zip(ours, found["floor"], strict=True))
            ratio = middle(a.chunk / b.chunk for a, b in pairs)
            figures = (
                f"{middle(each.chunk for each in ours):.1f}",
                f"{ratio:.2f}",
                f"{middle(each.rate for each in ours):.0f}",
                f"{middle(a.rate / b.rate for a, b in pairs):.2f}",
                f"{middle(each.memory for each in ours):.1f}",
                f"{middle(each.p50 for each in ours):.2f}",
                f"{middle(each.p99 for each in ours):.2f}",
            )
            print(f"{streams:>7} {kind:14}" + "".join(f"{figure:>10}" for figure in figures), flush=True)
            met = met and ratio <= TARGET
    print("target met" if met else f"target missed: {TARGET} times the floor's CPU a chunk")
    return met


def soak(seconds: float, streams: int = 500) -> bool:
    """Whether the memory stayed flat."""
    chunks, per_second = 100, 10.0
    answers = max(1, round(seconds * per_second / chunks)) * streams
    with (
        running(str(HERE / "upstream.py"), str(chunks), str(per_second)) as (_, upstream),
        measured_process("hermes+tools", upstream) as (pid, port),
    ):
        clients(port, streams, streams, "hermes+tools")
        before = cpu_seconds(pid)
        with Watch(pid, 1.0) as watch:
            told = clients(port, streams, answers, "hermes+tools")
        spent = cpu_seconds(pid) - before
    checked("hermes+tools", told, answers * chunks)
    third = len(watch.samples) // 3
    first, last = statistics.median(watch.samples[:third]), statistics.median(watch.samples[-third:])
    print(
        f"{told['seconds']:.0f} s, {streams} streams open, {answers} answers, {answers * chunks:,} chunks, none lost "
        f"or moved; {spent * 1e6 / (answers * chunks):.1f} µs a chunk; memory {first / 1024:.1f} MB in the first third, "
        f"{last / 1024:.1f} MB in the last, {max(watch.samples) / 1024:.1f} MB at most"
    )
    return last <= first * GROWN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float, metavar="SECONDS")
    options = parser.parse_args()
    os.chdir(tempfile.gettempdir())
    sys.exit(not (compare(options.rounds) if options.soak is None else soak(options.soak)))


if __name__ == "__main__":
    main()
