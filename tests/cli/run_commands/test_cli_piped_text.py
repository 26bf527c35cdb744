"""Text that is piped into `toolspeak run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from command import toolspeak
from terminal_harness import TerminalProcess, environment


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "book.json").write_text(json.dumps({"turns": ["Done."], "follow": True}))
    return tmp_path / "work"


def run(folder, *arguments, reply=""):
    """What `run` prints, and the user's message."""
    cassette = folder.parent / "run.jsonl"
    model = f"scripted:{folder.parent / 'book.json'}"
    process = toolspeak(
        "run", *arguments, "--model", model, "--record", str(cassette), reply=reply, cwd=folder, terminal=False
    )
    if process.returncode:
        return process, ""
    lines = map(json.loads, cassette.read_text().splitlines())
    (request,) = (line["asked"] for line in lines if "asked" in line)
    return process, request["messages"][-1]["text"]


def test_what_is_piped_in_is_a_part_of_the_task(folder):
    process, text = run(folder, "explain this", reply="one\ntwo: é\n")
    assert process.stdout == b"Done.\n"
    assert text == "explain this\n\n[Standard input]\none\ntwo: é\n"


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_without_a_task_it_is_the_task(folder, arguments):
    assert run(folder, *arguments, reply="do it\n")[1] == "do it\n"


@pytest.mark.parametrize("reply", ["", " \n"])
def test_an_empty_pipe_adds_nothing(folder, reply):
    assert run(folder, "do it", reply=reply)[1] == "do it"


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (b"\x89PNG\r\n", "standard input is not UTF-8: byte 0x89 at offset 0"),
        (b"text\0more", "has a NUL byte at offset 4"),
        (b"x" * (256 * 1024 + 1), "standard input has more than 256 KB: send a part of it"),
    ],
)
def test_what_cannot_be_added_is_an_error_before_anything_begins(folder, reply, problem):
    process, _ = run(folder, "explain this", reply=reply)
    assert process.returncode == 2
    assert problem in process.stderr.decode()
    assert not (folder.parent / "run.jsonl").exists()


@pytest.mark.over_a_second
def test_a_pipe_that_stays_open_is_waited_for_and_the_person_reads_so(folder):
    command = [sys.executable, "-m", "toolspeak", "run", "look", "--model", f"scripted:{folder.parent / 'book.json'}"]
    ours, theirs = os.pipe()
    with subprocess.Popen(command, cwd=folder, stdin=ours, stdout=-1, stderr=-1, env=environment()) as process:
        os.close(ours)
        assert b"waiting for the end of standard input" in process.stderr.readline()
        os.write(theirs, b"late")
        os.close(theirs)
        assert process.stdout.read() == b"Done.\n"


def test_at_a_terminal_nothing_is_read(folder):
    model = f"scripted:{folder.parent / 'book.json'}"
    with TerminalProcess("run", "look", "--model", model, cwd=folder, env=environment()) as terminal:
        assert terminal.finish()[0] == 0


@pytest.mark.over_a_second
@pytest.mark.parametrize("redirection", ["< /dev/null", "<&-"])
def test_without_an_input_the_task_is_all(folder, redirection):
    line = f'"$@" {redirection}'
    words = [sys.executable, "-m", "toolspeak", "run", "look", "--model", f"scripted:{folder.parent / 'book.json'}"]
    process = subprocess.run(["sh", "-c", line, "sh", *words], cwd=folder, capture_output=True, env=environment())
    assert (process.returncode, process.stdout) == (0, b"Done.\n"), process.stderr


def test_lines_of_a_program_stay_its_own(folder):
    model = f"scripted:{folder.parent / 'book.json'}"
    arguments = ("run", "--json", "--input", "-", "--model", model)
    process = toolspeak(*arguments, reply='{"task": "first"}\n', cwd=folder, terminal=False)
    assert process.returncode == 0, process.stderr
    records = [json.loads(line) for line in process.stdout.splitlines()]
    assert records[-1]["event"]["answer"] == "Done."
