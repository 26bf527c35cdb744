"""Measures how many runs and calls per second workers drive on each engine, with a floor, and how the cost grows.

    python benchmarks/scale/measure.py throughput [--engines embedded-sqlite embedded queue restate dbos]
        [--workers 1 2 4 8] [--steps 5 100] [--runs 10000] [--seconds 20] [--queuing 120] [--faults]
        [--out results.jsonl]
    python benchmarks/scale/measure.py growth [--finished 10000 100000 1000000] [--engine embedded-sqlite]
    python benchmarks/scale/measure.py soak --rate RUNS [--engine embedded] [--workers 2] [--seconds 1200] [--faults]

`throughput` queues `--runs` runs of `--steps` steps each and starts the workers. When every worker has finished a call,
it counts for `--seconds`, or until no run is left. `restate` and `dbos` take runs only once a worker has started, so
the runs of `restate` are all due `--queuing` seconds later. The model is scripted and the tool does nothing, so only
the loop, the journal and the engine are measured. A worker drives up to 50 runs at once. The server and the workers
share this machine's cores, so compare figures only within one run, and with the floor. With `--faults` the
faults of `soak` happen meanwhile. The figures:

- `floor`: the same number of processes insert the bytes of a step (four records of a run) into a bare table, with one
  commit per step, and do nothing else.
- `cpu`: milliseconds of the workers' CPU time per step. `db cpu`: the server's, for PostgreSQL.
- `wal`: KiB per step that PostgreSQL writes to its log. `conn`: its connections.

`growth` fills the tables with finished runs of five steps, and then measures one worker with queued runs of five steps:
its steps per second, how long `due_runs` and a list of 50 runs take, and the size of the database.

`soak` submits so many runs of five steps a second, and waits for the answer of every tenth. Each minute it prints the
time from a submission to its answer, the oldest run that waits for a worker, and the memory of the workers. It ends
with 1 if an answer is missing, if the oldest run waits for longer than 30 seconds, or if the workers' memory at the end
is more than a fifth above that after a quarter of the time. Let the rate be four fifths of what `throughput` measured,
with the same faults. With `--faults` a worker stands still for six seconds, four busy processes take the CPU for
twenty, and the database pauses for six, one of them every half minute. It counts the runs that one worker takes over
from another.

PostgreSQL must be installed. It runs in a temporary folder, with fsync. `restate` and `dbos` need the environment of
`make test-engines`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
from faults import Faults
from filled_tables import archive_ms, costs, fill, takeover_ms, wait_for_approval
from worker import AGENT, an_agent

from toolspeak.engines import RunClient, open_engine
from toolspeak.errors import EngineError
from toolspeak.journal import open_journal
from toolspeak.journal.memory_journal import MemoryJournal
from toolspeak.journal.records import pack

HERE = Path(__file__).parent
TESTS = HERE.parents[1] / "tests"
CONCURRENCY = 50
AT_ONCE = 64  # submissions
FLOOR_SECONDS = 5.0
QUEUED_RUNS = {"embedded-sqlite": 15_000, "embedded": 3_000}  # for `growth`: more than a worker drives in its time
ENGINES = ("embedded-sqlite", "embedded", "queue", "restate", "dbos")


@dataclass(frozen=True)
class Servers:
    """The addresses of an engine and its journal. `postgres`: the server's process id, 0 for SQLite."""

    engine: str
    journal: str
    postgres: int = 0


# --- servers ----------------------------------------------------------------------------------------------------------


