"""Asks the person about the calls of a batch: one list, and each call in full before it can be approved."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.chat.display.call_lanes import call_line
from toolspeak.chat.display.code_colours import colour_line, lexer_of_file
from toolspeak.chat.display.styled_text import StyledLine, cells, pieces_of, rows_of, truncate, wrap
from toolspeak.chat.display.theme import theme_class
from toolspeak.chat.terminal.front import AGAIN, NEXT, PREVIOUS, ChatTerminal
from toolspeak.data.approvals import Decision, Rule
from toolspeak.data.events import ApprovalRequested, Record
from toolspeak.errors import ConfigurationError
from toolspeak.execute import ApprovalRequest, Escalate, StandingRules
from toolspeak.execute.approval.approvers import question_fact
from toolspeak.execute.approval.evaluator import unapproved_repair
from toolspeak.execute.approval.offered_rules import rules_offered
from toolspeak.ui.argument_editor import (
    HOW_TO_LEAVE,
    argument_changes,
    arguments_from_text,
    arguments_to_json,
    arguments_to_text,
    edit,
    editor_command,
)
from toolspeak.ui.format import argument_lines, is_diff, one_line, printable, shorten
from toolspeak.ui.question import REASON_STYLE, Line, Question
from toolspeak.ui.terminal_approver import understand

_KEYS = "(y)es · (n)o and why · (e)dit · (r)emember this approval · (a)pprove all · (q)uit the turn"
_HIDDEN_KEYS = (
    "{count:,} more characters: (s)how the next, or the (w)hole, first · (n)o and why · (e)dit · (q)uit the turn"
)
_APPROVES_ALL = "Until this program ends, only repaired calls need your approval. /approve ask ends that."
_PROMPT = "Run it? › "
_LINE_KEYS = "Enter takes your version, Esc leaves the call as it is. With $EDITOR set, the call opens in your editor."
_PANEL_ROWS = 10
"""The screen rows for the list, the keys, the input and the status line."""

_CONTINUATION_INDENT: StyledLine = [("class:note", "    ↳ ")]
"""In front of the second and later rows of a long line: where a diff has its sign, a file's text has none."""

_FILE = re.compile(r"^\+\+\+ (?:b/)?(.+?)(?:\t.*)?$", re.MULTILINE)


class _CallQuestion:
    """The question about one call of the batch, until it is answered."""

    def __init__(self, request: ApprovalRequest) -> None:
        self.request = request
        """The question as it is now: the person may have edited the arguments."""
        self.original = request
        self.question = Question(request)
        self.has_begun = False
        self.draft = ""
        """Edited arguments that are not valid: the next edit starts with them."""
        self.decision: Decision | None = None

    def revise(self, request: ApprovalRequest) -> None:
        changes: list[Line] = []
        if request is not self.original:
            changes = argument_changes(self.original.call.arguments, request.call.arguments)
        self.request, self.question, self.has_begun, self.draft = request, Question(request, changes), False, ""

    @property
    def state(self) -> str:
        if self.decision is not None:
            return "approved, runs when all are answered" if self.decision.approved else "refused"
        if not self.has_begun:
            return "not shown yet"
        count = self.question.characters_left
        return f"{count:,} characters not shown yet" if count else "shown"


