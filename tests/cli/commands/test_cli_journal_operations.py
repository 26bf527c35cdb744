"""`toolspeak journal`, on a file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from toolspeak.cli.main import cli
from toolspeak.data.events import RunPaused
from toolspeak.errors import ConfigurationError, JournalError
from toolspeak.journal import SqliteJournal
from toolspeak.testing.journal import a_run, every_kind, write


@pytest.fixture
def file(tmp_path):
    return tmp_path / "runs.db"


def fill(file, *runs):
    async def main():
        journal = SqliteJournal(file)
        for records in runs:
            await write(journal, records)
        await journal.aclose()

    asyncio.run(main())


def toolspeak(*arguments, code=0):
    done = CliRunner().invoke(cli, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


def test_a_check_says_whether_the_journal_is_whole_also_by_its_exit_code(file):
    fill(file, a_run("one", *every_kind()), a_run("two", *every_kind()))
    assert toolspeak("journal", "check", "--journal", str(file)) == "2 runs, 14 records: whole\n"
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE records SET data = replace(data, 'RunFinished', 'RunFinishes') WHERE id = 7")
    printed = toolspeak("journal", "check", "--journal", str(file), code=1)
    assert "damage: " in printed
    assert "record 6 of run one differs from what was written" in printed
    assert printed.endswith("2 runs, 13 records: not whole: 1 finding of damage\n")
    found = json.loads(toolspeak("journal", "check", "--json", "--journal", str(file), code=1))
    assert (found["whole"], [row["run_id"] for row in found["findings"]]) == (False, ["one"])


def test_a_damaged_file_is_named_and_stays_as_it_is(file):
    fill(file, *(a_run(f"r{number}", *every_kind(), task="x" * 3000) for number in range(30)))
    with file.open("r+b") as damaged:
        damaged.seek(5 * 4096)
        damaged.write(b"\xff" * 4096 * 3)
    before = file.read_bytes()
    try:
        printed = toolspeak("journal", "check", "--journal", str(file), code=1)
        assert "damage: " in printed
    except JournalError as error:  # the list of runs itself is damaged
        assert str(file) in str(error)  # noqa: PT017
    assert file.read_bytes() == before


def test_statistics_are_printed_for_people_and_programs(file):
    fill(
        file,
        a_run("one", *every_kind(), time=1_700_000_000.0),
        a_run("two", RunPaused("awaiting_approval", ("call",)), time=1_700_000_000.0),
        a_run("three", time=1_702_000_000.0),
    )
    printed = toolspeak("journal", "stats", "--journal", str(file))
    assert "awaiting approval: 1, the oldest since 2023-11-14 22:13 UTC\n" in printed
    assert "interrupted: 1\n" in printed
    facts = json.loads(toolspeak("journal", "stats", "--json", "--journal", str(file)))
    assert facts["statuses"] == {"answered": 1, "awaiting_approval": 1, "interrupted": 1}
    assert {(row["month"], row["status"], row["runs"], row["records"]) for row in facts["months"]} == {
        ("2023-11", "answered", 1, 7),
        ("2023-11", "awaiting_approval", 1, 2),
        ("2023-12", "running", 1, 1),
    }
    assert facts["bytes"] == file.stat().st_size


@pytest.mark.parametrize("command", ["check", "stats", "vacuum"])
def test_a_journal_that_is_not_there_is_not_made(file, command):
    with pytest.raises(ConfigurationError, match="there is no journal"):
        toolspeak("journal", command, "--journal", str(file))
    assert not file.exists()
    with pytest.raises(ConfigurationError, match="in memory"):
        toolspeak("journal", command, "--journal", "none")


def test_a_vacuum_says_what_it_freed(file):
    fill(file, a_run("one", session_id="s", task="x" * 200_000))
    toolspeak("sessions", "--journal", str(file), "delete", "s", "--yes")
    assert "after, in" in toolspeak("journal", "vacuum", "--journal", str(file))
    assert file.stat().st_size < 200_000
