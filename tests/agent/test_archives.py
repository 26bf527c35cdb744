"""Runs that leave a journal for a file, and come back."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from toolspeak.agent.storage.archives import (
    archive,
    erase_from_archives,
    export_group,
    prune,
    read_groups,
)
from toolspeak.agent.storage.imports import import_groups
from toolspeak.data.events import RunFinished, RunPaused, RunStarted, UserMessageQueued
from toolspeak.data.messages import Message
from toolspeak.errors import ConfigurationError, FormatError, RunConflict
from toolspeak.journal import SqliteJournal
from toolspeak.testing.journal import a_run, every_kind, write

CHILD = Path(__file__).with_name("archiving_child.py")
JULY, AUGUST, LATER = 1_783_000_000.0, 1_786_000_000.0, 2_000_000_000.0
RUN_END = RunFinished("answered", "Done.", "answer")
MORE = UserMessageQueued(Message.user("more"))


def use(path, work):
    async def main():
        journal = SqliteJournal(path)
        try:
            return await work(journal)
        finally:
            await journal.aclose()

    return asyncio.run(main())


async def fill(journal):
    """Three finished groups and two that are not."""
    await write(journal, a_run("lone", *every_kind(), time=JULY, task="x" * 100_000, principal="ann"))
    await write(journal, [replace(each, parent_run_id="lone") for each in a_run("child", RUN_END, time=JULY)])
    await write(journal, [replace(each, parent_run_id="child") for each in a_run("grandchild", RUN_END, time=JULY)])
    await write(journal, a_run("s1", RUN_END, time=JULY, session_id="S"))
    await write(
        journal, a_run("s2", RUN_END, time=AUGUST, session_id="S", session_version=1, follows="s1", follows_seq=2)
    )
    await write(journal, [replace(each, parent_run_id="s1") for each in a_run("of-s1", RUN_END, time=AUGUST)])
    await write(journal, a_run("long", *[MORE] * 510, RUN_END, time=AUGUST))
    await write(journal, a_run("waiting", RunPaused("awaiting_approval", ("call",)), time=JULY))
    await write(journal, a_run("o1", RUN_END, time=JULY, session_id="open"))
    await write(journal, a_run("o2", time=JULY, session_id="open", session_version=1, follows="o1", follows_seq=2))


async def lines_of(journal):
    return sorted([[line async for line in export_group(journal, group)] async for group in journal.groups()])


async def archive_all(journal, folder, **options):
    return [each async for each in archive(journal, folder, before=LATER, **options)]


def lines_in(folder):
    return {file.name: file.read_text("utf-8").splitlines() for file in sorted(folder.iterdir())}


async def import_all(journal, folder, *, trust=False):
    outcomes = []
    for file in sorted(folder.glob("*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            outcomes += await add_groups(journal, read_groups(lines), trust=trust)
    return outcomes


async def add_groups(journal, groups, *, trust=False):
    return [closed_runs async for _, closed_runs in import_groups(journal, groups, trust=trust)]


def test_finished_runs_move_to_a_file_for_each_month_and_come_back_whole(tmp_path):
    path, folder = tmp_path / "runs.db", tmp_path / "archive"
    use(path, fill)
    before = use(path, lines_of)
    files = use(path, lambda journal: archive_all(journal, folder))
    assert [(each.place.name, each.groups, each.runs, each.busy) for each in files] == [
        ("runs-2026-07.jsonl", 1, 3, 0),
        ("runs-2026-08.jsonl", 2, 4, 0),
    ]
    assert {info.run_id for info in use(path, lambda journal: journal.runs())} == {"waiting", "o1", "o2"}
    assert [info.session_id for info in use(path, lambda journal: journal.sessions())] == ["open"]
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert use(path, lambda journal: archive_all(journal, folder)) == []  # nothing is left to move
    assert use(path, lambda journal: import_all(journal, folder)) == [0, 0, 0]
    assert use(path, lines_of) == before
    assert use(path, lambda journal: import_all(journal, folder)) == [None] * 3  # again: they are there already
    hits = use(path, lambda journal: journal.search("more"))
    assert {hit.run_id for hit in hits} == {"long"}


def test_a_second_archive_of_a_month_has_a_file_of_its_own(tmp_path):
    path, folder = tmp_path / "runs.db", tmp_path / "archive"

    async def twice(journal):
        for number in range(2):
            await write(journal, a_run(f"r{number}", RUN_END, time=JULY))
            await archive_all(journal, folder)

    use(path, twice)
    assert [*lines_in(folder)] == ["runs-2026-07-2.jsonl", "runs-2026-07.jsonl"]


def test_only_one_principals_runs_are_archived_or_pruned(tmp_path):
    path, folder = tmp_path / "runs.db", tmp_path / "archive"

    async def work(journal):
        await write(journal, a_run("anns", RUN_END, principal="ann"))
        await write(journal, a_run("bens", RUN_END, principal="ben"))
        await write(journal, a_run("bens-session", RUN_END, principal="ben", session_id="S"))
        (removal,) = await archive_all(journal, folder, principal="ann")
        removal_by_prune = await prune(journal, before=LATER, principal="ben")
        return removal.runs, removal_by_prune.runs, await journal.runs(), await journal.sessions()

    assert use(path, work) == (1, 2, (), ())


def test_what_is_younger_or_not_finished_or_held_is_not_pruned(tmp_path):
    async def work(journal):
        await fill(journal)
        lease = await journal.acquire("long", "a process", 60)
        first = await prune(journal, before=AUGUST)
        second = await prune(journal, before=LATER)
        await journal.release(lease)
        return first.runs, second.runs, second.busy, {info.run_id for info in await journal.runs()}

    assert use(tmp_path / "runs.db", work) == (3, 3, 1, {"long", "waiting", "o1", "o2"})


@pytest.fixture(scope="module")
def child():
    """A function that archives a journal in a process that dies at a step; it returns the exit code."""
    command = [sys.executable, str(CHILD)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def run(path, folder, step):
            process.stdin.write(json.dumps([str(path), str(folder), step]) + "\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield run
        process.stdin.close()


@pytest.mark.over_a_second
def test_an_archive_that_is_killed_anywhere_loses_nothing_and_goes_on(tmp_path, child):
    path, folder = tmp_path / "runs.db", tmp_path / "archive"
    use(path, fill)
    whole = use(path, lines_of)
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    total = child(copy, tmp_path / "other", -1)
    assert total > 20
    for step in range(total):
        shutil.rmtree(folder, ignore_errors=True)
        for each in tmp_path.glob("killed.db*"):
            each.unlink()
        killed_journal = tmp_path / "killed.db"
        shutil.copy(path, killed_journal)
        assert child(killed_journal, folder, step) == -signal.SIGKILL
        in_journal = {json.dumps(lines) for lines in use(killed_journal, lines_of)}
        in_files = "\n".join("\n".join(lines) for name, lines in lines_in(folder).items() if "partial" not in name)
        for lines in whole:
            assert json.dumps(lines) in in_journal or "\n".join(lines) in in_files, (step, lines[0])
        use(killed_journal, lambda journal: archive_all(journal, folder))
        assert {name.rpartition(".")[2] for name in lines_in(folder)} == {"jsonl"}, step
        use(killed_journal, lambda journal: import_all(journal, folder))
        assert use(killed_journal, lines_of) == whole, step


def test_a_file_that_does_not_read_back_deletes_nothing(tmp_path, child):
    path, folder = tmp_path / "runs.db", tmp_path / "archive"
    use(path, fill)
    whole = use(path, lines_of)
    total = child(shutil.copy(path, tmp_path / "copy.db"), tmp_path / "other", -1)
    for step in range(total):  # until all files are written, and nothing is deleted
        shutil.rmtree(folder, ignore_errors=True)
        child(path, folder, step)
        if [*lines_in(folder)] == ["runs-2026-07.jsonl.pending", "runs-2026-08.jsonl.pending"]:
            break
    pending = folder / "runs-2026-08.jsonl.pending"
    pending.write_bytes(pending.read_bytes()[:-100])
    with pytest.raises(FormatError, match=r"2026-08.jsonl.pending: line .* still in the journal"):
        use(path, lambda journal: archive_all(journal, folder))
    pending.unlink()
    use(path, lambda journal: archive_all(journal, folder))
    use(path, lambda journal: import_all(journal, folder))
    assert use(path, lines_of) == whole


def test_a_session_that_goes_on_while_it_is_archived_stays(tmp_path):
    path, folder = tmp_path / "runs.db", tmp_path / "archive"

    async def work(journal):
        await write(journal, a_run("s1", RUN_END, time=JULY, session_id="S"))
        await archive_all(journal, folder)
        (file,) = folder.iterdir()
        file.rename(file.with_name(file.name + ".pending"))  # as if the process had ended before it deleted
        await import_all(journal, folder)
        with file.with_name(file.name + ".pending").open(encoding="utf-8") as lines:
            await add_groups(journal, read_groups(lines))
        await write(journal, a_run("s2", time=AUGUST, session_id="S", session_version=1, follows="s1", follows_seq=2))
        (removal,) = await archive_all(journal, folder)
        return removal.runs, removal.busy, {info.run_id for info in await journal.runs()}

    assert use(path, work) == (0, 1, {"s1", "s2"})


def test_two_processes_do_not_archive_into_one_folder(tmp_path):
    folder = tmp_path / "archive"

    async def work(journal):
        await write(journal, a_run("one", RUN_END, time=JULY))
        await write(journal, a_run("two", RUN_END, time=AUGUST))
        first = archive(journal, folder, before=LATER)
        await anext(first)
        with pytest.raises(ConfigurationError, match="another process archives"):
            await archive_all(journal, folder)
        return [each async for each in first]

    assert len(use(tmp_path / "runs.db", work)) == 1


def test_unfinished_runs_of_a_file_are_closed_unless_it_is_trusted(tmp_path):
    use(tmp_path / "a.db", fill)
    lines = [line for group in use(tmp_path / "a.db", lines_of) for line in group]

    def statuses(name, *, trust):
        async def work(journal):
            closed_counts = await add_groups(journal, read_groups(lines), trust=trust)
            return sum(closed_counts), {info.run_id: info.status for info in await journal.runs()}

        return use(tmp_path / name, work)

    closed_runs, by_run = statuses("closed.db", trust=False)
    assert (closed_runs, by_run["waiting"], by_run["o2"], by_run["lone"]) == (2, "no_answer", "no_answer", "answered")
    closed_runs, by_run = statuses("trusted.db", trust=True)
    assert (closed_runs, by_run["waiting"], by_run["o2"]) == (0, "awaiting_approval", "running")


def test_an_import_of_other_records_under_the_same_id_is_refused(tmp_path):
    async def work(journal):
        await write(journal, a_run("r", RUN_END, task="one"))
        group = next(read_groups([line async for line in export_group(journal, await journal.group_of("r"))]))
        first = group.records[0]
        assert isinstance(first.event, RunStarted)
        other = replace(first, event=replace(first.event, model="another"))
        with pytest.raises(RunConflict, match="in this journal already"):
            await add_groups(journal, [replace(group, records=(other, *group.records[1:]))])

    use(tmp_path / "runs.db", work)


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["{}"], "line 1: "),
        (['{"toolspeak_run": 2, "run_id": "r", "records": 1}'], "later version"),
        (['{"toolspeak_run": 1, "run_id": "r", "records": 2}'], "only 0 follow"),
        (['{"toolspeak_run": 1, "run_id": "r", "records": 1}', "nonsense"], "line 2: "),
    ],
)
def test_a_file_that_is_not_an_archive_names_the_line(lines, error):
    with pytest.raises(FormatError, match=error):
        [*read_groups(lines)]


def test_a_principal_is_erased_from_archives_and_the_others_stay(tmp_path):
    path, folder = tmp_path / "runs.db", tmp_path / "archive"

    async def work(journal):
        await write(journal, a_run("anns", RUN_END, time=JULY, task="Zebrafink", principal="ann"))
        await write(journal, [replace(each, parent_run_id="anns") for each in a_run("anns-sub", RUN_END, time=JULY)])
        await write(journal, a_run("bens", RUN_END, time=JULY, principal="ben"))
        of_ann = a_run("ann-for-ben", RUN_END, time=JULY, task="Zebrafink", principal="ann")
        await write(journal, [replace(each, parent_run_id="bens") for each in of_ann])
        await write(journal, a_run("s", RUN_END, time=AUGUST, task="Zebrafink", principal="ann", session_id="S"))
        await write(journal, a_run("other", RUN_END, time=AUGUST))
        await archive_all(journal, folder)
        september = AUGUST + 31 * 86_400
        await write(journal, a_run("later", RUN_END, time=september))
        await archive_all(journal, folder)

    use(path, work)
    september_file = folder / "runs-2026-09.jsonl"
    before = september_file.stat().st_ino
    removal = erase_from_archives(folder, "ann")
    assert (removal.runs, removal.groups) == (4, 2)
    assert "Zebrafink" not in "".join(file.read_text("utf-8") for file in folder.iterdir())
    assert [*lines_in(folder)] == ["runs-2026-07.jsonl", "runs-2026-08.jsonl", "runs-2026-09.jsonl"]
    assert september_file.stat().st_ino == before
    use(tmp_path / "new.db", lambda journal: import_all(journal, folder))
    runs = use(tmp_path / "new.db", lambda journal: journal.runs())
    assert {info.run_id for info in runs} == {"bens", "other", "later"}
    assert erase_from_archives(folder, "ann").runs == 0


def test_groups_before_the_end_of_a_damaged_file_are_imported(tmp_path):
    """Those that the journal has already are left out, and the rest is added."""
    use(tmp_path / "a.db", fill)
    groups = use(tmp_path / "a.db", lines_of)
    lines = [line for group in groups for line in group]

    async def work(journal):
        await add_groups(journal, read_groups(groups[1]), trust=True)
        outcomes = []

        async def add():
            async for _, closed_runs in import_groups(journal, read_groups(lines[:-1]), trust=True):
                outcomes.append(closed_runs)

        with pytest.raises(FormatError, match="the file is not complete"):
            await add()
        return outcomes, await lines_of(journal)

    outcomes, imported_lines = use(tmp_path / "b.db", work)
    assert (outcomes.count(None), outcomes.count(0)) == (1, len(groups) - 2)
    assert imported_lines == groups[:-1]
