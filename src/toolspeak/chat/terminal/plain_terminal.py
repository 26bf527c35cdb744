"""A terminal on which lines follow each other: nothing that was written is drawn again."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

from toolspeak.chat.display.styled_text import StyledLine, text_of
from toolspeak.chat.terminal.front import ResultT
from toolspeak.ui.terminal_approver import read_line

_TWICE = 2.0
"""Seconds in which a second Ctrl-C leaves."""


class PlainTerminal:
    """Implements `ChatTerminal` with plain lines on standard input and output. `take` gets each line of the person."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self.live: Callable[[int, int], list[StyledLine]] = lambda _columns, _rows: []
        self.status: Callable[[int], StyledLine] = lambda _columns: []
        self.interrupt: Callable[[], bool] = lambda: False
        self.take_back: Callable[[], str] = lambda: ""
        self.show_thoughts: Callable[[], None] = lambda: None
        self.arguments_of: Callable[[str], Iterable[str]] = lambda _name: ()
        self._take = take
        self._is_busy = False
        self._answer: asyncio.Future[str | None] | None = None
        self._end = asyncio.Event()
        self._interrupted_at = -_TWICE

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    @is_busy.setter
    def is_busy(self, value: bool) -> None:
        was_busy, self._is_busy = self._is_busy, value
        if was_busy and not value:
            self._write("> ")

    @property
    def columns(self) -> int:
        return 80

    @property
    def rows(self) -> int:
        return 24

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Reads lines until the person leaves (Ctrl-D, Ctrl-C twice) or the work ends. Leaving cancels the work."""

        async def hold() -> None:
            await work()

        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(signal.SIGINT, self._stop)
        tasks = [loop.create_task(hold()), loop.create_task(self._read()), loop.create_task(self._end.wait())]
        self._write("> ")
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            with suppress(NotImplementedError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
        if not tasks[0].cancelled():
            tasks[0].result()

    async def _read(self) -> None:
        while line := await read_line(sys.stdin.fileno()):
            text = line.rstrip("\r\n")
            if self._answer is not None and not self._answer.done():
                self.reply(text)
            elif text.strip():
                self._take(text)
                if not self.is_busy:
                    self._write("> ")
            else:
                self._write("> ")

    def _stop(self) -> None:
        if time.monotonic() - self._interrupted_at < _TWICE:
            self._end.set()
            return
        self._interrupted_at = time.monotonic()
        self.interrupt()
        self._write("\n(Ctrl-C again leaves)\n> ")

    def leave(self) -> None:
        """Ends `run`."""
        self._end.set()

    def print(self, lines: Iterable[StyledLine]) -> None:
        """Writes the lines without their styles."""
        self._write("".join(f"{text_of(line)}\n" for line in lines))

    def refresh(self) -> None:
        """Nothing is drawn again here."""

    def clear(self) -> None:
        """Nothing can be taken back here."""

    def use_styles(self, styles: Mapping[str, str]) -> None:
        """Nothing has a style here."""

    async def ask(self, prompt: str, text: str = "", *, arrows: bool = False, can_leave: bool = False) -> str | None:
        """Writes the live rows and the prompt, and returns the next line that is typed after them."""
        self.print(self.live(self.columns, self.rows))
        if text:
            self._write(f"{text}\n")
        self._answer = asyncio.get_running_loop().create_future()
        self._write(prompt)
        try:
            return await self._answer
        finally:
            self._answer = None

    def reply(self, text: str) -> None:
        """Answers the question that is open in the person's place."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(text)

    async def lend(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Does the work: the terminal is in no special mode."""
        return await work()

    def write_message(self, text: str) -> None:
        """Writes a message that was not sent, so that the person can send it again."""
        self.print([[("", f"not sent: {text}")]])

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
