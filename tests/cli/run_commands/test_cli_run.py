"""`toolspeak run`, as a subprocess: under a real pseudo-terminal, and without any."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from terminal_harness import DEADLINE, TerminalProcess, environment

from forked_commands import completed_text
from toolspeak.data.codec import loads
from toolspeak.data.events import (
    ApprovalDecided,
    ApprovalRequested,
    ModelAnswered,
    Record,
    RunFinished,
    RunPaused,
    RunStarted,
    ToolFinished,
)
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import get_dialect

ASKS = "(q)uit the run: "


def calls(*tool_calls: tuple[str, dict[str, Any]], text: str = "") -> str:
    """A model's turn with these calls."""
    parts = tuple(ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(tool_calls))
    block = get_dialect("cogency-json").render([Message("assistant", parts)])[0].text
    return f"{text}\n{block}" if text else block


def write(path: str, content: str = "new\n") -> tuple[str, dict[str, Any]]:
    return ("write", {"path": path, "content": content})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def book(folder: Path, *turns: Any) -> str:
    path = folder.parent / "book.json"
    path.write_text(json.dumps({"turns": list(turns), "chunk": 3}), encoding="utf-8")
    return f"scripted:{path}"


@contextmanager
def at_terminal(folder: Path, model: str, *options: str, **streams: Any) -> Iterator[TerminalProcess]:
    env = streams.pop("env", None) or environment()
    with TerminalProcess("run", "the task", "--model", model, *options, cwd=folder, env=env, **streams) as process:
        yield process


