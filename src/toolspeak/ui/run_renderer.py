"""The live view: writes every delta and record to a console as it arrives."""

from __future__ import annotations

from typing import Literal

from rich.console import Console

from toolspeak.agent.program_runs import RUN_CODE
from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.data.deltas import (
    DIALECT_NOTE,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    ForgedResults,
    ReasoningDelta,
    TextAside,
    TextDelta,
    TextWasReasoning,
    ToolProgress,
    TurnRestarted,
    other_dialects,
)
from toolspeak.data.events import (
    AnswerRejected,
    ApprovalDecided,
    ApprovalRequested,
    HistoryCompacted,
    InterceptorFailed,
    LimitReached,
    ModelAnswered,
    ModelAsked,
    Record,
    RetryScheduled,
    RunFinished,
    RunPaused,
    StopRequested,
    ToolFinished,
)
from toolspeak.data.messages import NORMAL_END, MalformedCall, ToolCall, ToolResult
from toolspeak.tools.builtin.todo import TODO
from toolspeak.tools.files.diff import shorten_diff
from toolspeak.ui.changed_file import changed_file, is_counted
from toolspeak.ui.console import write
from toolspeak.ui.format import (
    argument_lines,
    command_failure,
    compaction_text,
    diff_style,
    fit,
    fold_result,
    is_diff,
    one_line,
    program_lines,
    shorten,
    value_text,
)
from toolspeak.ui.question import fold_blanks, preview_lines
from toolspeak.ui.todo_list import todo_lines

_WIDTH = 200  # the width of folded lines without a terminal
_INDENT = "    "

_WAITING_LINES = 200
"""How many lines of a preview are shown if no terminal is there for the question."""


