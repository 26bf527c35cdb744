"""`edit`: replaces one piece of text in a file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.files.change import apply, changes, preview_change
from toolspeak.tools.files.text_format import BOM, encode, newline_style, with_newlines
from toolspeak.tools.files.workspace import Workspace
from toolspeak.tools.files.workspace_folders import anywhere

MOST_LINES = 20
"""The most matches whose line numbers an error names. The search stops at one more."""


def edit_tool(workspace: Workspace) -> Tool:
    """The tool `edit`: replaces one piece of text in a file."""

    def effects(path: str) -> Effects:
        return changes(workspace, path)

    def would(path: str, old: str, new: str) -> str:
        return preview_change(workspace, path, lambda text: edit_text(text, old, new, path))

    @tool(
        name="edit",
        aliases={"file": "path"},
        effects=effects,
        effects_bound=anywhere(workspace, effects("")),
        preview=would,
    )
    def edit(path: str, old: str, new: str, ctx: RunContext[Any]) -> str:
        """Replace one piece of text in a file; returns what changed as a diff.

        `old` must occur exactly once: take in enough of the lines around it. Line ends keep the file's style.

        Args:
            path: The file, relative to the workspace.
            old: The text to replace, exactly as it is in the file.
            new: The text to put there; empty deletes.
        """
        return apply(workspace, ctx, path, lambda text: edit_text(text, old, new, path))

    return edit


def edit_text(text: str, old: str, new: str, path: str) -> str:
    """The text with `new` instead of `old`. Raises ToolError with the number of matches unless `old` occurs once.

    Searches for `old` as it is, then with line ends of either style. A byte order mark stays where it is.
    """
    encode(new, "new")
    mark = BOM if text.startswith(BOM) else ""
    body = text[len(mark) :]
    if mark:
        old, new = old.removeprefix(BOM), new.removeprefix(BOM)
    if not old:
        raise ToolError("'old' is empty: give the text to replace, or use `write`, `append` or `line_edit`.")
    if old == new:
        raise ToolError("'old' and 'new' are the same: nothing to change.")
    spans = [(at, at + len(old)) for at in _positions(body, old)] or _in_either_style(body, old)
    if len(spans) != 1:
        raise _wrong_number(body, old, [start for start, _ in spans], path)
    start, end = spans[0]
    # In the style of the replaced text, so that nothing else changes in a file of mixed styles.
    style = newline_style(body[start:end], newline_style(body, newline_style(new)))
    return mark + body[:start] + with_newlines(new, style) + body[end:]


def _positions(text: str, piece: str) -> list[int]:
    """The first LISTED + 1 places of the piece, overlaps included: `aa` is in `aaa` twice."""
    positions: list[int] = []
    at = text.find(piece)
    while at >= 0 and len(positions) <= MOST_LINES:
        positions.append(at)
        at = text.find(piece, at + 1)
    return positions


def _in_either_style(text: str, piece: str) -> list[tuple[int, int]]:
    """The places of the piece if CRLF and LF are equal."""
    plain_text, plain_piece = with_newlines(text, "\n"), with_newlines(piece, "\n")
    if plain_text == text and plain_piece == piece:
        return []
    spans = [(at, at + len(plain_piece)) for at in _positions(plain_text, plain_piece)]
    original = _original(text, {position for span in spans for position in span})
    return [(original[start], original[end]) for start, end in spans]


def _original(text: str, positions: Iterable[int]) -> dict[int, int]:
    """Translates positions in the text with plain line ends into positions in the text itself."""
    originals: dict[int, int] = {}
    breaks = re.finditer("\r\n", text)
    breaks_before, following = 0, next(breaks, None)
    for position in sorted(positions):
        # Each CRLF shifts all later positions of the plain text by one.
        while following is not None and following.start() - breaks_before < position:
            breaks_before, following = breaks_before + 1, next(breaks, None)
        originals[position] = position + breaks_before
    return originals


def _wrong_number(text: str, old: str, starts: list[int], path: str) -> ToolError:
    if not starts:
        plain_text = old.strip()
        near = _positions(text, plain_text) if plain_text else []
        line = text.count("\n", 0, near[0]) + 1 if len(near) == 1 else 0
        hint = f" Without its outer white space it occurs once, at line {line}." if line else ""
        return ToolError(f"'old' occurs 0 times in {path!r}: read the file and copy the text exactly.{hint}")
    lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in starts[:MOST_LINES])
    count, more = (f"more than {MOST_LINES}", ", ...") if len(starts) > MOST_LINES else (str(len(starts)), "")
    return ToolError(f"'old' occurs {count} times in {path!r} (lines {lines}{more}): take in more lines around it.")
