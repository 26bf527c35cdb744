"""What all journals share: how they store records, list and search them, and check their order.

A record is stored as one line of JSON, without the facts that its row holds. Large contents are stored separately:

- A string of more than `LARGE` bytes is stored under its SHA-256, so equal strings are stored once.
- So is a part of a request (`ModelAsked`) of more than `LONG_PART` characters.
- JSON that is still larger is stored separately as a whole.
- The row holds the place of each content: `[[place, digest], …]`. A place is the list of keys and indexes that lead to
  the content.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias, cast
from zlib import crc32

from toolspeak.data.codec import dump_row, dump_text, load_record, load_row, load_text
from toolspeak.data.events import (
    ApprovalDecided,
    ModelAnswered,
    ModelAsked,
    Record,
    RunConfigured,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
    ToolFinished,
    ToolStarted,
    UserMessageQueued,
)
from toolspeak.data.messages import JSON, Message
from toolspeak.data.values import quick
from toolspeak.errors import FormatError, JournalError, RunConflict, RunError
from toolspeak.journal.base import RunInfo, SearchHit, SessionInfo

LARGE = 64 * 1024
"""The size in bytes above which a content is stored separately."""

LONG_PART = 512
"""The length in characters above which a part of a request is stored separately."""

Row: TypeAlias = tuple[int, str, str | None]
"""A record's row: its number, its JSON, and the places of its contents."""

_NO_BLOBS: Mapping[str, bytes] = {}

TITLE = 80
"""The length of a title in characters."""

MOST_SEARCHED = 100_000
"""The most characters of a text that a search reads. All answers are shorter; it limits the results of tools."""

_WORD = re.compile(r"[^\W_]+")
_LONE = re.compile("[\ud800-\udfff]")
_LONGEST = 100  # the most characters of a word: every database has such a limit
_AROUND = 60  # the characters of a snippet on each side of the first word


def title_of(messages: Sequence[Message]) -> str:
    """The beginning of the first line of the user's newest message."""
    texts = (message.text for message in reversed(messages) if message.role == "user")
    newest = next(filter(str.strip, texts), "")
    line = plain(" ".join(newest.strip().split("\n", 1)[0].split()))
    return line if len(line) <= TITLE else line[: TITLE - 1].rstrip() + "…"


def plain(text: str) -> str:
    """Text that every database accepts: without NUL, and with U+FFFD for each lone surrogate."""
    return _LONE.sub("\ufffd", text.replace("\0", ""))


def places_of(run_start: RunStarted) -> tuple[str | None, str | None]:
    """The folder and the dialect in a run's settings, as lists show them; None for what they do not say."""
    folder, dialect = (run_start.setup.get(name) for name in ("workspace", "dialect"))
    return plain(folder) if isinstance(folder, str) else None, plain(dialect) if isinstance(dialect, str) else None


def texts_of(record: Record) -> Iterator[tuple[str, str]]:
    """The texts that a search reads, each with its role. A run's history is not among them: earlier runs hold it."""
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
    return ((role, text[:MOST_SEARCHED]) for role, text in texts if text)


def words(text: str) -> list[str]:
    """The words of a text for a search: sequences of letters and digits, in lower case."""
    return [word[:_LONGEST] for word in _WORD.findall(plain(text).lower())]


def holds(text: str, query_words: Sequence[str]) -> bool:
    """Whether a text contains all words of the query. The last one may be a prefix."""
    there = set(words(text))
    return all(word in there for word in query_words[:-1]) and any(word.startswith(query_words[-1]) for word in there)


def snippet(text: str, query_words: Sequence[str]) -> str:
    """The text around the first word, on one line."""
    places = [match.start() for match in _WORD.finditer(text) if match[0].lower().startswith(tuple(query_words))]
    at = places[0] if places else 0
    start, end = max(0, at - _AROUND), at + _AROUND
    line = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"


def status_after(event: object) -> RunStatus | None:
    """The run's status after an event; None if the event does not change it."""
    match event:
        case RunStarted(due=due):
            return "running" if due is None else "queued"
        case RunResumed():
            return "running"
        case RunPaused(reason):
            return reason
        case RunFinished(status):
            return status
        case _:
            return None


