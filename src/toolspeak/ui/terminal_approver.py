"""Asks the person at the terminal for approval, even if the standard streams are redirected."""

from __future__ import annotations

import asyncio
import os
import re
import select
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from rich.console import Console

from toolspeak.data.approvals import Rule
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.execute import ApprovalRequest, Approver, Decision, Escalate
from toolspeak.execute.approval.approvers import approve_none, question_fact
from toolspeak.execute.approval.offered_rules import rules_offered
from toolspeak.execute.concurrency.limits import in_thread
from toolspeak.ui.argument_editor import (
    HOW_TO_LEAVE,
    argument_changes,
    arguments_from_text,
    arguments_to_json,
    arguments_to_text,
    edit,
    editor,
)
from toolspeak.ui.console import make_console, write
from toolspeak.ui.question import Line, Question, screen_rows

DEVICE = "/dev/tty"
PROMPT = "  Run it? (y)es, (n)o and why, (e)dit, (r)emember this approval, (a)pprove all, (q)uit the run: "
_HIDDEN_PROMPT = "  {count:,} more characters. (s)how them first, (n)o and why, (e)dit, (q)uit the run: "
_MORE = "  {count:,} more characters. Press Enter to see them, or type (n)o: "
_UNCLEAR = "  That is not a clear answer. Type y to run it, or n and your reason."
_ALL = "  Until this program ends, only repaired calls need approval."
_WHICH = "  Which one? (Enter: none) "
_LINE_PROMPT = "  New arguments, as JSON on one line (Enter: keep the old ones): "
_LINE = 4096  # the longest line that a terminal delivers at once


def has_terminal() -> bool:
    """Whether there is a terminal for questions."""
    try:
        with _terminal() as fd:
            return os.isatty(fd)
    except OSError:
        return False


def terminal_approver(console: Console | None = None, rules_path: str = "", *, waits: bool = False) -> Approver:
    """An approver that asks the person at the terminal. Without a terminal it refuses every call, with that reason.

    It reads standard input if that is a terminal, else the terminal device. It writes questions to `console` (default:
    standard error) if that is a terminal, else to the device.

    `rules_path`: the path of the file for the rules of "remember". Without it they last as long as the program.
    `waits`: if the terminal is lost during a question, the call waits for a decision. Otherwise it is refused.
    """
    if not has_terminal():
        return approve_none("it needs approval, and there is no terminal to ask at")
    return TerminalApprover(console, rules_path, waits=waits)


async def confirm(question: str) -> bool:
    """Asks the person at the terminal a yes-or-no question. Any answer other than yes means no."""
    with _terminal() as fd, _console_at(fd, make_console(sys.stderr)) as console:
        _forget_typed(fd)
        line = await _ask_line(f"{question} (y)es, (n)o: ", fd, console)
    return _plain(line) in _YES


async def confirm_text(lines: Iterator[Line], question: str) -> bool:
    """Shows the lines to the person at the terminal, a screen at a time, and asks a yes-or-no question once all of them
    have been on the screen. Any answer other than yes means no."""
    with _terminal() as fd, _console_at(fd, make_console(sys.stderr)) as console:
        text = Question(lines)
        text.show(console, screen_rows(console))
        while text.characters_left:
            _forget_typed(fd)
            answer = await _ask_line(_MORE.format(count=text.characters_left), fd, console)
            if not answer or _plain(answer) in _NO:
                return False
            text.show(console, screen_rows(console))
        _forget_typed(fd)
        return _plain(await _ask_line(f"{question} (y)es, (n)o: ", fd, console)) in _YES


