"""Formats the parts of a run as lines of text, which cannot control a terminal. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rich.cells import cell_len, set_cell_size

from toolspeak.agent import RunState
from toolspeak.data.events import HistoryCompacted
from toolspeak.data.messages import JSON, ContentPart, FilePart, ImagePart, JsonPart, TextPart, ToolResult
from toolspeak.data.run_values import PAUSED_STATUSES

LINE = 100
"""The most characters of arguments on the line of a call's name; longer ones get a line each."""

VALUE = 200
"""How many characters of an argument are shown."""

FOLD = 8
"""How many lines of a result are shown."""

_COMMAND_START = 2
"""How many of these are the first lines of a command's output: the last ones say how it ended."""

# Characters that control a terminal, or change invisibly how text reads. Tab, newline and the joiners of emoji are not
# among them.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """The text with all terminal controls made visible: ESC as ␛, others likewise or as \\x9b."""
    return _UNPRINTABLE.sub(_picture, text.replace("\r\n", "\n"))


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else match[0].encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """Printable text on one line."""
    return printable(text).replace("\n", "⏎").replace("\t", " ")


def shorten(text: str, limit: int) -> str:
    """The text; if it is longer than `limit`, its beginning and the number of the other characters."""
    return text if len(text) <= limit else f"{text[:limit]}… (+{len(text) - limit:,} characters)"


def fit(line: str, width: int) -> str:
    """The line, shortened to `width` terminal cells."""
    start = line[: 4 * width]  # a cell may hold a letter with combining marks
    if len(start) == len(line) and cell_len(line) <= width:
        return line
    return set_cell_size(start, max(1, width - 1)).rstrip() + "…"


def value_text(value: JSON, limit: int) -> str:
    """An argument's value as JSON on one line."""
    if isinstance(value, str):
        # Cut before it is quoted, so that a value of megabytes is not copied.
        rest = len(value) - limit
        more = f"… (+{rest:,} characters)" if rest > 0 else ""
        return one_line(json.dumps(value[:limit], ensure_ascii=False)) + more
    return shorten(one_line(json.dumps(value, ensure_ascii=False)), limit)


def argument_lines(arguments: Mapping[str, JSON], limit: int = VALUE) -> list[str]:
    """All arguments as `name: value`, on one line if they fit, else on a line each."""
    pairs = [f"{one_line(name)}: {value_text(value, limit)}" for name, value in arguments.items()]
    line = ", ".join(pairs)
    return [line] if len(line) <= LINE else pairs


def program_lines(arguments: Mapping[str, JSON]) -> list[str]:
    """The lines of a program that a model wrote (`run_code`)."""
    return [line for value in arguments.values() for line in _value_lines(value)] or [""]


def result_lines(result: ToolResult) -> list[str]:
    """A result's content as printable lines."""
    return [line for part in result.content for line in _part_lines(part)]


def _part_lines(part: ContentPart) -> Sequence[str]:
    match part:
        case TextPart(text):
            return _lines(text)
        case JsonPart(value):
            return _value_lines(value)
        case ImagePart(media_type, data, url):
            where = one_line(url) if url else f"{len(data or b''):,} bytes"
            return [f"[image {one_line(media_type)}, {where}]"]
        case FilePart(name, media_type, data):
            return [f"[file {one_line(name)}, {one_line(media_type)}, {len(data):,} bytes]"]


def _lines(text: str) -> list[str]:
    # Not splitlines(): it splits at characters that are shown as escapes.
    return printable(text).removesuffix("\n").split("\n") if text else []


def _value_lines(value: JSON) -> list[str]:
    """JSON for people: an entry per line, and text of several lines below its key."""
    if isinstance(value, str):
        return _lines(value)
    if isinstance(value, Mapping):
        lines: list[str] = []
        for key, item in cast("Mapping[str, Any]", value).items():
            if isinstance(item, str) and "\n" in item:
                lines += [f"{one_line(key)}:", *(f"  {line}" for line in _lines(item))]
            else:
                lines.append(f"{one_line(key)}: {_compact(item)}")
        return lines
    if isinstance(value, list | tuple):
        return [_compact(item) for item in cast("Sequence[Any]", value)]
    return [_compact(value)]


