"""The main text of web pages as Markdown, read by processes that are killed if a page takes too long."""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ToolError
from toolspeak.tools.web import page_worker

_MEMORY = 1024 * 1024 * 1024
_IDLE_SECONDS = 120.0
_START_SECONDS = 30.0
_MOST_IDLE = 2


@quick()
class PageText:
    """A page as a model reads it.

    - `text`: its main text as Markdown, or the beginning of a very long one; all of its text if no main text was found.
    - `length`: how many characters the text has as a whole; `all_length`: all text of the page, without its markup.
    - `refresh`: where it leads by itself, as it says; "" if it stays.
    """

    title: str
    text: str
    length: int
    all_length: int
    refresh: str


class PageReader:
    """Reads pages in processes, which stay for a while for the next page.

    `seconds`: the time limit of a page. If its main text is not found within a fifth of it, or takes too much memory,
    all text of the page is taken.

    Raises ConfigurationError if `trafilatura` is not installed.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        spec = importlib.util.find_spec("trafilatura")
        if spec is None or spec.origin is None:
            raise ConfigurationError("reading web pages needs the extra `web`: pip install 'toolspeak[web]'")
        if not sys.executable or getattr(sys, "frozen", False):
            raise ConfigurationError("reading web pages needs a Python that can be started; this program is frozen")
        self._library = [str(Path(spec.origin).parents[1])]
        self._seconds = seconds
        self._lock = threading.Lock()
        self._idle: list[_PageProcess] = []

    async def read(self, page: str, url: str) -> PageText:
        """The text of a page. Raises ToolError if even all of its text takes too long, or too much memory."""
        reading = _PageTask()
        try:
            return await asyncio.to_thread(self._read, page, url, reading)
        except asyncio.CancelledError:
            reading.stop()
            raise

    def _read(self, page: str, url: str, reading: _PageTask) -> PageText:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        answer = None
        if process is not None and reading.uses(process):
            answer = process.ask(page, url, self._seconds)
            if answer is None and not process.is_late:  # it had ended by itself
                process.kill()
                process = None
        if process is None:
            process = _PageProcess(self._library, self._seconds)
            if reading.uses(process) and process.start():
                answer = process.ask(page, url, self._seconds)
        with self._lock:
            if not process.has_ended and len(self._idle) < _MOST_IDLE:
                self._idle.append(process)
            else:
                process.kill()
        if answer is None:
            how = f"took more than {self._seconds:g} seconds"
            if not process.is_late:
                how = "ended its process (too much memory, or a fault of a library)"
            raise ToolError(f"{url}: reading the page {how}, so it was stopped: pass want='source' for its source")
        if "error" in answer:
            raise ToolError(f"{url}: reading the page failed ({answer['error']}): pass want='source' for its source")
        return PageText(answer["title"], answer["text"], answer["length"], answer["all"], answer["refresh"])


class _PageTask:
    """One page that is read in a thread, which another thread may stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _PageProcess | None = None
        self._is_over = False

    def uses(self, process: _PageProcess) -> bool:
        """Notes the process that reads the page. False if the reading was stopped: then the process has ended."""
        with self._lock:
            self._process = process
            if self._is_over:
                process.kill()
            return not self._is_over

    def stop(self) -> None:
        """Ends the process that reads the page. None is started any more."""
        with self._lock:
            self._is_over = True
            if self._process is not None:
                self._process.kill()


@functools.cache
def shared_reader() -> PageReader:
    """The reader of all tools that have none of their own. Raises as `PageReader`."""
    return PageReader()


class _PageProcess:
    """One process.

    - `has_ended`: whether it ended, or was killed, before its last answer.
    - `is_late`: whether that was at the time limit.
    """

    def __init__(self, library: list[str], seconds: float) -> None:
        self.has_ended = self.is_late = False
        settings = {"library": library, "seconds": seconds, "memory": _MEMORY, "idle": _IDLE_SECONDS}
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(Path(page_worker.__file__)), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "SYSTEMROOT")},
        )
        atexit.register(self.kill)

    def start(self) -> bool:
        """Waits until it is ready. False if it ended before."""
        return self._within(_START_SECONDS, b"") is not None

    def ask(self, page: str, url: str, seconds: float) -> Mapping[str, Any] | None:
        """The best answer about a page; None if the process ended before there was one."""
        data = page.encode("utf-8", "replace")
        return self._within(seconds, json.dumps({"url": url, "bytes": len(data)}).encode() + b"\n" + data)

    def kill(self) -> None:
        """Ends the process."""
        self.has_ended = True
        atexit.unregister(self.kill)
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was written did not leave
                    continue
        self._process.wait()

    def _within(self, seconds: float, data: bytes) -> dict[str, Any] | None:
        process = self._process
        assert process.stdin is not None, "the process has pipes"
        assert process.stdout is not None, "the process has pipes"
        answer: dict[str, Any] | None = None
        end = time.monotonic() + seconds
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        try:
            with suppress(OSError, ValueError):  # it has ended, or was ended while it was asked
                process.stdin.write(data)
                process.stdin.flush()
                while (line := process.stdout.readline()).endswith(b"\n"):
                    answer = cast("dict[str, Any]", json.loads(line))
                    if answer.get("is_last"):
                        self.has_ended = False
                        return answer
        finally:
            timer.cancel()
        self.has_ended, self.is_late = True, time.monotonic() >= end
        return answer
