"""The question about a call: the whole request, in a form that cannot hide a part of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.cells import chop_cells
from rich.console import Console

from toolspeak.execute import ApprovalRequest
from toolspeak.tools.files.text_format import visible
from toolspeak.ui.console import screen_size, write
from toolspeak.ui.format import LINE, diff_style, is_diff, value_text

_BESIDE_DIFF = 60
"""How many characters of an argument are shown next to a diff that shows the rest."""

_LONG_SPACE = re.compile(r"(?<=\S)(?<!^    [+-]) {9,}| {41,}")
"""White space that can push the text after it off the screen. An indentation may be longer than a gap, also behind the
sign of a diff's line."""

_MOST_BLANK_LINES = 3

_PLAIN_NAME = re.compile(r"[\w.$-]+")
"""An argument's name that needs no quotes."""

_PROMPT_ROWS = 4
"""The screen rows for the prompt, even with 40 columns."""

Line = tuple[str, str]
"""A line's text and style."""

REASON_STYLE = "bold yellow"
"""The style of the line that names the tool and why its call needs an answer."""


class Question:
    """The lines of a request, or of any other text, shown a screen at a time. `notes` follow a request's first line."""

    def __init__(self, subject: ApprovalRequest | Iterator[Line], notes: Iterable[Line] = ()) -> None:
        if isinstance(subject, ApprovalRequest):
            first, *others = _lines(subject)
            subject = iter([first, *notes, *others])
        self._lines = fold_blanks(subject)
        self._next = 0
        self._rest: Line | None = None  # the rest of a line that is longer than a screen
        self.characters_left = sum(len(text) for text, _ in self._lines)
        """The number of characters that have not been shown yet."""

    def show(self, console: Console, rows: int | None = None) -> None:
        """Writes as much as fits into `rows` rows of the console; None is everything."""
        width = max(20, screen_size(console)[0] if console.file.isatty() else 200)
        for text, style in self.next_lines(width, rows):
            write(console, text, style)

    def next_lines(
        self, width: int, rows: int | None = None, pieces_of: Callable[[str, int], list[str]] = chop_cells
    ) -> Iterator[Line]:
        """The next lines, as many as fit into `rows` rows of `width` cells; None: all. They count as shown.
        `pieces_of`: how a line is cut into rows."""
        while (self._rest or self._next < len(self._lines)) and (rows is None or rows > 0):
            if self._rest is None:
                self._rest, self._next = self._lines[self._next], self._next + 1
            text, style = self._rest
            fits = text if rows is None else "".join(pieces_of(text[: rows * width], width)[:rows])
            yield fits, style
            if rows is not None:
                rows -= max(1, len(pieces_of(fits, width)))
            self.characters_left -= len(fits)
            self._rest = (text[len(fits) :], style) if len(fits) < len(text) else None


def screen_rows(console: Console) -> int:
    """The rows for a question, so that its first line and the prompt are visible together."""
    return max(6, screen_size(console)[1] - _PROMPT_ROWS)


def _lines(request: ApprovalRequest) -> Iterator[Line]:
    yield f"? {_one_line(request.tool.name)}  {_one_line(request.reason)}", REASON_STYLE
    for line in _arguments(request):
        yield f"    {line}", ""
    if request.repaired_from is not None:
        yield "    the model wrote this, which is not valid:", "yellow"
        for line in visible_lines(request.repaired_from):
            yield f"      {line}", "dim"
    yield from preview_lines(request.preview)


def preview_lines(preview: str) -> Iterator[Line]:
    """The lines of a call's preview, with colours if it is a diff."""
    diff = is_diff(preview)
    for number, line in enumerate(visible_lines(preview) if preview else ()):
        yield f"    {line}", diff_style(line, number) if diff else "bold"


def _arguments(request: ApprovalRequest) -> list[str]:
    """All arguments in full, except those in the preview: a text with which the preview begins (a command, with a note
    below it) and one that a diff has in full are left out, and another text in a diff is shortened."""
    diff, lines = is_diff(request.preview), list[str]()
    diff_lines = request.preview.split("\n") if diff else []
    changed_text = "\n".join(line[1:] for line in diff_lines)
    whole_lines = {line[1:] for line in diff_lines}
    for name, value in request.call.arguments.items():
        in_preview = bool(request.preview) and name in request.preview_parameters
        if in_preview and isinstance(value, str) and f"{visible(request.preview)}\n".startswith(f"{visible(value)}\n"):
            continue
        if in_preview and diff and isinstance(value, str) and _is_in_diff(value, changed_text, whole_lines, diff_lines):
            continue
        text = value_text(value, _BESIDE_DIFF) if in_preview and diff else json.dumps(value, ensure_ascii=False)
        plain = _PLAIN_NAME.fullmatch(name) and visible(name) == name
        lines.append(visible(f"{name if plain else json.dumps(name, ensure_ascii=False)}: {text}"))
    line = ", ".join(lines)
    return [line] if diff and lines and len(line) <= LINE else lines


def _is_in_diff(text: str, changed_text: str, whole_lines: set[str], diff_lines: Sequence[str]) -> bool:
    """Whether a diff shows each line of a text: in full, the first and the last one perhaps in a longer line; or the
    text as its file."""
    if diff_lines[1:2] == [f"+++ {text}"]:
        return True
    lines = text.removesuffix("\n").split("\n")
    shows_ends = lines[0] in changed_text and lines[-1] in changed_text
    return bool(text) and shows_ends and whole_lines.issuperset(lines[1:-1])


def visible_lines(text: str) -> list[str]:
    """The lines of a text, with everything spelled out that a terminal would not show."""
    # Not splitlines(): that splits at characters which are shown as they are escaped.
    return visible(text.replace("\r\n", "\n")).expandtabs(4).removesuffix("\n").split("\n")


def _one_line(text: str) -> str:
    return visible(text).replace("\n", "⏎").replace("\t", " ")


def fold_blanks(lines: Iterator[Line]) -> list[Line]:
    """The lines with long white space replaced by its length, and many empty lines by their number."""
    result: list[Line] = []
    blank: list[Line] = []

    def end_blank() -> None:
        if len(blank) > _MOST_BLANK_LINES:
            sign = blank[0][0].strip()
            kind = {"+": "added empty lines", "-": "removed empty lines"}.get(sign, "empty lines")
            result.append((f"  ⋯ {len(blank):,} {kind}", "dim"))
        else:
            result.extend(blank)
        blank.clear()

    for text, style in lines:
        content = text.strip()
        if content in ("", "+", "-"):
            if blank and blank[0][0].strip() != content:
                end_blank()
            blank.append((text.rstrip(), style))
            continue
        end_blank()
        result.append((_LONG_SPACE.sub(lambda gap: f"⟨{len(gap[0]):,} spaces⟩", text), style))
    end_blank()
    return result
