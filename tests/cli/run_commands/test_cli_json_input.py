"""`toolspeak run --json --input`: a program drives runs over pipes."""

from __future__ import annotations

import json
import os

import pytest

from forked_commands import PipedCommand, completed_text

GATE = {"name": "shell", "arguments": {"command": "cat gate > /dev/null"}}
"""A call that lasts until somebody opens the FIFO `gate`."""


def writing(path):
    return {"text": "", "calls": [{"name": "write", "arguments": {"path": path, "content": "x"}}]}


class Driver:
    """The program at the other end of the pipes."""

    def __init__(self, folder, turns, *options):
        (folder / "book.json").write_text(json.dumps({"turns": turns}))
        self.folder = folder / "work"
        self.folder.mkdir(exist_ok=True)
        os.mkfifo(self.folder / "gate")
        command = ["run", "--json", "--input", "-", "--model", f"scripted:{folder / 'book.json'}"]
        command += ["--workspace", str(self.folder), "--journal", str(folder / "runs.db"), *options]
        self.process = PipedCommand(command, cwd=folder, has_input=True, text=False)
        self.lines = []

    def send(self, *lines):
        for line in lines:
            self.raw(json.dumps(line).encode() + b"\n")

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def next(self, kind):
        """The next record with an event of this kind, or line with this key."""
        for text in self.process.stdout:
            line = json.loads(text)
            self.lines.append(line)
            if line.get("event", {}).get("type") == kind:
                return line["event"]
            if kind in line or line.get("type") == kind:
                return line
        raise AssertionError((kind, self.lines, self.process.stderr.read()))

    def end(self):
        """Closes the input, and returns the exit code."""
        self.process.stdin.close()
        self.lines += map(json.loads, self.process.stdout)
        return self.process.wait(timeout=60)


@pytest.fixture
def drive(tmp_path):
    drivers = []

    def begin(*turns_and_options):
        turns = [each for each in turns_and_options if not (isinstance(each, str) and each.startswith("--"))]
        options = [each for each in turns_and_options if each not in turns]
        drivers.append(Driver(tmp_path, turns, *options))
        return drivers[-1]

    yield begin
    for driver in drivers:
        driver.process.kill()
        driver.process.communicate()
        for stream in (driver.process.stdin, driver.process.stdout, driver.process.stderr):
            stream.close()


def test_tasks_come_one_after_the_other_and_share_a_session(drive):
    driver = drive("One.", "Two.")
    driver.send({"task": "first"}, {"task": "second"})
    first, finish = driver.next("RunStarted"), driver.next("RunFinished")
    second = driver.next("RunStarted")
    assert finish["answer"] == "One."
    assert second["session_id"] == first["session_id"]
    assert driver.next("RunFinished")["answer"] == "Two."
    assert driver.end() == 0


def test_a_line_decides_about_a_call_and_must_fit_the_question(drive):
    driver = drive(writing("a"), writing("b"), "Done.")
    driver.send({"task": "write"})
    question = driver.next("ApprovalRequested")
    call_id = question["call_id"]
    driver.send(
        {"decide": "call_9", "approved": True},
        {"decide": call_id, "approved": True, "digest": "another"},
        {"decide": call_id, "approved": True, "arguments": {"path": 7}},
        {"decide": call_id, "approved": True, "digest": question["digest"]},
    )
    problems = [driver.next("error") for _ in range(3)]
    assert [problem["line"] for problem in problems] == [2, 3, 4]
    assert "no question about the call 'call_9' is open" in problems[0]["error"]
    assert "the digest is not that of the question" in problems[1]["error"]
    assert "stays open" in problems[2]["error"]
    decision = driver.next("ApprovalDecided")
    assert (decision["approved"], decision["by"]) == (True, "input")
    question = driver.next("ApprovalRequested")
    driver.send({"decide": question["call_id"], "approved": False, "reason": "one is enough"})
    assert driver.next("ApprovalDecided")["reason"] == "one is enough"
    driver.next("RunFinished")
    assert driver.end() == 0
    assert (driver.folder / "a").read_text() == "x"
    assert not (driver.folder / "b").exists()


def test_other_arguments_are_approved_and_run(drive):
    driver = drive(writing("a"), "Done.")
    driver.send({"task": "write"})
    call_id = driver.next("ApprovalRequested")["call_id"]
    driver.send({"decide": call_id, "approved": True, "arguments": {"path": "other", "content": "y"}})
    driver.next("RunFinished")
    assert driver.end() == 0
    assert (driver.folder / "other").read_text() == "y"


