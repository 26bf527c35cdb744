"""Runs that are killed (SIGKILL) and resumed come to what the uncrashed run comes to, and run nothing twice."""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from crash_jobs import CrashJobs
from toolspeak.data.events import RunFinished, RunStarted, ToolFinished, ToolStarted
from toolspeak.journal import SqliteJournal

CHILD = Path(__file__).with_name("crash_child.py")
FILES = {"in.txt": "something to read", "a.txt": "a", "b.txt": "b"}
RECORDS = 28  # of the uncrashed run; a test below keeps the number right

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes as Unix has them")


@pytest.fixture(scope="module")
def crasher(tmp_path_factory):
    crasher = CrashJobs(CHILD, tmp_path_factory.mktemp("crash"))
    yield crasher
    crasher.close()


def records_of(folder):
    """The records of each run, the oldest first."""

    async def main():
        journal = SqliteJournal(folder / "toolspeak.db")
        try:
            runs = {info.title: await journal.read(info.run_id) for info in await journal.runs()}
            return [records for _, records in sorted(runs.items())]
        finally:
            journal.close()

    return asyncio.run(main())


def check(folder, runs=1):
    records_by_run = records_of(folder)
    assert len(records_by_run) == runs
    for number, records in enumerate(records_by_run):
        check_run(folder / str(number), records)


def check_run(folder, records):
    """All that was promised of a run, wherever it was killed."""
    for name, text in FILES.items():
        assert (folder / name).read_text() == text
    assert (folder / "log.txt").read_text() == "line 1\nline 3\n"
    assert [line.split()[0] for line in (folder / "receipts").read_text().splitlines()] == ["7", "9"]
    assert [record.seq for record in records] == list(range(len(records)))
    assert isinstance(records[0].event, RunStarted)
    assert isinstance(records[-1].event, RunFinished)
    starts, result_counts = Counter(), Counter()
    keys, once = {}, set()
    for record in records:
        match record.event:
            case ToolStarted(call_id, name, key):
                assert not result_counts[call_id], "a call with a recorded result was started again"
                starts[call_id] += 1
                assert keys.setdefault(call_id, key) == key
                if name in ("add_line", "pay"):
                    once.add(key)
            case ToolFinished(result):
                result_counts[result.call_id] += 1
    assert set(result_counts.values()) == {1}
    ran = Counter((folder / "ran").read_text().split())
    assert all(ran[key] <= 1 for key in once), "what must not run twice did"
    for call_id, key in keys.items():
        # Nothing runs more often than it was started, and nothing without a record.
        assert ran.pop(key, 0) <= starts[call_id]
    assert not ran


def test_the_uncrashed_run_is_what_it_is_compared_with(crasher):
    folder = crasher.folder()
    assert crasher.perform(folder)[0] == 0
    check(folder)
    assert len(records_of(folder)[0]) == RECORDS


def killed_at(crasher, number, when):
    folder = crasher.folder()
    assert crasher.perform(folder, die_at=number, when=when)[0] == -9
    assert crasher.perform(folder)[0] == 0
    check(folder)


@pytest.mark.parametrize("number", range(1, RECORDS, 7))
def test_a_run_that_is_killed_at_a_record_is_resumed(crasher, number):
    killed_at(crasher, number, "after" if number % 2 else "before")


def killed_at_random(crasher, seed, kills, runs=1):
    """Kills until the runs have ended all the same, again and again, until there were enough kills."""
    chance, kill_count = random.Random(seed), 0
    _, seconds = crasher.perform(crasher.folder(runs), runs=runs)
    while kill_count < kills:
        folder, code = crasher.folder(runs), -9
        while code == -9:
            code, _ = crasher.perform(folder, runs=runs, die_after=chance.uniform(0, seconds))
            kill_count += code == -9
        assert code == 0
        check(folder, runs)


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_moments_is_resumed(crasher):
    killed_at_random(crasher, seed=1, kills=2)


@pytest.mark.slow
def test_runs_that_are_killed_together_are_resumed(crasher):
    killed_at_random(crasher, seed=1, kills=1, runs=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "when"),
    [
        pytest.param(number, when, marks=[] if (number + i) % 2 else [pytest.mark.long])
        for number in range(RECORDS)
        for i, when in enumerate(("before", "after"))
    ],
)
def test_at_every_record(crasher, number, when):
    if (number, when) == (RECORDS - 1, "after"):
        pytest.skip("the run has ended")
    killed_at(crasher, number, when)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, *(pytest.param(each, marks=pytest.mark.long) for each in range(4, 12))])
def test_at_random_moments(crasher, seed):
    killed_at_random(crasher, seed, kills=20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, *(pytest.param(each, marks=pytest.mark.long) for each in range(3, 8))])
def test_many_runs_of_one_process_at_random_moments(crasher, seed):
    """Their records are committed together, so that it is killed in the middle of such commits, too."""
    killed_at_random(crasher, seed, kills=15, runs=8)
