"""`read`: reads a text file, page by page if it is long."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.files import files_read
from toolspeak.tools.files.text_format import text_chunks
from toolspeak.tools.files.workspace import Workspace
from toolspeak.tools.files.workspace_folders import anywhere

PAGE_LINES = 2_000
PAGE_BYTES = 12 * 1024  # below the executor's limit for a result, so that a page arrives whole


def read_tool(workspace: Workspace, others: Sequence[Workspace] = ()) -> Tool:
    """The tool `read`: reads a text file page by page.

    `others`: folders outside of the workspace whose files it reads too, by their absolute paths.
    """

    def effects(path: str) -> Effects:
        place, path = _place_of(path, workspace, others)
        version = place.version(path)
        return Effects(reads={place.scope(path)}, idempotent=True, destructive=False, version=version)

    scopes = {each.scope("") for each in (workspace, *others)}
    bound = anywhere(workspace, Effects(reads=scopes, idempotent=True, destructive=False))

    @tool(name="read", aliases={"file": "path"}, effects=effects, effects_bound=bound)
    def read(
        path: str, ctx: RunContext[Any], start: int | None = None, lines: int | None = None, numbered: bool = False
    ) -> str:
        """Read a text file.

        A long file comes by pages of at most 2,000 lines or 12 KiB; the last line then says how to continue.

        Args:
            path: The file, relative to the workspace.
            start: The number of the first line to read, from 1.
            lines: How many lines to read.
            numbered: Put the line number before each line.
        """
        if start is not None and start < 1:
            raise ToolError(f"'start' is {start}: the first line is 1.")
        if lines is not None and lines < 1:
            raise ToolError(f"'lines' is {lines}: read at least 1 line.")
        page = _Page(start or 1, min(lines or PAGE_LINES, PAGE_LINES))
        place, path = _place_of(path, workspace, others)
        with place.open(path) as file:
            sha256 = _scan(file, path, page, ctx)
        if page.first > max(page.total, 1):
            raise ToolError(f"'start' is {page.first}, but {path!r} has {page.total} lines.")
        files_read.record_lines(ctx, place.real(path), sha256, page.first, page.last_whole, page.total)
        return page.text(numbered=numbered)

    return read


def _place_of(path: str, workspace: Workspace, others: Sequence[Workspace]) -> tuple[Workspace, str]:
    """The folder that a path lies in, and the path relative to it."""
    for other in others if path.startswith("/") else ():
        for name in other.names:
            if path.startswith(f"{name}/"):
                return other, path[len(name) + 1 :]
    return workspace, path


@dataclass(slots=True)
class _Page:
    """Collects the requested lines while the file is scanned, and counts the others."""

    first: int
    most_lines: int
    total: int = 0
    size: int = 0
    cut: bool = False
    lines_read: list[bytes] = field(default_factory=list[bytes])
    full: bool = False

    def add(self, line: bytes) -> None:
        self.total += 1
        if self.full or self.total < self.first:
            return
        if self.lines_read and self.size + len(line) > PAGE_BYTES:
            self.full = True
            return
        self.lines_read.append(line[:PAGE_BYTES])
        self.cut = len(line) > PAGE_BYTES
        self.size += len(line)
        self.full = len(self.lines_read) == self.most_lines or self.size >= PAGE_BYTES

    @property
    def last_whole(self) -> int:
        """The number of the last line that is not cut; without one, the first line's number minus one."""
        return self.first + len(self.lines_read) - 1 - self.cut

    def text(self, *, numbered: bool) -> str:
        lines = [line.decode(errors="ignore") for line in self.lines_read]  # only a cut line can end amid a character
        if numbered:
            lines = [f"{self.first + i:>6}\t{line}" for i, line in enumerate(lines)]
        text = "".join(lines)
        last = self.first + len(lines) - 1
        if self.first == 1 and last == self.total and not self.cut:
            return text
        notes = [f"lines {self.first}-{last} of {self.total}"] if lines else []
        if self.cut:
            notes.append(f"line {last} is longer than {PAGE_BYTES:,} bytes and was cut")
        notes.append(f"continue with start={last + 1}" if last < self.total else "this is the end of the file")
        separator = "" if text.endswith("\n") or not text else "\n"
        return f"{text}{separator}[{'; '.join(notes)}]"


def _scan(file: BinaryIO, path: str, page: _Page, ctx: RunContext[Any]) -> str:
    """Fills the page in bounded memory and checks the whole file. Returns the file's SHA-256."""
    sha256 = hashlib.sha256()
    rest = b""
    for chunk in text_chunks(file, path):
        if ctx.is_cancelled():
            raise ToolError("cancelled")
        sha256.update(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            page.add(line + b"\n")
        rest = rest[: PAGE_BYTES + 1]  # enough of a very long line to fill a page and to detect its length
    if rest:
        page.add(rest)
    return sha256.hexdigest()