def test_always_makes_a_rule_for_the_rest_of_the_process(drive):
    driver = drive(writing("a"), writing("b"), "Done.")
    driver.send({"task": "write"})
    call_id = driver.next("ApprovalRequested")["call_id"]
    driver.send({"decide": call_id, "approved": True, "always": "tool"})
    driver.next("RunFinished")
    assert driver.end() == 0
    assert (driver.folder / "b").exists()


def test_a_question_stays_open_at_the_inputs_end(drive, tmp_path):
    driver = drive(writing("a"), "Done.")
    driver.send({"task": "write"})
    driver.next("ApprovalRequested")
    assert driver.end() == 3
    assert driver.lines[-1]["event"]["reason"] == "awaiting_approval"


@pytest.mark.over_a_second
def test_wrong_lines_are_answered_with_errors_and_change_nothing(drive):
    driver = drive("Done.")
    bad_lines = {
        b"{": "Expecting",
        b"[]": "expected an object",
        b'{"hello": 1}': "expected exactly one of the keys task, say",
        b'{"task": ""}': "expected a text that is not empty for 'task'",
        b'{"task": "x", "say": "y"}': "expected exactly one of the keys",
        b'{"task": "x", "model": "y"}': "a line with 'task' cannot have 'model'",
        b'{"decide": "x"}': "expected true or false for 'approved'",
        b'{"decide": "x", "approved": true, "always": "ever"}': "for 'always'",
        b'{"interrupt": 1}': "expected true for 'interrupt'",
        b'{"suspend": true}': "no run is in progress",
        b'{"say": "x"}': "no run is in progress",
        b'{"resume": true}': "nothing to resume",
        b"\xff": "utf-8",
        b"[" * 100_000: "",
        b"x" * (16 * 1024 * 1024 + 1): "a line has more than",
    }
    for number, (line, problem) in enumerate(bad_lines.items(), 1):
        driver.raw(line + b"\n")
        error = driver.next("error")
        assert problem in error["error"], (line[:50], error)
        assert error["line"] == number
    driver.send({"task": "go"})
    assert driver.next("RunFinished")["answer"] == "Done."
    assert driver.end() == 0


def test_a_message_is_read_at_the_next_step(drive):
    driver = drive({"text": "", "calls": [GATE]}, "{{last}}", "--approve=all")
    driver.send({"task": "go"})
    driver.next("ToolStarted")
    driver.send({"say": "hurry"}, {"decide": "no", "approved": True})
    driver.next("error")  # so the line before it has been read
    (driver.folder / "gate").write_text("")
    assert "hurry" in json.dumps(driver.next("UserMessageQueued"))
    assert driver.next("RunFinished")["answer"] == "hurry"
    assert driver.end() == 0


def test_a_run_is_interrupted_and_goes_on_or_another_task_follows(drive):
    driver = drive({"text": "", "calls": [GATE]}, "Done.", "Next.", "--approve=all")
    driver.send({"task": "go"})
    run_id = driver.next("ToolStarted") and driver.lines[-1]["run_id"]
    driver.send({"interrupt": True})
    assert driver.next("interrupted") == {"interrupted": run_id}
    driver.send({"task": "something else"})
    second = driver.next("RunStarted")
    assert driver.lines[-1]["run_id"] != run_id
    assert second["follows"] == run_id
    driver.next("RunFinished")
    assert driver.end() == 0


def test_a_run_is_suspended_and_resumed(drive):
    driver = drive({"text": "", "calls": [GATE]}, "Done.", "--approve=all")
    driver.send({"task": "go"})
    driver.next("ToolStarted")
    driver.send({"suspend": True}, {"decide": "no", "approved": True})
    driver.next("error")
    (driver.folder / "gate").write_text("")
    driver.next("RunPaused")
    driver.send({"resume": True})
    driver.next("RunResumed")
    assert driver.next("RunFinished")["answer"] == "Done."
    assert driver.end() == 0


def test_deltas_come_on_request(drive):
    driver = drive("Some words.", "--deltas")
    driver.send({"task": "go"})
    assert driver.next("TextDelta")["text"]
    driver.next("RunFinished")
    assert driver.end() == 0


def test_the_options_belong_together(tmp_path):
    def fails(*options):
        process = completed_text(["run", "--model", "scripted:none.json", *options], cwd=tmp_path)
        assert process.returncode == 2, process
        return process.stderr

    assert "belong to --json" in fails("--input", "-")
    assert "belong to --json" in fails("--deltas", "task")
    assert "TASK is missing" in fails("--json")
    assert "leave TASK out" in fails("--json", "--input", "-", "-")
