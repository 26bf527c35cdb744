"""The texts of records: what a run is called, and what a search looks through."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolspeak.data.events import ModelAnswered, Record, RunStarted, ToolFinished, UserMessageQueued
from toolspeak.data.messages import Message

TITLE = 80
"""Characters of a title."""

SEARCHED = 100_000
"""Characters of one text that are searched: enough for any answer, and a bound for what a tool returned."""

_WORD = re.compile(r"[^\W_]+")
_LONE = re.compile("[\ud800-\udfff]")
_LONGEST = 100  # characters of a word that are compared: no store takes words of any length
_AROUND = 60  # characters of a snippet on either side of the first word


def title_of(messages: Sequence[Message]) -> str:
    """The beginning of the first line that the user's newest message has."""
    texts = (message.text for message in reversed(messages) if message.role == "user")
    newest = next(filter(str.strip, texts), "")
    line = plain(" ".join(newest.strip().split("\n", 1)[0].split()))
    return line if len(line) <= TITLE else line[: TITLE - 1].rstrip() + "…"


def plain(text: str) -> str:
    """Text that every database takes in a column of its own: without NUL, a lone surrogate as U+FFFD."""
    return _LONE.sub("\ufffd", text.replace("\0", ""))


def texts_of(record: Record) -> Iterator[tuple[str, str]]:
    """Who said what: `(role, text)` of what a search looks through. A run's history is in the runs before it."""
    match record.event:
        case RunStarted(messages):
            texts = [("user", messages[-1].text)] if messages else []
        case UserMessageQueued(message):
            texts = [("user", message.text)]
        case ModelAnswered(message):
            texts = [("assistant", message.text)]
        case ToolFinished(result):
            texts = [("tool", result.text)]
        case _:
            texts = []
    return ((role, text[:SEARCHED]) for role, text in texts if text)


def words(text: str) -> list[str]:
    """The words of a text as they are compared: runs of letters and digits, in lower case."""
    return [word[:_LONGEST] for word in _WORD.findall(plain(text).lower())]


def holds(text: str, wanted: Sequence[str]) -> bool:
    """Whether all wanted words stand in a text; the last may be the beginning of one."""
    there = set(words(text))
    return all(word in there for word in wanted[:-1]) and any(word.startswith(wanted[-1]) for word in there)


def snippet(text: str, wanted: Sequence[str]) -> str:
    """The text around the first of the words, on one line."""
    places = [match.start() for match in _WORD.finditer(text) if match[0].lower().startswith(tuple(wanted))]
    at = places[0] if places else 0
    start, end = max(0, at - _AROUND), at + _AROUND
    line = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"
