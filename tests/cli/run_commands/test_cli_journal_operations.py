"""`toolspeak journal`, on a file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from dataclasses import replace

import pytest
from click.testing import CliRunner

from toolspeak.cli.main import cli
from toolspeak.data.events import RunFinished, RunPaused
from toolspeak.errors import ConfigurationError, JournalError, ToolspeakError
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
    result = CliRunner().invoke(cli, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def test_a_check_says_whether_the_journal_is_whole_also_by_its_exit_code(file):
    fill(file, a_run("one", *every_kind()), a_run("two", *every_kind()))
    assert toolspeak("journal", "check", "--journal", str(file)) == "2 runs, 14 records: whole\n"
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE records SET data = replace(data, 'RunFinished', 'RunFinishes') WHERE id = 7")
    output = toolspeak("journal", "check", "--journal", str(file), code=1)
    assert "damage: " in output
    assert "record 6 of run one differs from what was written" in output
    assert output.endswith("2 runs, 13 records: not whole: 1 finding of damage\n")
    report = json.loads(toolspeak("journal", "check", "--json", "--journal", str(file), code=1))
    assert (report["whole"], [row["run_id"] for row in report["findings"]]) == (False, ["one"])


def test_a_damaged_file_is_named_and_stays_as_it_is(file):
    fill(file, *(a_run(f"r{number}", *every_kind(), task="x" * 3000) for number in range(30)))
    with file.open("r+b") as stream:
        stream.seek(5 * 4096)
        stream.write(b"\xff" * 4096 * 3)
    before = file.read_bytes()
    try:
        output = toolspeak("journal", "check", "--journal", str(file), code=1)
        assert "damage: " in output
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
    output = toolspeak("journal", "stats", "--journal", str(file))
    assert "awaiting approval: 1, the oldest since 2023-11-14 22:13 UTC\n" in output
    assert "interrupted: 1\n" in output
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


END = RunFinished("answered", "Done.", "answer")
OLD = 1_700_000_000.0


def test_old_runs_are_archived_and_an_archive_is_read_again(file, tmp_path):
    fill(file, a_run("old", END, time=OLD), a_run("new", END, time=time.time()), a_run("open", time=OLD))
    folder = tmp_path / "archive"
    arguments = ("journal", "archive", "--older-than", "90d", "--to", str(folder), "--journal", str(file))
    assert toolspeak(*arguments) == f"{folder}/runs-2023-11.jsonl: 1 run, 2 records\n"
    assert toolspeak(*arguments) == "nothing to archive\n"
    other = tmp_path / "look.db"
    archive = str(folder / "runs-2023-11.jsonl")
    assert toolspeak("journal", "import", archive, "--journal", str(other)) == f"{archive}: 1 run imported\n"
    assert "Done." in toolspeak("show", "old", "--journal", str(other))
    again = toolspeak("journal", "import", archive, "--journal", str(other))
    assert again == f"{archive}: 0 runs imported; 1 were there already\n"
    file_of_all = tmp_path / "all.jsonl"
    toolspeak("journal", "export", "--journal", str(file), "--output", str(file_of_all))
    assert toolspeak("journal", "import", str(file_of_all), "--journal", str(other)) == (
        f"{file_of_all}: 2 runs imported; 1 had not ended and were closed\n"
    )


def test_old_runs_are_pruned_after_a_yes(file):
    fill(file, a_run("anns", END, time=OLD, principal="ann"), a_run("bens", END, time=OLD, principal="ben"))
    arguments = ("journal", "prune", "--older-than", "1w", "--principal", "ann", "--journal", str(file))
    with pytest.raises(ConfigurationError, match="nothing was changed: there is no terminal to ask at"):
        toolspeak(*arguments)
    assert toolspeak(*arguments, "--yes") == "deleted: 1 run, 2 records\n"
    assert json.loads(toolspeak("journal", "stats", "--json", "--journal", str(file)))["runs"] == 1


@pytest.mark.parametrize("age", ["90", "-1d", "d", "1.5d"])
def test_an_age_has_a_number_and_a_unit(file, age):
    fill(file, a_run("one", END))
    toolspeak("journal", "prune", f"--older-than={age}", "--journal", str(file), code=2)


def test_one_run_is_exported_with_what_belongs_to_it(file):
    child = [replace(record, parent_run_id="parent") for record in a_run("child", END)]
    session = (a_run("s1", END, session_id="S"), a_run("s2", session_id="S", session_version=1))
    fill(file, a_run("parent", END, principal="ann"), child, *session)

    def runs(*arguments):
        lines = toolspeak("journal", "export", *arguments, "--journal", str(file)).splitlines()
        return [json.loads(line).get("run_id") for line in lines if "seq" in line]

    assert runs("child") == ["parent", "parent", "child", "child"]
    assert runs("s2") == ["s1", "s1", "s2"]
    assert runs("--principal", "ann") == ["parent", "parent", "child", "child"]
    assert len(runs()) == 7


def test_a_file_that_is_no_archive_is_named_with_its_line(file, tmp_path):
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("{}\n", encoding="utf-8")
    with pytest.raises(ToolspeakError, match=r"wrong\.jsonl: line 1: .*; 0 runs before that were imported"):
        toolspeak("journal", "import", str(wrong), "--journal", str(file))


def test_a_principal_is_erased_after_a_yes_and_copies_are_named(file, tmp_path):
    fill(file, a_run("anns", END, time=OLD, principal="ann", task="Zebrafink"), a_run("open", principal="ann"))
    folder = tmp_path / "archive"
    toolspeak("journal", "archive", "--older-than", "90d", "--to", str(folder), "--journal", str(file))
    copy = file.with_name("runs.db.damaged-1")
    copy.touch()
    arguments = ("journal", "erase", "--principal", "ann", "--archives", str(folder), "--journal", str(file))
    with pytest.raises(ConfigurationError, match="nothing was changed"):
        toolspeak(*arguments)
    result = CliRunner().invoke(cli, [*arguments, "--yes"])
    assert result.stdout == f"{file}: 1 run and 0 sessions erased\n{folder}: 1 run erased\n"
    assert f"{copy} is a copy" in result.stderr
    assert "Zebrafink" not in (folder / "runs-2023-11.jsonl").read_text("utf-8")