def without_terminal(
    folder: Path, *arguments: str, env: dict[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return completed_text(
        ("run", *arguments), cwd=folder, env=env or environment(), stdin=stdin.encode(), session=True, seconds=DEADLINE
    )


def records(output: str) -> list[Record]:
    entries = [loads(line) for line in output.splitlines()]
    assert all(isinstance(record, Record) for record in entries)
    assert [record.seq for record in entries] == list(range(len(entries)))
    return entries


def events(output: str, kind: type[Any]) -> list[Any]:
    return [record.event for record in records(output) if isinstance(record.event, kind)]


# --- the question ------------------------------------------------------------------------------------------------


def test_yes_runs_the_call_that_was_shown_in_full(folder: Path):
    (folder / "a.txt").write_text("old\n")
    model = book(folder, calls(("read", {"path": "a.txt"}), text="I look."), calls(write("a.txt")), "Done.")
    with at_terminal(folder, model) as process:
        raw_screen = process.read_until(ASKS)
        assert (folder / "a.txt").read_text() == "old\n"
        process.type("y\n")
        code, screen = process.finish()
    assert code == 0
    assert (folder / "a.txt").read_text() == "new\n"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", raw_screen)
    assert "I look.\n▸ read" in plain
    assert "✓ read\n    old\n" in plain
    assert f"? write  writes file:{folder.resolve() / 'a.txt'}\n" in plain
    assert 'path: "a.txt", content: "new\\n"' in plain
    assert "    --- a.txt\n    +++ a.txt\n    @@ -1 +1 @@\n    -old\n    +new\n" in plain
    assert "\x1b[31m    -old" in raw_screen
    assert "\x1b[32m    +new" in raw_screen
    assert "\nDone.\n" in screen
    assert "toolspeak: answered: 3 steps, 2 calls, ~" in screen


def plain(screen: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", screen)


def test_thoughts_are_shown_only_on_request(folder: Path):
    model = book(folder, "<think>A secret plan.</think>The answer is 4.")
    with at_terminal(folder, model) as process:
        code, screen = process.finish()
    assert (code, "secret plan" in screen, "The answer is 4." in screen, "thinking …" in screen) == (
        0,
        False,
        True,
        True,
    )
    process = without_terminal(folder, "the task", "--model", model)
    assert (process.stdout, "secret" in process.stderr, "thinking" in process.stderr) == (
        "The answer is 4.\n",
        False,
        False,
    )
    result = without_terminal(folder, "the task", "--model", model, "--thoughts")
    assert (result.stdout, "A secret plan." in result.stderr) == ("The answer is 4.\n", True)
    with at_terminal(folder, model, "--thoughts") as process:
        code, screen = process.finish()
    assert "A secret plan." in plain(screen)


def test_a_rule_for_a_tool_stays_in_its_file_until_it_is_revoked(folder: Path):
    model, rules_path = book(folder, calls(write("a.txt")), calls(write("b.txt")), "Done."), folder.parent / "rules"
    with at_terminal(folder, model, "--rules", str(rules_path)) as process:
        process.read_until(ASKS)
        process.type("r\n")
        choices = process.read_until("Which one?")
        assert f"also in later runs with --rules {rules_path}" in plain(choices)
        assert "1  exactly this call\n    2  every call of write\n" in plain(choices)
        process.type("2\n")
        code, screen = process.finish()
    assert (code, screen.count(ASKS)) == (0, 1)
    assert (folder / "b.txt").exists()
    options = ("--rules", str(rules_path), "--journal", "runs.db")
    again = without_terminal(folder, "the task", "--model", book(folder, calls(write("c.txt")), "Done."), *options)
    assert (again.returncode, (folder / "c.txt").exists()) == (0, True)
    assert "  ✓ allowed by rule 1 of rules\n" in again.stderr
    (session,) = json.loads(completed_text(("sessions", "--json", "--journal", "runs.db"), cwd=folder).stdout)
    run_id = session["runs"][0]["run_id"]
    timeline = completed_text(("show", run_id, "--journal", "runs.db"), cwd=folder).stdout
    assert "  write allowed by rule 1 of rules\n" in timeline
    listing = completed_text(("rules", str(rules_path)), cwd=folder).stdout
    assert listing == "1  approve write while its definition is unchanged (by user)\n"
    assert completed_text(("rules", str(rules_path), "--revoke", "1"), cwd=folder).returncode == 0
    again = without_terminal(
        folder, "the task", "--model", book(folder, calls(write("d.txt")), "Done."), "--rules", str(rules_path)
    )
    assert (again.returncode, (folder / "d.txt").exists()) == (3, False)


def shell(command: str) -> tuple[str, dict[str, Any]]:
    return ("shell", {"command": command})


def test_a_yes_to_commands_with_one_beginning_approves_no_other_commands(folder: Path):
    rules_path = folder.parent / "rules"
    steps = ["git status && echo one > /dev/null", "echo two", "git status -s | head -1", "echo $(touch x)", "touch y"]
    model = book(folder, *(calls(shell(step)) for step in steps), "Done.")
    with at_terminal(folder, model, "--rules", str(rules_path)) as process:
        process.read_until(ASKS)
        process.type("r\n")
        assert "2  commands that begin with 'git status' or 'echo one', with any arguments\n" in plain(
            process.read_until("Which one?")
        )
        process.type("2\n")
        process.read_until(ASKS)  # echo two
        process.type("r\n")
        process.read_until("Which one?")
        process.type("\n")  # none of these: the question again
        process.read_until(ASKS)
        process.type("r\n")
        process.read_until("Which one?")
        process.type("1\n")
        process.read_until(ASKS)  # head
        process.type("r\n")
        process.read_until("Which one?")
        process.type("2\n")
        for _ in "$(touch x)", "touch y":
            process.read_until(ASKS)
            process.type("n\n")
        code, _ = process.finish()
    assert (code, (folder / "x").exists(), (folder / "y").exists()) == (0, False, False)
    listing = completed_text(("rules", str(rules_path)), cwd=folder).stdout.splitlines()
    assert [line.split(" while")[0] for line in listing] == [
        "1  approve shell where each command begins with 'git status' or 'echo one'",
        "2  approve shell with command='echo two' and nothing else",
        "3  approve shell where each command begins with 'git status' or 'head'",
    ]
    again = book(folder, calls(shell("echo one | head -1; git status; echo two")), "Done.")
    assert without_terminal(folder, "the task", "--model", again, "--rules", str(rules_path)).returncode == 3
    again = book(folder, calls(shell("echo one | head -1; git status")), "Done.")
    assert without_terminal(folder, "the task", "--model", again, "--rules", str(rules_path)).returncode == 0


def test_quit_ends_the_run(folder: Path):
    model = book(folder, calls(write("a.txt")), "never read")
    with at_terminal(folder, model) as process:
        process.read_until(ASKS)
        process.type("q\n")
        code, screen = process.finish()
    assert code == 1
    assert "no answer (terminated)" in screen
    assert not (folder / "a.txt").exists()


def test_a_repaired_call_is_shown_with_what_the_model_wrote(folder: Path):
    raw = "<execute>\n[{name: 'write', args: {path: 'a.txt', content: 'x'}}]\n</execute>"
    model = book(folder, calls(write("first.txt")), raw, "Done.")
    with at_terminal(folder, model, "--repair") as process:
        process.read_until(ASKS)
        process.type("a\n")
        screen = process.read_until(ASKS)
        process.type("y\n")
        code, _ = process.finish()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    assert "the model's text was malformed, and was repaired" in plain
    assert "      [{name: 'write', args: {path: 'a.txt', content: 'x'}}]" in plain
    assert (code, (folder / "a.txt").exists()) == (0, True)
    finished_process = without_terminal(
        folder, "the task", "--model", book(folder, raw, "Done."), "--repair", "--approve", "all"
    )
    assert "write it again" in finished_process.stderr


LINE = "as JSON on one line (Enter: keep the old ones): "


def test_arguments_edited_on_a_line_are_checked_and_need_another_answer(folder: Path):
    answer = "I was told: {{find:This call was changed[^]]*}}]"
    env = environment(PATH=str(folder))  # no editor
    with at_terminal(folder, book(folder, calls(write("a.txt")), answer), env=env) as process:
        process.read_until(ASKS)
        for line, problem in [
            ('{"path": "b.txt"', "this is not JSON: Expecting ',' delimiter (line 1, column 17)"),
            ('["b.txt"]', "the arguments must be one JSON object"),
            ('{"path": "b.txt", "contents": "x"}', "the arguments of 'write' do not fit:"),
            ("", "The arguments are unchanged."),
        ]:
            process.type("e\n")
            process.read_until(LINE)
            process.type(line + "\n")
            assert problem in process.read_until(ASKS)
        process.type("e\n")
        assert '{"path": "b.txt", "contents": "x"}' in process.read_until(LINE)  # what was typed is not lost
        process.type('{"path": "b.txt", "content": "edited\\n"}\n')
        again = re.sub(r"\x1b\[[0-9;]*m", "", process.read_until(ASKS))
        assert f"? write  writes file:{folder.resolve() / 'b.txt'}\n" in again
        assert "+edited" in again
        assert not (folder / "b.txt").exists()
        process.type("y\n")
        code, screen = process.finish()
    assert code == 0
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("b.txt", "edited\n")]
    assert "I was told: This call was changed before it ran" in screen


def test_arguments_are_edited_in_the_configured_editor(folder: Path):
    script = folder.parent / "editor.py"
    script.write_text(
        "import pathlib, sys\n"
        "file = pathlib.Path(sys.argv[-1])\n"
        "text = file.read_text()\n"
        "old, new = ('x.txt', 'b.txt') if 'x.txt' in text else ('b.txt', 'c.txt')\n"
        "file.write_text(text.replace(old, new))\n"
    )
    env = environment(EDITOR=f"{sys.executable} {script}")
    with at_terminal(folder, book(folder, calls(write("x.txt")), "Done."), env=env) as process:
        process.read_until(ASKS)
        process.type("e\n")
        assert "b.txt" in process.read_until(ASKS)
        process.type("e\n")
        assert "c.txt" in process.read_until(ASKS)
        process.type("y\n")
        assert process.finish()[0] == 0
    assert [path.name for path in folder.iterdir()] == ["c.txt"]


def test_an_editor_that_fails_leaves_the_question_open(folder: Path):
    env = environment(EDITOR="/nowhere/editor")
    with at_terminal(folder, book(folder, calls(write("a.txt")), "Done."), env=env) as process:
        process.read_until(ASKS)
        process.type("e\n")
        assert "/nowhere/editor" in process.read_until(ASKS)
        process.type("n\n")
        assert process.finish()[0] == 0
    assert list(folder.iterdir()) == []


def test_no_stops_the_call_and_the_model_reads_why(folder: Path):
    answer = 'I was told: {{find:the call was rejected[^"]*}}.'
    with at_terminal(folder, book(folder, calls(write("a.txt")), answer)) as process:
        process.read_until(ASKS)
        process.type("n\n")
        code, screen = process.finish()
    assert code == 0
    assert not (folder / "a.txt").exists()
    assert "I was told: the call was rejected." in screen


DANGER = "rm -rf precious"
HIDING = {
    "behind many lines": "echo hi\n" + "true\n" * 400 + DANGER,
    "in a long line": "echo " + "x" * 20_000 + f"; {DANGER}; echo " + "y" * 20_000,
    "behind empty lines": "echo hi" + "\n" * 300 + DANGER,
    "behind spaces": "echo hi" + " " * 9000 + f"; {DANGER}",
}


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("name", HIDING)
def test_a_yes_counts_only_after_the_whole_call_was_on_the_screen(folder: Path, name: str, columns: int):
    model = book(folder, calls(("shell", {"command": HIDING[name]})), "Done.")
    with at_terminal(folder, model, "--sandbox", "off", env=environment(COLUMNS=str(columns), LINES="24")) as process:
        screen, pages = "", 0
        while True:
            page = process.read_until("(q)uit the run: ")
            assert page.count("\n") <= 24, "no page is longer than the screen"
            screen, pages = screen + page, pages + 1
            if "more characters" not in page:
                break
            assert "(y)es" not in page
            process.type("y\n")  # shows the next page
        assert DANGER in re.sub(r"\n", "", screen)
        assert (pages > 1) == (name in ("behind many lines", "in a long line"))
        process.type("n\n")
        code, _ = process.finish()
    assert code == 0


@pytest.mark.parametrize("no", ["n ", "no, ", "No: ", "nope - "])
def test_the_model_reads_the_text_after_a_no_as_the_reason(folder: Path, no: str):
    answer = 'I was told: {{find:the call was rejected[^"]*}}.'
    with at_terminal(folder, book(folder, calls(write("a.txt")), answer)) as process:
        process.read_until(ASKS)
        process.type(f"{no}use b.txt, bitte schön\n")
        code, screen = process.finish()
    assert code == 0
    assert not (folder / "a.txt").exists()
    assert "I was told: the call was rejected: use b.txt, bitte schön." in screen


@pytest.mark.parametrize("yes", ["y", "Yes", "ok", "OK.", "okay", "sure", "yep!"])
def test_the_usual_words_for_yes_mean_yes(folder: Path, yes: str):
    with at_terminal(folder, book(folder, calls(write("a.txt")), "Done.")) as process:
        process.read_until(ASKS)
        process.type(f"{yes}\n")
        code, _ = process.finish()
    assert (code, (folder / "a.txt").exists()) == (0, True)


@pytest.mark.parametrize("word", ["use b.txt", "not now", "note", "yesterday", "1", "?"])
def test_an_answer_that_is_neither_yes_nor_no_repeats_the_question(folder: Path, word: str):
    with at_terminal(folder, book(folder, calls(write("a.txt")), "Done.")) as process:
        process.read_until(ASKS)
        process.type(f"{word}\n")
        assert "not a clear answer" in process.read_until(ASKS)
        assert not (folder / "a.txt").exists()
        process.type("n\n")
        code, _ = process.finish()
    assert (code, (folder / "a.txt").exists()) == (0, False)


def test_all_approves_the_later_calls_of_the_run_and_still_shows_them(folder: Path):
    model = book(folder, calls(write("a"), write("b")), calls(write("c", "third\n")), "Done.")
    with at_terminal(folder, model) as process:
        process.read_until(ASKS)
        process.type("a\n")
        code, screen = process.finish()
    assert code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "c"]
    assert screen.count(ASKS) == 1
    assert "+third" in screen


def test_each_call_has_its_own_question_and_only_an_answer_decides_it(folder: Path):
    with at_terminal(folder, book(folder, calls(write("a"), write("b")), "Done.")) as process:
        process.read_until(ASKS)
        process.type("\n")
        process.read_until(ASKS)
        # The second line is typed before the second question is asked, so it does not answer that.
        process.type("YES\ny\n")
        process.read_until(ASKS)
        process.type("no\n")
        assert process.finish()[0] == 0
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_the_end_of_input_is_a_no(folder: Path):
    with at_terminal(folder, book(folder, calls(write("a")), "{{find:closed the question}}")) as process:
        process.read_until(ASKS)
        process.type("\x04")
        assert process.finish()[0] == 0
    assert list(folder.iterdir()) == []


def test_ctrl_c_at_the_question_ends_the_run(folder: Path):
    with at_terminal(folder, book(folder, calls(write("a")), "Done.")) as process:
        process.read_until(ASKS)
        process.type("\x03")
        code, screen = process.finish()
    assert code == 130
    assert list(folder.iterdir()) == []
    assert "Traceback" not in screen


@contextmanager
def sleeping_command(folder: Path) -> Iterator[tuple[TerminalProcess, int]]:
    """A run whose shell command waits forever, and the process id of the command."""
    os.mkfifo(folder / "pid")
    command = "echo $$ > pid; exec sleep 600"
    model = book(folder, calls(("shell", {"command": command})), ".")
    # In a sandbox its process id would be that of a namespace of its own.
    with at_terminal(folder, model, "--approve", "all", "--sandbox", "off") as process:
        with (folder / "pid").open() as fifo:  # opens once the command writes to it
            pid = int(fifo.read())
        yield process, pid


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_ctrl_c_while_a_command_runs_kills_it(folder: Path):
    with sleeping_command(folder) as (process, pid):
        process.type("\x03")
        code, screen = process.finish()
    assert code == 130
    assert not is_running(pid)
    assert "Traceback" not in screen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_run_also_kills_its_command(folder: Path, number: signal.Signals):
    with sleeping_command(folder) as (process, pid):
        process.signal(number)
        code, screen = process.finish()
    assert code == 130
    assert not is_running(pid)
    assert "Traceback" not in screen


# --- redirected streams ------------------------------------------------------------------------------------------


def test_with_all_streams_redirected_the_question_goes_to_the_terminal_device(folder: Path):
    out, err, task = (folder.parent / name for name in ("out", "err", "in"))
    task.write_text("the task from a file")
    model = book(folder, calls(write("a.txt"), text="I write."), "Done.")
    with TerminalProcess(
        "run", "-", "--model", model, cwd=folder, env=environment(), stdin=task, stdout=out, stderr=err
    ) as process:
        question = process.read_until(ASKS)
        process.type("y\n")
        assert process.finish()[0] == 0
    assert "? write" in question
    assert "+new" in question
    assert (folder / "a.txt").read_text() == "new\n"
    assert out.read_text() == "Done.\n"
    assert "I write.\n▸ write" in err.read_text()
    assert "\x1b" not in err.read_text()


def test_only_the_answer_is_on_a_redirected_standard_output(folder: Path):
    out = folder.parent / "out"
    with at_terminal(folder, book(folder, calls(write("a.txt")), "Fünf.\n\n"), stdout=out) as process:
        process.read_until(ASKS)
        process.type("y\n")
        code, screen = process.finish()
    assert code == 0
    assert out.read_text(encoding="utf-8") == "Fünf.\n"
    assert "▸ write" in screen


def test_standard_output_is_json_while_the_question_goes_to_the_terminal(folder: Path):
    out = folder.parent / "out"
    model = book(folder, calls(write("a.txt")), "{{find:rejected: [a-z ]+}}")
    with at_terminal(folder, model, "--json", stdout=out) as process:
        process.read_until(ASKS)
        process.type("n not today\n")
        code, _ = process.finish()
    assert code == 0
    lines = out.read_text()
    (decision,) = events(lines, ApprovalDecided)
    assert (decision.approved, decision.reason, decision.by) == (False, "not today", "user")
    assert [event.preview.splitlines()[-1] for event in events(lines, ApprovalRequested)] == ["+new"]
    assert events(lines, ModelAnswered)[-1].message == Message.assistant("rejected: not today")


def test_json_prints_one_record_per_line_and_nothing_else(folder: Path):
    model = book(folder, calls(("list", {}), text="I look \ud800."), "Done.")
    process = without_terminal(folder, "the task", "--model", model, "--json", "--max-steps", "7", "--sandbox", "off")
    assert process.returncode == 0
    run_records = records(process.stdout)
    start = run_records[0].event
    assert isinstance(start, RunStarted)
    assert start.messages == (Message.user("the task"),)
    assert start.limits.steps == 7
    assert run_records[-1].event == RunFinished("answered", "Done.", "answer")
    assert len(events(process.stdout, ToolFinished)) == 1
    sandbox, end = process.stderr.splitlines()
    assert sandbox == "toolspeak: sandbox: off: commands have all your rights"
    assert end.startswith("toolspeak: answered: 2 steps, 1 call, ~")


def test_without_a_terminal_the_run_waits_and_says_for_what(folder: Path):
    model = book(folder, calls(write("a.txt"), ("list", {})), "never")
    process = without_terminal(folder, "the task", "--model", model)
    assert process.returncode == 3
    assert process.stdout == ""
    assert "? write waits for approval" in process.stderr
    assert "    +new\n" in process.stderr
    assert "toolspeak: awaiting approval: 1 step, 2 calls" in process.stderr
    assert "toolspeak: waiting for approval: write (call_1_0). There is no terminal" in process.stderr
    assert list(folder.iterdir()) == []
    as_json = without_terminal(folder, "the task", "--model", model, "--json")
    assert as_json.returncode == 3
    assert events(as_json.stdout, RunPaused) == [RunPaused("awaiting_approval", ("call_1_0",))]
    assert "write (call_1_0)" in as_json.stderr


def test_the_active_file_and_its_resumption(folder: Path):
    model = book(folder, calls(("active_file", {}), write("a.txt")), "{{find:src/[a-z.]+}} is open.")
    journal = ("--journal", str(folder.parent / "j.db"))
    waiting = without_terminal(folder, "the task", "--model", model, "--active-file", "src/a.py", *journal)
    assert waiting.returncode == 3
    command = ("resume", "--approve", "all", *journal)
    process = completed_text(command, cwd=folder, env=environment(), session=True, seconds=DEADLINE)
    assert (process.returncode, process.stdout) == (0, "src/a.py is open.\n")


@pytest.mark.parametrize(("approve", "written"), [("all", True), ("none", False)])
def test_standing_answers_need_no_terminal(folder: Path, approve: str, written: bool):
    process = without_terminal(
        folder, "the task", "--model", book(folder, calls(write("a.txt")), "Done."), "--approve", approve
    )
    assert (process.returncode, process.stdout) == (0, "Done.\n")
    assert (folder / "a.txt").exists() == written
    assert ("+new" in process.stderr) == written
    assert ("✗ write (rejected)" in process.stderr) == (not written)


# --- what can go wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["the task"], "the model is missing. Write --model openai:NAME"),
        (["  ", "--model", "scripted:x.json"], "the task is empty"),
        (["-", "--model", "scripted:x.json"], "the task is empty"),
        (["the task", "--model", "scripted:x.json"], "x.json cannot be read"),
        (["the task", "--model", "scripted:BOOK", "--dialect", "hermez"], "There is no dialect 'hermez'"),
        (["the task", "--model", "m", "--workspace", "absent"], "absent"),
        (["the task", "--model", "m", "--approve", "maybe"], "maybe"),
        (["the task", "--model", "m", "--max-steps", "0"], "0"),
        ([], "TASK"),
    ],
)
def test_usage(folder: Path, arguments: list[str], problem: str):
    model = book(folder, "Done.")
    process = without_terminal(folder, *(model if argument == "scripted:BOOK" else argument for argument in arguments))
    assert (process.returncode, process.stdout) == (2, "")
    assert problem in process.stderr
    assert "Traceback" not in process.stderr


