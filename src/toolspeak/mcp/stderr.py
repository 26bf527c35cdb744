"""The standard error of a server that was started: its last lines tell why it ended."""

from __future__ import annotations

import os
import threading

from toolspeak.tools.builtin.text_format import visible

_TAIL_BYTES = 2048  # bytes


class Stderr:
    """A pipe to hand to a process as its standard error; what comes out of it is read all the time, so that the
    process never waits, and its end is kept.

    A thread reads it: Windows has no other way, and it ends with the last process that writes.
    """

    def __init__(self) -> None:
        read, write = os.pipe()
        self.file = os.fdopen(write, "w", encoding="utf-8")
        self._tail = b""
        self._reader = threading.Thread(target=self._read, args=(read,), name="mcp-stderr", daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Closes this program's end; those that the process was given stay open."""
        self.file.close()

    def text(self) -> str:
        """The last line, "" if there is none, with what would drive a terminal escaped. The process has ended: what it
        said is waited for, a moment at most."""
        self.close()
        self._reader.join(0.5)
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        return visible(lines[-1].strip()) if lines else ""

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while chunk := stream.read(65536):
                self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
