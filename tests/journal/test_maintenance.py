"""What operators do with a journal, in both stores: checking, counting, and giving space back."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from toolspeak.data.events import Record, RunFinished, RunPaused, UserMessageQueued
from toolspeak.data.messages import Message
from toolspeak.errors import JournalError, RunBusy, RunConflict
from toolspeak.journal import SqliteJournal
from toolspeak.journal.check import CheckProgress, check_journal
from toolspeak.journal.postgres import PostgresJournal
from toolspeak.testing.journal import a_run, every_kind, new_id, write

WRITER = Path(__file__).with_name("steady_writer.py")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """A function that opens the same store, empty at first."""
    if request.param == "sqlite":
        return lambda: SqliteJournal(tmp_path / "runs.db")
    url, schema = request.getfixturevalue("postgres_url"), f"s{new_id()}"
    return lambda: PostgresJournal(url, schema=schema)


def use(place, work):
    async def main():
        journal = place()
        try:
            return await work(journal)
        finally:
            await journal.aclose()

    return asyncio.run(main())


async def change(journal, sql):
    """What no program should do to the tables."""
    async with journal._writing() as db:
        await db.change(sql)


async def check_whole(journal):
    progress = CheckProgress()
    findings = [finding async for finding in check_journal(journal, progress)]
    return progress, findings


def ended_run(run_id, **start):
    return a_run(run_id, *every_kind(), **start)


def test_a_journal_that_is_whole_has_no_findings(place):
    async def work(journal):
        for number in range(3):
            await write(journal, ended_run(f"r{number}"))
        await write(journal, a_run("long", *[UserMessageQueued(Message.user("more"))] * 1200))
        await write(journal, a_run("s1", session_id="one"))
        await write(journal, a_run("s2", session_id="one", session_version=1, follows="s1", follows_seq=1))
        return await check_whole(journal)

    progress, findings = use(place, work)
    assert (progress.runs, progress.records, findings) == (6, 3 * 7 + 1201 + 2, [])


def test_each_record_that_does_not_read_is_named_and_the_others_are_read(place):
    async def work(journal):
        await write(journal, a_run("bad", *[UserMessageQueued(Message.user("more"))] * 600))
        await write(journal, ended_run("good"))
        # As if a program had written there: the sum is right, the record is none.
        sums = ", sum = NULL" if isinstance(journal, SqliteJournal) else ""
        (number,) = [number for number, info in await journal.run_page() if info.run_id == "bad"]
        for seq in (3, 555):
            await change(journal, f"UPDATE records SET data = '[1'{sums} WHERE pos = {(number << 32) + seq}")
        return await check_whole(journal)

    progress, findings = use(place, work)
    assert [(finding.kind, finding.run_id) for finding in findings] == [("damage", "bad")] * 2
    assert "record 3 of run bad" in findings[0].text
    assert "record 555 of run bad" in findings[1].text
    assert (progress.runs, progress.records) == (2, 601 - 2 + 7)


def test_a_gap_in_a_run_is_found(place):
    async def work(journal):
        await write(journal, ended_run("r"))
        await change(journal, "DELETE FROM records WHERE pos = (SELECT min(pos) + 2 FROM records)")
        return await check_whole(journal)

    _, findings = use(place, work)
    assert findings
    assert {finding.run_id for finding in findings if finding.kind == "damage"} == {"r"}


def test_what_is_missing_between_tables_is_found(place):
    async def work(journal):
        await write(journal, a_run("follower", session_id="one", follows="gone", follows_seq=4))
        await write(journal, ended_run("listed"))
        await write(journal, ended_run("unlisted"))
        large = "x" * 70_000
        await write(journal, a_run("large", task=large))
        for sql in (
            "DELETE FROM sessions",
            "UPDATE runs SET status = 'failed' WHERE run_id = 'listed'",
            "DELETE FROM runs WHERE run_id = 'unlisted'",
        ):
            await change(journal, sql)
        return (await check_whole(journal))[1]

    texts = "\n".join(f"{finding.kind}: {finding.text}" for finding in use(place, work))
    assert "damage: run follower follows run gone, of which the journal does not have all records" in texts
    assert "damage: the session of run follower is missing" in texts
    assert "damage: run listed is listed as failed, and its records say answered" in texts
    assert "damage: there are records of a run that is not listed" in texts
    assert "large" not in texts


def test_what_is_unusual_and_loses_nothing_is_a_note(place):
    async def work(journal):
        child = [replace(record, parent_run_id="elsewhere") for record in ended_run("child")]
        await write(journal, child)
        await journal.acquire("never-began", "a process", -1)
        await journal.acquire("beginning", "another process", 60)
        return (await check_whole(journal))[1]

    findings = use(place, work)
    assert {(finding.kind, finding.run_id) for finding in findings} == {("note", "child"), ("note", "never-began")}


def test_runs_are_counted_by_month_and_status(place):
    november, december = 1_700_000_000.0, 1_702_000_000.0

    async def work(journal):
        await write(journal, ended_run("a", time=november))
        await write(journal, ended_run("b", time=november))
        await write(journal, a_run("c", RunPaused("awaiting_approval", ("call",)), time=december))
        await write(journal, a_run("d", task="y" * 70_000, time=december, due=december))
        return await journal.statistics(), await journal.open_runs(), await journal.read("a")

    facts, open_runs, _ = use(place, work)
    assert [(each.month, each.status, each.runs, each.records) for each in facts.months] == [
        ("2023-11", "answered", 2, 14),
        ("2023-12", "awaiting_approval", 1, 2),
        ("2023-12", "queued", 1, 1),
    ]
    assert facts.months[0].size > 1000
    assert (facts.contents, facts.contents_size) == (1, 70_000)
    assert facts.size > 70_000
    assert dict(open_runs.counts) == {"awaiting_approval": 1, "queued": 1}
    assert (open_runs.due, open_runs.due_since) == (1, december)
    assert open_runs.waiting_since["awaiting_approval"] == december + 1


async def fill(journal, name="r", runs=40):
    """Fills a journal, and deletes most of it again."""
    for number in range(runs):
        text = random.Random(number).randbytes(10_000).hex()
        await write(journal, a_run(f"{name}{number}", RunFinished("answered", text, "answer")))
    for number in range(runs - 1):
        group = await journal.group_of(f"{name}{number}")
        await journal.delete_group(group)


@pytest.mark.parametrize("full", [False, True])
def test_the_space_of_deleted_runs_is_given_back(place, full):
    async def work(journal):
        await fill(journal)
        before, after = await journal.vacuum(full=full)
        progress, findings = await check_whole(journal)
        assert (progress.runs, findings) == (1, [])
        if full or isinstance(journal, SqliteJournal):
            assert after < before / 2
        else:  # PostgreSQL gives back only what is free at the end of a table, and uses the rest again
            await fill(journal, "again")
            assert (await journal.statistics()).size < before * 1.3

    use(place, work)


@pytest.mark.over_a_second
def test_a_process_that_writes_goes_on_while_the_file_is_made_smaller(tmp_path):
    """And while another one has the file open: neither takes the smaller file for a damaged one."""
    path = tmp_path / "runs.db"
    use(lambda: SqliteJournal(path), lambda journal: fill(journal, runs=120))
    large = path.stat().st_size
    with subprocess.Popen([sys.executable, WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "1\n"
        try:
            for _ in range(3):
                use(lambda: SqliteJournal(path), lambda journal: journal.vacuum())
                assert writer.stdout.readline().strip().isdigit()
            with pytest.raises(JournalError, match="open in another process"):
                use(lambda: SqliteJournal(path), lambda journal: journal.vacuum(full=True))
        finally:
            writer.terminate()
        lines = writer.stdout.read().split()
    assert lines[-1] == "done", lines
    assert path.stat().st_size < large / 2
    progress, findings = use(lambda: SqliteJournal(path), check_whole)
    assert [finding for finding in findings if finding.kind == "damage"] == []
    assert progress.records > 4


def test_a_file_that_another_program_truncates_is_still_named(tmp_path):
    path = tmp_path / "runs.db"

    async def work(journal):
        await fill(journal)
        await journal.vacuum()
        await write(journal, a_run("next"))
        await journal.aclose()
        await write(journal, a_run("more"))
        with path.open("r+b") as file:
            file.truncate(8192)
        await write(journal, a_run("last", RunFinished("answered", "", "answer")))

    with pytest.raises(JournalError, match="overwritten"):
        use(lambda: SqliteJournal(path), work)


def test_a_file_of_an_earlier_toolspeak_is_rebuilt_once(tmp_path):
    path = tmp_path / "runs.db"
    use(lambda: SqliteJournal(path), fill)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("VACUUM")
        db.execute("PRAGMA journal_mode = WAL")

    async def work(journal):
        await fill(journal, "b")
        with pytest.raises(JournalError, match="vacuum --full"):
            await journal.vacuum()
        await journal.vacuum(full=True)
        size = path.stat().st_size
        await fill(journal, "c")
        await journal.vacuum()
        return size

    size_limit = use(lambda: SqliteJournal(path), work)
    assert path.stat().st_size < size_limit + 200_000 < 30 * 20_000


def test_a_group_that_is_held_or_has_changed_is_not_deleted(place):
    async def work(journal):
        await write(journal, a_run("r"))
        group = await journal.group_of("r")
        lease = await journal.acquire("r", "a process", 60)
        with pytest.raises(RunBusy):
            await journal.delete_group(group)
        await journal.append(Record(RunFinished("answered", "", "answer"), "r", 1, 1, 1.0), lease)
        await journal.release(lease)
        with pytest.raises(RunConflict, match="changed meanwhile"):
            await journal.delete_group(group)
        await journal.delete_group(await journal.group_of("r"))
        return await journal.runs()

    assert use(place, work) == ()
