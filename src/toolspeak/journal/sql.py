"""A journal in a database: the statements that SQLite and PostgreSQL share, and their order.

Parameters are written `$1`. Each database fills in these placeholders:

- `{now}`: the seconds on the clock of leases.
- `{held}`: the end of a run's lease, in Unix seconds.
- `{share}`, `{update}`: row locks.
- `{end}`: for a row of `runs`, the position after the run's last record; NULL without records.
- `{unless}`: what to do if another transaction has just used the position.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from toolspeak.data.codec import dump, dump_text
from toolspeak.data.events import Record, RunStarted
from toolspeak.errors import FormatError, JournalError, RunConflict
from toolspeak.journal.base import Lease, RunInfo, SearchHit, SessionInfo
from toolspeak.journal.leases import Connection, busy, check_lease, is_dead
from toolspeak.journal.records import (
    CHANGES_OF_RUNS,
    RecordRow,
    Row,
    check_runs,
    continued_elsewhere,
    digests,
    hits_in,
    no_start,
    pack,
    places_of,
    plain,
    session_after,
    session_conflict,
    session_exists,
    starts_rightly,
    status_after,
    texts_of,
    title_of,
    unpack,
    words,
)
from toolspeak.journal.sql_runs import RUN, SESSION, SqlRuns, column_text, session_info
from toolspeak.journal.sql_schema import SPAN

PAGE = 1000
"""The number of records that are read at once. Other tasks run between two pages."""

AT_ONCE = 200
"""The number of records that are indexed in one transaction, which takes a few milliseconds."""

APPEND = f"""\
INSERT INTO records (pos, data, places)
SELECT number * {SPAN} + $2, $3, $4 FROM runs
WHERE run_id = $1 AND (CASE WHEN owner IS NULL THEN 0 ELSE epoch END) = $5
    AND coalesce({{end}}, number * {SPAN}) = number * {SPAN} + $2 {{share}}
{{unless}}"""
"""Adds a record if the lease is valid (epoch $5, 0 for no lease) and the record is the run's next."""

_START = """
INSERT INTO runs (run_id, status, title, model, agent, created, updated, session_id, principal, parent_run_id, due,
    folder, dialect, epoch)
VALUES ($1, $9, $2, $3, $4, $5, $5, $6, $7, $8, $10, $11, $12, 0)
ON CONFLICT (run_id) DO UPDATE SET status = excluded.status, title = excluded.title, model = excluded.model,
    agent = excluded.agent, created = excluded.created, updated = excluded.updated, session_id = excluded.session_id,
    principal = excluded.principal, parent_run_id = excluded.parent_run_id, due = excluded.due,
    folder = excluded.folder, dialect = excluded.dialect
WHERE runs.created IS NULL"""

_OF_SESSION = """\
WITH RECURSIVE mine(run_id) AS (
    SELECT run_id FROM runs WHERE session_id = $1
    UNION SELECT runs.run_id FROM runs, mine WHERE runs.parent_run_id = mine.run_id AND runs.session_id IS NULL
)
SELECT run_id, number, owner, held_until, {now} FROM runs WHERE run_id IN (SELECT run_id FROM mine) {update}"""
"""A session's runs, and the runs that their tools started."""

_DELETE_UNUSED = """\
DELETE FROM blobs WHERE NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob_uses.digest = blobs.digest)"""