def _compact(value: JSON) -> str:
    if isinstance(value, Mapping) and set(place := cast("Mapping[str, Any]", value)) == {"path", "line", "text"}:
        return one_line(f"{place['path']}:{place['line']}: {place['text']}")
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def fold(lines: Sequence[str], limit: int = FOLD) -> tuple[Sequence[str], int]:
    """The first lines, and the number of the others. A single other line is not folded."""
    return (lines, 0) if len(lines) <= limit + 1 else (lines[:limit], len(lines) - limit)


def command_failure(result: ToolResult) -> str:
    """How a command of a tool ended that did not succeed, such as `exit 1`; "" for any other result."""
    value = _command_value(result)
    if value is None or value["exit_code"] == 0:
        return ""
    if "timed_out" in value:
        return "timed out"
    return "no exit code" if value["exit_code"] is None else f"exit {value['exit_code']}"


def fold_result(result: ToolResult) -> list[tuple[str, bool]]:
    """The lines of a result that are shown, each with whether it is a note about it. Of a command's output these are
    the beginning and the end, and all that its tool says about it."""
    value = _command_value(result)
    if value is None:
        lines, more = fold(result_lines(result))
        shown_lines = [(line, False) for line in lines]
        if not lines:
            return [("(nothing)", True)]
        return [*shown_lines, (f"… {more:,} more lines", True)] if more else shown_lines
    output = _lines(str(value["output"]))
    shown_lines = [(line, False) for line in output]
    if len(output) > FOLD + 1:
        more = len(output) - FOLD
        note = (f"… {more:,} more lines", True)
        shown_lines = [*shown_lines[:_COMMAND_START], note, *shown_lines[_COMMAND_START + more :]]
    notes = [(one_line(str(item)), True) for key, item in value.items() if key not in ("exit_code", "output")]
    notes += [(one_line(part.text), True) for part in result.content[1:] if isinstance(part, TextPart)]
    return [*(shown_lines or [("(no output)", True)]), *notes]


def _command_value(result: ToolResult) -> Mapping[str, Any] | None:
    """The value of a result that says how a command ended. A text may follow it: that it was shortened."""
    if not result.content or not isinstance(part := result.content[0], JsonPart):
        return None
    if not all(isinstance(each, TextPart) for each in result.content[1:]):
        return None
    value = part.value
    if not isinstance(value, Mapping) or "exit_code" not in value or "output" not in value:
        return None
    return cast("Mapping[str, Any]", value)


def is_diff(text: str) -> bool:
    """Whether the text is a unified diff, possibly after one line of other text."""
    return re.match(r"(?:[^\n]*\n)?--- [^\n]*\n\+\+\+ [^\n]*\n@@ ", text) is not None


def diff_style(line: str, number: int) -> str:
    """The style of a diff's line. `number` counts from 0: the first two lines are headings."""
    if number < 2:
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}.get(line[:1], "")


def summary(state: RunState, status: str = "") -> str:
    """How a run ended, on one line. `status` replaces the state's own."""
    reason = f" ({state.reason})" if state.reason not in ("", "answer") and state.status not in PAUSED_STATUSES else ""
    tokens = f"{'~' if state.totals.estimated else ''}{state.totals.tokens:,} tokens"
    seconds = f"{state.time - state.started_at:.1f} s"
    cost = "" if state.totals.cost is None else f" ({money(state.totals.cost, state.totals.estimated)})"
    counts = f"{count(state.step, 'step')}, {count(state.totals.calls, 'call')}, {tokens}{cost}, {seconds}"
    return f"{(status or state.status).replace('_', ' ')}{reason}: {counts}"


def money(dollars: float, estimated: bool = False) -> str:
    """An amount in USD, with four decimals below a dollar."""
    return f"{'~' if estimated else ''}${dollars:,.{2 if dollars >= 1 else 4}f}"


def count(number: int, thing: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def compaction_text(event: HistoryCompacted) -> str:
    """How the history was shortened for the model, on one line."""
    if event.upto:
        shortening = f"{event.upto - len(event.pinned)} messages summarised"
    else:
        shortening = f"{len(event.cleared)} results cleared"
    return f"the history was compacted: {shortening} (~{event.tokens_before:,} → ~{event.tokens_after:,} tokens)"