def test_the_environment_names_the_default_model(folder: Path):
    process = without_terminal(folder, "the task", env=environment(TOOLSPEAK_MODEL=book(folder, "Done.")))
    assert (process.returncode, process.stdout) == (0, "Done.\n")


def test_a_workspace_elsewhere_a_dialect_and_a_task_from_standard_input(folder: Path):
    (folder / "in").mkdir()
    turn = '<tool_call>{"name": "write", "arguments": {"path": "a", "content": "x"}}</tool_call>'
    options = ["--workspace", "in", "--dialect", "tool-call", "--approve", "all", "--schedule", "native"]
    model = book(folder, turn, "You said {{find:größer}}.")
    process = without_terminal(folder, "-", "--model", model, *options, stdin="größer\n")
    assert (process.returncode, process.stdout) == (0, "You said größer.\n")
    assert (folder / "in" / "a").read_text() == "x"


def test_a_failure_of_the_model_is_reported_once_with_exit_code_1(folder: Path):
    model = book(folder, {"text": "So far", "error": "the server is down"})
    process = without_terminal(folder, "the task", "--model", model)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.count("the server is down") == 1
    assert "toolspeak: failed (model_error): 1 step" in process.stderr


def test_no_answer_is_exit_code_1(folder: Path):
    process = without_terminal(folder, "the task", "--model", book(folder, "", ""))
    assert (process.returncode, process.stdout) == (1, "")
    assert "toolspeak: no answer (empty_answer): 2 steps" in process.stderr


