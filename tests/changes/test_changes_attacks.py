"""What an undo does when the folder, the store or another process is not as it should be."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from changing_runs import ScriptedProvider, calling, change, shell, tree_of, write
from test_undo import outcomes, undo

from forked_commands import PipedCommand, completed_text
from toolspeak import Agent, RunContext, tool
from toolspeak.agent import Execution
from toolspeak.changes import ChangeRecorder, change_sets_of, net_changes, of_call, store_of
from toolspeak.changes.change_store import DamagedContent
from toolspeak.data.events import ToolFinished
from toolspeak.errors import ConfigurationError, RunBusy
from toolspeak.journal import SqliteJournal
from toolspeak.tools.builtin import Workspace, workspace_tools


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def file(tmp_path):
    return tmp_path / "runs.db"


def sets_of(file, run_id):
    store = store_of(SqliteJournal(file))
    try:
        return change_sets_of(store, [run_id])
    finally:
        store.close()


def run(work, file, *turns, **options):
    return asyncio.run(change(work, file, *turns, **options)).run_id


def test_a_folder_that_became_a_link_leads_nowhere(work, file, tmp_path):
    (work / "d").mkdir()
    (work / "d" / "a").write_text("mine")
    run_id = run(work, file, write("d/a", "theirs"))
    outside = tmp_path / "outside"
    shutil.move(work / "d", outside)
    (work / "d").symlink_to(outside)
    report = undo(work, file, run_id)
    assert outcomes(report) == {"d/a": "changed"}
    assert (outside / "a").read_text() == "theirs"


def test_a_file_that_became_a_link_is_left(work, file, tmp_path):
    (work / "a").write_text("mine")
    run_id = run(work, file, write("a", "theirs"))
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    (work / "a").unlink()
    (work / "a").symlink_to(outside)
    assert outcomes(undo(work, file, run_id)) == {"a": "changed"}
    assert outside.read_text() == "theirs"


def test_a_file_that_became_a_folder_is_left_and_the_rest_undone(work, file):
    (work / "a").write_text("mine")
    run_id = run(work, file, shell("echo theirs > a; echo b > b"))
    (work / "a").unlink()
    (work / "a").mkdir()
    report = undo(work, file, run_id)
    assert outcomes(report) == {"a": "changed", "b": "undone"}
    assert not report.is_complete
    assert (work / "a").is_dir()
    assert not (work / "b").exists()


def test_a_folder_with_files_that_came_later_stays(work, file):
    run_id = run(work, file, shell("mkdir d; echo 1 > d/one"))
    (work / "d" / "two").write_text("later")
    report = undo(work, file, run_id)
    assert outcomes(report) == {"d": "changed", "d/one": "undone"}
    assert [path.name for path in (work / "d").iterdir()] == ["two"]


def test_what_somebody_changed_in_between_comes_back_and_no_more(work, file):
    (work / "a").write_text("1")

    @tool(read_only=True)
    def somebody() -> str:
        "Somebody else edits the file."
        (work / "a").write_text("3")
        return "done"

    run_id = run(work, file, write("a", "2"), calling(("somebody", {})), write("a", "4"), tools=[somebody])
    report = undo(work, file, run_id)
    assert (work / "a").read_text() == "3"
    assert [entry.reason for entry in report.entries] == ["back to what somebody else left in between"]
    assert undo(work, file, run_id).name == ""


def test_a_read_only_folder_is_reported(work, file):
    (work / "d").mkdir()
    (work / "d" / "a").write_text("mine")
    run_id = run(work, file, write("d/a", "theirs"), write("b", "b"))
    (work / "d").chmod(0o500)
    if os.access(work / "d", os.W_OK):
        pytest.skip("root may write everywhere")
    try:
        report = undo(work, file, run_id)
    finally:
        (work / "d").chmod(0o700)
    assert outcomes(report) == {"b": "undone", "d/a": "failed"}
    assert (work / "d" / "a").read_text() == "theirs"


def test_a_full_disk_leaves_each_file_whole(work, file):
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", work], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        big = os.urandom(400_000)
        (work / "big").write_bytes(big)
        (work / "small").write_text("s")
        run_id = run(work, file, shell("rm big; echo t > small"))
        (work / "filler").write_bytes(bytes(900_000))
        report = undo(work, file, run_id)
        assert outcomes(report) == {"big": "failed", "small": "undone"}
        assert "the disk is full" in report.entries[0].reason
        assert sorted(path.name for path in work.iterdir()) == ["filler", "small"]
        (work / "filler").unlink()
        assert undo(work, file, run_id).is_complete
        assert (work / "big").read_bytes() == big
    finally:
        subprocess.run(["umount", work], check=True)


def test_a_damaged_content_is_said_and_nothing_is_written(work, file):
    (work / "a").write_text("mine, and long enough to be packed " * 9)
    (work / "b").write_text("b")
    run_id = run(work, file, shell("rm a b"))
    before = tree_of(work)
    store = Path(f"{file}.files", "changes.db")
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE contents SET data = zeroblob(length(data)) WHERE length(data) > 20")
    with pytest.raises(DamagedContent, match=r"'a': the content \w+ in .*changes\.db is damaged\. Nothing was undone"):
        undo(work, file, run_id)
    assert tree_of(work) == before
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("DELETE FROM contents")
    with pytest.raises(DamagedContent, match="is missing"):
        undo(work, file, run_id)
    assert tree_of(work) == before


def test_a_workspace_that_moved_is_named(work, file, tmp_path):
    (work / "a").write_text("mine")
    before = tree_of(work)
    run_id = run(work, file, shell("echo theirs > a; echo b > b"))
    new_place = tmp_path / "elsewhere"
    work.rename(new_place)
    store = store_of(SqliteJournal(file))
    sets = change_sets_of(store, [run_id])
    store.close()
    from_cli = toolspeak("undo", run_id, "--yes", "--journal", str(file), cwd=tmp_path, code=2)
    assert "is gone; if it has moved, name it with --workspace" in from_cli.stderr
    assert [each.path for each in net_changes(sets)] == ["a", "b"]
    toolspeak("undo", run_id, "--yes", "--journal", str(file), "--workspace", str(new_place), cwd=tmp_path)
    assert tree_of(new_place) == before


def test_names_with_line_breaks_and_bytes_that_are_no_text(work, file):
    before = tree_of(work)
    run_id = run(
        work, file, shell("touch \"$(printf 'a\\nb')\" \"$(printf '\\377\\033[2J')\"; mkdir \"$(printf 'd\\n')\"")
    )
    assert len(tree_of(work)) == 3
    output = toolspeak("undo", run_id, "--dry-run", "--journal", str(file), cwd=work).stdout
    assert "\x1b" not in output
    assert output.splitlines()[0] == r"undo      a\nb"
    assert undo(work, file, run_id).is_complete
    assert tree_of(work) == before


def test_a_call_and_an_undo_exclude_each_other(work, file):
    (work / "a").write_text("mine")
    first = run(work, file, write("a", "theirs"))
    errors = []

    @tool()
    def undo_now() -> str:
        "Undoes another run while this call may change anything."
        try:
            undo(work, file, first)
        except RunBusy as error:
            errors.append(str(error))
        return "done"

    run(work, file, calling(("undo_now", {})), tools=[undo_now])
    assert "the call call_1_0 of run" in errors[0]
    assert (work / "a").read_text() == "theirs"


def test_two_undos_at_once_undo_once(work, file):
    for number in range(200):
        (work / f"f{number}").write_text("mine")
    before = tree_of(work)
    run_id = run(work, file, shell("for f in f*; do echo theirs > $f; done"))
    command = ["undo", run_id, "--yes", "--json", "--journal", str(file)]
    both = [PipedCommand(command, cwd=work) for _ in range(2)]
    ends = [(*each.communicate(timeout=60), each.returncode) for each in both]
    assert tree_of(work) == before, ends
    undo_counts = [
        sum(path["outcome"] == "undone" for report in json.loads(out) for path in report["paths"])
        for out, _, code in ends
        if code == 0
    ]
    refusals = [err for _, err, code in ends if code]
    assert sum(undo_counts) == 200, ends
    assert all("another undo is changing files" in err for err in refusals)


KILLED_PROGRAM = """
import os, signal, sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
import asyncio
from changing_runs import calling, change
from toolspeak import tool

