"""Writes text to a console without interpreting it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TextIO

from rich.console import Console
from rich.errors import StyleSyntaxError
from rich.style import Style
from rich.theme import Theme

from toolspeak.errors import ConfigurationError
from toolspeak.ui.format import printable


def make_console(stream: TextIO | Any, theme: Mapping[str, str] = MappingProxyType({})) -> Console:
    """A console that prints text unchanged: no markup, no emoji codes, no highlighting.

    `theme`: other looks of styles, by name, such as `{"green": "bright_blue"}`. Raises ConfigurationError for a look
    that rich cannot read.
    """
    looks = Theme({name: style_of(name, look) for name, look in theme.items()}) if theme else None
    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True, theme=looks)


def style_of(name: str, look: str) -> Style:
    """The look of a style of a theme. Raises ConfigurationError if rich cannot read it."""
    try:
        return Style.parse(look)
    except StyleSyntaxError as error:
        raise ConfigurationError(f"theme.{name}: {printable(str(error))}") from None


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
