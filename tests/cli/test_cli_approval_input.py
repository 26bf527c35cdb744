"""What counts as an answer at a terminal: a line of its own that was typed behind the question."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from terminal_harness import DEADLINE, TerminalProcess, environment

from forked_commands import completed_text
from toolspeak.data.codec import loads
from toolspeak.data.events import ApprovalDecided, Record

ASKS = "(q)uit the run: "


@contextmanager
def approval_prompt(folder: Path, content: str = "new\n", **streams: object) -> Iterator[TerminalProcess]:
    """A run that wants to write a.txt, at its question."""
    call = json.dumps([{"name": "write", "args": {"path": "a.txt", "content": content}}])
    book = folder.parent / "book.json"
    book.write_text(json.dumps({"turns": [f"<execute>{call}</execute>", "Done."], "follow": True}))
    env = streams.pop("env", environment())
    arguments = ("run", "the task", "--model", f"scripted:{book}", "--journal", str(folder.parent / "j.db"))
    with TerminalProcess(*arguments, cwd=folder, env=env, **streams) as process:  # type: ignore[arg-type]
        yield process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_a_yes_without_the_end_of_its_line_is_none(folder: Path):
    with approval_prompt(folder) as process:
        process.read_until(ASKS)
        process.type("y\x04\x04")  # Ctrl-D hands over what is typed so far, and then the end of input
        code, screen = process.finish()
    assert (code, list(folder.iterdir())) == (0, [])
    assert "the user closed the question without an answer" in screen


def test_lines_that_came_together_are_not_an_answer_each(folder: Path):
    with approval_prompt(folder) as process:
        process.read_until(ASKS)
        process.type("why is that?\nok\n")  # as pasted
        process.read_until("not a clear answer")
        process.read_until(ASKS)
        process.type("\ny\n")
        process.read_until(ASKS)
        process.type("n\n")
        code, _ = process.finish()
    assert (code, list(folder.iterdir())) == (0, [])


def test_a_screen_is_as_large_as_the_terminal_whatever_the_environment_says(folder: Path):
    env = environment(LINES="1000", COLUMNS="300")
    with approval_prompt(folder, "".join(f"{n}\n" for n in range(100)), env=env, size=(24, 80)) as process:
        assert "+50" not in process.read_until("more characters")
        process.type("n\n")
        process.finish()


def test_a_terminal_that_is_gone_is_no_answer(folder: Path):
    """Neither a yes nor a person's no: the question is asked again by whoever goes on with the run."""
    with approval_prompt(folder) as process:
        process.read_until(ASKS)
        process.type("y")
        assert process.hang_up() != 0
    journal = ("--journal", str(folder.parent / "j.db"))
    process = completed_text(
        ("resume", "--json", *journal), cwd=folder, env=environment(), session=True, seconds=DEADLINE
    )
    assert (process.returncode, list(folder.iterdir())) == (3, [])
    run = process.stderr.partition("`toolspeak resume ")[2][:8]
    output = completed_text(("show", run, "--json", *journal), cwd=folder, env=environment(), seconds=DEADLINE)
    records = [loads(line) for line in output.stdout.splitlines()[:-1]]
    assert not [each for each in records if isinstance(each, Record) and isinstance(each.event, ApprovalDecided)]


def test_what_is_to_be_remembered_is_asked_plainly(folder: Path):
    with approval_prompt(folder) as process:
        process.read_until(ASKS)
        process.type("r\n")
        process.read_until("Which one?")
        process.type("9\n")
        assert "a number from 1 to 2" in process.read_until("Which one?")
        process.type("no\n")
        process.read_until(ASKS)
        process.type("n\n")
        code, _ = process.finish()
    assert (code, list(folder.iterdir())) == (0, [])


def test_whoever_resumes_a_run_reads_in_which_folder_it_works(folder: Path):
    """The newest run that waits may be another folder's, and a command does not show where it would run."""
    with approval_prompt(folder) as process:
        process.read_until(ASKS)
        process.type("\x03")
        process.finish()
    (other := folder.parent / "other").mkdir()
    arguments = ("resume", "--journal", str(folder.parent / "j.db"))
    with TerminalProcess(*arguments, cwd=other, env=environment()) as process:
        assert f" in {folder.resolve()}: the task\n" in process.read_until(ASKS)
        process.type("n\n")
        process.finish()


def test_the_run_that_is_resumed_is_not_one_that_is_at_work(folder: Path):
    with approval_prompt(folder) as process:
        process.read_until(ASKS)
        process.type("\x03")
        process.finish()
    with approval_prompt(folder) as newer:
        newer.read_until(ASKS)
        arguments = ("resume", "--approve", "none", "--journal", str(folder.parent / "j.db"))
        process = completed_text(arguments, cwd=folder, env=environment(), session=True, seconds=DEADLINE)
        assert (process.returncode, process.stdout) == (0, "Done.\n")
        process = completed_text(arguments, cwd=folder, env=environment(), session=True, seconds=DEADLINE)
        assert (process.returncode, "of this machine: wait for it" in process.stderr) == (1, True)
        newer.type("n\n")
        assert newer.finish()[0] == 0
