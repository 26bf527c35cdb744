"""What happens to stored changes when runs leave a journal or come into it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from changing_runs import change, shell, tree_of
from click.testing import CliRunner
from test_changes_attacks import sets_of
from test_changes_attacks import toolspeak as in_process
from test_undo import undo

from toolspeak.changes import store_of
from toolspeak.changes.store_upkeep import root_ids
from toolspeak.cli.main import cli
from toolspeak.journal import SqliteJournal

SECRET = b"the answer is 4711, and not to be found again"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "runs.db"


def a_run(tmp_path, file, name, command="cat note >> log; rm note", **options):
    """A run in a folder of its own that removes a note. Returns the run's id and the folder."""
    work = tmp_path / name
    work.mkdir()
    (work / "note").write_bytes(SECRET + name.encode())
    return asyncio.run(change(work, file, shell(command), **options)).run_id, work


def toolspeak(*arguments, code=0):
    result = CliRunner().invoke(cli, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def roots_of(journal_file):
    store = store_of(SqliteJournal(journal_file))
    try:
        return root_ids(store) if store.exists() else []
    finally:
        store.close()


def contents_of(journal_file):
    with closing(sqlite3.connect(Path(f"{journal_file}.files", "changes.db"))) as db:
        return db.execute("SELECT count(*) FROM contents").fetchone()[0]


def bytes_in(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_pruned_runs_take_their_changes_along(tmp_path, file):
    a_run(tmp_path, file, "one")
    assert (len(roots_of(file)), contents_of(file) > 0) == (1, True)
    toolspeak("journal", "prune", "--older-than", "0h", "--yes", "--journal", str(file))
    assert (roots_of(file), contents_of(file)) == ([], 0)


def test_what_other_runs_need_stays(tmp_path, file):
    one, _ = a_run(tmp_path, file, "one", "cp note same; rm note")
    two, work = a_run(tmp_path, file, "two", "cp note other; rm note")
    before = tree_of(work)
    undo(work, file, two)
    undo(work, file, two, to="undo-1")
    assert tree_of(work) == before

    async def delete():
        journal = SqliteJournal(file)
        await journal.delete_group(await journal.group_of(one))
        await journal.aclose()

    asyncio.run(delete())
    toolspeak("journal", "prune", "--older-than", "9000d", "--yes", "--journal", str(file))
    assert roots_of(file) == [two]
    assert undo(work, file, two).is_complete
    assert (work / "note").read_bytes() == SECRET + b"two"


def test_an_erased_principal_leaves_no_byte(tmp_path, file):
    archive = tmp_path / "archive"
    run_id, work = a_run(tmp_path, file, "one", principal="ann")
    archived_id, _ = a_run(tmp_path, file, "archived", principal="ann")
    other, place = a_run(tmp_path, file, "other", principal="bob")
    toolspeak("journal", "archive", "--older-than", "0h", "--to", str(archive), "--journal", str(file))
    toolspeak("journal", "import", *map(str, archive.glob("*.jsonl")), "--journal", str(file))
    assert set(roots_of(file)) == {run_id, archived_id, other}
    with closing(sqlite3.connect(Path(f"{file}.files", "changes.db"))) as db:
        assert any(SECRET in (bytes(row[0])) for row in db.execute("SELECT data FROM contents"))
    output = toolspeak(
        "journal", "erase", "--principal", "ann", "--yes", "--journal", str(file), "--archives", str(archive)
    )
    assert "2 runs" in output
    assert roots_of(file) == [other]
    for folder in (Path(f"{file}.files"), archive):
        assert SECRET + b"one" not in bytes_in(folder)
        assert SECRET + b"archived" not in bytes_in(folder)
        assert SECRET + b"other" in bytes_in(folder)
    assert undo(place, file, other).is_complete
    assert work.exists()


def test_an_archive_has_the_changes_and_gives_them_back(tmp_path, file):
    run_id, work = a_run(tmp_path, file, "one")
    archive = tmp_path / "archive"
    toolspeak("journal", "archive", "--older-than", "0h", "--to", str(archive), "--journal", str(file))
    assert (roots_of(file), contents_of(file)) == ([], 0)
    (lines,) = archive.glob("runs-*.jsonl")
    assert roots_of(lines) == [run_id]
    look = tmp_path / "look.db"
    for _ in range(2):
        toolspeak("journal", "import", str(lines), "--journal", str(look))
    assert roots_of(look) == [run_id]
    assert undo(work, look, run_id).is_complete
    assert (work / "note").read_bytes() == SECRET + b"one"


def test_an_archive_that_was_interrupted_takes_the_changes_next_time(tmp_path, file):
    run_id, _ = a_run(tmp_path, file, "one")
    archive, copy = tmp_path / "archive", tmp_path / "copy.db"
    toolspeak("journal", "backup", str(copy), "--journal", str(file))
    toolspeak("journal", "archive", "--older-than", "0h", "--to", str(archive), "--journal", str(file))
    (lines,) = archive.glob("runs-*.jsonl")
    # As if the process had died between the journal and the changes.
    for store in (f"{lines}.files", f"{file}.files"):
        Path(store, "changes.db").unlink()
    Path(f"{copy}.files", "changes.db").rename(Path(f"{file}.files", "changes.db"))
    toolspeak("journal", "archive", "--older-than", "0h", "--to", str(archive), "--journal", str(file))
    assert (roots_of(lines), roots_of(file)) == ([run_id], [])


def test_a_backup_and_an_export_have_the_changes(tmp_path, file):
    run_id, work = a_run(tmp_path, file, "one")
    backup, lines = tmp_path / "backup.db", tmp_path / "runs.jsonl"
    toolspeak("journal", "backup", str(backup), "--journal", str(file))
    toolspeak("journal", "export", "--output", str(lines), "--journal", str(file))
    assert roots_of(backup) == roots_of(lines) == [run_id]
    assert undo(work, backup, run_id).is_complete
    assert (work / "note").exists()


def test_a_check_reads_the_contents(tmp_path, file):
    a_run(tmp_path, file, "one")
    assert "whole" in toolspeak("journal", "check", "--journal", str(file))
    assert "of kept file changes" in toolspeak("journal", "stats", "--journal", str(file))
    with closing(sqlite3.connect(Path(f"{file}.files", "changes.db"))) as db, db:
        db.execute("UPDATE contents SET data = x'00', packed = 0")
    assert "damaged" in toolspeak("journal", "check", "--journal", str(file), code=1)


def test_contents_that_a_run_in_progress_read_may_be_freed(tmp_path, file):
    work = tmp_path / "work"
    work.mkdir()
    (work / "note").write_bytes(SECRET)

    def prune():
        in_process("journal", "prune", "--older-than", "0h", "--yes", "--journal", str(file), cwd=tmp_path)

    run = asyncio.run(change(work, file, shell("true"), shell("rm note"), after=prune))
    assert undo(work, file, run.run_id).is_complete
    assert (work / "note").read_bytes() == SECRET


def test_old_versions_of_files_do_not_pile_up(tmp_path, file):
    work = tmp_path / "work"
    work.mkdir()
    for number in range(12):
        (work / "note").write_bytes(SECRET * (number + 1))
        asyncio.run(change(work, file, shell("true")))
    assert contents_of(file) < 12
    assert sets_of(file, "unknown") == []
