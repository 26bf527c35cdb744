"""A journal whose files were damaged, deleted or replaced: nothing runs twice, and no loss passes in silence."""

import asyncio
import os
import random
import shutil
import sqlite3
import struct
from collections import Counter

import pytest
from test_crash import CHILD, check, records_of

from crash_jobs import CrashJobs
from forked_commands import completed_text
from toolspeak import Agent, Message, ToolCall, get_dialect, tool
from toolspeak.data.events import ToolFinished
from toolspeak.errors import JournalError, RunError
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing.journal import a_run, every_kind, write

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes as Unix has them")

KILLED_AT = 24  # the records before: eight calls that ran, of which four must not run twice


class DamageJobs(CrashJobs):
    """Resumes a run that was killed, after a file of its journal was damaged."""

    def __init__(self, path):
        self._log = path / "said"
        with self._log.open("wb") as log:
            super().__init__(CHILD, path, stderr=log)
        self.killed_run = self.folder()
        assert self.perform(self.killed_run, die_at=KILLED_AT, when="after")[0] == -9
        self.taken_over = path / "taken over"
        shutil.copytree(self.killed_run, self.taken_over)
        (records,) = records_of(self.taken_over)
        self.run_id, self.records = records[0].run_id, records
        assert not (self.taken_over / "toolspeak.db-wal").exists()

    def outcome_of(self, template, damage):
        """How it came out: "whole" as if nothing had happened, "said" with an error that names the file."""
        folder = self.folder()
        shutil.rmtree(folder)
        shutil.copytree(template, folder)
        damage(folder)
        before = self._log.stat().st_size
        code, _ = self.perform(folder, run_id=self.run_id)
        once = Counter(
            (folder / "0/log.txt").read_text().splitlines() + (folder / "0/receipts").read_text().splitlines()
        )
        assert set(once.values()) == {1}, "what must not run twice did"
        if code == 0:
            check(folder)
            return "whole"
        output = self._log.read_bytes()[before:].decode()
        assert "toolspeak.errors." in output, output
        assert "toolspeak.db" in output, output
        return "said"


@pytest.fixture(scope="module")
def damage_jobs(tmp_path_factory):
    damage_jobs = DamageJobs(tmp_path_factory.mktemp("damaged"))
    yield damage_jobs
    damage_jobs.close()


def flip(file, byte, bit):
    data = bytearray(file.read_bytes())
    data[byte] ^= 1 << bit
    file.write_bytes(data)


def flipping(name, byte, bit):
    return lambda folder: flip(folder / name, byte, bit)


def frames_of(log):
    """Where each frame begins, and whether it is the last of its transaction."""
    data = log.read_bytes()
    (size,) = struct.unpack_from(">I", data, 8)
    return size, [(at, any(data[at + 4 : at + 8])) for at in range(32, len(data) - size - 23, size + 24)]


def last_transaction(log):
    """The first byte of the log's last transaction."""
    _, frames = frames_of(log)
    ends = [at for at, last in frames if last]
    return min(at for at, _ in frames if at > ends[-2])


@pytest.mark.over_a_second
def test_what_was_killed_goes_on_as_before(damage_jobs):
    assert damage_jobs.outcome_of(damage_jobs.killed_run, lambda _: None) == "whole"
    assert damage_jobs.outcome_of(damage_jobs.taken_over, lambda _: None) == "whole"


def test_a_log_that_is_missing_or_empty_is_missed(damage_jobs):
    assert (
        damage_jobs.outcome_of(damage_jobs.killed_run, lambda folder: (folder / "toolspeak.db-wal").unlink()) == "said"
    )
    assert (
        damage_jobs.outcome_of(damage_jobs.killed_run, lambda folder: (folder / "toolspeak.db-wal").write_bytes(b""))
        == "said"
    )