# --- colours and untrusted text ----------------------------------------------------------------------------------


def test_no_color_shows_no_colours(folder: Path):
    model = book(folder, calls(write("a.txt")), "Done.")
    with at_terminal(folder, model, "--approve", "all", env=environment(NO_COLOR="1")) as process:
        code, screen = process.finish()
    assert code == 0
    assert "+new" in screen
    colours = [code for codes in re.findall(r"\x1b\[([0-9;]*)m", screen) for code in codes.split(";")]
    assert [code for code in colours if code[:1] in ("3", "4", "9") and code != "3"] == []


def test_neither_the_model_nor_a_tool_controls_the_terminal(folder: Path):
    evil = "\x1b]0;owned\x07\x1b[2J[bold]x[/bold]\u202e\r"
    (folder / "evil.txt").write_text(evil, newline="")
    turns = calls(("read", {"path": "evil.txt"}), ("shell", {"command": f"printf '{evil}'"}), text=evil)
    with at_terminal(folder, book(folder, turns, "Done."), "--approve", "ask") as process:
        process.read_until(ASKS)
        process.type("n\n")
        code, screen = process.finish()
    assert code == 0
    assert screen.count("␛]0;owned␇␛[2J[bold]x[/bold]") >= 2
    without_styles = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", without_styles)


