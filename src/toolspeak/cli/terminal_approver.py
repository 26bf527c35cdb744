"""Asking the person at the terminal, even when the standard streams are redirected."""

from __future__ import annotations

import asyncio
import os
import re
import select
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Literal

from rich.console import Console

from toolspeak.cli.argument_editor import edited, editor, read, written
from toolspeak.data.approvals import Rule
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.execute import ApprovalRequest, Approver, Decision, Escalate
from toolspeak.execute.approval.approvers import approve_none
from toolspeak.execute.concurrency.threads import in_thread
from toolspeak.tools.builtin.text_format import visible
from toolspeak.ui import Question, make_console, screen_rows, write

DEVICE = "/dev/tty"
PROMPT = "  Run it? (y)es, (n)o and why, (e)dit, (r)emember a yes, (a)ll from now on, (q)uit the run: "
_HIDDEN_PROMPT = "  {hidden:,} more characters. (s)how them before a yes; or (n)o and why, (e)dit, (q)uit the run: "
_UNCLEAR = "  That is neither a yes nor a no. Type y to run it, or n and your reason."
_ALL = "  Nothing is asked from now on until this command ends, but for calls that had to be mended."
_REMEMBERED = {
    "call": "this very call",
    "commands": "commands that begin with {begins}, whatever follows",
    "tool": "every call of {tool}",
}
_WHICH = "  Which? (nothing: none of these) "
_LINE_PROMPT = "  Other arguments, as JSON on one line (nothing: leave them): "
_LINE = 4096  # the longest line a terminal hands over at once


def has_terminal() -> bool:
    """Whether somebody can be asked."""
    try:
        with _opened() as fd:
            return os.isatty(fd)
    except OSError:
        return False


def terminal_approver(console: Console | None = None, kept_in: str = "", *, waits: bool = False) -> Approver:
    """Asks the person at the terminal; without a terminal, says no to every call with that reason.

    `kept_in` is the path of the file that keeps the rules of "remember"; without one they last as long as the command.
    `waits`: a call whose question lost its terminal waits for somebody to decide; else the answer is no.
    It reads standard input if that is a terminal, else the terminal device. Questions are written to `console`
    (default: standard error) if that is a terminal, else to the device too.
    """
    if not has_terminal():
        return approve_none("it needs a yes, and there is no terminal to ask at")
    return TerminalApprover(console or make_console(sys.stderr), kept_in, waits=waits)


async def confirmed(question: str) -> bool:
    """Whether the person at the terminal says yes: whatever else is typed, or nothing, is a no."""
    with _opened() as fd, _console_at(fd, make_console(sys.stderr)) as console:
        _forget_typed(fd)
        line = await _prompted(f"{question} (y)es, (n)o: ", fd, console)
    return _plain(line) in _YES


