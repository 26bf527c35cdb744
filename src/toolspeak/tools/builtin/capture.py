"""Captures the beginning and the end of an output of any length in bounded memory."""

from __future__ import annotations

import re

_TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_OVERWRITTEN = re.compile(r"^[^\n]*\r(?=[^\r\n])", re.MULTILINE)


def printed_text(output: str) -> str:
    """A command's output as a terminal shows it in the end: without colours and other control sequences (ECMA-48), and
    of a line that carriage returns write over, as a progress bar does, the last text."""
    return _OVERWRITTEN.sub("", _TERMINAL_CODES.sub("", output)) if "\x1b" in output or "\r" in output else output


class Capture:
    """Keeps the first and the last half of `limit` bytes, and all of an output that is not longer."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_limit + 65_536:  # seldom, since it moves the bytes
            del self._tail[: len(self._tail) - self._tail_limit]

    def text(self) -> str:
        """The captured output as text. Bytes that are not UTF-8 show as U+FFFD."""
        left_out = self._total - len(self._head) - min(len(self._tail), self._tail_limit)
        if not left_out:
            return (self._head + self._tail).decode(errors="replace")
        tail = self._tail[len(self._tail) - self._tail_limit :]
        # A character that was cut in two counts as left out.
        head_end = next((i for i in range(1, 4) if _starts(self._head[-i:])), 0)
        tail_start = next((i for i in range(min(4, len(tail))) if tail[i] & 0xC0 != 0x80), 0)
        left_out += head_end + tail_start
        head = self._head[: len(self._head) - head_end]
        return (
            head.decode(errors="replace")
            + f"\n... {left_out} bytes left out ...\n"
            + tail[tail_start:].decode(errors="replace")
        )


def _starts(data: bytearray) -> bool:
    """Whether the bytes are the beginning of a longer UTF-8 character."""
    first = data[0] if data else 0
    length = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
    return len(data) < length