CHANGES_OF_RUNS = (RunStarted, RunConfigured, RunResumed, RunPaused, RunFinished)
"""The events that change what lists show of their run."""

SYNCED_EVENTS = (ToolStarted, ToolFinished, ApprovalDecided, RunPaused, RunFinished)
"""Events that are synced to the disk before the run continues: a power cut must not undo the start or the result of an
effect, a person's decision, or an outcome that the caller knows."""


ENDS = frozenset((RunPaused, RunFinished))
FOLLOWED_EVENTS = ENDS | {ToolStarted}
"""Events that must be in the file at its path before an effect happens or the caller learns of them.

The log is also checked when a run pauses or ends, and with every lease. While the process lives, a missing log loses
nothing. After the process has died, the next one notices that the log is missing."""


def session_after(session: SessionInfo | None, record: Record, event: RunStarted) -> SessionInfo:
    """Returns the session after one more run. Raises RunConflict unless the session has the version that `event`
    names."""
    session_id = event.session_id or ""
    if (session.version if session else 0) != event.session_version:
        raise session_conflict(session_id, event.session_version, session.version if session else None)
    session = session or SessionInfo(
        session_id, title_of(event.messages), record.time, record.time, principal=record.principal
    )
    return replace(
        session,
        title=session.title or title_of(event.messages),
        updated=record.time,
        version=session.version + 1,
        runs=session.runs + 1,
        last_run=record.run_id,
    )


def hits_in(info: RunInfo, record: Record, query_words: Sequence[str]) -> list[SearchHit]:
    """Returns a search's hits in one record."""
    return [
        SearchHit(info.run_id, record.seq, info.session_id, info.title, record.time, role, snippet(text, query_words))
        for role, text in texts_of(record)
        if holds(text, query_words)
    ]


def check_runs(session: SessionInfo, records: Sequence[Record]) -> None:
    """Raises JournalError unless the records of each run are consecutive and begin with RunStarted.

    A run belongs to this session, or to no session if a tool of an earlier run started it.
    """
    counts: dict[str, int] = {}
    for record in records:
        seq = counts.get(record.run_id, 0)
        of_tool = None if record.parent_run_id in counts else session.session_id
        starts = isinstance(record.event, RunStarted) and record.event.session_id in (session.session_id, of_tool)
        if record.seq != seq or starts != (seq == 0):
            raise JournalError(
                f"record {record.seq} of run {record.run_id} is out of place in session {session.session_id}: expected"
                f" record {seq}; a part is missing or out of order"
            )
        counts[record.run_id] = seq + 1


def check_lone_runs(records: Sequence[Record]) -> None:
    """Raises JournalError unless the records are those of one run outside of sessions and then of runs that its tools
    started, consecutive, each beginning with RunStarted."""
    counts: dict[str, int] = {}
    for record in records:
        seq = counts.get(record.run_id, 0)
        starts = isinstance(record.event, RunStarted) and record.event.session_id is None
        is_known = not counts or record.run_id in counts or record.parent_run_id in counts
        if record.seq != seq or starts != (seq == 0) or not is_known:
            raise JournalError(
                f"record {record.seq} of run {record.run_id} is out of place: expected record {seq}; a part is missing"
                " or out of order"
            )
        counts[record.run_id] = seq + 1


def continued_elsewhere(record: Record) -> RunConflict:
    return RunConflict(
        f"another process has continued run {record.run_id} (record {record.seq} is not the next);"
        " only its newest result can be resumed"
    )


def session_exists(session_id: str) -> RunConflict:
    return RunConflict(f"session {session_id} or one of its runs is in this journal already; delete it first")


def session_conflict(session_id: str, expected: int, version: int | None) -> RunConflict:
    if version is None:
        return RunConflict(f"there is no session {session_id} (`toolspeak sessions` lists them)")
    return RunConflict(
        f"another process has continued session {session_id}: it is at version {version}, not {expected}; open it again"
    )


def unknown_run(run_id: str) -> RunError:
    return RunError(f"the journal has no run {run_id}; `toolspeak sessions` lists what it has")


