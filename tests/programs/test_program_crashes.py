"""Programs whose process is killed (SIGKILL) go on in another one: nothing is lost, and nothing runs twice."""

import asyncio
import itertools
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from crash_jobs import CrashJobs
from toolspeak.data.events import ModelAnswered, RunFinished, ToolFinished, ToolStarted
from toolspeak.journal import SqliteJournal

CHILD = Path(__file__).with_name("program_child.py")
ANSWER = """\
began {number}
['paid 7', None, 'something to read', 'wrote a.txt']
paid 10
wrote 10.txt
pay: ValueError: nothing to pay
wrote 0.txt
17"""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes as Unix has them")


class Desk(CrashJobs):
    """Processes that go on with one another's programs."""

    def end(self, folder):
        """Lets processes go on, and answer its questions, until the run has ended. Returns how many it took."""
        for count in range(1, 20):
            assert self.perform(folder)[0] == 0
            if (folder / "ended").exists():
                return count
        raise AssertionError("the run does not end")


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    desk = Desk(CHILD, tmp_path_factory.mktemp("programs"))
    yield desk
    desk.close()


def records_of(folder):
    """The records of the run, and those of its program."""

    async def read():
        journal = SqliteJournal(folder / "toolspeak.db")
        try:
            infos = await journal.runs()
            assert len(infos) == 2
            return [
                await journal.read(info.run_id) for info in sorted(infos, key=lambda info: info.parent_run_id or "")
            ]
        finally:
            journal.close()

    return asyncio.run(read())


def check(folder):
    """All that was promised, wherever the processes were killed."""
    files = folder / "0"
    assert [line.split()[0] for line in (files / "receipts").read_text().splitlines()] == ["7", "10"]
    assert (files / "log.txt").read_text() == "first\nrefused\n"
    assert [(files / f"{name}.txt").read_text() for name in ("a", "10", "0")] == [*("something to read", "10", "0")]
    run, program = records_of(folder)
    for records in (run, program):
        assert [record.seq for record in records] == list(range(len(records)))
        ends = Counter()
        for record in records:
            match record.event:
                case ToolStarted(call_id):
                    assert not ends[call_id], "a call with a recorded result was started again"
                case ToolFinished(result):
                    ends[result.call_id] += 1
        assert set(ends.values()) == {1}
    assert all(count == 1 for count in Counter((files / "ran").read_text().split()).values())
    end = run[-1].event
    assert isinstance(end, RunFinished)
    number = end.answer.split()[1]
    assert end.answer == ANSWER.format(number=number)


@pytest.mark.over_a_second
def test_a_program_goes_on_in_the_process_that_answers_its_question(desk):
    folder = desk.folder()
    assert desk.end(folder) == 4
    check(folder)
    _, program = records_of(folder)
    snapshots = [
        part.opaque.data["snapshot"]
        for record in program
        if isinstance(record.event, ModelAnswered)
        for part in record.event.message.parts
        if getattr(part, "opaque", None) is not None
    ]
    assert all(snapshots)
    assert len(snapshots) > 4


def killed_at(desk, number, when, process):
    folder = desk.folder()
    for _ in range(process):
        assert desk.perform(folder)[0] == 0
    if desk.perform(folder, die_at=number, when=when)[0] == 0:
        return False  # this process writes fewer records
    if not (folder / "ended").exists():
        desk.end(folder)
    check(folder)
    return True


@pytest.mark.over_a_second
@pytest.mark.parametrize(("number", "when", "process"), [(5, "after", 0), (9, "before", 1)])
def test_a_program_that_is_killed_at_a_record_goes_on(desk, number, when, process):
    assert killed_at(desk, number, when, process)


@pytest.mark.slow
@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.long), "after"])
@pytest.mark.parametrize("process", [0, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 2)), 3])
def test_at_every_record(desk, when, process):
    kills = len([*itertools.takewhile(lambda number: killed_at(desk, number, when, process), itertools.count())])
    assert kills > 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.long) for each in range(1, 8))])
def test_at_random_moments(desk, seed):
    chance, kills = random.Random(seed), 0
    _, seconds = desk.perform(desk.folder())
    while kills < 10:
        folder = desk.folder()
        while not (folder / "ended").exists():
            kills += desk.perform(folder, die_after=chance.uniform(0, seconds))[0] == -9
        check(folder)
