"""The rows of a call that has ended: what was called, how it ended, and what it returned."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.chat.display.call_lanes import CallLane, call_line
from toolspeak.chat.display.program_rows import is_program
from toolspeak.chat.display.styled_text import StyledLine, indent, truncate, wrap
from toolspeak.chat.display.theme import theme_class
from toolspeak.data.messages import MalformedCall, ToolCall, ToolResult
from toolspeak.tools.builtin.todo import TODO
from toolspeak.tools.files.diff import shorten_diff
from toolspeak.ui.changed_file import changed_file, is_counted
from toolspeak.ui.format import (
    FOLD,
    command_failure,
    diff_style,
    fold,
    fold_result,
    is_diff,
    printable,
    result_lines,
)
from toolspeak.ui.todo_list import todo_lines

_INDENT: StyledLine = [("", "    ")]


def result_rows(
    result: ToolResult, lane: CallLane | None, seconds: float | None, columns: int, preview: str, *, is_unseen: bool
) -> list[StyledLine]:
    """The rows of a result.

    - `lane`: the call, if it is known.
    - `seconds`: how long it ran.
    - `preview`: what its question said that it would change; "" without a question. `is_unseen`: the person has not
      seen that.
    """
    is_failure = result.status == "failure"
    name = (result.name or (lane.name if lane else "")) or "(no name)"
    call = None if lane is None else lane.call
    items = todo_lines(call.arguments) if name == TODO and not is_failure and isinstance(call, ToolCall) else []
    end = f" ({result.code})" if is_failure else ""
    exit_text = command_failure(result)
    sign, style = ("✗", "failed") if is_failure or exit_text else ("✓", "done")
    file = changed_file(call, result, preview) if isinstance(call, ToolCall) else ""
    line = call_line(sign, style, name + end, None if items or is_program(call) else call, file)
    notes: list[str] = [exit_text] if exit_text else []
    if seconds is not None and seconds >= 1:
        notes.append(f"{seconds:.0f} s")
    suffix: StyledLine = [("class:note", f"  {' · '.join(notes)}")] if notes else []
    was_shown = is_diff(preview) and result.text in (preview, shorten_diff(preview)) and not is_unseen
    lines = result_lines(result)
    if is_diff(preview) and is_unseen and not is_failure:
        lines = printable(preview).split("\n")
    diff = is_diff("\n".join(lines))
    if diff:  # it shows what the arguments say
        heading = [[*truncate(line, max(10, columns - sum(len(text) for _, text in suffix))), *suffix]]
    else:
        heading = list(indent(wrap([*line, *suffix], columns - 2), [], [("", "  ")]))
    if items:
        return [*heading, *(truncate([*_INDENT, (theme_class(each), text)], columns) for text, each in items)]
    if file and isinstance(call, ToolCall) and is_counted(call) and not diff:
        return heading
    if was_shown:
        return [*heading, [*_INDENT, ("class:note", "done as shown above")]]
    if is_failure:
        return [*heading, *_error_rows(lines, columns)]
    body: Sequence[tuple[str, str]]
    if diff:
        visible_lines, more = fold(lines)
        body = [(text, theme_class(diff_style(text, number))) for number, text in enumerate(visible_lines)]
        body = [*body, *([(f"… {more:,} more lines", "class:note")] if more else [])]
    else:
        body = [(text, "class:note" if is_note else "class:output") for text, is_note in fold_result(result)]
    rows = [row for text, each in body for row in _body_rows(text, each, columns)]
    return [*heading, *rows]


def earlier_call_rows(call: ToolCall | MalformedCall, result: ToolResult | None, columns: int) -> list[StyledLine]:
    """The rows of a call of an earlier part of the conversation, with how it ended: `result`, None without one."""
    items = todo_lines(call.arguments) if isinstance(call, ToolCall) and call.name == TODO else []
    is_failure = result is not None and result.status == "failure"
    problem = "" if result is None else f"({result.code})" if is_failure else command_failure(result)
    sign, style = ("▸", "call") if result is None else ("✗", "failed") if problem else ("✓", "done")
    file = changed_file(call, result) if isinstance(call, ToolCall) and result is not None else ""
    line = call_line(sign, style, call.name or "?", None if items else call, file)
    if problem:
        line.append(("class:note", f"  {problem}"))
    reason = result_lines(result)[:1] if is_failure and result is not None else []
    return [
        *indent(wrap(line, columns - 2), [], [("", "  ")]),
        *(truncate([*_INDENT, (theme_class(each), text)], columns) for text, each in items),
        *(truncate([*_INDENT, ("class:error", text)], columns) for text in reason),
    ]


def interrupted_rows(lane: CallLane, seconds: float | None, columns: int) -> list[StyledLine]:
    """The rows of a call that the person ended: how long it ran, and the last lines of its output."""
    line = call_line("✗", "failed", lane.name, lane.call)
    line.append(("class:note", "  did not run" if seconds is None else f"  ended after {seconds:.0f} s"))
    rows = list(indent(wrap(line, columns - 2), [], [("", "  ")]))
    output = list(lane.output)[-FOLD:]
    if len(lane.output) > len(output):
        rows.append([*_INDENT, ("class:note", "…")])
    return [*rows, *(truncate([*_INDENT, ("class:output", text)], columns) for text in output)]


def _body_rows(text: str, style: str, columns: int) -> list[StyledLine]:
    """A line of a result on one row; a note in full."""
    if style != "class:note":
        return [truncate([*_INDENT, (style, text)], columns)]
    return list(indent(wrap([(style, text)], columns - 4), _INDENT, _INDENT))


def _error_rows(lines: Sequence[str], columns: int) -> list[StyledLine]:
    """The text of an error, wrapped: its end often says what to do."""
    rows = [row for line in lines for row in wrap([("class:error", line)], columns - 4)]
    visible_rows, more = rows[:FOLD], len(rows) - FOLD
    body = list(indent(visible_rows, _INDENT, _INDENT))
    return [*body, [*_INDENT, ("class:note", f"… {more:,} more rows")]] if more > 0 else body