class TerminalApprover:
    """Asks the person at the terminal: `Agent(model, tools, approve=TerminalApprover())`.

    It shows the whole request, and repeats the question until the answer is one of these:

    - `y`, or another word for yes: approve, accepted once the whole request has been on the screen;
    - `s`: show the next screen of a long request;
    - `n`, with or without a reason after it: refuse;
    - `e`: edit the arguments, which are validated and shown with a new question;
    - `a`: approve this call and all later ones, except repaired calls;
    - `r`: approve, and store a rule: for exactly this call, for commands that begin like it, or for the tool;
    - `q`: refuse, and end the run.

    An answer is a whole line that was typed after the question. Lines that were typed before it are dropped, and so
    are lines that arrived together with an invalid answer. The question is read from standard input if that is a
    terminal, else from the terminal device.

    - `console`: where the question appears, if it is on a terminal; standard error without one. Else the question
      appears on the terminal device.
    - `rules_path`: the file that the caller stores rules in, to name it in the question of `r`.
    - `waits`: without a terminal, or if it is lost during the question, the run pauses. If False the call is refused.
    """

    def __init__(self, console: Console | None = None, rules_path: str = "", *, waits: bool = True) -> None:
        self._console = make_console(sys.stderr) if console is None else console
        self._rules_path = rules_path
        self._waits = waits
        self._all = False
        self._draft: str | None = None  # edited arguments that are not valid: the next edit starts with them

    async def __call__(self, request: ApprovalRequest, /) -> Decision | Escalate:
        try:
            with _terminal() as fd, _console_at(fd, self._console) as console:
                if self._all and request.repaired_from is None and not request.needs_person:
                    Question(request).show(console)
                    return Decision(True, by="user")
                current, self._draft = request, None
                question, always = _first_screen(current, console), None
                while (answer := await self._answer(question, fd, console)).edit or answer.remember:
                    if answer.remember:
                        always = await self._ask_rule(current, fd, console)
                        if always is not None:
                            break
                        continue
                    edited_request = await self._edit(current, fd, console)
                    if edited_request is not current:
                        changes = argument_changes(request.call.arguments, edited_request.call.arguments)
                        current, question = edited_request, _first_screen(edited_request, console, changes)
                if answer.all:
                    write(console, _ALL, "dim")
        except OSError as error:
            problem = f"the question could not be asked: {error.strerror or error}"
            return Escalate(problem) if self._waits else Decision(False, problem)
        self._all = self._all or answer.all
        decision = Decision(answer.yes, answer.reason, by="user", always=always, ends_run=answer.ends)
        if current is request or not answer.yes:
            return decision
        return replace(decision, arguments=current.call.arguments, digest=current.digest)

    async def _ask_rule(self, current: ApprovalRequest, fd: int, console: Console) -> Rule | None:
        """The rule that the person chooses; None if the person chooses none."""
        duration = f"also in later runs with --rules {self._rules_path}, until `toolspeak rules` revokes it"
        write(console, f"  Always approve, {duration if self._rules_path else 'until this program ends'}:")
        rule_choices = rules_offered(question_fact(current))
        for number, (_, text) in enumerate(rule_choices, 1):
            write(console, f"    {number}  {text}")
        while line := (await _ask_line(_WHICH, fd, console)).strip():
            if line.isdecimal() and 1 <= int(line) <= len(rule_choices):
                return current.always(rule_choices[int(line) - 1][0])
            if line.lower() in _NO:
                break
            write(console, f"  Type a number from 1 to {len(rule_choices)}, or press Enter.", "yellow")
        return None

    async def _edit(self, current: ApprovalRequest, fd: int, console: Console) -> ApprovalRequest:
        """The request with the arguments that the person writes; the same request if they are unchanged or invalid."""
        try:
            if not current.can_be_revised:
                raise ConfigurationError("this call was started before: it can run again only with its old arguments")
            text, extension = await self._ask_arguments(current, fd, console)
            before = arguments_to_json(current.call.arguments)
            if text is None or arguments_to_json(arguments := arguments_from_text(text, extension)) == before:
                write(console, "  The arguments are unchanged.", "dim")
                return current
            revision = await current.revise(arguments)
        except ConfigurationError as error:
            write(console, f"  {error}", "red")
            return current
        self._draft = None
        return revision

    async def _ask_arguments(self, current: ApprovalRequest, fd: int, console: Console) -> tuple[str | None, str]:
        """The arguments that the person writes, None if nothing was written, and the extension of their notation. The
        draft keeps them until they are valid."""
        extension = ".json"
        if command := editor():
            arguments_text, extension = arguments_to_text(current.call.arguments)
            write(console, f"  {HOW_TO_LEAVE}", "dim")
            text = await edit(self._draft or arguments_text, command, extension)
        else:
            write(console, f"  {self._draft or arguments_to_json(current.call.arguments)}")
            text = (await _ask_line(_LINE_PROMPT, fd, console)).strip() or None
        self._draft = text or self._draft
        return text, extension

    async def _answer(self, question: Question, fd: int, console: Console) -> TypedAnswer:
        while True:
            _forget_typed(fd)
            count = question.characters_left
            prompt = _HIDDEN_PROMPT.format(count=count) if count else PROMPT
            line = await _ask_line(prompt, fd, console)
            if not line:
                if not os.isatty(fd):
                    raise OSError("the terminal is gone")
                write(console, "")
                return TypedAnswer(False, "the user closed the question without an answer")
            answer = understand(line)
            if count and (line.strip().lower() in ("s", "show") or (answer is not None and answer.yes)):
                question.show(console, screen_rows(console))
            elif answer is not None:
                return answer
            elif line.strip():
                write(console, _UNCLEAR, "yellow")


