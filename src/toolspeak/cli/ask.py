"""Asking the person at the terminal, even when the standard streams are redirected."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rich.console import Console

from toolspeak.execute import ApprovalRequest, Approver, Decision
from toolspeak.execute.approval import approve_none
from toolspeak.execute.threads import in_thread
from toolspeak.ui import make_console, show_request
from toolspeak.ui.render import write

DEVICE = "/dev/tty"
PROMPT = "  Run it? (y)es, (n)o, (a)ll from now on, (t)his tool always, (q)uit the run, or say why not: "
_LINE = 4096  # the longest line a terminal hands over at once


def has_terminal() -> bool:
    """Whether somebody can be asked."""
    try:
        with _opened() as fd:
            return os.isatty(fd)
    except OSError:
        return False


def terminal_approver(console: Console | None = None) -> Approver:
    """Asks the person at the terminal; without a terminal, says no to every call with that reason.

    It reads standard input if that is a terminal, else the terminal device. Questions are written to `console`
    (default: standard error) if that is a terminal, else to the device too.
    """
    if not has_terminal():
        return approve_none("it needs a yes, and there is no terminal to ask at")
    return TerminalApprover(console or make_console(sys.stderr))


class TerminalApprover:
    """Implements `Approver`. Answers: `y`, `n`, `a` (yes to everything from now on, but for repaired calls), `t` (a
    rule that says yes to this tool is kept), `q` (no, and the run ends), or the reason for a no."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._all = False

    async def __call__(self, request: ApprovalRequest, /) -> Decision:
        try:
            with _opened() as fd, _console_at(fd, self._console) as console:
                show_request(console, request)
                if self._all and request.repaired_from is None:
                    return Decision(True, by="user")
                answer = await self._answer(fd, console)
        except OSError as error:
            return Decision(False, f"nobody could be asked: {error.strerror or error}", by="user")
        self._all = self._all or answer.all
        always = request.always() if answer.tool else None
        return Decision(answer.yes, answer.reason, by="user", always=always, ends_run=answer.ends)

    async def _answer(self, fd: int, console: Console) -> _Answer:
        _forget_typed(fd)
        while True:
            write(console, PROMPT, "bold", end="")
            try:
                line = await _read_line(fd)
            except asyncio.CancelledError:
                write(console, "")
                raise
            if not line:
                write(console, "")
                return _Answer(False, "the user closed the question without an answer")
            answer = _understand(line)
            if answer is not None:
                return answer


@dataclass(frozen=True, slots=True)
class _Answer:
    yes: bool
    reason: str = ""
    all: bool = False
    tool: bool = False
    ends: bool = False


def _understand(line: str) -> _Answer | None:
    text = line.strip()
    match text.lower():
        case "":
            return None
        case "y" | "yes":
            return _Answer(True)
        case "a" | "all":
            return _Answer(True, all=True)
        case "t" | "tool":
            return _Answer(True, tool=True)
        case "q" | "quit":
            return _Answer(False, "the user ended the run", ends=True)
        case "n" | "no":
            return _Answer(False)
        case _:
            return _Answer(False, text)


@contextmanager
def _opened() -> Generator[int]:
    """The descriptor to read from. Raises OSError when there is no terminal."""
    # None: a program without a console, or with its standard input closed.
    if sys.stdin is not None and sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        yield sys.stdin.fileno()
        return
    fd = os.open(DEVICE, os.O_RDWR)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _console_at(fd: int, console: Console) -> Generator[Console]:
    """The console if a person sees it, else one on the terminal that is read from."""
    if console.file.isatty():
        yield console
        return
    with open(os.ttyname(fd), "w", encoding="utf-8", errors="backslashreplace") as stream:
        yield make_console(stream)


def _forget_typed(fd: int) -> None:
    """Drops the lines typed so far: an answer to a question is typed after it."""
    if os.name == "posix":
        while select.select([fd], [], [], 0)[0] and os.read(fd, _LINE):
            pass


async def _read_line(fd: int) -> str:
    """A line with its end, "" at the end of input. Cancelling it leaves nobody behind who would take the next line."""
    waker, wake = os.pipe()
    own = os.dup(fd)

    def read() -> bytes:
        try:
            # Not a buffered stream: a thread that waits inside of one makes the interpreter abort at its exit.
            # Only POSIX can wait for a file and something else at once.
            ready = select.select([own, waker], [], [])[0] if os.name == "posix" else [own]
            return b"" if waker in ready else os.read(own, _LINE)
        finally:
            os.close(own)
            os.close(waker)

    try:
        outcome = await in_thread(read)
    finally:
        with suppress(OSError):
            os.close(wake)  # its other end becomes readable
    if outcome.error is not None:
        raise outcome.error
    return outcome.value.decode("utf-8", "replace")
