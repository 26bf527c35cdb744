"""Groups of runs that come from a file into a journal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import cast

from toolspeak.agent.storage.archives import ReadGroup
from toolspeak.agent.storage.runs import close_run
from toolspeak.data.events import Record
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.errors import FormatError, RunConflict
from toolspeak.journal import Journal, MemoryJournal, SessionInfo
from toolspeak.journal.maintenance import MaintainedJournal

_BATCH = 2000  # records that are imported in one transaction, if they are of whole groups


async def import_groups(
    journal: MaintainedJournal, groups: Iterable[ReadGroup], *, trust: bool = False
) -> AsyncGenerator[tuple[ReadGroup, int | None]]:
    """Adds groups, each as a whole or not at all: new runs outside of sessions many at a time. Yields each when it is
    there, with how many of its unfinished runs were closed; None if the journal has the group already.

    Runs that have not ended are closed unless `trust`: the lines contain the decisions and the setup of a run, so
    resuming one could run any call. Raises what `groups` raises, RunConflict if the journal has other records under the
    same ids, and JournalError if the records are not complete and in order.
    """
    batch: list[ReadGroup] = []
    size, problem = 0, None
    try:
        for group in groups:
            batch.append(group)
            size += len(group.records)
            if size >= _BATCH:
                async for outcome in _import_batch(journal, batch, trust):
                    yield outcome
                batch, size = [], 0
    except FormatError as error:  # those before it are whole
        problem = error
    async for outcome in _import_batch(journal, batch, trust):
        yield outcome
    if problem is not None:
        raise problem


async def _import_batch(
    journal: MaintainedJournal, batch: list[ReadGroup], trust: bool
) -> AsyncGenerator[tuple[ReadGroup, int | None]]:
    lone = [group for group in batch if group.session is None]
    ready = [(group.records, 0) if trust else await _close_runs(group) for group in lone]
    others = [group for group in batch if group.session is not None]
    try:
        await journal.add_runs([records for records, _ in ready])
    except RunConflict:  # the journal has one of them
        others = batch
    else:
        for group, (_, closed_runs) in zip(lone, ready, strict=True):
            yield group, closed_runs
    for group in others:
        yield group, await _import_group(journal, group, trust)


async def _import_group(journal: MaintainedJournal, group: ReadGroup, trust: bool) -> int | None:
    if not group.records:
        if await journal.session(cast("SessionInfo", group.session).session_id) is not None:
            return None
    elif await _has(journal, group.records):
        return None
    records, closed_runs = (group.records, 0) if trust else await _close_runs(group)
    if group.session is None:
        await journal.add_runs([records])
    else:
        await journal.add_session(group.session, records)
    return closed_runs


async def _has(journal: Journal, records: Iterable[Record]) -> bool:
    """Whether the journal has all these records, and maybe more after them."""
    by_run: dict[str, list[Record]] = {}
    for record in records:
        by_run.setdefault(record.run_id, []).append(record)
    for run_id, own in by_run.items():
        if [*await journal.read(run_id, 0, len(own))] != own:
            return False
    return True


async def _close_runs(group: ReadGroup) -> tuple[tuple[Record, ...], int]:
    """The group's records with an end for each run, and how many had none."""
    aside = MemoryJournal()
    if group.session is not None:
        await aside.add_session(group.session, group.records)
    else:
        for record in group.records:
            await aside.append(record)
    runs = dict.fromkeys(record.run_id for record in group.records)
    closed_runs = 0
    for run_id in runs:
        info = await aside.run(run_id)
        if info is not None and info.status in UNFINISHED_STATUSES:
            await close_run(aside, run_id)
            closed_runs += 1
    if not closed_runs:
        return group.records, 0
    return tuple([record for run_id in runs for record in await aside.read(run_id)]), closed_runs
