"""Checks a whole journal: reads every record of every run, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from toolspeak.data.events import Record, RunStarted
from toolspeak.errors import JournalError
from toolspeak.journal.base import RunInfo
from toolspeak.journal.maintenance import JournalFinding, MaintainedJournal
from toolspeak.journal.records import status_after

_PAGE = 500
_MOST = 5
"""The most findings of one run."""


@dataclass(slots=True)
class CheckProgress:
    """What a check has read so far."""

    runs: int = 0
    records: int = 0


async def check_journal(journal: MaintainedJournal, progress: CheckProgress) -> AsyncGenerator[JournalFinding]:
    """Yields what is wrong with a journal, and counts what it reads in `progress`. Changes nothing.

    Holds a page of one run's records in memory at a time. Other processes may use the journal meanwhile. Raises
    JournalError if the journal cannot be opened, or its list of runs cannot be read.
    """
    for finding in await journal.faults():
        yield finding
    number = 0
    while page := await journal.run_page(number):
        for _, info in page:
            count = 0
            async for finding in _check_run(journal, info, progress):
                count += 1
                if count <= _MOST:
                    yield finding
            if count > _MOST:
                yield JournalFinding("damage", f"run {info.run_id}: {count - _MOST} more findings", info.run_id)
            progress.runs += 1
        number = page[-1][0]


async def _check_run(
    journal: MaintainedJournal, info: RunInfo, progress: CheckProgress
) -> AsyncGenerator[JournalFinding]:
    run_id, status = info.run_id, None
    if not info.records:
        yield JournalFinding("damage", f"run {run_id} is listed and has no records", run_id)
        return
    start, size, unread = 0, _PAGE, 0
    while start < info.records:
        try:
            records = await journal.read(run_id, start, min(size, info.records - start))
        except JournalError as error:
            if await journal.run(run_id) is None:
                return  # it was deleted meanwhile
            if size > 1:
                size = 1  # which of the page's records is it?
                continue
            yield JournalFinding("damage", str(error), run_id)
            start += 1
            unread += 1
            continue
        if not records:
            if await journal.run(run_id) is not None:
                text = f"run {run_id} has {start} records, and {info.records} are counted: the last are missing"
                yield JournalFinding("damage", text, run_id)
            return
        for record in records:
            if record.seq == 0:
                async for finding in _check_start(journal, record):
                    yield finding
            status = status_after(record.event) or status
        start += len(records)
        progress.records += len(records)
        if start % _PAGE == 0:
            size = _PAGE
    now = await journal.run(run_id)
    if not unread and now is not None and now.records == info.records and status not in (None, now.status):
        text = f"run {run_id} is listed as {now.status}, and its records say {status}"
        yield JournalFinding("damage", text, run_id)


async def _check_start(journal: MaintainedJournal, record: Record) -> AsyncGenerator[JournalFinding]:
    """Checks that the run that a run of a session follows is there."""
    event = record.event
    if not isinstance(event, RunStarted):
        text = f"run {record.run_id} begins with {type(event).__name__}, not with RunStarted"
        yield JournalFinding("damage", text, record.run_id)
    elif event.follows is not None:
        before = await journal.run(event.follows)
        if before is None or before.records < event.follows_seq:
            text = f"run {record.run_id} follows run {event.follows}, of which the journal does not have all records"
            yield JournalFinding("damage", text, record.run_id)
