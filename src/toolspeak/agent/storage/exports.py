"""A session as lines of JSON: a line for the session, then the records of its runs, in order."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from toolspeak.agent.storage.runs import close_run, load_state
from toolspeak.agent.storage.sessions import known_session
from toolspeak.data.checks import FieldMismatch, integer, kind_of, number, text
from toolspeak.data.codec import dump, dumps, load, load_text, loads
from toolspeak.data.events import Record
from toolspeak.data.messages import Message
from toolspeak.data.run_values import PAUSED_STATUSES, UNFINISHED_STATUSES
from toolspeak.errors import FormatError
from toolspeak.journal import Journal, MemoryJournal, RunInfo, SessionInfo
from toolspeak.journal.records import plain

EXPORT = 1
"""The version of the lines."""

_YEAR_10_000 = 253_402_300_800  # Python's datetime ends there


async def export_session(journal: Journal, session_id: str) -> AsyncGenerator[str]:
    """Yields the whole session as lines of JSON, without line ends. Raises RunError if there is no such session."""
    info, runs = await _standing(journal, session_id)
    runs = [each for run in runs for each in (run, *await _waited_for(journal, run))]
    yield session_line(info, sum(run.records for run in runs))
    for run in runs:
        for record in (await journal.read(run.run_id))[: run.records]:
            yield dumps(record)


def session_line(info: SessionInfo, records: int) -> str:
    """The first line of a session with so many records."""
    head: dict[str, Any] = {"toolspeak_session": EXPORT, "records": records}
    head |= {name: getattr(info, name) for name in _FIELDS}
    return json.dumps({**head, "history": [dump(message) for message in info.history]})


async def _waited_for(journal: Journal, run: RunInfo) -> list[RunInfo]:
    """The sub-runs that a run's calls wait for, and those of these."""
    if run.status not in PAUSED_STATUSES:
        return []
    sub_runs: list[RunInfo] = []
    for sub_run in (await load_state(journal, run.run_id)).pending.sub_runs:
        info = await journal.run(sub_run)
        if info is not None:
            sub_runs += [info, *await _waited_for(journal, info)]
    return sub_runs


async def _standing(journal: Journal, session_id: str) -> tuple[SessionInfo, Sequence[RunInfo]]:
    """A session and its runs at one moment, the oldest first. Another process may continue the session meanwhile."""
    while True:
        info = await known_session(journal, session_id)
        runs = await journal.runs(session_id=session_id)
        if (await known_session(journal, session_id)).version == info.version:
            return info, runs[::-1]


async def import_session(journal: Journal, lines: Iterable[str]) -> SessionInfo:
    """Adds a session that `export_session` wrote, as a whole or not at all.

    Raises FormatError, which names the line, for other text and if lines are missing; RunConflict if the journal has
    the session.
    """
    head: SessionInfo | None = None
    record_count, records = 0, list[Record]()
    for line_number, line in enumerate(lines, 1):
        try:
            if head is None:
                head, record_count = session_of(load_text(line))
            elif line.strip():
                records.append(record_of(line))
        except FormatError as error:
            raise FormatError(f"line {line_number}: {error}") from error
    if head is None:
        raise FormatError("line 1: expected a session, found nothing")
    if len(records) != record_count:
        raise FormatError(
            f"the first line says {record_count} records, and there are {len(records)}: lines are missing or were "
            "added; export the session again"
        )
    await journal.add_session(head, records)
    return head


async def import_closed(journal: Journal, lines: Iterable[str]) -> tuple[SessionInfo, int]:
    """As `import_session`, for lines from an untrusted source. Runs that have not ended are closed before the journal
    has them. Returns the session and how many were closed.

    The lines contain the decisions and the setup of a run, so resuming one could run any call.
    """
    aside = MemoryJournal()
    session_id = (await import_session(aside, lines)).session_id
    open_run_ids = [
        each.run_id for each in await aside.runs(session_id=session_id) if each.status in UNFINISHED_STATUSES
    ]
    for run_id in open_run_ids:
        await close_run(aside, run_id)
    lines_after_close = [line async for line in export_session(aside, session_id)]
    return await import_session(journal, lines_after_close), len(open_run_ids)


def record_of(line: str) -> Record:
    """The record on a line. Raises FormatError."""
    record = loads(line)
    if not isinstance(record, Record):
        raise FormatError(f"expected a record, found {type(record).__name__}")
    _read("time", _time, record.time)
    return record


def session_of(data: Any) -> tuple[SessionInfo, int]:
    """Reads the first line: the session, and how many records follow. Raises FormatError."""
    if not isinstance(data, dict):
        raise FormatError("expected the line of a session, a JSON object")
    line = cast("dict[str, Any]", data)
    if line.get("toolspeak_session") != EXPORT:
        raise FormatError(
            f"expected 'toolspeak_session': {EXPORT}; this is not an exported session, or one of a later version"
        )
    for name in (*_FIELDS, *_BEYOND):
        if name not in line:
            raise FormatError(f"the field {name!r} is missing")
    fields = {name: _read(name, check, line[name]) for name, check in _FIELDS.items()}
    beyond = {name: _read(name, check, line[name]) for name, check in _BEYOND.items()}
    return SessionInfo(**fields, history=beyond["history"]), beyond["records"]


def _read(name: str, check: Callable[[Any], Any], value: Any) -> Any:
    try:
        return check(value)
    except (FieldMismatch, FormatError) as error:
        raise FormatError(f"the field {name!r}: {error}") from error


def _plain(value: Any) -> str:
    if plain(text(value)) != value:
        raise FieldMismatch("expected text without NUL and lone surrogates")
    return value


def _name(value: Any) -> str:
    if not _plain(value):
        raise FieldMismatch("expected an id, found no text")
    return value


def _title(value: Any) -> str:
    return plain(text(value))


def _count(value: Any) -> int:
    if not 0 <= integer(value) < 1 << 63:
        raise FieldMismatch("expected a number of things, 0 or more")
    return value


def _time(value: Any) -> float:
    if not 0 <= number(value) < _YEAR_10_000:
        raise FieldMismatch("expected a time: seconds since 1970, before the year 10,000")
    return float(value)


def _or_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


def _place(value: Any) -> tuple[str, int]:
    items = _items(value)
    if len(items) != 2:
        raise FieldMismatch("expected a run and how many of its records")
    return _name(items[0]), _count(items[1])


def _messages(value: Any) -> tuple[Message, ...]:
    messages = tuple(load(item) for item in _items(value))
    for message in messages:
        if not isinstance(message, Message):
            raise FieldMismatch(f"expected messages, found {type(message).__name__}")
    return messages


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise FieldMismatch(f"expected a list, found {kind_of(value)}")
    return cast("list[Any]", value)


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "session_id": _name,
    "title": _title,
    "created": _time,
    "updated": _time,
    "version": _count,
    "runs": _count,
    "last_run": _or_none(_name),
    "principal": _or_none(_plain),
    "forked_from": _or_none(_place),
}
"""The fields of a session that are written unchanged, and how each is read."""

_BEYOND: Mapping[str, Callable[[Any], Any]] = {"records": _count, "history": _messages}
