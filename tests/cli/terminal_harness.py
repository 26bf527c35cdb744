"""A command under a pseudo-terminal, as a person has it: read until something appears, type, see how it ends."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from forked_commands import Command

DEADLINE = 120.0  # a limit for what hangs: a machine may stand still for seconds


def environment(**more: str) -> dict[str, str]:
    """What a terminal sets, and nothing of the developer's own that changes colours or models."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("OPENAI_")
        and name
        not in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TOOLSPEAK_MODEL", "COLUMNS", "LINES", "EDITOR", "VISUAL")
    }
    return {**variables, "TERM": "xterm-256color", "COLUMNS": "120", **more}


class TerminalProcess:
    """`toolspeak ARGUMENTS` in a session that a pseudo-terminal controls, so that Ctrl-C and /dev/tty work.

    Each stream is the terminal unless a path is given for it.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str],
        stdin: Path | None = None,
        stdout: Path | None = None,
        stderr: Path | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        """`size` is the terminal's rows and columns."""
        self._master, slave = os.openpty()
        if size is not None:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        files = [path.open(mode) if path else None for path, mode in ((stdin, "rb"), (stdout, "wb"), (stderr, "wb"))]
        streams = [file.fileno() if file else slave for file in files]
        self._process = Command(arguments, cwd=cwd, env=env, streams=streams, terminal=slave)
        os.close(slave)
        for file in files:
            if file:
                file.close()
        self.screen = ""
        self._offset = 0

    def read_until(self, text: str) -> str:
        """What came up to and with `text`, since the last time."""
        end = time.monotonic() + DEADLINE
        while text not in self.screen[self._offset :]:
            if not self._read(end):
                raise AssertionError(f"{text!r} did not appear in {self.screen!r}")
        stop = self.screen.index(text, self._offset) + len(text)
        output, self._offset = self.screen[self._offset : stop], stop
        return output

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def finish(self) -> tuple[int, str]:
        """The exit code, and all that was on the screen."""
        end = time.monotonic() + DEADLINE
        while self._read(end):
            pass
        code = self._process.wait(timeout=max(1.0, end - time.monotonic()))
        return code, self.screen

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def hang_up(self) -> int:
        """Closes the terminal, as whoever closes its window; the exit code."""
        os.close(self._master)
        self._master = -1
        return self._process.wait(timeout=DEADLINE)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)
        if self._master >= 0:
            os.close(self._master)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, end: float) -> bool:
        """Reads what is there; False at the end of output or of time."""
        if not select.select([self._master], [], [], max(0.0, end - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: the last process has closed the terminal
            return False
        self.screen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)