class CallApprover:
    """Implements `BatchApprover`: asks the person at the front.

    The question of a call is written above the list, a screen at a time. Yes counts once all of it was written.

    - `rules_path`: the file in which the agent stores rules; "" if it has none. Rules for this conversation alone stay
      here, and end with the program.
    - `before_end`: is called before an answer ends the run.
    - `on_standing_approval`: gets the id of each call that an earlier answer approves. The person does not see
      its question.
    """

    def __init__(
        self,
        front: ChatTerminal,
        rules_path: str = "",
        on_standing_approval: Callable[[str], None] = lambda _: None,
        before_end: Callable[[], object] = lambda: None,
    ) -> None:
        self.rules_path = rules_path
        self.approves_all = False
        """Whether every call runs without a question, except repaired ones."""
        self._front = front
        self._on_standing_approval, self._before_end = on_standing_approval, before_end
        self._rules = StandingRules()
        self._on_screen: _CallQuestion | None = None  # the question that was written last
        self._lock = asyncio.Lock()  # the calls of a sub-run may ask while another question is open
        self._announcements: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._open: list[_CallQuestion] = []
        self._at = 0
        self._asks_more = False  # a question about the answer is open, such as which rule

    @property
    def is_open(self) -> bool:
        """Whether the person is asked."""
        return bool(self._open)

    def saw(self, item: StreamItem) -> None:
        """Takes what the person has seen of the run: a question follows the text that led to it."""
        if isinstance(item, Record) and isinstance(item.event, ApprovalRequested):
            self._announcements[item.event.call_id].set()

    def approve_all(self) -> None:
        """Approves every call from now on, except repaired ones, also those that are asked about now."""
        self.approves_all = True
        self._note(_APPROVES_ALL)
        if self._open and not self._asks_more:
            self._front.reply(AGAIN)

    def ask_again(self) -> None:
        """Forgets the answers that counted for later calls of this conversation: each call needs one of its own."""
        self.approves_all = False
        self._rules = StandingRules()

    async def together(self, requests: Sequence[ApprovalRequest], /) -> Sequence[Decision | Escalate]:
        """Asks about all calls of a batch, and returns the answers in their order."""
        async with self._lock:
            for request in requests:
                await self._announcements[request.call.id].wait()
                del self._announcements[request.call.id]
            self._open, self._at = [_CallQuestion(request) for request in requests], 0
            try:
                await self._ask()
                return [each.decision or Escalate() for each in self._open]
            finally:
                self._open = []
                self._front.refresh()

    async def at_any_time(self, request: ApprovalRequest, /) -> Decision | Escalate:
        """Asks what no record announces: an MCP server's question during a call."""
        self._announcements[request.call.id].set()
        (answer,) = await self.together([request])
        return answer

    async def _ask(self) -> None:
        while (current := self._next()) is not None:
            standing = self._standing(current)
            if standing is not None:
                self._on_standing_approval(current.request.call.id)
                current.decision = standing
                continue
            if current is not self._on_screen:
                current.revise(current.request)  # written again from its beginning: another question stands below it
            if not current.has_begun:
                self._show(current)
            line = await self._front.ask(_PROMPT, arrows=len(self._open) > 1)
            if line is None:
                self._refuse_rest("the user closed the question without an answer", ends_run=False)
            elif line == AGAIN:
                continue
            elif line in (PREVIOUS, NEXT):
                self._move(-1 if line == PREVIOUS else 1)
            elif line.strip().lower() in ("s", "show"):
                self._show(current)
            elif line.strip().lower() in ("w", "whole"):
                self._show(current, whole=True)
            else:
                await self._answer(current, line)

    async def _answer(self, current: _CallQuestion, line: str) -> None:
        answer = understand(line)
        if answer is None:
            if line.strip():
                self._note("That is not a clear answer. Type y to run it, or n and your reason.", "warning")
        elif answer.edit:
            await self._edit(current)
        elif answer.ends:
            self._before_end()
            self._refuse_rest(answer.reason, ends_run=True)
        elif not answer.yes:
            self._decide(current, Decision(False, answer.reason, by="user"))
        elif current.question.characters_left:
            self._show(current)  # as for s: it is approved once all of it was shown
        elif answer.remember:
            await self._remember(current)
        else:
            if answer.all:
                self.approves_all = True
                self._note(_APPROVES_ALL)
            self._decide(current, Decision(True, by="user"))

    def _decide(self, current: _CallQuestion, decision: Decision) -> None:
        if decision.approved and current.request is not current.original:
            request = current.request
            decision = replace(decision, arguments=request.call.arguments, digest=request.digest)
        current.decision = decision
        if len(self._open) > 1:  # the results come after the last answer: until then this says what was decided
            sign, style, word = ("✓", "done", "approved") if decision.approved else ("✗", "error", "refused")
            which = shorten(one_line(", ".join(argument_lines(current.request.call.arguments))), 60)
            self._note(f"{sign} {one_line(current.request.tool.name)} {which} {word}", style)

    def _refuse_rest(self, reason: str, *, ends_run: bool) -> None:
        for each in self._open:
            if each.decision is None:
                each.decision = Decision(False, reason, by="user", ends_run=ends_run)

    def _standing(self, current: _CallQuestion) -> Decision | None:
        """The answer that the person gave for later calls; None if this one needs one of its own."""
        request = current.request
        if request.needs_person or unapproved_repair(request) or request is not current.original:
            return None
        answer = self._rules.decide(request)
        if isinstance(answer, Decision):
            return replace(answer, by=f"{answer.by} of this conversation")
        return Decision(True, by="user") if self.approves_all else None

    def _next(self) -> _CallQuestion | None:
        """The call that the person is at; the first one without an answer if that has one."""
        if self._open[self._at].decision is not None:
            self._at = next((i for i, each in enumerate(self._open) if each.decision is None), -1)
        return None if self._at < 0 else self._open[self._at]

    def _move(self, step: int) -> None:
        waiting = [i for i, each in enumerate(self._open) if each.decision is None]
        self._at = waiting[(waiting.index(self._at) + step) % len(waiting)]

    # --- what the person sees ------------------------------------------------------------------------------------

    def _show(self, current: _CallQuestion, *, whole: bool = False) -> None:
        """Writes the next screen of a question, or the `whole` rest of it."""
        rows = None if whole else max(5, self._front.rows - _PANEL_ROWS - current.has_begun)
        columns, indentation = max(20, self._front.columns), cells(_CONTINUATION_INDENT)
        file = _FILE.search(current.request.preview) if is_diff(current.request.preview) else None
        if not current.has_begun:
            self._front.print([[]])
        else:  # something else may stand above it by now
            head = call_line("…", "question", f"the rest of {current.request.tool.name}", current.request.call)
            self._front.print([truncate(head, columns)])
        current.has_begun, self._on_screen = True, current
        for line in current.question.next_lines(columns, rows, lambda text, width: pieces_of(text, width, indentation)):
            painted_line = _paint(line, file[1] if file else "")
            # Every space of what would run counts.
            is_reason = line[1] == REASON_STYLE
            self._front.print(
                wrap(painted_line, columns) if is_reason else rows_of(painted_line, columns, _CONTINUATION_INDENT)
            )

    def rows(self, columns: int) -> list[StyledLine]:
        """The list of the batch's calls, each with its state, and what can be answered."""
        if not self._open or self._at < 0:
            return []
        rows: list[StyledLine] = []
        if len(self._open) > 1:
            waiting = sum(each.decision is None for each in self._open)
            title = f"{waiting} of {len(self._open)} calls wait for your answer (↑ ↓ another one)"
            rows.append(truncate([("class:question", title)], columns))
            first = max(0, min(self._at - 2, len(self._open) - 5))
            for i, each in enumerate(self._open[first : first + 5], first):
                state = f"  {each.state}"
                sign = "›" if i == self._at else " "
                line = call_line(
                    sign, "question" if i == self._at else "call", each.request.tool.name, each.request.call
                )
                rows.append([*truncate(line, max(10, columns - len(state))), ("class:note", state)])
        current = self._open[self._at]
        count = current.question.characters_left
        if self._asks_more:
            return rows
        keys = _HIDDEN_KEYS.format(count=count) if count else _KEYS
        return [*rows, *wrap([("class:note", keys)], columns)]

    def _note(self, text: str, style: str = "note") -> None:
        self._front.print(wrap([("", "  "), (f"class:{style}", text)], self._front.columns))

    # --- other answers -------------------------------------------------------------------------------------------

    async def _remember(self, current: _CallQuestion) -> None:
        """Approves the call, and those that the person chooses besides."""
        rule_choices = rules_offered(question_fact(current.request))
        places = ["in this conversation", *([f"also later, kept in {self.rules_path}"] if self.rules_path else [])]
        choices = [(place, *each) for place in places for each in rule_choices]
        self._note("Always approve:")
        for number, (place, _, text) in enumerate(choices, 1):
            self._note(f"  {number}  {text}, {printable(place)}")
        if not self.rules_path:
            self._note("With --rules FILE an approval can be kept for later conversations.")
        while line := (await self._ask_more("Which one? (Enter: none) › ") or "").strip():
            if line.isdecimal() and 1 <= int(line) <= len(choices):
                break
            self._note(f"There is no {printable(line)} in the list: 1 to {len(choices)}, or Enter.", "warning")
        else:
            self._note("Nothing is remembered, and the call is not decided yet.")
            return
        place, what, _ = choices[int(line) - 1]
        rule: Rule = current.request.always(what)
        if place != places[0]:
            self._decide(current, Decision(True, by="user", always=rule))
            return
        self._rules.add(rule, "user")
        self._decide(current, Decision(True, by="user"))

    async def _ask_more(self, prompt: str, text: str = "") -> str | None:
        self._asks_more = True
        try:
            return await self._front.ask(prompt, text, can_leave=True)
        finally:
            self._asks_more = False

    async def _edit(self, current: _CallQuestion) -> None:
        try:
            if not current.request.can_be_revised:
                raise ConfigurationError("this call was started before: it can run again only with its old arguments")
            arguments, extension = current.request.call.arguments, ".json"
            if command := editor_command():
                arguments_text, extension = arguments_to_text(arguments)
                draft = current.draft or arguments_text
                self._note(f"{printable(command)} opens the call. {HOW_TO_LEAVE}")
                text = await self._front.lend(lambda: edit(draft, command, extension))
            else:
                self._note(_LINE_KEYS)
                text = await self._ask_more("Arguments: ", current.draft or arguments_to_json(arguments))
            current.draft = text or current.draft
            if not text or (
                arguments_to_json(new_arguments := arguments_from_text(text, extension)) == arguments_to_json(arguments)
            ):
                self._note("The arguments are unchanged.")
                return
            current.revise(await current.request.revise(new_arguments))
        except ConfigurationError as error:
            self._note(printable(str(error)), "error")


def _paint(line: Line, file: str) -> StyledLine:
    """A line of a question with its colours: those of a diff, and in it those of the file's code."""
    text, style = line
    text = printable(text)
    content = text.removeprefix("    ")
    lexer = lexer_of_file(file) if file and text != content else None
    if lexer is None or style not in ("green", "") or content[:1] not in ("+", " "):
        return [(theme_class(style), text)]
    code = colour_line(content[1:], [], lexer)
    sign = ("class:diff.added", f"    {content[:1]}")
    if style == "green":
        code = [("class:diff.added" if each == "class:code" else each, part) for each, part in code]
    return [sign, *code]
