"""Writes text to a console without interpreting it."""

from __future__ import annotations

import os
from typing import Any, TextIO

from rich.console import Console

from toolspeak.ui.format import printable


def make_console(stream: TextIO | Any) -> Console:
    """A console that prints text unchanged: no markup, no emoji codes, no highlighting."""
    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)


def write(console: Console, text: str, style: str = "", end: str = "\n") -> None:
    """Writes printable text without wrapping, cutting or interpreting it."""
    console.out(printable(text), style=style or None, end=end, highlight=False)


def screen_size(console: Console) -> tuple[int, int]:
    """The current columns and rows of the terminal; those of COLUMNS and LINES if it does not know them."""
    try:
        columns, rows = os.get_terminal_size(console.file.fileno())
    except (OSError, ValueError):  # not a terminal, or a stream without a file
        columns = rows = 0
    return columns or console.width, rows or console.height