class SqlJournal(SqlRuns):
    """The methods of `Journal` that SQLite and PostgreSQL share."""

    @abstractmethod
    async def _rows(self, db: Connection, start: int, end: int, limit: int) -> Sequence[Row]:
        """At most `limit` rows at a run's positions, from `start` up to but not including `end`, in order."""

    @abstractmethod
    async def _delete_records(self, db: Connection, run_id: str, number: int) -> None:
        """Removes the records of a run, and what the store holds of it beside them."""

    @abstractmethod
    async def _index(self, db: Connection, pos: int, text: Sequence[str]) -> None: ...

    @abstractmethod
    async def _matches(
        self, db: Connection, words: Sequence[str], principal: str | None, private: bool, limit: int
    ) -> Sequence[int]: ...

    # --- records -------------------------------------------------------------------------------------------------

    async def _add(self, db: Connection, record: Record, row: RecordRow, lease: Lease | None) -> None:
        event, epoch = record.event, lease.epoch if lease else 0
        if isinstance(event, RunStarted) and record.seq == 0:
            await self._start(db, record, event)
        arguments = (record.run_id, record.seq, row.text, row.places, epoch)
        if not starts_rightly(record) or await db.change(APPEND, *arguments) != 1:
            await self._refuse(db, record, lease)
        for digest, content in row.blobs.items():
            await db.change("INSERT INTO blobs (digest, data) VALUES ($1, $2) ON CONFLICT DO NOTHING", digest, content)
            await db.change(
                f"INSERT INTO blob_uses (digest, pos) SELECT $1, number * {SPAN} + $2 FROM runs WHERE run_id = $3",
                digest,
                record.seq,
                record.run_id,
            )
        if type(event) in CHANGES_OF_RUNS and record.seq:
            await self._show(db, record)

    async def _start(self, db: Connection, record: Record, event: RunStarted) -> None:
        if event.session_id is not None:
            session = await self._session(db, event.session_id)
            await self._put_session(db, session_after(session, record, event), session)
        await db.change(
            _START,
            record.run_id,
            title_of(event.messages),
            plain(event.model),
            plain(record.agent),
            record.time,
            event.session_id,
            column_text(record.principal),
            column_text(record.parent_run_id),
            status_after(event),
            event.due,
            *places_of(event),
        )

    async def _refuse(self, db: Connection, record: Record, lease: Lease | None) -> None:
        """Raises the error for a record that was not added."""
        rows = await db.rows(
            f"SELECT owner, epoch, {{end}} - number * {SPAN} FROM runs WHERE run_id = $1", record.run_id
        )
        owner, epoch, count = rows[0] if rows else (None, 0, 0)
        check_lease(record.run_id, lease, owner, epoch)
        if record.seq != (count or 0):
            raise continued_elsewhere(record)
        raise no_start(record)

    async def read(self, run_id: str, start: int = 0, most: int | None = None) -> Sequence[Record]:
        records: list[Record] = []
        async with self._reading() as db:
            rows = await db.rows("SELECT number FROM runs WHERE run_id = $1", run_id)
        if not rows:
            return ()
        first = rows[0][0] * SPAN
        while True:
            count = PAGE if most is None else min(PAGE, most - len(records))
            async with self._reading() as db:
                page = await self._page(db, run_id, first, start + len(records), count)
            records += page
            if len(page) < PAGE:
                return tuple(records)
            await asyncio.sleep(0)

    async def _page(self, db: Connection, run_id: str, first: int, start: int, most: int = PAGE) -> list[Record]:
        rows = await self._rows(db, first + start, first + SPAN, most)
        if rows and rows[-1][0] != first + start + len(rows) - 1:
            raise JournalError(
                f"{self} is damaged: records of run {run_id} after number {start} are missing; restore it from a backup"
            )
        wanted_digests = {digest for _, _, places in rows if places is not None for digest in digests(places)}
        blobs = {digest: await self._blob(db, digest) for digest in wanted_digests}
        try:
            return unpack([(pos - first, data, places) for pos, data, places in rows], run_id, blobs.__getitem__)
        except FormatError as error:
            raise JournalError(f"{self}: {error}") from error

    async def _blob(self, db: Connection, digest: str) -> bytes:
        rows = await db.rows("SELECT data FROM blobs WHERE digest = $1", digest)
        if not rows:
            raise JournalError(f"{self}: the content {digest} of a record is missing; restore it from a backup")
        return rows[0][0]

    # --- sessions ------------------------------------------------------------------------------------------------

    async def session(self, session_id: str) -> SessionInfo | None:
        async with self._reading() as db:
            return await self._session(db, session_id)

    async def add_session(self, session: SessionInfo, records: Sequence[Record] = ()) -> None:
        check_runs(session, records)
        async with self._writing() as db:
            rows = await db.rows("SELECT 1 FROM sessions WHERE session_id = $1", session.session_id)
            if rows:
                raise session_exists(session.session_id)
            await self._add_all(db, records, session_exists(session.session_id))
            await self._put_session(db, session, None)

    async def _add_all(self, db: Connection, records: Sequence[Record], conflict: RunConflict) -> None:
        """Adds whole runs. Raises `conflict` if there is one of them already."""
        for record in records:
            row, of_session = pack(record), None
            if isinstance(record.event, RunStarted):
                of_session = record.event.session_id  # None for a run that a tool started
                if await db.rows("SELECT 1 FROM runs WHERE run_id = $1", record.run_id):
                    raise conflict
                # The stored run belongs to the session, which has its final version already.
                record = replace(record, event=replace(record.event, session_id=None))
            await self._add(db, record, row, None)
            if of_session is not None:
                await db.change("UPDATE runs SET session_id = $1 WHERE run_id = $2", of_session, record.run_id)

    async def rename_session(self, session_id: str, title: str, version: int) -> SessionInfo:
        async with self._writing() as db:
            session = await self._session(db, session_id)
            if session is None or session.version != version:
                raise session_conflict(session_id, version, session.version if session else None)
            renamed_session = replace(session, title=plain(title), version=version + 1)
            await self._put_session(db, renamed_session, session)
            return renamed_session

    async def delete_session(self, session_id: str) -> None:
        async with self._writing() as db:
            if await self._session(db, session_id) is None:
                raise session_conflict(session_id, 0, None)
            runs = await db.rows(_OF_SESSION, session_id)
            for run_id, _, owner, until, now in runs:
                if owner is not None and until > now and not is_dead(owner):
                    raise busy(run_id, owner, until - now)
            await self._delete_runs(db, [(run_id, number) for run_id, number, _, _, _ in runs])
            await db.change("DELETE FROM sessions WHERE session_id = $1", session_id)

    async def _delete_runs(self, db: Connection, runs: Sequence[tuple[str, int]]) -> None:
        """Removes runs (id and number) with all that belongs to them."""
        shared_uses = 0
        for run_id, number in runs:
            first, end = number * SPAN, (number + 1) * SPAN
            shared_uses += await db.change("DELETE FROM blob_uses WHERE pos >= $1 AND pos < $2", first, end)
            await db.change("DELETE FROM found WHERE {found} >= $1 AND {found} < $2", first, end)
            await self._delete_records(db, run_id, number)
            await db.change("DELETE FROM inputs WHERE run_id = $1", run_id)
            await db.change("DELETE FROM runs WHERE number = $1", number)
        if shared_uses:
            await db.change(_DELETE_UNUSED)

    async def _session(self, db: Connection, session_id: str) -> SessionInfo | None:
        rows = await db.rows(SESSION.replace("{history}", "history") + " WHERE session_id = $1 {update}", session_id)
        return session_info(rows[0]) if rows else None

    async def _put_session(self, db: Connection, session: SessionInfo, earlier: SessionInfo | None) -> None:
        """Writes a session. `earlier`: the session that it replaces; None for a new session. Raises RunConflict if a
        new session exists by now."""
        values = (session.session_id, session.title, session.updated, session.version, session.runs, session.last_run)
        if earlier is not None:
            await db.change(
                "UPDATE sessions SET title = $2, updated = $3, version = $4, runs = $5, last_run = $6"
                " WHERE session_id = $1",
                *values,
            )
            return
        forked_run, forked_seq = session.forked_from or (None, None)
        history = dump_text([dump(message) for message in session.history]) if session.history else None
        changed_rows = await db.change(
            "INSERT INTO sessions (session_id, title, updated, version, runs, last_run, created, principal,"
            " forked_run, forked_seq, history) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
            " ON CONFLICT DO NOTHING",
            *values,
            session.created,
            column_text(session.principal),
            forked_run,
            forked_seq,
            history,
        )
        if not changed_rows:
            raise session_exists(session.session_id)

    # --- search --------------------------------------------------------------------------------------------------

    async def search(
        self, query: str, *, principal: str | None = None, private: bool = False, limit: int = 20
    ) -> Sequence[SearchHit]:
        query_words = words(query)
        if not query_words:
            return ()
        await self._index_new()
        hits: list[SearchHit] = []
        async with self._reading() as db:
            for pos in await self._matches(db, query_words, column_text(principal), private, limit):
                (row,) = await db.rows(f"{RUN} AND number = $1", pos // SPAN)
                info = RunInfo(*row)
                records = await self._page(db, info.run_id, pos // SPAN * SPAN, pos % SPAN, 1)
                # The column holds plain text, in which two principals may look the same.
                if records[0].principal == principal or (principal is None and not private):
                    hits += hits_in(info, records[0], query_words)
        return tuple(hits)

    async def _index_new(self) -> None:
        """Indexes the records since the last search, so that appending stays fast. Each transaction indexes a part, so
        that other tasks and processes can run in between."""
        async with self._writing() as db:
            unindexed_runs = [*reversed(await self._unindexed_runs(db))]
        while unindexed_runs:
            async with self._writing() as db:
                room = AT_ONCE
                while unindexed_runs and room > 0:
                    count, whole = await self._index_run(db, *unindexed_runs[-1], room)
                    room -= 1 + count
                    if whole:
                        unindexed_runs.pop()
            await asyncio.sleep(0)

    async def _unindexed_runs(self, db: Connection) -> Sequence[tuple[str, int]]:
        """The runs with records that are not indexed: id and number."""
        rows = await db.rows(
            f"SELECT run_id, number FROM runs WHERE created IS NOT NULL AND {{end}} > number * {SPAN} + indexed"
            " ORDER BY number"  # all searches lock rows in the same order, so no two wait for each other
        )
        return [(run_id, number) for run_id, number in rows]

    async def _index_run(self, db: Connection, run_id: str, number: int, most: int) -> tuple[int, bool]:
        """Indexes the next records of a run. Returns their number, and whether they were the last."""
        rows = await db.rows("SELECT indexed FROM runs WHERE number = $1 {update}", number)
        if not rows:  # the run was deleted in between
            return 0, True
        start = rows[0][0]  # another search may have indexed more of it
        page = await self._page(db, run_id, number * SPAN, start, most)
        for record in page:
            for _, text in texts_of(record):
                await self._index(db, number * SPAN + record.seq, words(text))
        await db.change("UPDATE runs SET indexed = $1 WHERE number = $2", start + len(page), number)
        return len(page), len(page) < most
