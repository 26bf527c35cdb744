"""The standard error of a server program, whose last line usually explains why it ended."""

from __future__ import annotations

import os
import threading

from toolspeak.tools.files.text_format import visible

_TAIL_BYTES = 2048  # bytes


class Stderr:
    """A pipe for a process's standard error. It is read continuously, so that the process never waits. Its end is
    stored.

    A thread reads it, which is the only way on Windows. The thread ends with the last process that writes.
    """

    def __init__(self) -> None:
        read_end, write = os.pipe()
        self.file = os.fdopen(write, "w", encoding="utf-8")
        self._tail = b""
        self._reader = threading.Thread(target=self._read, args=(read_end,), name="mcp-stderr", daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Closes our end of the pipe; the server's copies stay open."""
        self.file.close()

    def text(self) -> str:
        """The last line, with terminal control characters escaped; "" if there is none. Call it after the process has
        ended: it waits half a second at most for the rest of the output."""
        self.close()
        self._reader.join(0.5)
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        return visible(lines[-1].strip()) if lines else ""

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while chunk := stream.read(65536):
                self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