def _first_screen(request: ApprovalRequest, console: Console, notes: Sequence[Line] = ()) -> Question:
    """Writes the first screen of the question about a request."""
    question = Question(request, notes)
    question.show(console, screen_rows(console))
    return question


@quick()
class TypedAnswer:
    """What a person typed to the question about a call."""

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


def understand(line: str) -> TypedAnswer | None:
    """The answer in a line; None if the line is not clearly an answer."""
    text = line.strip()
    first = _WORDS.match(text)
    if first is not None and first[0].lower() in _NO:
        return TypedAnswer(False, text[first.end() :].lstrip(" \t,.:;-–—!"))
    match _plain(text):
        case word if word in _YES:
            return TypedAnswer(True)
        case "e" | "edit":
            return TypedAnswer(False, edit=True)
        case "a" | "all":
            return TypedAnswer(True, all=True)
        case "r" | "remember":
            return TypedAnswer(True, remember=True)
        case "q" | "quit":
            return TypedAnswer(False, "the user ended the run", ends=True)
        case _:
            return None


@contextmanager
def _terminal() -> Generator[int]:
    """The terminal's descriptor. Raises OSError if there is no terminal."""
    # None: a program without a console, or with a closed standard input.
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
    """The console if it is on a terminal, else one on the terminal that answers are read from."""
    if console.file.isatty():
        yield console
        return
    with open(os.ttyname(fd), "w", encoding="utf-8", errors="backslashreplace") as stream:
        yield make_console(stream)


def _forget_typed(fd: int) -> None:
    """Drops the lines typed so far: an answer is typed after its question."""
    if os.name == "posix":
        while select.select([fd], [], [], 0)[0] and os.read(fd, _LINE):
            pass


async def _ask_line(prompt: str, fd: int, console: Console) -> str:
    """The line that is typed after the prompt; "" at the end of input."""
    write(console, prompt, "bold", end="")
    try:
        return await read_line(fd)
    except asyncio.CancelledError:
        write(console, "")
        raise


async def read_line(fd: int) -> str:
    """A line including its end; "" at the end of input, even within a line. After cancellation no thread is left that
    would read the next line."""
    waker, wake = os.pipe()
    own = os.dup(fd)

    def read() -> bytes:
        try:
            # Not a buffered stream: a thread that waits inside of one makes the interpreter abort at its exit.
            # Only POSIX can wait for two files at once.
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
            os.close(wake)  # makes the other end readable
    if outcome.error is not None:
        raise outcome.error
    return outcome.value.decode("utf-8", "replace")
