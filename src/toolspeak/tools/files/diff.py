"""Unified diffs at bounded cost."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from toolspeak.tools.files.text_format import quote_path, split_lines, visible

MAX_LINES = 200
"""The most lines of a diff that a model reads."""

MAX_COMPARED = 2_000
"""The most lines that are compared one by one. A larger change is shown as one block, because comparing takes quadratic
time."""

MAX_WIDTH = 1_000
"""The most characters of a line that a model reads."""

CONTEXT = 3

Opcode = tuple[str, int, int, int, int]


def unified_diff(path: str, before: str, after: str) -> str:
    """The whole diff; empty for equal texts.

    Invisible characters are spelled out, and carriage returns too unless all lines have one.
    """
    if before == after:
        return ""
    if _only_crlf(before) and _only_crlf(after):
        before, after = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    lines = _diff_lines(split_lines(before), split_lines(after))
    return "\n".join([f"--- {quote_path(path)}", f"+++ {quote_path(path)}", *lines]) + "\n"


def shorten_diff(diff: str) -> str:
    """A diff that is not empty, as a model reads it: its head and at most MAX_LINES lines of MAX_WIDTH characters."""
    lines = diff.removesuffix("\n").split("\n")
    result = [
        line
        if len(line) <= MAX_WIDTH + 1
        else f"{line[: MAX_WIDTH + 1]}... {len(line) - MAX_WIDTH - 1} more characters ..."
        for line in lines[: MAX_LINES + 2]
    ]
    if len(lines) > MAX_LINES + 2:
        result.append(f"... {len(lines) - MAX_LINES - 2} more lines of this diff left out ...")
    return "\n".join(result) + "\n"


def _only_crlf(text: str) -> bool:
    return text.count("\n") == text.count("\r\n")


def _diff_lines(old: list[str], new: list[str]) -> Iterator[str]:
    for group in opcode_groups(old, new):
        first, last = group[0], group[-1]
        yield f"@@ -{span(first[1], last[2])} +{span(first[3], last[4])} @@"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (" " + _visible_line(line) for line in old[i1:i2])
                continue
            for sign, lines in (("-", old[i1:i2]), ("+", new[j1:j2])):
                for line in lines:
                    yield sign + _visible_line(line)
                    if not line.endswith("\n"):
                        yield "\\ No newline at end of file"


def opcode_groups(old: list[str], new: list[str]) -> list[list[Opcode]]:
    """The changes of lines with their context, as groups of opcodes. Equal lines at both ends are not compared."""
    short = min(len(old), len(new))
    head = next((i for i in range(short) if old[i] != new[i]), short)
    tail = next((i for i in range(short - head) if old[-1 - i] != new[-1 - i]), short - head)
    old_end, new_end = len(old) - tail, len(new) - tail
    if max(old_end, new_end) - head > MAX_COMPARED:
        middle: list[Opcode] = [("replace", head, old_end, head, new_end)]
    else:
        matcher = difflib.SequenceMatcher(None, old[head:old_end], new[head:new_end])
        middle = [(tag, i1 + head, i2 + head, j1 + head, j2 + head) for tag, i1, i2, j1, j2 in matcher.get_opcodes()]
    opcodes = [("equal", 0, head, 0, head), *middle, ("equal", old_end, len(old), new_end, len(new))]
    return list(_groups([opcode for opcode in opcodes if opcode[1] < opcode[2] or opcode[3] < opcode[4]]))


def _groups(opcodes: list[Opcode]) -> Iterator[list[Opcode]]:
    group: list[Opcode] = []
    for position, (tag, i1, i2, j1, j2) in enumerate(opcodes):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        first, last = position == 0, position == len(opcodes) - 1
        if not first and not last and i2 - i1 <= 2 * CONTEXT:
            group.append((tag, i1, i2, j1, j2))
            continue
        if not first:
            group.append((tag, i1, min(i2, i1 + CONTEXT), j1, min(j2, j1 + CONTEXT)))
            yield group
            group = []
        if not last:
            group.append((tag, max(i1, i2 - CONTEXT), i2, max(j1, j2 - CONTEXT), j2))
    if group:
        yield group


def span(start: int, end: int) -> str:
    """A range of lines as the head of a hunk has it."""
    length = end - start
    return f"{start + 1 if length else start},{length}" if length != 1 else f"{start + 1}"


def _visible_line(line: str) -> str:
    return visible(line.removesuffix("\n"))
