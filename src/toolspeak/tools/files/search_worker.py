"""Searches texts with a regular expression in a separate process, since Python can kill a process but not a search.

It imports only the standard library, because it runs by its path.

- Standard input: a JSON line with the pattern and the limits, then for each text a JSON line with its length in bytes,
  and the bytes.
- Standard output: a JSON line for each text.

The process ends at the end of its input, and if one answer takes too long (POSIX). See `search.py`.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import Any

EXCERPT_CHARACTERS = 500
"""The most characters of a matching line that are returned."""

LONGEST = 10_000_000.0
"""The most seconds that a timer accepts on every system."""


def compile_pattern(pattern: str) -> re.Pattern[str] | str:
    """The compiled pattern, or the error in it."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        return str(error)


def search(pattern: re.Pattern[str], data: bytes, max_line: int, limit: int) -> dict[str, Any]:
    """The first `limit` matching lines with their numbers, and how many lines match; none in binary data."""
    try:
        text = "" if b"\0" in data else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = ""
    matches: list[tuple[int, str]] = []
    count = cut = 0
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()  # the empty text after the last newline is not a line
    for number, line in enumerate(lines, 1):
        plain = line.removesuffix("\r")
        cut += len(plain) > max_line
        match = pattern.search(plain[:max_line])
        if match is None:
            continue
        count += 1
        if len(matches) < limit:
            matches.append((number, _excerpt(plain, match.start())))
    return {"matches": matches, "count": count, "cut": cut}


def replace(pattern: re.Pattern[str], data: bytes, new: str) -> dict[str, Any]:
    """The text with `new` (`\\1`: the first group) instead of each match, and how many there were; or the error in
    `new`."""
    try:
        text, count = pattern.subn(new, data.decode())
    except (re.error, IndexError) as error:
        return {"error": str(error)}
    return {"error": None, "text": text, "count": count}


def _excerpt(line: str, at: int) -> str:
    if len(line) <= EXCERPT_CHARACTERS:
        return line
    start = max(0, min(at - EXCERPT_CHARACTERS // 4, len(line) - EXCERPT_CHARACTERS))
    end = start + EXCERPT_CHARACTERS
    return ("..." if start else "") + line[start:end] + ("..." if end < len(line) else "")


def allow(seconds: float) -> None:
    """Sets the seconds after which the system kills the process, even inside `re`; 0 for no limit."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, min(seconds, LONGEST))


def die_when_time_is_over() -> None:
    """Lets the timer's signal end the process, even if the parent process ignored it."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})


def main() -> None:
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    die_when_time_is_over()
    if not (first := source.readline()):
        return
    job = json.loads(first)
    allow(job["seconds"])
    pattern = compile_pattern(job["pattern"])
    answer: dict[str, Any] = {"error": pattern if isinstance(pattern, str) else None}
    while True:
        sink.write(json.dumps(answer).encode() + b"\n")
        sink.flush()
        allow(0)
        if isinstance(pattern, str) or not (line := source.readline()):
            return
        header = json.loads(line)
        allow(job["seconds"])
        data = source.read(header["bytes"])
        if "new" in header:
            answer = replace(pattern, data, header["new"])
        else:
            answer = search(pattern, data, job["max_line"], header["wanted"])


if __name__ == "__main__":
    main()