@contextmanager
def postgres() -> Iterator[tuple[str, int]]:
    """Yields the URL of an empty database, and the server's process id."""
    sys.path.insert(0, str(TESTS / "journal"))
    from postgres_server import binaries  # noqa: PLC0415 - the folder is on the path from here on

    bin_folder = binaries()
    if bin_folder is None:
        sys.exit("PostgreSQL is not installed (apt-get install postgresql)")
    user = 65534 if os.geteuid() == 0 else os.geteuid()  # the server refuses to run as root
    with tempfile.TemporaryDirectory(prefix="tsscale-") as name:
        folder = Path(name)
        os.chown(folder, user, user)
        run = {"user": user, "group": user, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = [bin_folder / "initdb", "-D", folder / "data", "-U", "bench", "-A", "trust", "-E", "UTF8"]
        subprocess.run(command, check=True, **run)
        options = {"listen_addresses": "", "unix_socket_directories": name, "max_connections": "400"}
        command = [bin_folder / "postgres", "-D", folder / "data"]
        command += [f"--{key}={value}" for key, value in options.items()]
        with subprocess.Popen(command, **run) as server:
            try:
                while subprocess.run([bin_folder / "pg_isready", "-q", "-h", name], check=False).returncode:
                    assert server.poll() is None, "PostgreSQL does not start"
                    time.sleep(0.05)
                yield f"postgresql://bench@/postgres?host={name}", server.pid
            finally:
                server.send_signal(signal.SIGQUIT)


@contextmanager
def servers(name: str) -> Iterator[Servers]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tsscale-")))
        if name == "embedded-sqlite":
            yield Servers("embedded:", str(folder / "runs.db"))
            return
        journal, pid = stack.enter_context(postgres())
        if name != "restate":
            yield Servers(f"{name}:", journal, pid)
            return
        sys.path[:0] = [str(TESTS / name) for name in ("real_engines", "providers", "journal")]
        from engine_servers import Restate  # noqa: PLC0415 - it needs the environment of `make test-engines`

        restate = Restate(folder)
        restate.start()
        try:
            yield Servers(restate.url, journal, pid)
        finally:
            restate.kill()


def cpu_of(postmaster: int) -> float:
    """Returns seconds of CPU time of a PostgreSQL server and its processes, including those that have ended."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == postmaster:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == postmaster:
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def ask_postgres(url: str, sql: str) -> Any:
    async def act() -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(act())


# --- workers ----------------------------------------------------------------------------------------------------------


class Workers:
    """Worker processes. Each reports twice a second."""

    def __init__(self, where: Servers, count: int, steps: int) -> None:
        command = [sys.executable, str(HERE / "worker.py"), where.engine, where.journal, str(steps), str(CONCURRENCY)]
        self.count = count
        self.processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]

    def memory(self, number: int) -> float:
        """MiB of a worker's resident memory."""
        pages = int(Path(f"/proc/{self.processes[number].pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def look(self, more: float) -> list[dict[str, float]]:
        """Returns each worker's first report after the given number of seconds."""
        until = time.time() + more
        reports: list[dict[str, float]] = []
        for process in self.processes:
            assert process.stdout is not None, "it is a pipe"
            while line := process.stdout.readline():
                report = json.loads(line)
                if report["time"] >= until:
                    reports.append(report)
                    break
            else:
                raise RuntimeError(f"worker {process.pid} has ended")
        return reports

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            assert process.stdout is not None, "it is a pipe"
            process.stdout.close()
            process.wait(60)


async def submit(where: Servers, runs: int, at: float | None = None) -> float:
    """Queues the given number of runs. Returns how many per second."""
    journal = open_journal(where.journal)
    client = RunClient(journal, open_engine(where.engine, journal))
    numbers = iter(range(runs))

    async def some() -> None:
        for number in numbers:
            await client.submit(AGENT, "Read all files of the project.", run_id=f"run-{os.getpid()}-{number}", at=at)

    while True:  # until the engine knows a worker
        try:
            await client.submit(AGENT, "Read all files of the project.", run_id=f"run-{os.getpid()}-first")
            break
        except EngineError:
            await asyncio.sleep(0.1)
    start = time.monotonic()
    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    seconds = time.monotonic() - start
    await client.aclose()
    await journal.aclose()
    return runs / seconds


def throughput(
    name: str, workers: int, steps: int, runs: int, seconds: float, queuing: float, *, faulty: bool = False
) -> dict[str, Any]:
    with servers(name) as where, ExitStack() as stack:
        running, due = None, None
        if name == "restate":  # it calls workers that are away again later and later, so they are there from the start
            running, due = Workers(where, workers, steps), time.time() + 10 + queuing
        elif name == "dbos":  # its tables are made by a worker
            maker = Workers(where, 1, steps)
            maker.look(0)
            asyncio.run(submit(where, 1))
            maker.end()
        pace = asyncio.run(submit(where, runs, due))
        if due is not None:
            if due < time.time():
                running.end()
                sys.exit(f"queuing {runs} runs at {pace:.0f} a second took longer than --queuing {queuing:.0f}")
            time.sleep(due - time.time())
        running = running or Workers(where, workers, steps)
        has_workers = due is not None
        try:
            first = running.look(0)
            while not all(report["calls"] > has_workers * steps for report in first):
                first = running.look(0)
            log = ask_postgres(where.journal, "SELECT pg_current_wal_lsn() - '0/0'") if where.postgres else 0
            db_cpu = cpu_of(where.postgres) if where.postgres else 0.0
            last = first
            if faulty:
                stack.callback(Faults([process.pid for process in running.processes], where.postgres).end)
            while last[0]["time"] < first[0]["time"] + seconds and sum(report["runs"] for report in last) < runs:
                last = running.look(0)
            figures = _between(first, last)
            if where.postgres:
                wal = ask_postgres(where.journal, "SELECT pg_current_wal_lsn() - '0/0'") - log
                figures["wal_kib"] = float(wal) / 1024 / figures["calls"]
                figures["db_cpu_ms"] = (cpu_of(where.postgres) - db_cpu) * 1e3 / figures["calls"]
                figures["connections"] = ask_postgres(where.journal, "SELECT count(*) FROM pg_stat_activity")
        finally:
            running.end()
    return {"engine": name, "workers": workers, "steps": steps, "submitted": pace, **figures}


def _between(first: Sequence[dict[str, float]], last: Sequence[dict[str, float]]) -> dict[str, float]:
    seconds = statistics.mean(after["time"] - before["time"] for before, after in zip(first, last, strict=True))
    more = {key: sum(each[key] for each in last) - sum(each[key] for each in first) for key in ("calls", "runs", "cpu")}
    return {
        "calls": more["calls"],
        "calls_a_second": more["calls"] / seconds,
        "runs_a_second": more["runs"] / seconds,
        "cpu_ms": more["cpu"] * 1e3 / max(more["calls"], 1),
    }


# --- the floor --------------------------------------------------------------------------------------------------------


def a_step() -> list[str]:
    """Returns the records of a step as they are stored."""

    async def act() -> list[str]:
        journal = MemoryJournal()
        run = an_agent(journal, 3).start("Read all files of the project.")
        await run.finish()
        records = [record for record in await journal.read(run.run_id) if record.step == 2]
        return [pack(record).text for record in records]

    return asyncio.run(act())


def _insert(journal: str, rows: Sequence[str], number: int, until: float, counts: Any) -> None:
    inserts = 0
    if not journal.startswith("postgresql:"):
        with closing(sqlite3.connect(journal, isolation_level=None, timeout=60)) as db:
            db.execute("PRAGMA synchronous = NORMAL")
            while time.time() < until:
                db.execute("BEGIN IMMEDIATE")
                db.executemany("INSERT INTO bare (data) VALUES (?)", [(row,) for row in rows])
                db.execute("COMMIT")
                inserts += 1
    else:
        counts[number] = asyncio.run(_insert_into_postgres(journal, rows, until))
        return
    counts[number] = inserts


async def _insert_into_postgres(journal: str, rows: Sequence[str], until: float) -> int:
    db, inserts = await asyncpg.connect(journal), 0
    while time.time() < until:
        await db.execute("INSERT INTO bare (data) SELECT unnest($1::text[])", rows)
        inserts += 1
    await db.close()
    return inserts


def floor(name: str, workers: int, seconds: float) -> dict[str, Any]:
    rows = a_step()
    with servers("embedded-sqlite" if name == "embedded-sqlite" else "embedded") as where:
        table = "CREATE TABLE bare (number {} PRIMARY KEY, data TEXT NOT NULL)"
        if where.postgres:
            ask_postgres(where.journal, table.format("BIGSERIAL"))
        else:
            with closing(sqlite3.connect(where.journal)) as db:
                db.execute("PRAGMA journal_mode = WAL")  # for all connections: another one may not change it under way
                db.execute(table.format("INTEGER"))
        counts = multiprocessing.Array("q", workers)
        before, db_before = os.times(), cpu_of(where.postgres) if where.postgres else 0.0
        until = time.time() + seconds
        processes = [
            multiprocessing.Process(target=_insert, args=(where.journal, rows, number, until, counts))
            for number in range(workers)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        total, after = sum(counts), os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        figures = {"calls": total, "calls_a_second": total / seconds, "cpu_ms": cpu * 1e3 / total}
        if where.postgres:
            figures["db_cpu_ms"] = (cpu_of(where.postgres) - db_before) * 1e3 / total
    return {"engine": f"floor of {name}", "workers": workers, **figures}


# --- growth -----------------------------------------------------------------------------------------------------------


def growth(engine: str, finished_runs: int, seconds: float) -> dict[str, Any]:
    with servers(engine) as where:
        start = time.monotonic()
        early = asyncio.run(wait_for_approval(where.journal, 5, "early"))
        asyncio.run(fill(where.journal, finished_runs))
        fill_seconds = time.monotonic() - start
        if where.postgres:
            size = ask_postgres(where.journal, "SELECT pg_database_size(current_database())")
        else:
            size = Path(where.journal).stat().st_size
        figures = asyncio.run(costs(where.engine, where.journal, early))
        figures["submitted"] = asyncio.run(submit(where, QUEUED_RUNS[engine]))
        running = Workers(where, 1, 5)
        first = running.look(0)
        while not all(report["calls"] for report in first):
            first = running.look(0)
        figures |= _between(first, running.look(seconds))
        running.kill()
        figures["takeover_ms"] = asyncio.run(takeover_ms(where.journal))
        figures["archive_ms"] = asyncio.run(archive_ms(where.journal, finished_runs))
    return {"engine": engine, "finished": finished_runs, "fill_s": fill_seconds, "mib": size / 2**20, **figures}


# --- a soak -----------------------------------------------------------------------------------------------------------


async def _load(where: Servers, rate: float, seconds: float, minutes: list[dict[str, float]], running: Workers) -> int:
    """Submits runs for so long. Returns how many sampled runs got no answer."""
    journal = open_journal(where.journal)
    client = RunClient(journal, open_engine(where.engine, journal))
    waits: list[float] = []
    samples: list[asyncio.Task[None]] = []

    async def sample(run_id: str) -> None:
        start = time.monotonic()
        result = await client.result(run_id, 120)
        assert result.answer == "done", result
        waits.append(time.monotonic() - start)

    start, number, minute = time.monotonic(), 0, 0
    while (now := time.monotonic() - start) < seconds:
        while number < now * rate:
            run_id = f"soak-{number}"
            await client.submit(AGENT, "Read all files of the project.", run_id=run_id)
            if number % 10 == 0:
                samples.append(asyncio.create_task(sample(run_id)))
            number += 1
        if now > 60 * (minute + 1):
            minute += 1
            due = await journal.due_runs(time.time(), agents=[AGENT], limit=100)
            waiting = [time.time() - info.created for info in due if info.status == "queued"]
            oldest = max(waiting, default=0.0)
            mine, waits = sorted(waits), []
            memory = sum(map(running.memory, range(running.count)))
            minutes.append(
                {
                    "minute": minute,
                    "runs": number,
                    "median": mine[len(mine) // 2] if mine else 0.0,
                    "last": mine[int(len(mine) * 0.99)] if mine else 0.0,
                    "oldest": oldest,
                    "mib": memory,
                }
            )
            keys = [("minute", "7d"), ("runs", "8,d"), ("median", "9.2f"), ("last", "9.2f"), ("oldest", "9.2f")]
            print(line(minutes[-1], [*keys, ("mib", "9.0f")]), flush=True)
        await asyncio.sleep(0.01)
    outcomes = await asyncio.gather(*samples, return_exceptions=True)
    await client.aclose()
    await journal.aclose()
    return sum(isinstance(each, BaseException) for each in outcomes)


def soak(engine: str, workers: int, rate: float, seconds: float, *, faulty: bool) -> list[str]:
    """What went wrong."""
    minutes: list[dict[str, float]] = []
    lost_runs: dict[int, float] = {}
    print(" minute     runs  median s    99 % s  oldest s  memory MiB")
    with servers(engine) as where:
        running = Workers(where, workers, 5)
        for process in running.processes:
            threading.Thread(target=_read, args=(process, lost_runs), daemon=True).start()
        faults = Faults([process.pid for process in running.processes], where.postgres) if faulty else None
        try:
            missing = asyncio.run(_load(where, rate, seconds, minutes, running))
        finally:
            if faults is not None:
                faults.end()
                print("; ".join(f"{kind}: {count}" for kind, count in faults.counts.items()))
                print(f"runs that another worker took over: {sum(lost_runs.values()):.0f}")
            running.end()
    early, late = minutes[len(minutes) // 4], minutes[-1]
    problems = {
        f"{missing} of the sampled runs got no answer": missing,
        f"a run waited {max(each['oldest'] for each in minutes):.0f} s": any(each["oldest"] > 30 for each in minutes),
        f"memory grew from {early['mib']:.0f} to {late['mib']:.0f} MiB": late["mib"] > 1.2 * early["mib"],
    }
    return [problem for problem, is_there in problems.items() if is_there]


def _read(process: subprocess.Popen[str], lost_runs: dict[int, float]) -> None:
    assert process.stdout is not None, "it is a pipe"
    with contextlib.suppress(ValueError):  # closed at the end
        for text in process.stdout:
            lost_runs[process.pid] = json.loads(text)["lost"]


# --- the command ------------------------------------------------------------------------------------------------------


def line(figures: dict[str, Any], keys: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{figures[key]:{form}}" if figures.get(key) is not None else " " * 9 for key, form in keys)


def report(text: str, row: dict[str, Any], out: Path | None) -> None:
    """Prints a row, and adds it to the file at once: a later row may fail."""
    print(text, flush=True)
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("throughput")
    one.add_argument("--engines", nargs="+", choices=ENGINES, default=["embedded-sqlite", "embedded", "queue"])
    one.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4, 8])
    one.add_argument("--steps", nargs="+", type=int, default=[5, 100])
    one.add_argument("--runs", type=int, default=10_000)
    one.add_argument("--seconds", type=float, default=20.0)
    one.add_argument("--queuing", type=float, default=120.0)
    one.add_argument("--faults", action="store_true")
    one.add_argument("--out", type=Path)
    two = commands.add_parser("growth")
    two.add_argument("--finished", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    two.add_argument("--engine", choices=("embedded-sqlite", "embedded"), default="embedded")
    two.add_argument("--seconds", type=float, default=20.0)
    two.add_argument("--out", type=Path)
    three = commands.add_parser("soak")
    three.add_argument("--rate", type=float, required=True)
    three.add_argument("--engine", choices=ENGINES, default="embedded")
    three.add_argument("--workers", type=int, default=2)
    three.add_argument("--seconds", type=float, default=1200.0)
    three.add_argument("--faults", action="store_true")
    three.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.command == "soak":
        problems = soak(options.engine, options.workers, options.rate, options.seconds, faulty=options.faults)
        if problems:
            sys.exit("; ".join(problems))
    elif options.command == "growth":
        keys = [("finished", "10,d"), ("mib", "9,.0f"), ("list_ms", "9.2f"), ("due_ms", "9.2f"), ("submit_ms", "9.2f")]
        keys += [("submitted", "9,.0f"), ("decide_ms", "9.2f"), ("resume_ms", "9.2f"), ("resume_early_ms", "9.2f")]
        keys += [("takeover_ms", "9.2f"), ("calls_a_second", "9,.0f"), ("cpu_ms", "9.2f"), ("archive_ms", "9.2f")]
        print(
            "  finished", *(f"{name.replace('resume_early', 'old').replace('_a_', '/'):>9.9}" for name, _ in keys[1:])
        )
        for finished_runs in options.finished:
            row = growth(options.engine, finished_runs, options.seconds)
            report(line(row, keys), row, options.out)
    else:
        print(f"{'engine':25}  workers steps submit/s    runs/s   steps/s    cpu ms db cpu ms   wal KiB  conn floor/")
        keys = [("workers", "8d"), ("steps", "5d"), ("submitted", "8,.0f"), ("runs_a_second", "9.1f")]
        keys += [("calls_a_second", "9,.0f"), ("cpu_ms", "9.2f"), ("db_cpu_ms", "9.2f"), ("wal_kib", "9.1f")]
        keys += [("connections", "5d"), ("times_floor", "6.1f")]
        for name in options.engines:
            for workers in options.workers:
                bare = floor(name, workers, FLOOR_SECONDS)
                report(f"{bare['engine']:25} {line(bare, keys)}", bare, options.out)
                for steps in options.steps:
                    row = throughput(
                        name, workers, steps, options.runs, options.seconds, options.queuing, faulty=options.faults
                    )
                    row["times_floor"] = bare["calls_a_second"] / row["calls_a_second"]
                    report(f"{name:25} {line(row, keys)}", row, options.out)


if __name__ == "__main__":
    main()
