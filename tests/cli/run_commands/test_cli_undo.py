"""`toolspeak changes` and `toolspeak undo`, after runs of the command line."""

from __future__ import annotations

import json

import pytest
from command import toolspeak


def call(name, **arguments):
    return {"text": "", "calls": [{"name": name, "arguments": arguments}]}


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo\n")
    return folder


class Terminal:
    """Commands in a folder, with a journal beside it."""

    def __init__(self, folder):
        self.folder = folder
        self.journal = folder.parent / "runs.db"

    def __call__(self, *arguments, code=0):
        process = toolspeak(*arguments, "--journal", str(self.journal), cwd=self.folder, terminal=False)
        self.errors = process.stderr.decode()
        assert process.returncode == code, (process.stdout, self.errors)
        return process.stdout.decode()

    def run(self, *turns, options=()):
        """A run of these turns. Returns its id and its session's."""
        book = self.folder.parent / "book.json"
        book.write_text(json.dumps({"turns": [*turns, "Done."]}))
        lines = self("run", "go", "--model", f"scripted:{book}", "--approve", "all", "--json", *options).splitlines()
        first = json.loads(lines[0])
        return first["run_id"], first["event"]["session_id"]


def test_the_last_run_of_the_folder_is_shown_and_undone(work):
    terminal = Terminal(work)
    terminal.run(call("write", path="a", content="a\n"), call("edit", path="notes.txt", old="two", new="2"))
    assert terminal("changes", "--stat").splitlines() == [
        "created         +1 -0  a",
        "changed         +1 -1  notes.txt",
        "2 paths, +2 -1",
    ]
    assert "+2\n" in terminal("changes")
    assert "+2\n" not in terminal("changes", "--call", "call_1_0")
    assert terminal("undo", "--dry-run").splitlines()[:2] == ["undo      a", "undo      notes.txt"]
    assert (work / "a").exists()
    terminal("undo", code=2)
    assert "there is no terminal to ask at" in terminal.errors
    assert "undone    a\n" in terminal("undo", "--yes")
    assert [path.name for path in work.iterdir()] == ["notes.txt"]
    assert (work / "notes.txt").read_text() == "one\ntwo\n"
    terminal("undo", "--to", "undo-1", "--yes")
    assert (work / "notes.txt").read_text() == "one\n2\n"


def test_what_is_left_is_an_exit_code_of_its_own(work):
    terminal = Terminal(work)
    run_id, _ = terminal.run(call("write", path="a", content="a"), call("write", path="b", content="b"))
    (work / "a").write_text("mine")
    output = terminal("undo", run_id, "--yes", "--json", code=1)
    (report,) = json.loads(output)
    assert (report["complete"], report["name"], report["run_id"]) == (False, "undo-1", run_id)
    assert report["paths"] == [
        {"path": "a", "outcome": "changed", "reason": "changed since"},
        {"path": "b", "outcome": "undone", "reason": ""},
    ]
    assert (work / "a").read_text() == "mine"


def test_the_runs_of_a_session_are_undone_together_and_from_a_call_on(work):
    terminal = Terminal(work)
    first, session = terminal.run(call("write", path="a", content="1"))
    second, _ = terminal.run(
        call("write", path="a", content="2", overwrite=True),
        call("write", path="b", content="b"),
        options=("--session", session),
    )
    calls = json.loads(terminal("changes", "--session", session, "--json"))["calls"]
    assert [each["run_id"] for each in calls] == [first, second, second]
    terminal("undo", "--session", session, "--to", f"{second[:8]}/{calls[1]['call_id']}", "--yes")
    assert (work / "a").read_text() == "1"
    assert not (work / "b").exists()
    assert [line.split()[-1] for line in terminal("changes", "--session", session, "--stat").splitlines()[:-1]] == ["a"]
    terminal("undo", "--session", session, "--yes")
    assert not (work / "a").exists()
    assert "no run" not in terminal("changes", "--session", session)


def test_json_names_the_calls_and_what_is_not_covered(work):
    (work / ".git").mkdir()
    terminal = Terminal(work)
    run_id, _ = terminal.run(call("shell", command="echo x > x; echo y > .git/y"))
    report = json.loads(terminal("changes", run_id, "--json"))
    assert terminal.errors == "toolspeak: not covered: .git (of version control)\n"
    assert [each["path"] for each in report["changes"]] == ["x"]
    (own,) = report["calls"]
    assert (own["call_id"], own["tool"], own["paths"], own["workspace"]) == ("call_1_0", "shell", ["x"], str(work))
    assert report["uncovered"] == {".git": "of version control"}
    assert "    changed x; not covered: .git\n" in terminal("show", run_id)


def test_a_folder_and_a_journal_without_changes_say_so(work, tmp_path):
    terminal = Terminal(work)
    terminal.run()
    terminal("changes", code=2)
    assert f"no run changed a file in {work}" in terminal.errors
    run_id, _ = terminal.run(call("read", path="notes.txt"))
    assert terminal("changes", run_id) == ""
    assert terminal("undo", run_id, "--yes") == ""
    process = toolspeak("changes", "--journal", "none", cwd=work)
    assert b"a journal in memory keeps no changes" in process.stderr


def test_a_dry_run_says_which_folders_would_be_left(work):
    terminal = Terminal(work)
    terminal.run(call("write", path="new/inner/a", content="a"), call("write", path="other/b", content="b"))
    (work / "new" / "mine").write_text("mine")
    reason = "holds files that came later, or that are not covered"
    lines = terminal("undo", "--dry-run", code=1).splitlines()
    assert lines[:5] == [
        f"left      new: {reason}",
        "undo      new/inner",
        "undo      new/inner/a",
        "undo      other",
        "undo      other/b",
    ]
    assert lines[5].startswith("4 paths to undo in ")
    done_lines = terminal("undo", "--yes", code=1).splitlines()
    assert [line.replace("undone    ", "undo      ") for line in done_lines[:5]] == lines[:5]
    assert (work / "new" / "mine").exists()