def test_the_timeline_shows_which_call_waited_for_which(folder: Path, tmp_path: Path):
    tool_calls = [("read", {"path": "notes.md"}), ("shell", {"command": "true"}), ("list", {})]
    picture = tmp_path / "out.svg"
    model = book(folder, calls(*tool_calls), "done")
    process = without_terminal(folder, "the task", "--model", model, "--approve", "all", "--timeline", str(picture))
    assert process.returncode == 0, process.stderr
    svg = picture.read_text(encoding="utf-8")
    assert svg.count("<rect") == 3
    assert svg.count('<path class="edge"') == 2
    assert f"the timeline is in {picture}" in process.stderr


def test_a_tools_traceback_goes_to_the_file_that_the_environment_names(folder: Path, tmp_path: Path):
    model = book(folder, calls(("read", {"path": "gone.txt"})), "It is not there.")
    env = {**environment(), "TOOLSPEAK_LOG": str(tmp_path / "the.log")}
    process = without_terminal(folder, "the task", "--model", model, env=env)
    assert process.returncode == 0, process.stderr
    log = (tmp_path / "the.log").read_text(encoding="utf-8")
    assert "toolspeak.execute: the tool read raised in the call" in log
    assert "Traceback" in log
    assert "Traceback" not in process.stderr
    process = without_terminal(folder, "the task", "--model", model, env={**env, "TOOLSPEAK_LOG": "no/such/folder/x"})
    assert process.returncode == 2
    assert "TOOLSPEAK_LOG" in process.stderr