class TerminalApprover:
    """Implements `Approver`. Anything but these answers is asked again:

    - `y`, or another word for yes: taken once all of the request was on the screen;
    - `s`: the next screen of a request that one does not hold;
    - `n`, with a reason behind it or not;
    - `e`: other arguments, which are checked, shown and asked about again;
    - `a`: yes to everything from now on, but for repaired calls;
    - `r`: yes, and a rule is kept: for this very call, for commands that begin so, or for this tool, as is asked then;
    - `q`: no, and the run ends.

    An answer is a whole line that is typed behind the question. Nothing is one that was typed before it, or that came
    together with what made it be asked again.
    """

    def __init__(self, console: Console, kept_in: str = "", *, waits: bool = False) -> None:
        self._console = console
        self._kept_in = kept_in
        self._waits = waits
        self._all = False
        self._draft: str | None = None  # what was edited and cannot be used: the next edit begins with it

    async def __call__(self, request: ApprovalRequest, /) -> Decision | Escalate:
        try:
            with _opened() as fd, _console_at(fd, self._console) as console:
                if self._all and request.repaired_from is None:
                    Question(request).show(console)
                    return Decision(True, by="user")
                current, self._draft = request, None
                question, always = _first_screen(current, console), None
                while (answer := await self._answer(question, fd, console)).edit or answer.remember:
                    if answer.remember:
                        always = await self._remembered(current, fd, console)
                        if always is not None:
                            break
                        continue
                    edited_request = await self._edit(current, fd, console)
                    if edited_request is not current:
                        current, question = edited_request, _first_screen(edited_request, console)
                if answer.all:
                    write(console, _ALL, "dim")
        except OSError as error:
            gone = f"nobody could be asked: {error.strerror or error}"
            return Escalate(gone) if self._waits else Decision(False, gone)
        self._all = self._all or answer.all
        decision = Decision(answer.yes, answer.reason, by="user", always=always, ends_run=answer.ends)
        if current is request or not answer.yes:
            return decision
        return replace(decision, arguments=current.call.arguments, digest=current.digest)

    async def _remembered(self, current: ApprovalRequest, fd: int, console: Console) -> Rule | None:
        """The rule that the person chooses; None for none of them."""
        duration = f"in later runs with --rules {self._kept_in} too, until `toolspeak rules` revokes it"
        write(console, f"  Without a question from now on, {duration if self._kept_in else 'until this command ends'}:")
        offered: list[Literal["call", "commands", "tool"]] = ["call", *(["commands"] if current.begins else []), "tool"]
        begins = " or ".join(map(repr, current.begins))
        for number, each in enumerate(offered, 1):
            text = _REMEMBERED[each].format(begins=begins, tool=current.tool.name)
            write(console, f"    {number}  {visible(text)}")
        while line := (await _prompted(_WHICH, fd, console)).strip():
            if line.isdecimal() and 1 <= int(line) <= len(offered):
                return current.always(offered[int(line) - 1])
            if line.lower() in _NO:
                break
            write(console, f"  Type a number from 1 to {len(offered)}, or nothing.", "yellow")
        return None

    async def _edit(self, current: ApprovalRequest, fd: int, console: Console) -> ApprovalRequest:
        """The question about the arguments the person writes; the same one if there is nothing to ask about."""
        try:
            if not current.can_be_revised:
                raise ConfigurationError("this call was started before: it runs again as it was, or not at all")
            text = await self._written(current, fd, console)
            if text is None or written(arguments := read(text)) == written(current.call.arguments):
                write(console, "  Nothing was changed.", "dim")
                return current
            revised = await current.revised(arguments)
        except ConfigurationError as error:
            write(console, f"  {error}", "red")
            return current
        self._draft = None
        return revised

    async def _written(self, current: ApprovalRequest, fd: int, console: Console) -> str | None:
        """What the person writes, kept until it can be used."""
        if command := editor():
            text = await edited(self._draft or written(current.call.arguments, indent=2), command)
        else:
            write(console, f"  {self._draft or written(current.call.arguments)}")
            text = (await _prompted(_LINE_PROMPT, fd, console)).strip() or None
        self._draft = text or self._draft
        return text

    async def _answer(self, question: Question, fd: int, console: Console) -> _Answer:
        while True:
            _forget_typed(fd)
            prompt = _HIDDEN_PROMPT.format(hidden=question.hidden) if question.hidden else PROMPT
            line = await _prompted(prompt, fd, console)
            if not line:
                if not os.isatty(fd):
                    raise OSError("the terminal is gone")
                write(console, "")
                return _Answer(False, "the user closed the question without an answer")
            answer = _understand(line)
            if question.hidden and (line.strip().lower() in ("s", "show") or (answer is not None and answer.yes)):
                question.show(console, screen_rows(console))
            elif answer is not None:
                return answer
            elif line.strip():
                write(console, _UNCLEAR, "yellow")


def _first_screen(request: ApprovalRequest, console: Console) -> Question:
    """The question about a request, whose first screen is written."""
    question = Question(request)
    question.show(console, screen_rows(console))
    return question


@quick()
class _Answer:
    yes: bool
    reason: str = ""
    edit: bool = False
    all: bool = False
    remember: bool = False
    ends: bool = False


_WORDS = re.compile(r"[^\W_]+")
_YES = frozenset({"y", "yes", "yep", "yeah", "ok", "okay", "sure"})
_NO = frozenset({"n", "no", "nope"})


def _plain(line: str) -> str:
    return line.strip().lower().rstrip(".!")


def _understand(line: str) -> _Answer | None:
    """What a typed line means; None for what is neither a yes nor a no, so that nothing is taken for either."""
    text = line.strip()
    first = _WORDS.match(text)
    if first is not None and first[0].lower() in _NO:
        return _Answer(False, text[first.end() :].lstrip(" \t,.:;-–—!"))
    match _plain(text):
        case word if word in _YES:
            return _Answer(True)
        case "e" | "edit":
            return _Answer(False, edit=True)
        case "a" | "all":
            return _Answer(True, all=True)
        case "r" | "remember":
            return _Answer(True, remember=True)
        case "q" | "quit":
            return _Answer(False, "the user ended the run", ends=True)
        case _:
            return None


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
    """A line with its end, "" at the end of input, which may come within a line. Cancelling it leaves nobody behind who
    would take the next line."""
    waker, wake = os.pipe()
    own = os.dup(fd)

    def read() -> bytes:
        try:
            # Not a buffered stream: a thread that waits inside of one makes the interpreter abort at its exit.
            # Only POSIX can wait for a file and something else at once.
            line = b""
            while not line.endswith((b"\n", b"\r")):
                ready = select.select([own, waker], [], [])[0] if os.name == "posix" else [own]
                piece = b"" if waker in ready else os.read(own, _LINE)
                if not piece:
                    return b""
                line += piece
            return line
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
