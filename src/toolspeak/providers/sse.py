"""Server-sent events: the data of each, from bytes as they come. Sans-IO."""

from __future__ import annotations

from codecs import BOM_UTF8

from toolspeak.errors import ProviderError


class EventData:
    """Reads the data of events (WHATWG HTML, 9.2.6); their names and ids are passed over, for data say what they are.

    httpx2's `EventSource` reads the same through two more generators and a value for each event, a tenth of what a
    piece of a stream costs from one end to the other.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._begun: list[bytes] = []  # of the line that has not ended
        self._data: list[bytes] = []  # the lines of the event that has not ended
        self._begun_size = self._size = 0
        self._after_cr = False
        self._began = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that end in `chunk`. Raises ProviderError for an event of more than `longest` bytes.

        An event that nothing ends is none until `rest` is asked for it."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")  # the other half of a line break
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # of bytes: at line feeds and carriage returns only
        rest = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        if self._begun and lines:
            lines[0] = b"".join([*self._begun, lines[0]])
            self._begun.clear()
            self._begun_size = 0
        if lines and not self._began:
            self._began = True
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        found: list[str] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    found.append((data[0] if len(data) == 1 else b"\n".join(data)).decode("utf-8", "replace"))
                    data.clear()
                self._size = 0
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._size += len(line)
            elif line == b"data":
                data.append(b"")
        if rest:
            self._begun.append(rest)
            self._begun_size += len(rest)
        if self._size + self._begun_size > self._longest:
            raise ProviderError(
                f"the server sent an event of more than {self._longest} bytes: check the base URL", code="ill_formed"
            )
        return found

    def rest(self) -> str:
        """The data of an event that the end of the stream cut off; servers forget its blank line."""
        if self._begun:
            self.feed(b"\n")
        return b"\n".join(self._data).decode("utf-8", "replace")
