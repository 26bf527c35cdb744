"""A kill in the middle of `replace`: after a resume, or an undo, all files have the new text, or all the old one."""

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest
from changing_runs import tree_of

from crash_jobs import CrashJobs
from sweeps import case, parts
from toolspeak.changes import change_sets_of, net_changes, store_of, undo_changes
from toolspeak.journal import SqliteJournal
from toolspeak.tools.builtin import Workspace
from toolspeak.tools.files.workspace import CHANGE_FILE

CHILD = Path(__file__).with_name("replace_child.py")
NAMES = ("a.txt", "b.txt", "inner/c.txt")
OLD, NEW = "name = name\n", "name_2 = name_2\n"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes as Unix has them")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    jobs = CrashJobs(CHILD, tmp_path_factory.mktemp("replace"))
    yield jobs
    jobs.close()


def new_folder(jobs):
    """A folder, and what its files are."""
    folder = jobs.folder()
    (folder / "0" / "inner").mkdir()
    for name in NAMES:
        (folder / "0" / name).write_text(OLD)
    return folder, tree_of(folder / "0")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


CHANGES = 13  # of files, by an uncrashed call; a test below keeps the number right


def killed_calls(jobs, part):
    """Yields a folder for each change of a file before which the process of the call was killed, with what its files
    were before."""
    for number in range(CHANGES)[part::6]:
        folder, before = new_folder(jobs)
        code, _ = jobs.perform(folder, die_at_change=number)
        assert code == -9
        yield number, folder, before


def run_id_in(folder):
    async def read():
        journal = SqliteJournal(folder / "toolspeak.db")
        try:
            return (await journal.runs())[0].run_id
        finally:
            journal.close()

    return asyncio.run(read())


def in_store(folder, work):
    """What the function makes of the store of changes and the run's change sets."""
    journal = SqliteJournal(folder / "toolspeak.db")
    store = store_of(journal)
    try:
        return work(store, change_sets_of(store, [run_id_in(folder)]))
    finally:
        store.close()
        journal.close()


def undo(folder):
    def work(store, change_sets):
        return undo_changes(store, change_sets, Workspace(folder / "0"))

    report = in_store(folder, work)
    assert report.is_complete, report


def texts_in(folder):
    """The texts of the files."""
    return {(folder / "0" / name).read_text() for name in NAMES}


def names_in(folder):
    return {path.relative_to(folder / "0").as_posix() for path in (folder / "0").rglob("*") if path.is_file()}


def check_answer(folder):
    """What a resumed run says is what it has done. Whether it has gone on with the call."""
    texts, answer = texts_in(folder), (folder / "answer").read_text()
    if "unknown outcome" in answer:
        assert texts in ({OLD}, {NEW})
        assert names_in(folder) - {CHANGE_FILE} == {*NAMES, "in.txt"}
        return False
    assert texts == {NEW}
    assert "6 places in 3 files." in answer
    assert "which went on when the run was resumed" in answer
    assert answer.endswith("\n".join(NAMES))
    assert names_in(folder) == {*NAMES, "in.txt"}
    return True


@pytest.mark.over_a_second
def test_the_uncrashed_call_changes_files_so_often(jobs):
    assert jobs.perform(new_folder(jobs)[0], die_at_change=CHANGES - 1)[0] == -9
    assert jobs.perform(new_folder(jobs)[0], die_at_change=CHANGES)[0] == 0


@pytest.mark.over_a_second
@parts(6)
def test_a_resumed_run_has_replaced_all_or_nothing_and_says_which(jobs, part):
    for number, folder, before in killed_calls(jobs, part):
        with case(number):
            assert jobs.perform(folder)[0] == 0
            assert check_answer(folder) == (number >= 2)
            undo(folder)
            assert tree_of(folder / "0") == before


@pytest.mark.over_a_second
@parts(6)
def test_an_undo_without_a_resume_brings_all_files_back(jobs, part):
    for number, folder, before in killed_calls(jobs, part):
        with case(number):
            undo(folder)
            assert tree_of(folder / "0") == before
            assert jobs.perform(folder)[0] == 0
            assert "unknown outcome" in (folder / "answer").read_text()
            assert tree_of(folder / "0") == before


@pytest.mark.over_a_second
@parts(6)
def test_a_look_at_the_changes_before_the_resume_makes_no_difference(jobs, part):
    for number, folder, before in killed_calls(jobs, part):
        with case(number):
            in_store(folder, lambda _, change_sets: net_changes(change_sets))
            assert jobs.perform(folder)[0] == 0
            check_answer(folder)
            undo(folder)
            assert tree_of(folder / "0") == before


@pytest.mark.over_a_second
@parts(6)
def test_the_call_that_goes_on_may_be_killed_too(jobs, part):
    """It was killed in the middle, so it changes files less often than an uncrashed one."""
    for second in range(9)[part::6]:
        folder, before = new_folder(jobs)
        assert jobs.perform(folder, die_at_change=7)[0] == -9
        with case(second):
            assert jobs.perform(folder, die_at_change=second)[0] == (-9 if second < 8 else 0)
            if second < 8:
                assert jobs.perform(folder)[0] == 0
                check_answer(folder)
            undo(folder)
            assert tree_of(folder / "0") == before


def test_a_file_that_somebody_changes_before_the_resume_is_left(jobs):
    folder, _ = new_folder(jobs)
    assert jobs.perform(folder, die_at_change=7)[0] == -9
    assert texts_in(folder) == {OLD, NEW}
    (folder / "0" / NAMES[-1]).write_text("My own name.\n")
    assert jobs.perform(folder)[0] == 0
    answer = (folder / "answer").read_text()
    assert answer.startswith("4 places in 2 files.")
    assert answer.endswith(f"Somebody has changed these since, so they were left as they are: read them.\n{NAMES[-1]}")
    assert texts_in(folder) == {NEW, "My own name.\n"}


def test_a_plan_that_somebody_changed_makes_the_call_write_nothing_else(jobs):
    """The plan is a file in the workspace, so a command may have written it."""
    folder, _ = new_folder(jobs)
    (folder / "0" / "other.md").write_text("name\n")
    assert jobs.perform(folder, die_at_change=7)[0] == -9
    (plan_path,) = (folder / "0").glob(".toolspeak-replace-*")
    plan = json.loads(plan_path.read_text())
    text, evil = b"name\n", b"name_2\n"
    plan.append({**plan[0], "path": "other.md", "before": sha256(text), "after": sha256(evil)})
    plan[-2]["after"] = sha256(b"evil\n")
    plan_path.write_text(json.dumps(plan))
    assert jobs.perform(folder)[0] == 0
    assert (folder / "0" / "other.md").read_text() == "name\n"
    assert (folder / "0" / NAMES[-1]).read_text() == OLD
    assert (folder / "answer").read_text().endswith(f"{NAMES[-1]}\nother.md")


@pytest.mark.over_a_second
def test_a_plan_that_is_no_plan_any_more_is_named(jobs):
    folder, _ = new_folder(jobs)
    assert jobs.perform(folder, die_at_change=7)[0] == -9
    (plan_path,) = (folder / "0").glob(".toolspeak-replace-*")
    plan_path.write_bytes(b"\xff{")
    assert jobs.perform(folder)[0] == 0
    answer = (folder / "answer").read_text()
    assert f"{plan_path.name!r}, which says how to go on, was changed" in answer
