"""Compares the gateway's cost per chunk and request with a proxy that decodes and encodes each event, in the same run.

    python benchmarks/gateway.py [--rounds 3] [--only KIND] [--streams N] [--burst] [--growth]
    python benchmarks/gateway.py --soak SECONDS [--rate N]

The model server (`gateways/upstream.py`), each measured subject, the clients (`gateways/client.py`) and this program
are separate processes. CPU is the time of the measured process alone (user and system, as the scheduler counts it).

- `floor` is `gateways/floor.py`.
- `native` is the gateway with a model that has native calls.
- `native+tools` is the same with three tools in the request, so that the gateway also searches the text for calls.
- `hermes+tools` is the gateway with a model whose calls are text.

Streams are paced like a model, at about 4,000 chunks a second in total at most, so that most chunks are a separate read
and write. The ratios are medians of rounds in which the kinds take turns. They include the cost of a request before its
first chunk. The targets are 1.5 times the floor's CPU per chunk, and no chunk lost, repeated or out of order. The
clients check every chunk, and a wrong one ends the run with exit code 1.

`--streams` measures only the given number of streams, each of 40 chunks, two a second. `--burst` measures the time to
the first word, in ms, when 100 clients connect at once. The target is 1.2 times the floor's.

`µs/req` and `req/s` are for short answers of 8 chunks at full speed, 50 at a time. `KB/stream` is the memory that open
streams add. `--growth` compares a chunk of streams of 2,000 chunks with a chunk of a stream of 20,000, which must not
cost more. `--soak` keeps 500 streams open for SECONDS and reports the memory over time, starting when each of them has
been opened once. From the first third to the last, the memory must not grow by more than 5 %.
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

HERE = Path(__file__).parent / "gateways"
TARGET = 1.5
BURST, BURST_TARGET = 100, 1.2
GROWTH_LIMIT = 1.05
DEARER = 1.25
KINDS = ("floor", "native", "native+tools", "hermes+tools")
LOADS = ((1, 600, 400), (100, 80, 40), (1_000, 50, 4))
"""Concurrent streams, chunks per stream, and chunks per second of each stream."""


@dataclass(frozen=True)
class SubjectCosts:
    """CPU in µs per chunk and per short answer, short answers per second, KB per stream, and added milliseconds."""

    chunk: float
    short: float
    rate: float
    memory: float
    p50: float
    p99: float


@contextlib.contextmanager
def running(*command: str) -> Iterator[tuple[int, str]]:
    """Starts a process and returns it with the first line that it prints."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.terminate()


