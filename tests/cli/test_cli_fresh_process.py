"""A command started from nothing does what its fork does, and other tests run its forks (forked_commands.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from terminal_harness import TerminalProcess, environment

from forked_commands import completed_process
from toolspeak.cli.command_table import COMMANDS
from toolspeak.cli.main import cli

CALL = b'<tool_call>\n{"name": "read", "arguments": {"path": "caf\xc3\xa9"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("arguments", "stdin", "code"),
    [
        (("parse", "--dialect", "hermes"), CALL, 0),
        (("exec", "--dialect", "hermes", "--approve", "all"), CALL, 0),
        (("parse", "--dialect", "hermes"), b"\xff", 2),
        (("translate", "--help"), b"", 0),
        (("--version",), b"", 0),
        (("dialects", "--show", "no-such"), b"", 2),
        (("rules", "no-such-file", "--revoke", "x"), b"", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_started_and_forked_a_command_says_the_same(arguments, stdin, code, tmp_path: Path):
    command = [sys.executable, "-m", "toolspeak", *arguments]
    fresh = subprocess.run(command, input=stdin, capture_output=True, cwd=tmp_path, timeout=60, check=False)
    fork_result = completed_process(arguments, stdin=stdin, cwd=tmp_path)
    assert fresh.returncode == code
    assert (fork_result.returncode, fork_result.stdout, fork_result.stderr) == (code, fresh.stdout, fresh.stderr)
    assert fresh.stdout or fresh.stderr


def test_every_command_is_listed_in_a_line_and_is_there():
    help_text = CliRunner().invoke(cli, ["--help"], terminal_width=80).stdout
    for name, line in COMMANDS.items():
        assert f"  {name:<9}  {line}\n" in help_text
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.name == name
        assert command.help
    assert cli.get_command(click.Context(cli), "no-such") is None


HEAVY = {"asyncio", "httpx2", "pydantic", "sqlite3", "toolspeak.agent", "toolspeak.gateway"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["parse", "--help"], ["no-such"]])
def test_what_a_command_does_not_use_is_not_imported(arguments):
    code = f"""
import atexit, sys
from toolspeak.cli.main import main
atexit.register(lambda: print({HEAVY!r} & sys.modules.keys()))
sys.argv[1:] = {arguments!r}
main()
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert process.stdout.splitlines()[-1] == "set()", process.stderr


@pytest.mark.parametrize(("redirection", "has_output"), [(">&-", False), ("2>&-", True), (">&- 2>&-", False)])
@pytest.mark.parametrize("arguments", ["parse --dialect hermes", "dialects --show hermes", "tools"])
def test_a_closed_output_is_one_that_nobody_reads(arguments, redirection, has_output, tmp_path: Path):
    command = ["sh", "-c", f'"$0" -m toolspeak {arguments} {redirection}', sys.executable]
    process = subprocess.run(command, input=CALL, capture_output=True, cwd=tmp_path, timeout=60, check=False)
    assert (process.returncode, process.stderr) == (0, b"")
    assert bool(process.stdout) is has_output


def test_a_task_in_place_of_a_command_is_told_how_to_run(tmp_path):
    process = completed_process(["fix Ann's tests"], stdin=b"", cwd=tmp_path)
    assert process.returncode == 2
    assert """to do a task: toolspeak run 'fix Ann'"'"'s tests'""" in process.stderr.decode()
    assert b"No such command" in completed_process(["runn"], stdin=b"", cwd=tmp_path).stderr


def test_an_option_in_place_of_a_command_is_one_of_the_conversation(tmp_path):
    (tmp_path / "book.json").write_text('{"turns": ["Done."]}')
    with TerminalProcess("--model", "scripted:book.json", cwd=tmp_path, env=environment(), size=(24, 80)) as terminal:
        terminal.read_until("scripted")
        terminal.type("\x04")
        assert terminal.finish()[0] == 0
    with TerminalProcess("--modell", "x", cwd=tmp_path, env=environment()) as terminal:
        assert "--model" in terminal.read_until("?")
        assert terminal.finish()[0] == 2
    assert b"Commands" in completed_process(["--help"], stdin=b"", cwd=tmp_path).stdout
