"""What a journal costs: against bare sqlite3 that commits the same bytes with the same durability, in the same run.

    python benchmarks/journal.py [--folder DIR] [--scale 1.0]

Two floors: "rows" are the same rows under the same keys, so that a run can be read back; "heap" are the same texts in
the order in which they come, which no run can be read from. They differ where several runs go on at once: each has a
page of its own. Rounds are short and take turns; a ratio is the median of the rounds' ratios, so that a busy machine
is busy for both. The folder decides which disk is measured.
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

from toolspeak.agent.load import load_state
from toolspeak.agent.state import apply
from toolspeak.data.events import ModelAnswered, ModelAsked, Record, RunStarted, ToolFinished, ToolStarted
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult, Usage
from toolspeak.journal import SqliteJournal
from toolspeak.journal.stored import pack

ROUNDS = 15


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


async def appending(folder: Path, full: bool, group: int, count: int) -> list[float]:
    """Medians with `group` runs at once: heap, rows, journal; journal / rows, journal / heap; a run's beginning."""
    name = f"{'full' if full else 'normal'}-{group}"
    heap, rows = Bare(folder / f"heap-{name}.db", full), Bare(folder / f"rows-{name}.db", full)
    journal = SqliteJournal(folder / f"ours-{name}.db", sync="always" if full else "never")
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
        cost = await ours(journal, part)
        rounds.append((least, floor, cost, cost / floor, cost / least))
    journal.close()
    return [*map(statistics.median, zip(*rounds, strict=True)), statistics.median(starts)]


def rebuilding(folder: Path, events: int) -> tuple[float, float, float, float]:
    """Seconds to read rows and decode their JSON, and to open a journal and rebuild a run; bytes of both an event."""
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
        begun = time.perf_counter()
        db = sqlite3.connect(path)
        decoded = [json.loads(data) for (data,) in db.execute("SELECT data FROM records ORDER BY pos")]
        floors.append(time.perf_counter() - begun)
        db.close()
        assert len(decoded) == len(run)
        del decoded
        begun = time.perf_counter()
        journal = SqliteJournal(path)
        state = asyncio.run(load_state(journal, "run"))
        costs.append(time.perf_counter() - begun)
        journal.close()
        assert state.seq == len(run)
        del state
    sent = sum(len(pack(record).text) for record in run) / len(run)
    return min(floors), min(costs), sent, path.stat().st_size / len(run)


def by_step(folder: Path, steps: int) -> list[tuple[int, float]]:
    """Microseconds a step (4 records: durable, then applied) around some steps of one run."""
    journal, run = SqliteJournal(folder / "steps.db", sync="never"), records("run", steps)
    found: list[tuple[int, float]] = []

    async def main() -> None:
        state, begun, window = None, 0.0, min(50, max(5, steps // 100))
        marks = {step for step in (10, 100, 1000, 10_000) if step <= steps - window}
        for record in run:
            if isinstance(record.event, ModelAsked):
                if record.step in marks:
                    begun = time.perf_counter()
                if record.step - window in marks:
                    found.append((record.step - window, (time.perf_counter() - begun) / window * 1e6))
            await journal.append(record)
            state = apply(state, record)

    asyncio.run(main())
    journal.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where the files are made (default: the system's temporary folder)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of everything (1.0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="toolspeak-journal-") as name:
        folder = Path(name)
        print(f"{'us an event':26}{'heap':>8}{'rows':>8}{'journal':>9}{'/rows':>8}{'/heap':>8}   target  a run's start")
        for full, group, target in (
            (True, 1, 1.5),
            (False, 1, 4.0),
            (True, 16, 1.5),
            (True, 64, 1.5),
            (False, 16, 1.5),
        ):
            count = int((2000 if full else 8000) * options.scale) * (4 if group > 1 else 1)
            figures = asyncio.run(appending(folder, full, group, count))
            heap, rows, cost, by_rows, by_heap, start = figures
            label = f"{'FULL' if full else 'NORMAL'}, {group} run{'s at once' if group > 1 else ''}"
            row = f"{label:26}{heap:8.1f}{rows:8.1f}{cost:9.1f}{by_rows:8.2f}{by_heap:8.2f}"
            print(f"{row}   {target:<8g}{start:.0f}", flush=True)
        events = int(100_000 * options.scale)
        floor, cost, sent, stored = rebuilding(folder, events)
        print(f"rebuilding {events:,} events: {cost:.2f} s; rows and their JSON {floor:.2f} s; {cost / floor:.2f} (3)")
        print(f"bytes an event: {sent:.0f} of JSON, {stored:.0f} in the file")
        for step, cost in by_step(folder, max(20, int(10_100 * options.scale))):
            print(f"step {step:>6,}: {cost:8.1f} us a step")


if __name__ == "__main__":
    main()
