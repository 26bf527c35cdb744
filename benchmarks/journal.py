"""What a journal costs: against bare sqlite3 that commits the same bytes with the same durability, in the same run.

    python benchmarks/journal.py [--folder DIR] [--scale 1.0]

Two floors: "rows" are the same rows under keys that keep a run together, what one writes by hand so that a run can be
read back; "heap" are the same texts in the order in which they come, which no run can be read from. They differ where
several runs go on at once: the rows of each have a page of their own, and a commit writes as many pages as runs.

The targets are for what one would write by hand, so they are held against "rows". The journal keeps its records in a
heap, and notes where each run's are for hundreds of records at once, so it is between the two, or cheaper than "rows".
Of what it costs above "heap", "python" is the greater part: to make JSON of an event and to hand it from a run's task
to the one that commits, measured alone. No floor has that, and no store that Python uses is without it: where a bare
insert takes 3 us and Python 4, no journal of single events comes near 1.5 times the heap. It shows where nothing waits
for a disk, and not where something does.

Syncs that take long are made in a thread, so that other runs go on meanwhile: handing over to it takes some 50 to 100
us a commit, more where the cores are busy. Those of a fast disk, and in memory, are made in the event loop.

Rounds are short and take turns; a ratio is the median of the rounds' ratios, so that a busy machine is busy for all.
The folder decides which disk is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from toolspeak.agent.state.fold import apply
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.events import ModelAnswered, ModelAsked, Record, RunStarted, ToolFinished, ToolStarted
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult, Usage
from toolspeak.journal import SqliteJournal
from toolspeak.journal.records import pack

ROUNDS = 15

USED = 15_000
"""Records that are in the files before: their logs have reached the length they keep, and are written over from then
on. A sync of a file that grows takes twice as long on ext4."""

ROWS = ((True, 1, 1.5), (False, 1, 4.0), (True, 16, 1.5), (True, 64, 1.5), (False, 16, 1.5), (False, 64, 1.5))
"""What is measured: synchronous = FULL or NORMAL, runs at once, and the most it may be of "rows"."""


def records(run_id: str, steps: int) -> list[Record]:
    """A run that reads a file a step: 4 records each, about 400 bytes a record as JSON."""
    events = [(0, RunStarted((Message.user("Fix the failing test."),), "openai:model"))]
    for step in range(1, steps + 1):
        call = f"call_{step}_0"
        said = (TextPart("I look at the file."), ToolCall(call, "read", {"path": "src/a.py", "offset": step}))
        events += [
            (step, ModelAsked("openai:model", "a" * 64, "b" * 64)),
            (step, ModelAnswered(Message("assistant", said), "tool_calls", Usage(1000, 20))),
            (step, ToolStarted(call, "read", f"{run_id}:{call}")),
            (step, ToolFinished(ToolResult(call, "read", "success", (TextPart("x = 1\n" * 30),)))),
        ]
    return [Record(event, run_id, seq, step, 1e9 + seq) for seq, (step, event) in enumerate(events)]


class Bare:
    """Rows in a table, one commit a group."""

    def __init__(self, path: Path, full: bool) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        self.db.execute("CREATE TABLE records (pos INTEGER PRIMARY KEY, data TEXT NOT NULL, places TEXT)")

    def write(self, rows: list[tuple[int, str]], group: int) -> float:
        """Microseconds an event."""
        begun = time.perf_counter()
        for start in range(0, len(rows), group):
            self.db.execute("BEGIN IMMEDIATE")
            for row in rows[start : start + group]:
                self.db.execute("INSERT INTO records (pos, data) VALUES (?, ?)", row)
            self.db.execute("COMMIT")
        return (time.perf_counter() - begun) / len(rows) * 1e6


async def ours(journal: SqliteJournal, runs: list[list[Record]]) -> float:
    """Microseconds an event: each run is appended in order, all runs at once, as an agent's loop does it."""

    async def write(run: list[Record]) -> None:
        for record in run:
            await journal.append(record)

    begun = time.perf_counter()
    await asyncio.gather(*map(write, runs))
    return (time.perf_counter() - begun) / sum(map(len, runs)) * 1e6


async def handing_over(runs: list[list[Record]]) -> float:
    """Microseconds an event that is made JSON of and handed to whoever would commit it."""
    loop, waiting = asyncio.get_running_loop(), list[asyncio.Future[None]]()

    def commit() -> None:
        for future in waiting:
            future.set_result(None)
        waiting.clear()

    async def write(run: list[Record]) -> None:
        for record in run:
            pack(record)
            waiting.append(loop.create_future())
            if len(waiting) == 1:
                loop.call_soon(commit)
            await waiting[-1]

    begun = time.perf_counter()
    await asyncio.gather(*map(write, runs))
    return (time.perf_counter() - begun) / sum(map(len, runs)) * 1e6