@pytest.mark.over_a_second
@pytest.mark.parametrize("part", ["header", "number of a page", "salt", "checksum", "page", "next to last transaction"])
def test_a_log_that_is_damaged_in_its_middle_is_told(damage_jobs, part):
    _, frames = frames_of(damage_jobs.killed_run / "toolspeak.db-wal")
    ends = [at for at, last in frames if last]
    middle, near_the_end = ends[len(ends) // 2], ends[-2]
    byte = {
        "header": 17,
        "number of a page": middle + 3,
        "salt": middle + 9,
        "checksum": middle + 22,
        "page": middle + 24 + 4000,
        "next to last transaction": near_the_end + 24 + 4000,
    }[part]
    assert damage_jobs.outcome_of(damage_jobs.killed_run, flipping("toolspeak.db-wal", byte, 3)) == "said"


@pytest.mark.over_a_second
@pytest.mark.parametrize("remainder", ["no frame", "a third", "all but the last", "all but half a frame"])
def test_a_log_that_is_cut_short_or_an_older_copy_is_told(damage_jobs, remainder):
    """A log of fewer transactions is what an older copy of it is, and has not one bad byte."""
    size, frames = frames_of(damage_jobs.killed_run / "toolspeak.db-wal")
    ends = [at + 24 + size for at, last in frames if last]
    end = {
        "no frame": 32,
        "a third": ends[len(ends) // 3],
        "all but the last": ends[-2],
        "all but half a frame": ends[-1] - size // 2,
    }[remainder]

    def cut(folder):
        os.truncate(folder / "toolspeak.db-wal", end)

    assert damage_jobs.outcome_of(damage_jobs.killed_run, cut) == "said"
    folder = damage_jobs.folder()
    shutil.rmtree(folder)
    shutil.copytree(damage_jobs.killed_run, folder)
    cut(folder)
    for _ in range(2):  # looking does not make it look whole
        result = completed_text(["sessions", "--journal", str(folder / "toolspeak.db")], cwd=folder)
        assert result.returncode != 0
        assert "toolspeak.db-wal ends before the newest records" in result.stderr
        assert f"toolspeak salvage --journal {folder / 'toolspeak.db'}" in result.stderr
    assert (damage_jobs.run_id in result.stderr) == (remainder != "no frame")
    assert sorted(each.name for each in folder.glob("*toolspeak*")) == sorted(
        each.name for each in damage_jobs.killed_run.glob("*toolspeak*")
    )


def test_a_log_that_a_power_cut_has_torn_goes_on_as_after_a_crash(damage_jobs):
    """What the machine's memory knew of the log says nothing once it was started anew."""

    def tear(folder):
        file = folder / "toolspeak.db"
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            name = boot.read().strip().encode()
        assert name in file.read_bytes()
        file.write_bytes(file.read_bytes().replace(name, name[::-1]))
        os.truncate(folder / "toolspeak.db-wal", (folder / "toolspeak.db-wal").stat().st_size - 100)

    assert damage_jobs.outcome_of(damage_jobs.killed_run, tear) == "whole"


# --- while a run is under way ------------------------------------------------------------------------------------


def delete(path):
    path.unlink()


def replace_file(path):
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def empty(path):
    path.write_bytes(b"")


CALL = get_dialect("cogency-json").render([Message("assistant", (ToolCall("", "effect", {}),))])[0].text


@pytest.mark.parametrize("name", ["toolspeak.db", "toolspeak.db-wal"])
@pytest.mark.parametrize("happens", [delete, replace_file, empty])
def test_a_journal_that_goes_away_during_a_run_ends_the_run_before_the_next_effect(tmp_path, happens, name):
    ran = []

    @tool
    def effect() -> str:
        "Has an effect."
        ran.append(1)
        if len(ran) == 1:
            happens(tmp_path / name)
        return "done"

    async def main():
        journal = SqliteJournal(tmp_path / "toolspeak.db")
        try:
            await Agent(ScriptedProvider([CALL, CALL, "ok"]), [effect], journal=journal, approve="all").run("go")
        finally:
            journal.close()

    with pytest.raises(
        JournalError, match=r"toolspeak\.db.*while it was in use.*restore it from a backup"
    ) as raised_error:
        asyncio.run(main())
    assert str(tmp_path / name) in str(raised_error.value)
    assert ran == [1] or name.endswith("-wal")  # without its log nothing is lost before the process dies


def test_a_journal_that_goes_away_while_nothing_is_called_is_told_at_the_end(tmp_path):
    path = tmp_path / "toolspeak.db"

    def answer(_):
        path.unlink()
        return "ok"

    async def main():
        journal = SqliteJournal(path)
        try:
            await Agent(ScriptedProvider([answer]), journal=journal).run("go")
        finally:
            journal.close()

    with pytest.raises(JournalError, match="was deleted while it was in use"):
        asyncio.run(main())


def test_a_file_that_only_was_read_meanwhile_or_left_open_is_whole(tmp_path):
    """What an inspection with another program, a journal nobody closes, and one that is only read leave behind."""
    path = tmp_path / "toolspeak.db"

    async def fill(run_id):
        await write(SqliteJournal(path), a_run(run_id, *every_kind()))  # closed by nobody

    async def runs():
        journal = SqliteJournal(path)
        try:
            return [info.run_id for info in await journal.runs()]
        finally:
            journal.close()

    asyncio.run(fill("r1"))
    db = sqlite3.connect(path)
    db.execute("SELECT count(*) FROM records").fetchone()
    db.close()
    assert asyncio.run(runs()) == ["r1"]
    asyncio.run(fill("r2"))
    assert sorted(asyncio.run(runs())) == ["r1", "r2"]


def test_the_files_are_their_owners_alone(tmp_path):
    path = tmp_path / "new" / "toolspeak.db"
    old = os.umask(0o022)
    try:

        async def main():
            journal = SqliteJournal(path)
            await write(journal, a_run("r1"))
            modes = {each.name: each.stat().st_mode & 0o777 for each in (path.parent, *path.parent.iterdir())}
            journal.close()
            return modes

        modes = asyncio.run(main())
    finally:
        os.umask(old)
    assert modes.pop("new") == 0o700
    assert modes == dict.fromkeys(("toolspeak.db", "toolspeak.db-wal", "toolspeak.db-shm"), 0o600)


# --- going on with what is left ----------------------------------------------------------------------------------


@pytest.mark.over_a_second
def test_what_is_left_is_gone_on_with_when_somebody_says_so_and_open_runs_are_closed(damage_jobs):
    folder = damage_jobs.folder()
    shutil.rmtree(folder)
    shutil.copytree(damage_jobs.killed_run, folder)
    path, log = folder / "toolspeak.db", folder / "toolspeak.db-wal"
    _, frames = frames_of(log)
    flip(log, [at for at, last in frames if last][-6] + 2000, 1)
    before = {each.name: each.read_bytes() for each in (path, log)}
    arguments = ("--journal", str(path))
    for command in ("resume", "sessions"):
        result = completed_text([command, *arguments], cwd=folder)
        assert result.returncode != 0
        assert f"toolspeak salvage --journal {path}" in result.stderr
        assert damage_jobs.run_id in result.stderr
    result = completed_text(["salvage", *arguments], cwd=folder)
    assert result.returncode == 0, result.stderr
    assert f"closed: run {damage_jobs.run_id[:8]}" in result.stdout
    for name, data in before.items():
        assert (folder / f"{name}.damaged-1").read_bytes() == data
    (records,) = records_of(folder)
    assert records[-1].event.reason == "closed"
    results = [record.event.result for record in records if isinstance(record.event, ToolFinished)]
    assert "did not run" not in "".join(result.text for result in results)
    with pytest.raises(RunError, match="it has ended"):
        asyncio.run(Agent(ScriptedProvider([]), journal=SqliteJournal(path)).resume(damage_jobs.run_id))


def test_a_journal_that_is_open_is_not_salvaged(tmp_path):
    path = tmp_path / "toolspeak.db"

    async def main():
        journal = SqliteJournal(path)
        await write(journal, a_run("r1"))
        result = completed_text(["salvage", "--journal", str(path)], cwd=tmp_path)
        journal.close()
        return result

    result = asyncio.run(main())
    assert result.returncode != 0
    assert "is open in another process" in result.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["toolspeak.db"]


# --- sweeps ------------------------------------------------------------------------------------------------------


def outcomes_of_sweep(damage_jobs, template, name, count, seed):
    """How flips at random places of a file come out."""
    chance, outcomes = random.Random(seed), Counter()
    size = (template / name).stat().st_size
    for _ in range(count):
        byte, bit = chance.randrange(size), chance.randrange(8)
        outcomes[damage_jobs.outcome_of(template, flipping(name, byte, bit))] += 1
    return outcomes


@pytest.mark.over_a_second
def test_a_bit_that_flipped_in_the_log_is_told(damage_jobs):
    assert outcomes_of_sweep(damage_jobs, damage_jobs.killed_run, "toolspeak.db-wal", 4, seed=1) == {"said": 4}


def test_a_bit_that_flipped_in_the_last_transaction_is_told(damage_jobs):
    last_start = last_transaction(damage_jobs.killed_run / "toolspeak.db-wal")
    assert damage_jobs.outcome_of(damage_jobs.killed_run, flipping("toolspeak.db-wal", last_start + 500, 2)) == "said"


@pytest.mark.over_a_second
def test_a_bit_that_flipped_in_the_file_makes_nothing_run_twice(damage_jobs):
    assert outcomes_of_sweep(damage_jobs, damage_jobs.taken_over, "toolspeak.db", 4, seed=1).total() == 4


@pytest.mark.slow
def test_flips_in_the_log(damage_jobs):
    outcomes = outcomes_of_sweep(damage_jobs, damage_jobs.killed_run, "toolspeak.db-wal", 200, seed=2)
    print(outcomes)
    assert outcomes["whole"] == 0


@pytest.mark.slow
def test_flips_in_the_file(damage_jobs):
    outcomes = outcomes_of_sweep(damage_jobs, damage_jobs.taken_over, "toolspeak.db", 200, seed=2)
    print(outcomes)
