"""A command started from nothing does what its fork does, as which the other tests of commands run it (forked.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from forked import completed

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
    started = subprocess.run(command, input=stdin, capture_output=True, cwd=tmp_path, timeout=60, check=False)
    forked = completed(arguments, stdin=stdin, cwd=tmp_path)
    assert started.returncode == code
    assert (forked.returncode, forked.stdout, forked.stderr) == (code, started.stdout, started.stderr)
    assert started.stdout or started.stderr
