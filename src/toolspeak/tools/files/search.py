"""Searches with regular expressions that cannot hang: they run in a process that is killed if it takes too long."""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from toolspeak.errors import ToolError
from toolspeak.tools.files import search_worker

MAX_LINE = 10_000
"""The most characters of a line that are searched."""

TICK = 0.05
"""Seconds between two checks of the clock and of cancellation."""

SEPARATE = bool(sys.executable) and not getattr(sys, "frozen", False)
"""Whether this program can start a Python: in a frozen application `sys.executable` is the application."""


@dataclass(frozen=True, slots=True)
class LineMatches:
    """The first matching `lines`; `cut` counts lines that were searched in part."""

    lines: list[tuple[int, str]]
    count: int
    cut: int


class Searcher:
    """Searches many texts with one regular expression. Use it in a `with` block.

    `seconds`: the time limit for one text.
    `is_cancelled`: returns whether to stop the search.
    `parameter`: the name of the pattern in errors.
    `separate`: whether to search in a separate process. In this process only the line limit bounds the time.

    Raises ToolError for an invalid expression, at the time limit, and when `is_cancelled` returns true. On POSIX the
    search process ends at the time limit even if this process is gone.
    """

    def __init__(
        self,
        pattern: str,
        *,
        seconds: float,
        is_cancelled: Callable[[], bool],
        parameter: str = "content",
        separate: bool = SEPARATE,
    ) -> None:
        self._parameter = parameter
        self._pattern = pattern
        self._separate = separate
        self._seconds = seconds
        self._is_cancelled = is_cancelled
        self._deadline: float | None = None
        self._stopped_for: str | None = None
        self._close_event = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._local = None

    def __enter__(self) -> Self:
        if not self._separate:
            self._local = search_worker.compile_pattern(self._pattern)
            error = self._local if isinstance(self._local, str) else None
        else:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(search_worker.__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            atexit.register(self._process.kill)  # the watch is a daemon thread: it ends with the interpreter
            threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()
            try:
                error = self._ask({"pattern": self._pattern, "max_line": MAX_LINE, "seconds": self._seconds})["error"]
            except BaseException:
                self._close()
                raise
        if error is not None:
            self._close()
            raise ToolError(
                f"{self._parameter!r} is not a regular expression: {error}. Escape special characters with '\\'."
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def search(self, data: bytes, limit: int) -> LineMatches:
        """The matching lines, at most `limit`; none in binary data."""
        if self._process is not None:
            response = self._ask({"bytes": len(data), "wanted": limit}, data)
        elif self._local is None or isinstance(self._local, str):
            raise RuntimeError("use the searcher in a `with` block")
        else:
            response = search_worker.search(self._local, data, MAX_LINE, limit)
        return LineMatches([(number, line) for number, line in response["matches"]], response["count"], response["cut"])

    def replaced_text(self, text: str, new: str) -> tuple[str, int]:
        """The text with `new` instead of each match, and their number. Raises ToolError for a `new` that names a group
        which the pattern does not have."""
        data = text.encode()
        if self._process is not None:
            response = self._ask({"bytes": len(data), "new": new}, data)
        elif self._local is None or isinstance(self._local, str):
            raise RuntimeError("use the searcher in a `with` block")
        else:
            response = search_worker.replace(self._local, data, new)
        if response["error"] is not None:
            raise ToolError(f"'new' does not fit the pattern: {response['error']}. Write a backslash as '\\\\'.")
        return response["text"], response["count"]

    def _ask(self, header: dict[str, Any], data: bytes = b"") -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("the search process is not running")
        self._deadline = time.monotonic() + self._seconds
        try:
            process.stdin.write(json.dumps(header).encode() + b"\n" + data)
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:  # the pipe breaks when the watch kills the process
            answer = b""
        finally:
            self._deadline = None
        if not answer:
            raise ToolError(self._stopped_for or self._reason(process))
        return json.loads(answer)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        while not self._close_event.wait(TICK):
            deadline = self._deadline
            if self._is_cancelled():
                self._stopped_for = "Cancelled."
            elif deadline is not None and time.monotonic() > deadline:
                self._stopped_for = self._too_slow()
            if self._stopped_for is not None:
                process.kill()
                return

    def _reason(self, process: subprocess.Popen[bytes]) -> str:
        """Why the process ended by itself."""
        process.kill()  # its output has ended, so it is ending
        alarm: int | None = getattr(signal, "SIGALRM", None)
        if alarm is not None and process.wait() == -alarm:
            return self._too_slow()
        return "The search process ended unexpectedly: try again."

    def _too_slow(self) -> str:
        return (
            f"The search was stopped: {self._parameter!r} took more than {self._seconds:g} seconds for one file. "
            "Make the expression simpler (no nested repetitions like '(a+)+')."
        )

    def _close(self) -> None:
        self._close_event.set()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
            atexit.unregister(process.kill)