@contextlib.contextmanager
def measured_process(kind: str, upstream: str) -> Iterator[tuple[int, int]]:
    """Returns its process and port."""
    if kind == "floor":
        with running(str(HERE / "floor.py"), f"http://127.0.0.1:{upstream}") as (pid, port_text):
            yield pid, int(port_text)
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
    """Of all threads. The source (Linux's `schedstat`) counts nanoseconds; `stat` counts hundredths of a second."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def resident_kilobytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def clients(kind: str, port: int, streams: int, requests: int, chunks: int, per_second: int = 0) -> dict[str, object]:
    """Returns the clients' figures if every chunk arrived in order."""
    tools = "3" if kind.endswith("+tools") else "0"
    arguments = [f"{chunks}x{per_second}", str(streams), str(requests), tools]
    result = subprocess.run(
        [sys.executable, str(HERE / "client.py"), str(port), *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    report = json.loads(result.stdout)
    if report["wrong"] or report["chunks"] != requests * chunks:
        raise SystemExit(
            f"{kind}: {report['wrong']} answers lost or moved chunks; {report['chunks']} of {requests * chunks} came"
        )
    return report


class Watch:
    """Records the memory of a running process: `samples` in KB, at least one per second."""

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


@dataclass(frozen=True)
class Subject:
    """A warmed-up process to measure. `idle` is its memory in KB before the first load."""

    kind: str
    pid: int
    port: int
    idle: int

    def measure(self, streams: int, chunks: int, per_second: int) -> SubjectCosts:
        before = cpu_seconds(self.pid)
        with Watch(self.pid) as watch:
            report = clients(self.kind, self.port, streams, streams, chunks, per_second)
        cpu_used = cpu_seconds(self.pid) - before
        before = cpu_seconds(self.pid)
        short = clients(self.kind, self.port, min(50, streams), 400, 8)
        short_spent = cpu_seconds(self.pid) - before
        percentiles: dict[str, float] = report["ms"]  # type: ignore[assignment]
        return SubjectCosts(
            cpu_used * 1e6 / (streams * chunks),
            short_spent * 1e6 / 400,
            400 / float(str(short["seconds"])),
            (max(watch.samples, default=self.idle) - self.idle) / streams,
            percentiles["p50"],
            percentiles["p99"],
        )

    def chunk(self, requests: int, chunks: int) -> float:
        """Returns CPU in µs per chunk, with one stream at a time at full speed."""
        before = cpu_seconds(self.pid)
        clients(self.kind, self.port, 1, requests, chunks)
        return (cpu_seconds(self.pid) - before) * 1e6 / (requests * chunks)


@contextlib.contextmanager
def subjects(kinds: Iterable[str]) -> Iterator[list[Subject]]:
    with contextlib.ExitStack() as stack:
        _, upstream = stack.enter_context(running(str(HERE / "upstream.py")))
        processes: list[Subject] = []
        for kind in kinds:
            pid, port = stack.enter_context(measured_process(kind, upstream))
            clients(kind, port, 1, 5, 8)  # imports and one-time setup
            processes.append(Subject(kind, pid, port, resident_kilobytes(pid)))
        yield processes


def middle(values: Iterable[float]) -> float:
    return statistics.median(values)


def compare(rounds: int, kinds: Sequence[str], loads: Sequence[tuple[int, int, int]]) -> bool:
    """Returns whether every target is met."""
    meets_target = True
    columns = ("µs/chunk", "x floor", "µs/req", "x floor", "req/s", "KB/stream", "p50 ms", "p99 ms")
    print(f"{'streams':>7} {'':14}" + "".join(f"{column:>10}" for column in columns))
    for streams, chunks, per_second in loads:
        measurements: dict[str, list[SubjectCosts]] = {kind: [] for kind in kinds}
        with subjects(kinds) as running_subjects:
            for _ in range(rounds):
                for each in running_subjects:
                    measurements[each.kind].append(each.measure(streams, chunks, per_second))
        for kind, ours in measurements.items():
            pairs = list(zip(ours, measurements["floor"], strict=True))
            ratio = middle(a.chunk / b.chunk for a, b in pairs)
            figures = (
                f"{middle(each.chunk for each in ours):.1f}",
                f"{ratio:.2f}",
                f"{middle(each.short for each in ours):.0f}",
                f"{middle(a.short / b.short for a, b in pairs):.2f}",
                f"{middle(each.rate for each in ours):.0f}",
                f"{ours[0].memory:.1f}",  # later rounds reuse this memory
                f"{middle(each.p50 for each in ours):.2f}",
                f"{middle(each.p99 for each in ours):.2f}",
            )
            print(f"{streams:>7} {kind:14}" + "".join(f"{figure:>10}" for figure in figures), flush=True)
            meets_target = meets_target and ratio <= TARGET
    print("target met" if meets_target else f"target missed: {TARGET} times the floor's CPU a chunk")
    return meets_target


def growth(rounds: int, kinds: Sequence[str]) -> bool:
    """Returns whether a chunk of a long stream costs no more than a chunk of a short stream."""
    level = True
    print(f"{'µs/chunk':14}{'2,000':>10}{'20,000':>10}{'ratio':>10}")
    with subjects(kinds) as running_subjects:
        costs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for each in running_subjects:
                costs[each.kind].append((each.chunk(10, 2_000), each.chunk(1, 20_000)))
    for kind, pairs in costs.items():
        ratio = middle(long / short for short, long in pairs)
        short, long = middle(pair[0] for pair in pairs), middle(pair[1] for pair in pairs)
        print(f"{kind:14}{short:>10.1f}{long:>10.1f}{ratio:>10.2f}", flush=True)
        level = level and ratio <= DEARER
    return level


def burst(rounds: int, kinds: Sequence[str]) -> bool:
    """Returns whether the first word meets its target when many clients send requests at once."""
    meets_target = True
    latencies: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    print(f"{BURST} at once{'':12}{'p50 ms':>10}{'x floor':>10}{'p99 ms':>10}{'x floor':>10}")
    with subjects(kinds) as running_subjects:
        for _ in range(rounds):
            for each in running_subjects:
                report = clients(each.kind, each.port, BURST, BURST, 20, 10)
                latencies[each.kind].append(report["first_ms"])  # type: ignore[arg-type]
    for kind, ours in latencies.items():
        line, pairs = "", list(zip(ours, latencies["floor"], strict=True))
        for part in ("p50", "p99"):
            ratio = middle(a[part] / b[part] for a, b in pairs)
            line += f"{middle(each[part] for each in ours):>10.0f}{ratio:>10.2f}"
            meets_target = meets_target and ratio <= BURST_TARGET
        print(f"{kind:23}{line}", flush=True)
    return meets_target


def soak(seconds: float, per_second: int, streams: int = 500) -> bool:
    """Returns whether the memory stayed flat."""
    kind, chunks = "hermes+tools", 100
    answers = max(1, round(seconds * per_second / chunks)) * streams
    with subjects([kind]) as (subject,):
        clients(kind, subject.port, streams, streams, chunks, per_second)
        before = cpu_seconds(subject.pid)
        with Watch(subject.pid, 1.0) as watch:
            report = clients(kind, subject.port, streams, answers, chunks, per_second)
        cpu_used = cpu_seconds(subject.pid) - before
    third = len(watch.samples) // 3
    first, last = statistics.median(watch.samples[:third]), statistics.median(watch.samples[-third:])
    twelfth = len(watch.samples) // 12
    line = [statistics.median(watch.samples[i * twelfth : (i + 1) * twelfth]) / 1024 for i in range(12)]
    print("MB, a twelfth of the time each: " + " ".join(f"{megabytes:.1f}" for megabytes in line))
    print(
        f"{report['seconds']:.0f} s, {streams} streams open, {answers} answers, {answers * chunks:,} chunks, none lost "
        f"or moved; {cpu_used * 1e6 / (answers * chunks):.1f} µs a chunk; memory {first / 1024:.1f} MB in the first "
        f"third, {last / 1024:.1f} MB in the last, {max(watch.samples) / 1024:.1f} MB at most"
    )
    return last <= first * GROWTH_LIMIT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=KINDS[1:], help="beside the floor")
    parser.add_argument("--streams", type=int)
    parser.add_argument("--burst", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--soak", type=float, metavar="SECONDS")
    parser.add_argument("--rate", type=int, default=8, help="chunks a second of each stream of the soak")
    options = parser.parse_args()
    os.chdir(tempfile.gettempdir())
    kinds = KINDS if options.only is None else ("floor", options.only)
    if options.soak is not None:
        meets_targets = soak(options.soak, options.rate)
    elif options.burst or options.growth:
        meets_targets = (burst if options.burst else growth)(options.rounds, kinds)
    else:
        meets_targets = compare(options.rounds, kinds, LOADS if options.streams is None else [(options.streams, 40, 2)])
    sys.exit(not meets_targets)


if __name__ == "__main__":
    main()
