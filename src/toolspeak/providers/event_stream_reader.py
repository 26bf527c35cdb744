"""Readers of server-sent events from chunks of bytes. Sans-IO."""

from __future__ import annotations

import re
from codecs import BOM_UTF8

from toolspeak.errors import ProviderError

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r){2}")


class EventData:
    """Reads the data of events (WHATWG HTML, 9.2.6). It ignores their names and ids: the data repeat them.

    httpx2's `EventSource` takes two more generators and a value for each event: a tenth of the whole cost of a chunk.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._open_line: list[bytes] = []  # the chunks of the unfinished line
        self._data: list[bytes] = []  # the lines of the unfinished event
        self._open_line_size = self._size = 0
        self._after_cr = False
        self._began = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that end in `chunk`; `rest` returns an unfinished event at the end of the stream.
        Raises ProviderError for an event of more than `longest` bytes."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")  # the other half of a line break
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # splits bytes at line feeds and carriage returns only
        rest = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        if self._open_line and lines:
            lines[0] = b"".join([*self._open_line, lines[0]])
            self._open_line.clear()
            self._open_line_size = 0
        if lines and not self._began:
            self._began = True
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        data_lines: list[str] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    data_lines.append((data[0] if len(data) == 1 else b"\n".join(data)).decode("utf-8", "replace"))
                    data.clear()
                self._size = 0
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._size += len(line)
            elif line == b"data":
                data.append(b"")
        if rest:
            self._open_line.append(rest)
            self._open_line_size += len(rest)
        if self._size + self._open_line_size > self._longest:
            raise ProviderError(
                f"the server sent an event of more than {self._longest} bytes: check the base URL", code="ill_formed"
            )
        return data_lines

    def rest(self) -> str:
        """The data of an unfinished event at the end of the stream: servers forget the blank line after it."""
        if self._open_line:
            self.feed(b"\n")
        return b"\n".join(self._data).decode("utf-8", "replace")


class RawEvents:
    """Cuts a stream into its events: the unchanged bytes of each, and its data ("" for a comment)."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._open_line: list[bytes] = []
        self._size = 0
        self._end = b""
        self._began = False

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes]]:
        """The events that end in `chunk`. Raises ProviderError for an event of more than `longest` bytes."""
        if not self._open_line and self._began and chunk.startswith(b"data: ") and chunk.endswith(b"\n\n"):
            line = chunk[6:-2]
            if b"\n" not in line and b"\r" not in line:  # the ordinary chunk is one event of one line
                return [(chunk, line)]
        searched = self._end + chunk  # a blank line may span chunks
        self._end = searched[-3:]
        if _BLANK_LINE.search(searched) is None:
            self._open_line.append(chunk)
            self._size += len(chunk)
            if self._size > self._longest:
                raise ProviderError(
                    f"the server sent an event of more than {self._longest} bytes: check the base URL",
                    code="ill_formed",
                )
            return []
        data = b"".join([*self._open_line, chunk]) if self._open_line else chunk
        data_lines: list[tuple[bytes, bytes]] = []
        start = 0
        for blank in _BLANK_LINE.finditer(data):
            raw = data[start : blank.end()]
            start = blank.end()
            data_lines.append((raw, self._data(raw)))
        rest = data[start:]
        self._open_line, self._size, self._end = ([rest] if rest else []), len(rest), rest[-3:]
        return data_lines

    def rest(self) -> tuple[bytes, bytes]:
        """The unfinished event at the end of the stream, with the blank line that servers forget."""
        raw = b"".join(self._open_line)
        self._open_line.clear()
        return raw.rstrip(b"\r\n") + b"\n\n", self._data(raw)

    def _data(self, raw: bytes) -> bytes:
        if not self._began:
            self._began = True
            raw = raw.removeprefix(BOM_UTF8)
        if raw.startswith(b"data: "):  # the ordinary event is one line
            line = raw[6:].rstrip(b"\r\n")
            if b"\n" not in line and b"\r" not in line:
                return line
        data_lines: list[bytes] = []
        for line in raw.splitlines():
            if line.startswith(b"data:"):
                data_lines.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                data_lines.append(b"")
        return b"\n".join(data_lines)