async def appending(folder: Path, full: bool, group: int, count: int) -> list[float]:
    """Medians with `group` runs at once: heap, rows, python, journal; journal / rows, journal / heap; a run's
    beginning."""
    name = f"{'full' if full else 'normal'}-{group}"
    heap, rows = Bare(folder / f"heap-{name}.db", full), Bare(folder / f"rows-{name}.db", full)
    journal = SqliteJournal(folder / f"ours-{name}.db", sync="always" if full else "never")
    used = records(f"{name}-before", USED // 4)
    for bare in (heap, rows):
        bare.write([(-seq, pack(record).text) for seq, record in enumerate(used, 1)], 500)
    for start in range(0, len(used), 500):
        await asyncio.gather(*map(journal.append, used[start : start + 500]))
    steps = max(1, count // ROUNDS // group // 4)
    runs = [records(f"{name}-{i}", ROUNDS * steps) for i in range(group)]
    starts = [await ours(journal, [run[:1]]) for run in runs]
    rounds: list[tuple[float, ...]] = []
    for number in range(ROUNDS):
        part = [run[1 + number * 4 * steps :][: 4 * steps] for run in runs]
        places = [(i << 32) + record.seq for together in zip(*part, strict=True) for i, record in enumerate(together)]
        texts = [pack(record).text for together in zip(*part, strict=True) for record in together]
        least = heap.write(list(enumerate(texts, number * len(texts))), group)
        floor = rows.write(list(zip(places, texts, strict=True)), group)
        python = await handing_over(part)
        cost = await ours(journal, part)
        rounds.append((least, floor, python, cost, cost / floor, cost / least))
    journal.close()
    return [*map(statistics.median, zip(*rounds, strict=True)), statistics.median(starts)]


def rebuilding(folder: Path, events: int) -> tuple[float, float, float, float]:
    """Seconds of CPU time to read rows and decode their JSON, and to open a journal and rebuild a run; bytes of both an
    event."""
    path = folder / "rebuild.db"
    run = records("run", events // 4)
    journal = SqliteJournal(path, sync="never")

    async def fill() -> None:
        for start in range(0, len(run), 1000):
            await asyncio.gather(*map(journal.append, run[start : start + 1000]))

    asyncio.run(fill())
    journal.close()
    floors, costs = [], []
    for _ in range(5):
        begun = time.process_time()
        db = sqlite3.connect(path)
        decoded = [json.loads(data) for (data,) in db.execute("SELECT data FROM records ORDER BY id")]
        floors.append(time.process_time() - begun)
        db.close()
        assert len(decoded) == len(run)
        del decoded
        begun = time.process_time()
        journal = SqliteJournal(path)
        state = asyncio.run(load_state(journal, "run"))
        costs.append(time.process_time() - begun)
        journal.close()
        assert state.seq == len(run)
        del state
    sent = sum(len(pack(record).text) for record in run) / len(run)
    return min(floors), min(costs), sent, path.stat().st_size / len(run)


def by_step(folder: Path, steps: int) -> dict[int, float]:
    """Microseconds of CPU time a step (4 records: durable, then applied) from some steps of one run on: the median of
    the next ones, the least of three runs."""
    window = min(90, max(5, steps // 100))
    marks = [step for step in (10, 100, 1000, 10_000) if step <= steps - window]
    found = dict.fromkeys(marks, float("inf"))

    async def main(path: Path) -> None:
        journal, state, times, begun = SqliteJournal(path, sync="never"), None, list[float](), 0.0
        for record in records("run", steps):
            if isinstance(record.event, ModelAsked):
                times.append(time.process_time() - begun)
                begun = time.process_time()
            await journal.append(record)
            state = apply(state, record)
        journal.close()
        for step in marks:
            found[step] = min(found[step], statistics.median(times[step : step + window]) * 1e6)

    for number in range(3):
        asyncio.run(main(folder / f"steps-{number}.db"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where the files are made (default: the system's temporary folder)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of everything (1.0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="toolspeak-journal-") as name:
        folder = Path(name)
        print(
            f"{'us an event':24}{'heap':>8}{'rows':>8}{'python':>8}{'journal':>9}{'/rows':>7}{'/heap':>7}"
            "   target  a run's start"
        )
        for full, group, target in ROWS:
            count = int((2000 if full else 8000) * options.scale) * (4 if group > 1 else 1)
            figures = asyncio.run(appending(folder, full, group, count))
            heap, rows, python, cost, by_rows, by_heap, start = figures
            label = f"{'FULL' if full else 'NORMAL'}, {group} run{'s at once' if group > 1 else ''}"
            row = f"{label:24}{heap:8.1f}{rows:8.1f}{python:8.1f}{cost:9.1f}{by_rows:7.2f}{by_heap:7.2f}"
            print(f"{row}   {target:<8g}{start:.0f}", flush=True)
        events = int(100_000 * options.scale)
        floor, cost, sent, stored = rebuilding(folder, events)
        print(f"rebuilding {events:,} events: {cost:.2f} s; rows and their JSON {floor:.2f} s; {cost / floor:.2f} (3)")
        print(f"bytes an event: {sent:.0f} of JSON, {stored:.0f} in the file")
        steps = by_step(folder, max(20, int(10_100 * options.scale)))
        print("; ".join(f"step {step:,}: {cost:.0f} us" for step, cost in steps.items()))
        print(f"step {max(steps):,} to step {min(steps)}: {steps[max(steps)] / steps[min(steps)]:.2f} times")


if __name__ == "__main__":
    main()