class Renderer:
    """Shows a run's deltas and records on a console, in order.

    The cost of a delta depends only on its own length. The approver shows `ApprovalRequested`; the renderer shows the
    waiting calls if the run pauses. It does not show `ModelFailed`, which the run raises as `ProviderError`.

    `thoughts`: show the model's reasoning. Otherwise a terminal shows only that the model thinks.
    """

    def __init__(self, console: Console, *, thoughts: bool = True) -> None:
        self._console = console
        self._thoughts = thoughts
        self._at_start = True  # the cursor is at the start of a line
        self._streaming: Literal["", "text", "aside", "reasoning", "call"] = ""  # what the next delta may continue
        self._foreign: set[str] = set()  # dialects other than the model's own that have been shown
        self._names: dict[int, str] = {}  # names of the turn's calls, by index
        self._calls: dict[str, ToolCall | MalformedCall] = {}  # the batch's calls, by id
        self._requests: dict[str, ApprovalRequested] = {}

    def show(self, item: StreamItem) -> None:
        """Writes the visible part of one item."""
        match item:
            case TextDelta(text):
                self._stream("text", text, "")
            case TextAside(text):
                self._stream("aside", text, "dim")
            case ReasoningDelta(text):
                self._think(text)
            case TurnRestarted():
                self._line("· the turn is requested again: the text above does not count", "dim")
            case TextWasReasoning():
                self._line("· the text above was reasoning", "dim")
            case CallStarted() | CallCompleted() | CallMalformed() | CallIgnored():
                self._show_call(item)
            case BatchEnded(_, _, notes):
                self._show_notes(notes)
            case ForgedResults(raw):
                self._line("! ignored: results that the model wrote itself: ", "yellow", value_text(raw, 80))
            case ToolProgress(call_id, message):
                self._line(f"  … {one_line(self._name(call_id))}: ", "dim", one_line(shorten(message, 200)))
            case Record():
                self._show_record(item)
            case _:
                pass

    def _think(self, text: str) -> None:
        if self._thoughts:
            self._stream("reasoning", text, "dim italic")
        elif self._streaming != "reasoning" and not text.isspace():
            if self._console.is_terminal:
                self._line("· thinking …", "dim")
            self._streaming = "reasoning"

    def end_line(self) -> None:
        """Starts a new line, unless the cursor is at the start of one."""
        if not self._at_start:
            write(self._console, "")
        self._at_start, self._streaming = True, ""

    def _stream(self, kind: Literal["text", "aside", "reasoning"], text: str, style: str) -> None:
        if self._streaming != kind:
            self.end_line()
            text = text.lstrip("\n")
        if text:
            write(self._console, text, style, end="")
            self._at_start, self._streaming = text.endswith("\n"), kind

    def _line(self, text: str, style: str = "", rest: str = "") -> None:
        self.end_line()
        write(self._console, text, style, end="")
        write(self._console, rest)

    # --- calls as the model writes them --------------------------------------------------------------------------

    def _show_call(self, delta: CallStarted | CallCompleted | CallMalformed | CallIgnored) -> None:
        match delta:
            case CallStarted(index, name):
                self._start_call(index, name)
            case CallCompleted(index, name, arguments, _, notes):
                if self._streaming != "call" or self._names.get(index) != name:
                    self._start_call(index, name)
                lines = [""] if name == TODO else argument_lines(arguments)  # the result shows them
                if name == RUN_CODE:
                    lines = program_lines(arguments)
                write(self._console, f" {lines[0]}" if len(lines) == 1 and lines[0] else "")
                self._at_start, self._streaming = True, ""
                for line in lines if len(lines) > 1 else ():
                    write(self._console, _INDENT + line)
                self._show_notes(notes)
            case CallMalformed():
                tool_phrase = f" of {one_line(delta.name)}" if delta.name else ""
                self._line(f"✗ malformed call{tool_phrase} ({delta.code}): ", "red", one_line(delta.reason))
                write(self._console, f"{_INDENT}{value_text(delta.raw, 120)}", "dim")
            case CallIgnored(index, reason):
                name = one_line(self._names.get(index, f"number {index + 1}"))
                self._line(f"! call {name} is ignored: ", "yellow", one_line(reason))

    def _start_call(self, index: int, name: str) -> None:
        self.end_line()
        self._names[index] = name
        write(self._console, f"▸ {one_line(name)}", "bold cyan", end="")
        self._at_start, self._streaming = False, "call"

    def _show_notes(self, notes: tuple[str, ...]) -> None:
        others = [name for name in other_dialects(notes) if name not in self._foreign]
        if others:
            self._foreign.update(others)
            self._line("! not in the model's own dialect, but in ", "yellow", one_line(" and ".join(others)))
        lenient = [note for note in notes if not note.startswith(DIALECT_NOTE)]
        if lenient:
            self._line(f"{_INDENT}accepted leniently: {one_line(', '.join(lenient))}", "dim")

    # --- what happened -------------------------------------------------------------------------------------------

    def _show_record(self, record: Record) -> None:
        match record.event:
            case ModelAsked():
                self.end_line()
                self._names.clear()
            case ModelAnswered(message, finish):
                self.end_line()
                self._calls = {call.id: call for call in message.calls}
                self._requests.clear()
                if finish not in NORMAL_END and finish != "closed_by_us":
                    self._line(f"! the model's turn ended early: {finish}", "yellow")
            case ApprovalRequested() as request:
                self.end_line()
                self._requests[request.call_id] = request
            case ApprovalDecided(call_id, is_approved, reason, by) if by != "user":
                suffix = f": {one_line(reason)}" if reason else ""
                is_clear = call_id in self._requests or len(self._calls) <= 1  # its question stands above
                which = "" if is_clear else f"{one_line(self._name(call_id))} "
                sign, word = ("✓", "allowed") if is_approved else ("✗", "refused")
                answer = f"{sign} {which}{word} by {one_line(by) or 'someone'}{suffix}"
                self._line(f"  {answer}", "green" if is_approved else "red")
            case ToolFinished(result):
                self._show_result(result)
            case LimitReached(limit, _, maximum):
                self._line(f"! the limit of {maximum:g} {limit} is reached: asking for a final answer", "yellow")
            case HistoryCompacted() as event:
                self._line(f"· {compaction_text(event)}", "dim")
            case InterceptorFailed(interceptor, level, hook, error):
                where = f"! the interceptor {one_line(interceptor)} failed ({hook} a {level}): "
                self._line(where, "red", one_line(error))
            case RetryScheduled(error, seconds, call_id=call_id):
                self.end_line()
                what = "the model's API" if call_id is None else one_line(self._name(call_id))
                self._line(f"! {what} failed, tried again after {seconds:.1f} s: ", "yellow", one_line(error))
            case AnswerRejected(reason):
                self._line("! the answer does not match the requested type: ", "yellow", one_line(reason))
            case StopRequested(reason, message):
                self._line(f"! the run stops ({reason.replace('_', ' ')}): ", "yellow", one_line(message))
            case RunPaused("suspended" | "queued" | "waiting"):
                pass  # the summary shows it
            case RunPaused(_, call_ids):
                self._show_waiting(call_ids)
            case RunFinished():
                self.end_line()
            case _:
                pass

    def _show_result(self, result: ToolResult) -> None:
        self.end_line()
        is_failure = result.status == "failure"
        exit_text = command_failure(result)
        code = f" ({result.code})" if is_failure else f"  {exit_text}" if exit_text else ""
        failed_look = is_failure or bool(exit_text)
        heading = f"  {'✗' if failed_look else '✓'} {one_line(result.name) or '(no name)'}{code}"
        call, request = self._calls.get(result.call_id), self._requests.get(result.call_id)
        preview = "" if request is None else request.preview
        file = changed_file(call, result, preview) if isinstance(call, ToolCall) else ""
        write(self._console, heading, "bold red" if failed_look else "green", end="" if file else "\n")
        if file:
            write(self._console, f" {one_line(file)}")
            if isinstance(call, ToolCall) and is_counted(call):
                return
        if result.name == TODO and not is_failure and isinstance(call, ToolCall):
            for line, style in todo_lines(call.arguments):
                write(self._console, _INDENT + fit(line, self._width), style)
            return
        if self._is_as_previewed(result):
            write(self._console, f"{_INDENT}done as shown above", "dim")
            return
        diff = is_diff(result.text)
        for number, (line, is_note) in enumerate(fold_result(result)):
            style = "dim" if is_note else "red" if is_failure else diff_style(line, number) if diff else ""
            # A note in full, wrapped by the terminal: its end often says what to do.
            write(self._console, _INDENT + (line if is_note else fit(line, self._width)), style)

    @property
    def _width(self) -> int:
        return self._console.width - len(_INDENT) if self._console.file.isatty() else _WIDTH

    def _is_as_previewed(self, result: ToolResult) -> bool:
        request = self._requests.get(result.call_id)
        if request is None or not is_diff(request.preview):
            return False
        return result.text in (request.preview, shorten_diff(request.preview))

    def _show_waiting(self, call_ids: tuple[str, ...]) -> None:
        for call_id in call_ids:
            request = self._requests.get(call_id)
            self._line(f"? {one_line(self._name(call_id))}", "bold yellow", " waits for approval")
            if request is not None:
                write(self._console, f"{_INDENT}it {request.reason}", "dim")
                lines = fold_blanks(preview_lines(request.preview))
                for text, style in lines[:_WAITING_LINES]:
                    write(self._console, text, style)
                if len(lines) > _WAITING_LINES:
                    remainder = f"{len(lines) - _WAITING_LINES:,} more lines, which `toolspeak resume` shows"
                    write(self._console, f"{_INDENT}… {remainder}", "dim")

    def _name(self, call_id: str) -> str:
        call = self._calls.get(call_id)
        return (call.name if call is not None else None) or call_id