def starts_rightly(record: Record) -> bool:
    """Whether RunStarted is the run's first record, and only that."""
    return (record.seq == 0) == (type(record.event) is RunStarted)


def no_start(record: Record) -> JournalError:
    kind = type(record.event).__name__
    return JournalError(
        f"record {record.seq} of run {record.run_id} cannot be {kind}: a run begins with RunStarted, once"
    )


@quick(eq=False)
class RecordRow:
    """A record's row.

    - `text`: its JSON.
    - `places`: the places of the contents that are stored separately, as JSON; None without any.
    - `blobs`: these contents by digest.
    """

    text: str
    places: str | None
    blobs: Mapping[str, bytes]


def pack(record: Record) -> RecordRow:
    """Returns the row of a record. Raises FormatError for a record that cannot be stored."""
    text = dump_row(record)
    has_parts = type(record.event) is ModelAsked and len(record.event.request_parts) > 0
    if not has_parts and len(text) <= LARGE and (text.isascii() or len(text.encode()) <= LARGE):
        return RecordRow(text, None, _NO_BLOBS)
    data = load_text(text)
    blobs: dict[str, bytes] = {}
    places: list[JSON] = []

    def take(content: str, place: list[Any]) -> None:
        blob = content.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(blob).hexdigest()
        blobs[digest] = blob
        places.append([place, digest])

    if has_parts:  # the runs of an agent share them
        for name, part in data["event"]["request_parts"].items():
            if len(part) > LONG_PART:
                take(part, ["event", "request_parts", name])
                data["event"]["request_parts"][name] = None
    text = dump_text(_without_large(data, [], take))
    if len(text) > LARGE:
        take(text, [])
        text = "null"
    return RecordRow(text, dump_text(places) if places else None, blobs)


def sum_of(pos: int, text: str, places: str | None = None) -> int:
    """The checksum that is stored with a record. It includes the record's position, so it reveals a row at another
    position."""
    return crc32((text if places is None else text + places).encode(), (pos ^ (pos >> 32)) & 0xFFFFFFFF)


def unpack(rows: Sequence[Row], run_id: str, blob: Callable[[str], bytes]) -> list[Record]:
    """Returns the records in the rows. Raises FormatError, with the record's number, for a row that cannot be read."""
    with _without_collection():
        return _records_of(rows, run_id, blob)


@contextmanager
def _without_collection() -> Generator[None]:
    """Pauses garbage collection while a page of records is decoded.

    A page's objects do not become garbage soon, and collections would take as long as everything else.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _records_of(rows: Sequence[Row], run_id: str, blob: Callable[[str], bytes]) -> list[Record]:
    records: list[Record] = []
    for seq, text, places in rows:
        try:
            if places is None:
                records.append(load_row(text, run_id, seq))
            else:
                records.append(load_record(_with_contents(load_text(text), places, blob), run_id, seq))
        except (FormatError, LookupError, TypeError) as error:
            raise FormatError(f"record {seq} of run {run_id}: {error}") from error
    return records


def digests(places: str) -> set[str]:
    """The digests of a record's contents that are stored separately."""
    return {digest for _, digest in json.loads(places)}


def _without_large(value: JSON, place: list[Any], take: Callable[[str, list[Any]], None]) -> JSON:
    if isinstance(value, str):
        # A character has at most four bytes, so a much shorter string need not be encoded to know its size.

        if len(value) * 4 > LARGE and len(value.encode("utf-8", "surrogatepass")) > LARGE:
            take(value, place)
            return None
        return value
    if isinstance(value, dict):
        entries = cast("dict[str, JSON]", value).items()
        return {key: _without_large(item, [*place, key], take) for key, item in entries}
    if isinstance(value, list):
        return [_without_large(item, [*place, i], take) for i, item in enumerate(cast("list[JSON]", value))]
    return value


def _with_contents(data: JSON, places: str, blob: Callable[[str], bytes]) -> JSON:
    contents = [(place, blob(digest).decode("utf-8", "surrogatepass")) for place, digest in json.loads(places)]
    whole = [content for place, content in contents if not place]
    if whole:
        data = load_text(whole[0])
    for place, content in contents:
        if place:
            inner = data
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = content
    return data
