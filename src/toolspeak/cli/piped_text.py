"""The text that a shell pipes into a task: `git diff | toolspeak run "explain this"`."""

from __future__ import annotations

import os
import select
import stat
import sys
from typing import cast

import click

from toolspeak.cli.options.command_options import text_of_input
from toolspeak.errors import ConfigurationError

MOST_BYTES = 256 * 1024
"""How much text a task takes from standard input."""

_PATIENCE = 3.0
"""Seconds without a byte after which the person reads what the command waits for."""


def piped_text() -> str:
    """The text on standard input, if it is a pipe or a file: all of it, to its end. "" for a terminal or another
    device, such as /dev/null, and where it is closed or empty.

    Raises ConfigurationError for what is no text, and for more than `MOST_BYTES`.
    """
    if cast("object", sys.stdin) is None:  # `<&-`
        return ""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    if os.name == "posix" and not select.select([descriptor], [], [], _PATIENCE)[0]:
        click.echo("toolspeak: waiting for the end of standard input (add `< /dev/null` to leave it out)", err=True)
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ConfigurationError(
            f"standard input has more than {MOST_BYTES // 1024} KB: send a part of it (`head`, `tail`, `grep`), or "
            "name a file in the task, which the model can read"
        )
    text = text_of_input(data)
    if "\0" in text:
        raise ConfigurationError(
            f"standard input is not text: it has a NUL byte at offset {data.index(0)}; convert it first, or name a "
            "file in the task"
        )
    return text
