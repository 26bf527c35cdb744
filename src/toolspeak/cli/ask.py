"""Asking the person at the terminal, even when the standard streams are redirected."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace

from rich.console import Console

from toolspeak.cli.edit import edited, editor, read, written
from toolspeak.data.values import quick
from toolspeak.errors import UsageError
from toolspeak.execute import ApprovalRequest, Approver, Decision
from toolspeak.execute.approval import approve_none
from toolspeak.execute.threads import in_thread
from toolspeak.ui import make_console, show_request
from toolspeak.ui.render import write

DEVICE = "/dev/tty"
PROMPT = "  Run it? (y)es, (n)o, (e)dit, (a)ll from now on, (t)his tool always, (q)uit the run, or say why not: "
_LINE_PROMPT = "  Other arguments, as JSON on one line (nothing: leave them): "
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
    """Implements `Approver`. Answers: `y`, `n`, `e` (other arguments: they are checked, shown and asked about again),
    `a` (yes to everything from now on, but for repaired calls), `t` (a rule that says yes to this tool is kept), `q`
    (no, and the run ends), or the reason for a no."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._all = False
        self._draft: str | None = None  # what was edited and cannot be used: the next edit begins with it

    async def __call__(self, request: ApprovalRequest, /) -> Decision:
        try:
            with _opened() as fd, _console_at(fd, self._console) as console:
                show_request(console, request)
                if self._all and request.repaired_from is None:
                    return Decision(True, by="user")
                asked, self._draft = request, None
                while (answer := await self._answer(fd, console)).edit:
                    asked = await self._edit(asked, fd, console)
        except OSError as error:
            return Decision(False, f"nobody could be asked: {error.strerror or error}", by="user")
        self._all = self._all or answer.all
        always = request.always() if answer.tool else None
        decision = Decision(answer.yes, answer.reason, by="user", always=always, ends_run=answer.ends)
        if asked is request or not answer.yes:
            return decision
        return replace(decision, arguments=asked.call.arguments, digest=asked.digest)

    async def _edit(self, asked: ApprovalRequest, fd: int, console: Console) -> ApprovalRequest:
        """The question about the arguments the person writes; the same one if there is nothing to ask about."""
        try:
            if not asked.can_be_revised:
                raise UsageError("this call was started before: it runs again as it was, or not at all")
            text = await self._written(asked, fd, console)
            if text is None or written(arguments := read(text)) == written(asked.call.arguments):
                write(console, "  Nothing was changed.", "dim")
                return asked
            revised = await asked.revised(arguments)
        except UsageError as error:
            write(console, f"  {error}", "red")
            return asked
        self._draft = None
        show_request(console, revised)
        return revised

    async def _written(self, asked: ApprovalRequest, fd: int, console: Console) -> str | None:
        """What the person writes, kept until it can be used."""
        if command := editor():
            text = await edited(self._draft or written(asked.call.arguments, indent=2), command)
        else:
            write(console, f"  {self._draft or written(asked.call.arguments)}")
            text = (await _prompted(_LINE_PROMPT, fd, console)).strip() or None
        self._draft = text or self._draft
        return text

    async def _answer(self, fd: int, console: Console) -> _Answer:
        _forget_typed(fd)
        while True:
            line = await _prompted(PROMPT, fd, console)
            if not line:
                write(console, "")
                return _Answer(False, "the user closed the question without an answer")
            answer = _understand(line)
            if answer is not None:
                return answer


@quick()
class _Answer:
    yes: bool
    reason: str = ""
    edit: bool = False
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
        case "e" | "edit":
            return _Answer(False, edit=True)
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


async def _prompted(prompt: str, fd: int, console: Console) -> str:
    """The line that is typed behind the prompt, "" at the end of input."""
    write(console, prompt, "bold", end="")
    try:
        return await _read_line(fd)
    except asyncio.CancelledError:
        write(console, "")
        raise


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
