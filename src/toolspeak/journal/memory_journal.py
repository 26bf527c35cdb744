"""A journal in memory, which ends with its process."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import field, replace
from typing import cast

from toolspeak.data.events import Record, RunConfigured, RunFinished, RunPaused, RunStarted
from toolspeak.data.run_values import UNFINISHED_STATUSES, RunStatus
from toolspeak.data.values import quick
from toolspeak.journal.base import Lease, Requests, RunInfo, RunInput, SearchHit, SessionInfo
from toolspeak.journal.followed_texts import FollowedTexts
from toolspeak.journal.leases import busy, check_lease, engine_of, is_held, may_take
from toolspeak.journal.records import (
    CHANGES_OF_RUNS,
    check_runs,
    continued_elsewhere,
    hits_in,
    no_start,
    places_of,
    plain,
    session_after,
    session_conflict,
    session_exists,
    starts_rightly,
    status_after,
    title_of,
    unknown_run,
    words,
)

_MOST_PIECES = 256  # published texts that wait for one reader
_LOOK_SECONDS = 0.2


@quick(frozen=False, eq=False)
class _Run:
    records: list[Record] = field(default_factory=list[Record])
    owner: str | None = None
    lease: Lease | None = None  # the owner's
    epoch: int = 0
    until: float = 0.0
    suspend: int = 0
    due: float | None = None
    inputs: list[_Input] = field(default_factory=list["_Input"])
    readers: list[FollowedTexts] = field(default_factory=list[FollowedTexts])


@quick(frozen=False, eq=False)
class _Input:
    entry: RunInput
    is_seen: bool = False


class MemoryJournal:
    """Implements `Journal` in memory. Its records are gone when the object is gone."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._sessions: dict[str, SessionInfo] = {}

    async def append(self, record: Record, lease: Lease | None = None) -> None:
        run = self._runs.get(record.run_id) or _Run()
        if lease is not run.lease:
            check_lease(record.run_id, lease, run.owner, run.epoch)
        if record.seq != len(run.records):
            raise continued_elsewhere(record)
        if not record.seq or type(record.event) is RunStarted:
            self._begin(run, record)
        run.records.append(record)
        if type(record.event) in CHANGES_OF_RUNS:
            _show(run, record)

    def _begin(self, run: _Run, record: Record) -> None:
        if not starts_rightly(record):
            raise no_start(record)
        run_start = cast("RunStarted", record.event)
        if run_start.session_id is not None:
            session = self._sessions.get(run_start.session_id)
            self._sessions[run_start.session_id] = session_after(session, record, run_start)
        self._runs[record.run_id] = run

    async def read(self, run_id: str, start: int = 0, most: int | None = None) -> Sequence[Record]:
        run = self._runs.get(run_id)
        return tuple(run.records[start : None if most is None else start + most]) if run else ()

    async def run(self, run_id: str) -> RunInfo | None:
        run = self._runs.get(run_id)
        return _info(run) if run and run.records else None

    async def runs(
        self,
        *,
        prefix: str = "",
        session_id: str | None = None,
        status: RunStatus | None = None,
        principal: str | None = None,
        alone: bool = False,
        agent: str | None = None,
        model: str | None = None,
        folder: str | None = None,
        dialect: str | None = None,
        parent_run_id: str | None = None,
        after: tuple[float, str] | None = None,
        oldest_first: bool = False,
        limit: int | None = None,
    ) -> Sequence[RunInfo]:
        conditions = [
            ("session_id", session_id),
            ("status", status),
            ("principal", principal),
            ("agent", agent),
            ("model", model),
            ("folder", folder),
            ("dialect", dialect),
            ("parent_run_id", parent_run_id),
        ]
        infos = [_info(run) for run_id, run in self._runs.items() if run.records and run_id.startswith(prefix)]
        for name, value in conditions:
            if value is not None:
                infos = [info for info in infos if getattr(info, name) == value]
        if alone:
            infos = [info for info in infos if info.session_id is None and info.parent_run_id is None]
        if after is not None:
            infos = [
                info
                for info in infos
                if (info.created, info.run_id) != after and ((info.created, info.run_id) > after) == oldest_first
            ]
        infos.sort(key=lambda info: (info.created, info.run_id), reverse=not oldest_first)
        return tuple(infos[:limit])

    async def acquire(self, run_id: str, owner: str, seconds: float, *, takes_over: str | None = None) -> Lease:
        run = self._runs.setdefault(run_id, _Run())
        if run.owner not in (None, owner) and run.until > time.monotonic() and not may_take(run.owner, takes_over):
            raise busy(run_id, run.owner, run.until - time.monotonic())
        took_over = run.owner not in (None, owner)
        run.owner, run.epoch, run.until = owner, run.epoch + 1, time.monotonic() + seconds
        if engine_of(owner) is not None and run.due is None:
            run.due = 0.0  # what an engine has begun it goes on with, whatever becomes of the worker
        lease = run.lease = Lease(run_id, owner, run.epoch, bool(run.readers), took_over=took_over)
        return lease

    async def renew(self, lease: Lease, seconds: float) -> Requests:
        run = self._runs.get(lease.run_id) or _Run()
        check_lease(lease.run_id, lease, run.owner, run.epoch)
        run.until = time.monotonic() + seconds
        has_message = any(one.entry.kind == "message" and one.entry.taken_by is None for one in run.inputs)
        return Requests(run.suspend == run.epoch, bool(run.readers), has_message)

    async def ask_to_suspend(self, run_id: str) -> bool:
        run = self._runs.get(run_id)
        if run is None or run.owner is None or run.until <= time.monotonic():
            return False
        run.suspend = run.epoch
        return True

    async def release(self, lease: Lease) -> None:
        run = self._runs.get(lease.run_id)
        if run is not None and run.epoch == lease.epoch:
            run.owner = run.lease = None

    async def due_runs(
        self, now: float, *, agents: Collection[str], without: Collection[str] = (), limit: int = 100
    ) -> Sequence[RunInfo]:
        infos = [_info(run) for run in self._runs.values() if run.records]
        due = [
            info
            for info in infos
            if info.agent in agents and info.parent_run_id is None and info.principal not in (without or ())
            if (info.due is not None and info.due <= now) or (info.status == "running" and info.owner is not None)
        ]
        due.sort(key=lambda info: (info.owner is None, now if info.due is None else info.due))
        return tuple([info for info in due if not is_held(info)][:limit])

    async def add_input(self, new: RunInput) -> RunInput:
        run = self._runs.get(new.run_id)
        if run is None or not run.records:
            raise unknown_run(new.run_id)
        stored_input = next((one for one in run.inputs if (one.entry.kind, one.entry.key) == (new.kind, new.key)), None)
        if stored_input is None:
            run.inputs.append(stored_input := _Input(new))
        status = _info(run).status
        if (
            not stored_input.is_seen
            and status in UNFINISHED_STATUSES
            and (status != "suspended" or new.kind == "resume")
        ):
            run.due = new.time
        return stored_input.entry

    async def inputs(self, run_id: str, *, driver: bool = False) -> Sequence[RunInput]:
        entries = self._runs[run_id].inputs if run_id in self._runs else []
        for one in entries if driver else ():
            one.is_seen = True
        return tuple(one.entry for one in entries)

    async def take_input(self, entry: RunInput, run_id: str) -> bool:
        for one in self._runs[entry.run_id].inputs:
            if (one.entry.kind, one.entry.key) == (entry.kind, entry.key) and one.entry.taken_by in (None, run_id):
                one.entry, one.is_seen = replace(one.entry, taken_by=run_id), True
                return True
        return False

    async def publish(self, run_id: str, text: str) -> None:
        for reader in self._runs[run_id].readers if run_id in self._runs else ():
            reader.offer(text)

    async def follow(self, run_id: str) -> AsyncGenerator[str]:
        reader = FollowedTexts(_MOST_PIECES)
        run = self._runs.setdefault(run_id, _Run())
        run.readers.append(reader)
        try:
            while True:
                yield await reader.next(_LOOK_SECONDS)
        finally:
            run.readers.remove(reader)

    async def session(self, session_id: str) -> SessionInfo | None:
        return self._sessions.get(session_id)

    async def sessions(
        self, *, principal: str | None = None, after: tuple[float, str] | None = None, limit: int | None = None
    ) -> Sequence[SessionInfo]:
        infos = [
            replace(info, history=())
            for info in self._sessions.values()
            if principal is None or info.principal == principal
            if after is None or (info.updated, info.session_id) < after
        ]
        infos.sort(key=lambda info: (info.updated, info.session_id), reverse=True)
        return tuple(infos[:limit])

    async def add_session(self, session: SessionInfo, records: Sequence[Record] = ()) -> None:
        runs: dict[str, _Run] = {}
        for record in records:
            runs.setdefault(record.run_id, _Run()).records.append(record)
        check_runs(session, records)
        if session.session_id in self._sessions or runs.keys() & self._runs.keys():
            raise session_exists(session.session_id)
        self._sessions[session.session_id] = session
        self._runs.update(runs)

    async def rename_session(self, session_id: str, title: str, version: int) -> SessionInfo:
        session = self._sessions.get(session_id)
        if session is None or session.version != version:
            raise session_conflict(session_id, version, session.version if session else None)
        self._sessions[session_id] = replace(session, title=plain(title), version=version + 1)
        return self._sessions[session_id]

    async def delete_session(self, session_id: str) -> None:
        if session_id not in self._sessions:
            raise session_conflict(session_id, 0, None)
        infos = {run_id: _info(run) for run_id, run in self._runs.items() if run.records}
        mine = [run_id for run_id, info in infos.items() if info.session_id == session_id]
        for parent in mine:  # the loop adds the runs that these have started
            mine += [name for name, info in infos.items() if info.parent_run_id == parent and info.session_id is None]
        for run_id in mine:
            owner, remaining = self._runs[run_id].owner, self._runs[run_id].until - time.monotonic()
            if owner is not None and remaining > 0:
                raise busy(run_id, owner, remaining)
        for run_id in mine:
            del self._runs[run_id]
        del self._sessions[session_id]

    async def search(
        self, query: str, *, principal: str | None = None, private: bool = False, limit: int = 20
    ) -> Sequence[SearchHit]:
        query_words = words(query)
        hits: list[SearchHit] = []
        for run in self._runs.values() if query_words else ():
            if not run.records or ((private or principal is not None) and run.records[0].principal != principal):
                continue
            info = _info(run)
            hits += [one for record in run.records for one in hits_in(info, record, query_words)]
        start_times = {run_id: run.records[0].time for run_id, run in self._runs.items() if run.records}
        hits.sort(key=lambda one: (start_times[one.run_id], one.run_id, one.seq), reverse=True)
        return tuple(hits[:limit])

    async def aclose(self) -> None:
        """Does nothing."""


def _info(run: _Run) -> RunInfo:
    first = run.records[0]
    run_start = cast("RunStarted", first.event)
    status: RunStatus = "running"
    model, updated_at = run_start.model, first.time
    for record in run.records:
        new_status = status_after(record.event)
        if new_status is not None:
            status, updated_at = new_status, record.time
        elif isinstance(record.event, RunConfigured) and record.event.model is not None:
            model = record.event.model
    return RunInfo(
        first.run_id,
        status,
        title_of(run_start.messages),
        model,
        first.agent,
        first.time,
        updated_at,
        len(run.records),
        run_start.session_id,
        first.principal,
        first.parent_run_id,
        run.owner,
        run.until - time.monotonic() + time.time() if run.owner else None,
        run.due,
        *places_of(run_start),
    )


def _show(run: _Run, record: Record) -> None:
    """Changes from when on a run is due."""
    event = record.event
    if isinstance(event, RunStarted):
        run.due = event.due
    elif isinstance(event, RunFinished):
        run.due = None
    elif isinstance(event, RunPaused):
        run.due = record.time if event.reason == "queued" and event.until is None else event.until
        if any(not one.is_seen and (event.reason != "suspended" or one.entry.kind == "resume") for one in run.inputs):
            run.due = record.time
