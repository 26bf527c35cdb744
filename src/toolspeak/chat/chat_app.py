"""Opens the conversation: the terminal first, and then what needs time to load."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from prompt_toolkit.data_structures import Size

from toolspeak.chat.terminal.front import ChatTerminal
from toolspeak.chat.terminal.message_input import history_of
from toolspeak.chat.terminal.screen import Screen
from toolspeak.chat.terminal.steady_output import SteadyOutput
from toolspeak.project.user_files.user_folders import data_folder

_LOG = logging.getLogger("toolspeak.chat")

Hold = Callable[[ChatTerminal, "asyncio.Queue[str]"], Awaitable[None]]
"""Holds the conversation at a front, with the lines that the person sends, until it is cancelled."""

_PLAIN_TERMINALS = ("", "dumb", "unknown")


def has_two_way_terminal() -> bool:
    """Whether a person reads and writes here."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()  # pyright: ignore[reportUnnecessaryComparison] - `<&-`


async def open_chat(hold: Hold, folder: Path) -> None:
    """Shows the prompt, then loads and holds the conversation until the person leaves. `folder`: what paths are
    relative to. On a terminal that cannot move its cursor (TERM=dumb) lines follow each other."""
    asyncio.get_running_loop().set_exception_handler(_log_error)
    lines: asyncio.Queue[str] = asyncio.Queue()
    if os.environ.get("TERM", "") in _PLAIN_TERMINALS:
        room = importlib.import_module("toolspeak.chat.terminal.plain_terminal")  # not at the top: it imports the agent
        plain = room.PlainTerminal(lines.put_nowait)
        await plain.run(lambda: hold(plain, lines))
        return
    history, problem = history_of(data_folder() / "chat-history")
    # No cursor position requests: over a slow connection the answers would be read as keys.
    output = SteadyOutput(sys.stdout, _size, term=os.environ["TERM"], enable_cpr=False)
    screen = Screen(lines.put_nowait, folder, history=history, output=output)
    if problem:
        screen.print([[("class:note", problem)]])
    await screen.run(lambda: hold(screen, lines))


def _size() -> Size:
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns, rows = 0, 0
    return Size(rows=rows or 24, columns=columns or 80)


def _log_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs what no task has handled. On the terminal it would stand between the lines."""
    _LOG.error("%s", context.get("message"), exc_info=context.get("exception"))
