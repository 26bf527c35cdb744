"""Several processes at work in one folder: what one is told it has changed, the other does not undo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from command import toolspeak

EXEC = ("exec", "--dialect", "cogency-json", "--approve", "all")


def run(folder, *calls):
    call_list = [{"name": name, "args": arguments} for name, arguments in calls]
    process = toolspeak(*EXEC, reply=f"<execute>{json.dumps(call_list)}</execute>", cwd=folder)
    assert process.returncode == 0, process.stderr
    text = process.stdout.decode().removeprefix("<results>\n").removesuffix("\n</results>\n")
    return json.loads(text)


def at_once(folder, *batches):
    """The results of each batch, run in a process of its own, all at the same time."""
    run(folder)  # so that what forks the processes is there before two threads want it
    with ThreadPoolExecutor(len(batches)) as threads:
        return list(threads.map(lambda calls: run(folder, *calls), batches))


def successes(results):
    return sum(row["status"] == "success" for rows in results for row in rows)


COUNT = 60


def test_edits_of_one_file_by_two_processes_are_all_there(tmp_path):
    words = {name: [f"{name}{i:03}" for i in range(COUNT)] for name in "ab"}
    (tmp_path / "a.txt").write_text("\n".join(words["a"] + words["b"]))
    batches = [[("edit", {"path": "a.txt", "old": word, "new": word.upper()}) for word in words[name]] for name in "ab"]
    results = at_once(tmp_path, *batches)
    changed_lines = sum(line.isupper() for line in (tmp_path / "a.txt").read_text().split("\n"))
    assert changed_lines == successes(results) == 2 * COUNT
    assert os.listdir(tmp_path) == ["a.txt"]


def test_line_edits_and_appends_by_two_processes_are_all_there(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {i}\n" for i in range(COUNT)))
    changing = [("line_edit", {"path": "a.txt", "startLine": i + 1, "endLine": i + 1, "newContent": "changed"})
                for i in range(COUNT)]  # fmt: skip
    adding = [("append", {"path": "a.txt", "content": f"added {i}\n"}) for i in range(COUNT)]
    results = at_once(tmp_path, changing, adding)
    lines = (tmp_path / "a.txt").read_text().splitlines()
    assert successes(results) == 2 * COUNT
    assert lines[:COUNT] == ["changed"] * COUNT
    assert sorted(lines[COUNT:]) == sorted(f"added {i}" for i in range(COUNT))  # at once, as the dialect has it


def test_of_two_processes_that_make_a_file_one_is_told_that_it_is_there(tmp_path):
    batches = [[("write", {"path": f"sub/{i}.txt", "content": name}) for i in range(COUNT)] for name in "ab"]
    first, second = at_once(tmp_path, *batches)
    for i in range(COUNT):
        successful_rows = {
            name: rows[i] for name, rows in (("a", first), ("b", second)) if rows[i]["status"] == "success"
        }
        assert [*successful_rows] == [(tmp_path / f"sub/{i}.txt").read_text()]
        (other,) = (rows[i] for rows in (first, second) if rows[i] not in successful_rows.values())
        assert "exists and was not read" in other["content"]


CANNOT = [
    ("edit", {"path": "closed/a.txt", "old": "old", "new": "new"}, "permission denied for its folder"),
    ("write", {"path": "closed/b.txt", "content": "new"}, "permission denied for its folder"),
    ("append", {"path": "closed/sub/c.txt", "content": "new"}, "permission denied for its folder"),
    ("edit", {"path": "fifo", "old": "old", "new": "new"}, "is a FIFO"),
    ("line_edit", {"path": "loop", "startLine": 1, "endLine": 1, "newContent": "new"}, "loop of symbolic links"),
    ("append", {"path": "out", "content": "new"}, "leads outside the workspace"),
    ("write", {"path": "file/a.txt", "content": "new"}, "something above it is a file"),
]


@pytest.mark.skipif(sys.platform != "linux", reason="needs capabilities as Linux has them")
def test_what_cannot_be_written_is_named_with_the_reason_and_left_as_it_was(tmp_path):
    folder = tmp_path / "work"
    (folder / "closed").mkdir(parents=True)
    (folder / "closed/a.txt").write_text("old")
    (folder / "file").write_text("old")
    (tmp_path / "out.txt").write_text("old")
    (folder / "out").symlink_to(tmp_path / "out.txt")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")
    (folder / "closed").chmod(0o555)
    # To root no folder is closed; without its capabilities it is a user like any other.
    user = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    calls = json.dumps([{"name": name, "args": arguments} for name, arguments, _ in CANNOT])
    command = [*user, sys.executable, "-m", "toolspeak", *EXEC]
    process = subprocess.run(
        command, input=f"<execute>{calls}</execute>".encode(), cwd=folder, capture_output=True, check=False, timeout=60
    )
    rows = json.loads(process.stdout.decode().removeprefix("<results>\n").removesuffix("\n</results>\n"))
    for row, (_, arguments, reason) in zip(rows, CANNOT, strict=True):
        assert row["status"] == "failure"
        assert reason in row["content"]
        assert arguments["path"] in row["content"]
    assert os.listdir(folder / "closed") == ["a.txt"]
    assert {each.read_text() for each in (folder / "closed/a.txt", folder / "file", tmp_path / "out.txt")} == {"old"}
