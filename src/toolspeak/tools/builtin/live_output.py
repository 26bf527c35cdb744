"""Reports the last lines of a command's output while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolspeak.tools.builtin.capture import printed_text

MOST_LINES = 4
"""How many lines one report has: of a fast output the others are left out. The result has them."""

FIRST_PAUSE = 0.5
"""Seconds before the first report: of a short command the result says all."""

PAUSE = 0.2
"""Seconds between two reports."""

_LONGEST_LINE = 500  # bytes, then characters: of a longer line the end is reported


class LiveOutput:
    """Gets the bytes of an output, and reports its lines, each in a call of `report`."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._rest = b""  # the last line, whose end has not come
        self._lines: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._pause = FIRST_PAUSE

    def add(self, data: bytes) -> None:
        """Takes the next bytes. Call it in the thread of the event loop."""
        room = MOST_LINES * _LONGEST_LINE
        *lines, self._rest = (self._rest + data[-room:]).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE:]
        self._lines = [*self._lines, *lines][-MOST_LINES:]
        if self._timer is None and self._lines:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._tell)

    def close(self) -> None:
        """Ends the reports."""
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        lines, self._lines = self._lines, []
        self._timer, self._pause = None, PAUSE
        for line in lines:
            text = printed_text(line.decode(errors="replace")).strip("\r")[-_LONGEST_LINE:]
            if text.strip():
                self._report(text)