@tool()
def die() -> str:
    "Changes files, and dies."
    Path({work!r}, "a").write_text("half")
    Path({work!r}, "new").write_text("new")
    Path({work!r}, "gone").unlink()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(change({work!r}, {file!r}, calling(("write", {{"path": "w", "content": "w"}})), calling(("die", {{}})),
    tools=[die]))
"""


@pytest.mark.over_a_second
def test_a_kill_within_a_call_loses_nothing_of_what_was_there(work, file):
    (work / "a").write_text("whole")
    (work / "gone").write_bytes(b"\0\1\2")
    before = tree_of(work)
    program = KILLED_PROGRAM.format(tests=str(Path(__file__).parent), work=str(work), file=str(file))
    child = subprocess.run([sys.executable, "-c", program], check=False)
    assert child.returncode == -signal.SIGKILL
    assert (work / "a").read_text() == "half"
    listing = toolspeak("changes", "--journal", str(file), "--stat", cwd=work)
    assert "the process died during the call call_2_0" in listing.stderr
    assert [line.split()[-1] for line in listing.stdout.splitlines()[:-1]] == ["a", "gone", "new", "w"]
    toolspeak("undo", "--yes", "--journal", str(file), cwd=work)
    assert tree_of(work) == before


def test_the_next_run_finds_what_a_killed_one_changed(work, file):
    (work / "a").write_text("whole")
    (work / "gone").write_bytes(b"\0\1\2")
    program = KILLED_PROGRAM.format(tests=str(Path(__file__).parent), work=str(work), file=str(file))
    subprocess.run([sys.executable, "-c", program], check=False)
    second = run(work, file, write("a", "more"))
    (change_set,) = sets_of(file, second)
    assert [(each.path, each.before.size) for each in change_set.changes] == [("a", len("half"))]
    store = store_of(SqliteJournal(file))
    with store.transaction() as db:
        roots = [row[0] for row in db.execute("SELECT root_id FROM change_sets WHERE is_recovered")]
    store.close()
    assert len(roots) == 1
    assert outcomes(undo(work, file, roots[0])) == {"a": "changed", "gone": "undone", "new": "undone", "w": "undone"}


def test_calls_of_one_batch_have_their_own_changes(work, file):
    run_id = run(
        work,
        file,
        calling(
            ("write", {"path": "d/a", "content": "a"}),
            ("write", {"path": "d/b", "content": "b"}),
            ("shell", {"command": "echo c > d/c; echo more >> d/a"}),
        ),
    )
    by_call = {each.call_id: [change.path for change in each.changes] for each in sets_of(file, run_id)}
    folders = [paths.pop(0) for paths in by_call.values() if paths[0] == "d"]
    assert folders == ["d"]
    assert by_call == {"call_1_0": ["d/a"], "call_1_1": ["d/b"], "call_1_2": ["d/a", "d/c"]}


def test_a_change_that_several_calls_may_have_made_says_so(work, file):
    wait = "while [ ! -e done1 ] || [ ! -e done2 ]; do sleep 0.01; done"
    commands = [f"echo {n} > x{n}; touch done{n}; {wait}" for n in (1, 2)]
    run_id = run(
        work,
        file,
        calling(*[("shell", {"command": command}) for command in commands]),
        execution=Execution(schedule="parallel"),
    )
    calls_by_path = {change.path: change.sharing_calls for each in sets_of(file, run_id) for change in each.changes}
    assert set(calls_by_path) == {"x1", "x2", "done1", "done2"}
    assert any(calls_by_path.values())
    assert outcomes(undo(work, file, run_id)) == dict.fromkeys(calls_by_path, "undone")


def test_the_result_says_which_files_changed_and_what_is_not_covered(work, file):
    (work / ".git").mkdir()
    run_id = run(work, file, shell("echo 1 > a; head -c 9000000 /dev/zero > big; echo x > .git/x"))

    async def results():
        journal = SqliteJournal(file)
        try:
            return [r.event.result for r in await journal.read(run_id) if isinstance(r.event, ToolFinished)]
        finally:
            await journal.aclose()

    (result,) = asyncio.run(results())
    assert result.extra["files_changed"] == {"count": 2, "paths": ["a", "big"], "uncovered": [".git", "big"]}
    assert outcomes(undo(work, file, run_id)) == {"a": "undone", "big": "undone"}
    assert (work / ".git" / "x").exists()


def test_a_large_file_that_was_there_is_left(work, file):
    with (work / "big").open("wb") as big:
        big.truncate(9_000_000)
    run_id = run(work, file, shell("echo less > big"))
    report = undo(work, file, run_id)
    assert outcomes(report) == {"big": "uncovered"}
    assert (work / "big").read_text() == "less\n"


def test_what_a_read_does_is_not_looked_at(work, file):
    run_id = run(work, file, calling(("list", {"path": "."})))
    assert not Path(f"{file}.files").exists()
    assert sets_of(file, run_id) == []


def test_a_sub_runs_changes_belong_to_the_run_above(work, file):
    (work / "a").write_text("mine")
    before = tree_of(work)
    journal, workspace = SqliteJournal(file), Workspace(work)
    recorder = ChangeRecorder(workspace, store_of(journal))
    options = {"approve": "all", "journal": journal, "interceptors": [recorder]}
    helper = Agent(
        ScriptedProvider([shell("echo helped > a; mkdir d; echo x > d/x; echo y > d/y"), "Done."]),
        workspace_tools(work),
        name="helper",
        **options,
    )

    @tool()
    async def delegate(ctx: RunContext) -> str:
        "Lets the helper work, and goes on with its files."
        (work / "own").write_text("own")
        await helper.run("help", parent_run_id=ctx.run_id)
        (work / "d" / "y").write_text("more")
        (work / "d" / "z").write_text("z")
        return "done"

    agent = Agent(ScriptedProvider([calling(("delegate", {})), "Done."]), [delegate], **options)
    run_id = agent.run_sync("go").run_id
    recorder.close()
    journal.close()
    inner, outer = sets_of(file, run_id)
    assert (inner.tool, [each.path for each in inner.changes]) == ("shell", ["a", "d", "d/x", "d/y"])
    assert (outer.tool, [each.path for each in outer.changes]) == ("delegate", ["d/y", "d/z", "own"])
    assert inner.run_id != run_id == inner.root_id == outer.root_id
    assert inner.within == outer.number
    assert of_call([inner, outer], "call_1_0") == [outer, inner][::-1]
    assert undo(work, file, run_id).is_complete
    assert tree_of(work) == before


def test_a_call_is_named_if_it_changed_nothing(work, file):
    run_id = run(work, file, write("a", "a"))
    with pytest.raises(ConfigurationError, match=r"no call 'call_9' changed a file; these did: call_1_0"):
        undo(work, file, run_id, to="call_9")


def toolspeak(*arguments, cwd, code=0):
    result = completed_text(arguments, cwd=cwd)
    assert result.returncode == code, (result.stdout, result.stderr)
    return result


def test_a_call_whose_contents_cannot_be_kept_does_not_run(work, file):
    (work / "a").write_text("mine")
    store = Path(f"{file}.files", "changes.db")
    store.parent.mkdir()
    store.write_bytes(b"no database, but long enough to be looked at as one" * 30)
    state = asyncio.run(change(work, file, write("a", "theirs")))
    (result,) = [part for message in state.messages for part in message.results]
    assert result.status == "failure"
    assert str(store) in result.text
    assert (work / "a").read_text() == "mine"


def test_an_interrupted_call_keeps_what_it_changed(work, file):
    (work / "a").write_text("mine")
    os.mkfifo(work / "gate")
    before = (work / "a").read_bytes()

    async def main():
        gate_is_open = asyncio.to_thread((work / "gate").read_bytes)
        running = asyncio.create_task(change(work, file, shell("echo half > a; echo > gate; sleep 100")))
        await gate_is_open
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(main())
    result = toolspeak("undo", "--yes", "--journal", str(file), cwd=work)
    assert "undone    a" in result.stdout
    assert "died" not in result.stderr
    assert (work / "a").read_bytes() == before


def test_a_folder_that_is_swapped_for_a_link_again_and_again_leads_nowhere(work, file, tmp_path):
    (work / "d").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("theirs")
    (work / "d" / "a").write_text("mine")
    run_id = run(work, file, write("d/a", "theirs"))
    is_over = threading.Event()

    def swap():
        while not is_over.is_set():
            (work / "d").rename(work / "aside")
            (work / "d").symlink_to(outside)
            (work / "d").unlink()
            (work / "aside").rename(work / "d")
            for _ in range(300):  # it is in its place for most of the time
                (work / "d").is_dir()

    thread = threading.Thread(target=swap)
    thread.start()
    names = [None]
    try:
        for _ in range(40):
            name = undo(work, file, run_id, to=names[-1]).name
            names.append(name or names[-1])
            assert (outside / "a").read_text() == "theirs"
            assert [path.name for path in outside.iterdir()] == ["a"]
    finally:
        is_over.set()
        thread.join()
    assert len({*names}) > 2, "some got through"


@pytest.mark.over_a_second
def test_an_undo_that_is_killed_goes_on_the_next_time(work, file):
    for number in range(400):
        (work / f"f{number}").write_text("mine")
    before, whole, texts = tree_of(work), {"mine", "theirs\n"}, set()
    while texts != whole:  # an undo may end before this process sees that it has begun
        run_id = run(work, file, shell("for f in f*; do echo theirs > $f; done"))
        process = PipedCommand(["undo", run_id, "--yes", "--journal", str(file)], cwd=work)
        while process.poll() is None and not any(path.read_text() == "mine" for path in work.glob("f*")):
            pass
        process.kill()
        process.communicate()
        assert process.returncode in (0, -signal.SIGKILL)
        texts = {path.read_text() for path in work.glob("f*")}
    toolspeak("undo", run_id, "--yes", "--journal", str(file), cwd=work)
    for rest in work.glob(".toolspeak-*.tmp"):  # of the file that was being written
        rest.unlink()
    assert tree_of(work) == before
    toolspeak("undo", run_id, "--to", "undo-1", "--yes", "--journal", str(file), cwd=work)
    assert {path.read_text() for path in work.glob("f*")} == {"theirs\n"}
