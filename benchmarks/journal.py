"""Compares a journal's cost with bare sqlite3 that commits the same bytes with the same durability, in the same run.

    python benchmarks/journal.py [--folder DIR] [--scale 1.0]

There are two floors. "rows" stores the same rows under keys that keep a run together, as a hand-written store does so
that it can read a run back. "heap" stores the same texts in order of arrival, so that no run can be read back. They
differ when several runs are active at once: with "rows", each run has its own page, and a commit writes one page per
run.

The targets compare the journal with a hand-written store, so they are ratios to "rows". The journal keeps its records
in a heap and notes the places of each run's records for hundreds of records at once. Its cost is therefore between the
two floors, or below "rows". Most of its cost above "heap" is "python", measured alone: encoding an event as JSON and
passing it from the run's task to the task that commits. Neither floor has this cost, but every store used from Python
does. If a bare insert takes 3 us and Python 4, no journal of single events comes near 1.5 times the heap. The cost is
visible only if nothing waits for a disk.

Slow syncs run in a thread, so that other runs continue in the meantime. Passing a commit to the thread takes about 50
to 100 us, and more if the cores are busy. Syncs to a fast disk or in memory run in the event loop.

Rounds are short and take turns. A ratio is the median of the rounds' ratios, so that a busy machine affects all
subjects alike. The folder decides which disk is measured.
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

EARLIER_RECORDS = 15_000
"""Records written before the measurement, so that the logs have reached their final length and are overwritten from
then on. A sync of a growing file takes twice as long on ext4."""

ROWS = ((True, 1, 1.5), (False, 1, 4.0), (True, 16, 1.5), (True, 64, 1.5), (False, 16, 1.5), (False, 64, 1.5))
"""The measured cases: synchronous = FULL or NORMAL, concurrent runs, and the largest allowed ratio to "rows"."""


def records(run_id: str, steps: int) -> list[Record]:
    """A run that reads a file in each step: 4 records per step, about 400 bytes per record as JSON."""
    events = [(0, RunStarted((Message.user("Fix the failing test."),), "openai:model"))]
    for step in range(1, steps + 1):
        call = f"call_{step}_0"
        parts = (TextPart("I look at the file."), ToolCall(call, "read", {"path": "src/a.py", "offset": step}))
        events += [
            (step, ModelAsked("openai:model", "a" * 64, "b" * 64)),
            (step, ModelAnswered(Message("assistant", parts), "tool_calls", Usage(1000, 20))),
            (step, ToolStarted(call, "read", f"{run_id}:{call}")),
            (step, ToolFinished(ToolResult(call, "read", "success", (TextPart("x = 1\n" * 30),)))),
        ]
    return [Record(event, run_id, seq, step, 1e9 + seq) for seq, (step, event) in enumerate(events)]


class Bare:
    """Inserts rows into a table, with one commit per group."""

    def __init__(self, path: Path, full: bool) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        self.db.execute("CREATE TABLE records (pos INTEGER PRIMARY KEY, data TEXT NOT NULL, places TEXT)")

    def write(self, rows: list[tuple[int, str]], group: int) -> float:
        """Microseconds per event."""
        start_time = time.perf_counter()
        for start in range(0, len(rows), group):
            self.db.execute("BEGIN IMMEDIATE")
            for row in rows[start : start + group]:
                self.db.execute("INSERT INTO records (pos, data) VALUES (?, ?)", row)
            self.db.execute("COMMIT")
        return (time.perf_counter() - start_time) / len(rows) * 1e6


async def ours(journal: SqliteJournal, runs: list[list[Record]]) -> float:
    """Returns microseconds per event. Appends each run in order, all runs at once, as an agent's loop does."""

    async def write(run: list[Record]) -> None:
        for record in run:
            await journal.append(record)

    start = time.perf_counter()
    await asyncio.gather(*map(write, runs))
    return (time.perf_counter() - start) / sum(map(len, runs)) * 1e6


async def handing_over(runs: list[list[Record]]) -> float:
    """Returns microseconds to encode an event as JSON and pass it to the task that would commit it."""
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

    start = time.perf_counter()
    await asyncio.gather(*map(write, runs))
    return (time.perf_counter() - start) / sum(map(len, runs)) * 1e6


async def appending(folder: Path, full: bool, group: int, count: int) -> list[float]:
    """Returns medians with `group` concurrent runs: heap, rows, python, journal; journal / rows, journal / heap; the
    start of a run."""
    name = f"{'full' if full else 'normal'}-{group}"
    heap, rows = Bare(folder / f"heap-{name}.db", full), Bare(folder / f"rows-{name}.db", full)
    journal = SqliteJournal(folder / f"ours-{name}.db", sync="always" if full else "never")
    earlier = records(f"{name}-before", EARLIER_RECORDS // 4)
    for bare in (heap, rows):
        bare.write([(-seq, pack(record).text) for seq, record in enumerate(earlier, 1)], 500)
    for start in range(0, len(earlier), 500):
        await asyncio.gather(*map(journal.append, earlier[start : start + 500]))
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
    """Returns seconds of CPU time to read rows and decode their JSON, and to open a journal and rebuild a run; and the
    bytes per event of both."""
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
        start = time.process_time()
        db = sqlite3.connect(path)
        entries = [json.loads(data) for (data,) in db.execute("SELECT data FROM records ORDER BY id")]
        floors.append(time.process_time() - start)
        db.close()
        assert len(entries) == len(run)
        del entries
        start = time.process_time()
        journal = SqliteJournal(path)
        state = asyncio.run(load_state(journal, "run"))
        costs.append(time.process_time() - start)
        journal.close()
        assert state.seq == len(run)
        del state
    json_bytes = sum(len(pack(record).text) for record in run) / len(run)
    return min(floors), min(costs), json_bytes, path.stat().st_size / len(run)


def by_step(folder: Path, steps: int) -> dict[int, float]:
    """Returns microseconds of CPU time per step (4 records: durable, then applied) after given numbers of steps of one
    run: the median of the next steps, the minimum of three runs."""
    window = min(90, max(5, steps // 100))
    marks = [step for step in (10, 100, 1000, 10_000) if step <= steps - window]
    best = dict.fromkeys(marks, float("inf"))

    async def main(path: Path) -> None:
        journal, state, times, start = SqliteJournal(path, sync="never"), None, list[float](), 0.0
        for record in records("run", steps):
            if isinstance(record.event, ModelAsked):
                times.append(time.process_time() - start)
                start = time.process_time()
            await journal.append(record)
            state = apply(state, record)
        journal.close()
        for step in marks:
            best[step] = min(best[step], statistics.median(times[step : step + window]) * 1e6)

    for number in range(3):
        asyncio.run(main(folder / f"steps-{number}.db"))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where the files are made (default: the system's temporary folder)")
    parser.add_argument("--scale", type=float, default=1.0, help="the scale of all sizes (default: 1.0)")
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
        floor, cost, json_bytes, file_bytes = rebuilding(folder, events)
        print(f"rebuilding {events:,} events: {cost:.2f} s; rows and their JSON {floor:.2f} s; {cost / floor:.2f} (3)")
        print(f"bytes an event: {json_bytes:.0f} of JSON, {file_bytes:.0f} in the file")
        steps = by_step(folder, max(20, int(10_100 * options.scale)))
        print("; ".join(f"step {step:,}: {cost:.0f} us" for step, cost in steps.items()))
        print(f"step {max(steps):,} to step {min(steps)}: {steps[max(steps)] / steps[min(steps)]:.2f} times")


if __name__ == "__main__":
    main()
