"""Writing to a console as it is."""

from __future__ import annotations

from typing import Any, TextIO

from rich.console import Console

from toolspeak.ui.format import printable


def make_console(stream: TextIO | Any) -> Console:
    """A console that takes text as it is: no markup, no emoji codes, no highlighting."""
    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)


def write(console: Console, text: str, style: str = "", end: str = "\n") -> None:
    """Writes printable text through: nothing is wrapped, cut or interpreted."""
    console.out(printable(text), style=style or None, end=end, highlight=False)
