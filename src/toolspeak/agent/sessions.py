"""Sessions in a journal: where one stands, forks, and one as lines of JSON."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from toolspeak.agent.load import closed, load_state
from toolspeak.agent.resume import Place
from toolspeak.data.codec import dump, dumps, load, load_text, loads
from toolspeak.data.events import Record
from toolspeak.data.messages import Message
from toolspeak.errors import FormatError, RunBusy, RunError
from toolspeak.journal import Journal, SessionInfo

EXPORT = 1
"""The version of the lines `export_session` writes: the session, then the records of its runs, in order."""

_FIELDS = ("session_id", "title", "created", "updated", "version", "runs", "last_run", "principal", "forked_from")


def new_session_id() -> str:
    return uuid.uuid4().hex


async def known_session(journal: Journal, session_id: str) -> SessionInfo:
    """Raises RunError if there is none."""
    info = await journal.session(session_id)
    if info is None:
        raise RunError(f"there is no session {session_id}; `toolspeak sessions` lists them")
    return info


async def place_of(journal: Journal, session_id: str, principal: str | None = None) -> Place:
    """Where the session's next run begins; a session nobody knows is new.

    Raises RunError for another principal's session, and RunBusy while a process is at work on its last run.
    """
    info = await journal.session(session_id)
    if info is None:
        return Place(session_id)
    if info.principal != principal:
        raise RunError(f"session {session_id} is another user's; start one of your own")
    if info.last_run is None:
        return Place(session_id, info.version, before=info.history)
    last = await journal.run(info.last_run)
    if last is not None and last.status == "running" and last.owner and (last.held_until or 0) > time.time():
        raise RunBusy(f"the last run of session {session_id} is still going on; wait for it, or end its process")
    state = await load_state(journal, info.last_run)
    return Place(session_id, info.version, info.last_run, state.seq, closed(state))


async def session_messages(journal: Journal, session_id: str) -> Sequence[Message]:
    """All that was said in a session, whatever was made shorter for the model. Raises RunError if there is none."""
    info = await known_session(journal, session_id)
    if info.last_run is None:
        return info.history
    return closed(await load_state(journal, info.last_run, whole=True))


async def fork_session(
    journal: Journal, session_id: str, run_id: str | None = None, count: int | None = None
) -> SessionInfo:
    """A new session that begins with what was said in this one: until the first `count` records of one of its runs
    (all of them), or until its end. The two go on without each other.

    Raises RunError if there is no such session, run or record.
    """
    info = await known_session(journal, session_id)
    behind = run_id or info.last_run
    history: Sequence[Message] = info.history
    if behind is not None:
        run = await journal.run(behind)
        if run is None or run.session_id != session_id:
            raise RunError(f"session {session_id} has no run {behind}")
        if count is not None and not 0 < count <= run.records:
            raise RunError(f"run {behind} has {run.records} records; fork behind 1 to {run.records} of them")
        state = await load_state(journal, behind, count)
        history, count = closed(state), state.seq
    now = time.time()
    fork = SessionInfo(
        new_session_id(),
        f"{info.title} (fork)",
        now,
        now,
        principal=info.principal,
        forked_from=None if behind is None else (behind, count or 0),
        history=tuple(history),
    )
    await journal.add_session(fork)
    return fork


async def export_session(journal: Journal, session_id: str) -> AsyncGenerator[str]:
    """The session as lines of JSON, without line ends; nothing is left out. Raises RunError if there is none."""
    info = await known_session(journal, session_id)
    head: dict[str, Any] = {"toolspeak_session": EXPORT, **{name: getattr(info, name) for name in _FIELDS}}
    yield json.dumps({**head, "history": [dump(message) for message in info.history]})
    for run in reversed(await journal.runs(session_id=session_id)):
        for record in await journal.read(run.run_id):
            yield dumps(record)


async def import_session(journal: Journal, lines: Iterable[str]) -> SessionInfo:
    """Adds what `export_session` wrote, as it was.

    Raises FormatError naming the line for anything else, RunConflict if the session is there already.
    """
    head: SessionInfo | None = None
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        try:
            if head is None:
                head = _head(load_text(line))
            elif line.strip():
                record = loads(line)
                if not isinstance(record, Record):
                    raise FormatError(f"expected a record, found {type(record).__name__}")
                records.append(record)
        except FormatError as error:
            raise FormatError(f"line {number}: {error}") from error
    if head is None:
        raise FormatError("line 1: expected a session, found nothing")
    await journal.add_session(head, records)
    return head


def _head(data: Any) -> SessionInfo:
    if not isinstance(data, dict):
        raise FormatError("expected a session's own line, an object")
    found = cast("dict[str, Any]", data)
    if found.get("toolspeak_session") != EXPORT:
        raise FormatError(f"expected 'toolspeak_session': {EXPORT}; this is no exported session, or of a later version")
    try:
        info = SessionInfo(**{name: found[name] for name in _FIELDS})
        history = tuple(cast("Message", load(message)) for message in found["history"])
    except (KeyError, TypeError) as error:
        raise FormatError(f"a field of the session is missing or wrong: {error}") from error
    return replace(info, history=history, forked_from=tuple(info.forked_from) if info.forked_from else None)
