"""What all journals do alike: what an event changes in the lists, and the errors they raise."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from toolspeak.data.events import Record, RunFinished, RunPaused, RunResumed, RunStarted, RunStatus
from toolspeak.errors import JournalError, LeaseLost, RunBusy, RunConflict
from toolspeak.journal.base import Lease, RunInfo, SearchHit, SessionInfo
from toolspeak.journal.owner import is_dead
from toolspeak.journal.texts import holds, snippet, texts_of, title_of


def status_after(event: object) -> RunStatus | None:
    """The status an event gives its run; None if it leaves it as it is."""
    match event:
        case RunStarted() | RunResumed():
            return "running"
        case RunPaused(reason):
            return reason
        case RunFinished(status):
            return status
        case _:
            return None


def is_listed(event: object) -> bool:
    """Whether the event changes what lists show of its run (it then has a `status_after`)."""
    return isinstance(event, _LISTED)


_LISTED = (RunStarted, RunResumed, RunPaused, RunFinished)


def session_after(known: SessionInfo | None, record: Record, event: RunStarted) -> SessionInfo:
    """The session after one more run. Raises RunConflict if it has another version than the run was started on."""
    session_id = event.session_id or ""
    if (known.version if known else 0) != event.session_version:
        raise session_conflict(session_id, event.session_version, known.version if known else None)
    session = known or SessionInfo(
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


def hits_in(info: RunInfo, record: Record, wanted: Sequence[str]) -> list[SearchHit]:
    """What a search finds in one record."""
    return [
        SearchHit(info.run_id, record.seq, info.session_id, info.title, record.time, role, snippet(text, wanted))
        for role, text in texts_of(record)
        if holds(text, wanted)
    ]


def check_lease(run_id: str, lease: Lease | None, owner: str | None, epoch: int) -> None:
    """Raises LeaseLost unless the lease is the run's newest, or nobody has one and none is given."""
    if lease is None and owner is not None:
        raise LeaseLost(f"run {run_id} is held by another process, and this one has no lease on it; acquire it first")
    if lease is not None and (owner is None or lease.epoch != epoch):
        raise LeaseLost(f"run {run_id} was taken over by another process; this one does nothing more for it")


def check_runs(session: SessionInfo, records: Sequence[Record]) -> None:
    """Raises JournalError unless each run's records begin with RunStarted in this session, or in none and by a tool of
    a run before, and follow each other."""
    counts: dict[str, int] = {}
    for record in records:
        seq = counts.get(record.run_id, 0)
        of_tool = None if record.parent_run_id in counts else session.session_id
        starts = isinstance(record.event, RunStarted) and record.event.session_id in (session.session_id, of_tool)
        if record.seq != seq or starts != (seq == 0):
            raise JournalError(
                f"record {record.seq} of run {record.run_id} cannot come here in session {session.session_id}: expected"
                f" record {seq}; a part is missing or out of order"
            )
        counts[record.run_id] = seq + 1


def is_held(info: RunInfo) -> bool:
    """Whether a process is at work on the run."""
    return info.owner is not None and (info.held_until or 0) > time.time() and not is_dead(info.owner)


def gone_on(record: Record) -> RunConflict:
    return RunConflict(
        f"run {record.run_id} has gone on elsewhere (record {record.seq} is not the next);"
        " only its newest result can be resumed"
    )


def busy(run_id: str, seconds: float) -> RunBusy:
    remaining = max(0.0, seconds)
    return RunBusy(
        f"run {run_id} is held by another process: wait for it, or end it. If it died on another machine, the "
        f"run is free in {remaining:.0f} seconds"
    )


def there_already(session_id: str) -> RunConflict:
    return RunConflict(f"session {session_id} or one of its runs is in this journal already; delete it first")


def session_conflict(session_id: str, expected: int, version: int | None) -> RunConflict:
    if version is None:
        return RunConflict(f"there is no session {session_id} (`toolspeak sessions` lists them)")
    return RunConflict(
        f"session {session_id} has gone on elsewhere: it is at version {version}, not {expected}; open it again"
    )


def starts_rightly(record: Record) -> bool:
    """Whether the record is its run's first if, and only if, it starts the run."""
    return (record.seq == 0) == (type(record.event) is RunStarted)


def no_start(record: Record) -> JournalError:
    kind = type(record.event).__name__
    return JournalError(
        f"record {record.seq} of run {record.run_id} cannot be {kind}: a run begins with RunStarted, once"
    )
