"""A process of the version before goes on while one of this version upgrades the journal that both use.

The statements of the earlier process are those of schema version 7, as it was released.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import asyncpg
import pytest

from toolspeak.data.events import ModelAnswered, RunFinished
from toolspeak.data.messages import Message
from toolspeak.errors import JournalError
from toolspeak.journal import SqliteJournal
from toolspeak.journal.check import CheckProgress, check_journal
from toolspeak.journal.postgres import PostgresJournal
from toolspeak.journal.records import pack, sum_of
from toolspeak.journal.sql_schema import SPAN, VERSION
from toolspeak.testing.journal import a_run, write

BEFORE = 7
RUN_END = RunFinished("answered", "Done.", "answer")
DOWNGRADES = {
    8: "DROP INDEX {schema}runs_by_parent",
    9: "DROP INDEX {schema}runs_by_status; DROP INDEX {schema}runs_by_agent; DROP INDEX {schema}runs_by_principal;"
    " ALTER TABLE {schema}runs DROP COLUMN folder; ALTER TABLE {schema}runs DROP COLUMN dialect",
}
"""What takes each version back to the one before it, besides tables of SQLite alone."""
START = """INSERT INTO runs (run_id, status, title, model, agent, created, updated, epoch)
    VALUES ('old', 'running', 'do it', 'model', 'agent', 1000.0, 1000.0, 0) RETURNING number"""
END = "UPDATE runs SET status = 'answered', updated = 1002.0, due = NULL WHERE run_id = 'old'"
RECORDS = a_run("old", ModelAnswered(Message.assistant("plans"), "stop"), RUN_END)


async def whole(journal):
    progress = CheckProgress()
    findings = [finding async for finding in check_journal(journal, progress)]
    assert findings == []
    return progress.runs


def test_a_process_that_has_the_file_open_goes_on_while_it_is_upgraded(tmp_path):
    path = tmp_path / "runs.db"
    asyncio.run(at_once(SqliteJournal(path), a_run("first", RUN_END)))
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statements in reversed(DOWNGRADES.values()):
            old.executescript(statements.format(schema=""))
        old.execute("DROP TABLE vacuums")
        old.execute(f"PRAGMA user_version = {BEFORE}")

        def append(seq):
            entry = pack(RECORDS[seq])
            pos = number * SPAN + seq
            values = (pos, entry.text, sum_of(pos, entry.text))
            old.execute("INSERT INTO records (pos, data, sum) VALUES (?, ?, ?)", values)

        old.execute("BEGIN IMMEDIATE")
        ((number,),) = old.execute(START).fetchall()
        append(0)
        old.execute("COMMIT")

        async def main():
            journal = SqliteJournal(path)
            await write(journal, a_run("new", RUN_END))
            append(1)
            await write(journal, a_run("newer", RUN_END))
            old.execute("BEGIN IMMEDIATE")
            append(2)
            old.execute(END)
            old.execute("COMMIT")
            assert await journal.read("old") == tuple(RECORDS)
            assert await whole(journal) == 4
            await journal.aclose()

        asyncio.run(main())
        assert old.execute("PRAGMA user_version").fetchone() == (VERSION,)


async def at_once(journal, records):
    await write(journal, records)
    await journal.aclose()


def test_a_process_that_is_connected_goes_on_while_the_schema_is_upgraded(postgres_url):
    schema = "rolling"

    async def main():
        await at_once(PostgresJournal(postgres_url, schema=schema), a_run("first", RUN_END))
        old = await asyncpg.connect(postgres_url, server_settings={"search_path": schema})
        for statements in reversed(DOWNGRADES.values()):
            await old.execute(statements.format(schema=f"{schema}."))
        await old.execute(f"UPDATE schema_version SET version = {BEFORE}")

        async def append(seq):
            row = number * SPAN + seq, pack(RECORDS[seq]).text
            await old.execute("INSERT INTO records (pos, data) VALUES ($1, $2)", *row)

        number = await old.fetchval(START)
        await append(0)
        journal = PostgresJournal(postgres_url, schema=schema)
        await write(journal, a_run("new", RUN_END))
        await append(1)
        await write(journal, a_run("newer", RUN_END))
        async with old.transaction():
            await append(2)
            await old.execute(END)
        assert await journal.read("old") == tuple(RECORDS)
        assert await whole(journal) == 4
        assert await old.fetchval("SELECT version FROM schema_version") == VERSION
        await journal.aclose()
        await old.close()

    asyncio.run(main())


def test_the_version_before_is_not_started_on_an_upgraded_file(tmp_path):
    """As every version refuses a later one: the file says its version, and stays as it is."""
    path = tmp_path / "runs.db"
    asyncio.run(at_once(SqliteJournal(path), a_run("first", RUN_END)))
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(JournalError, match=f"schema version {VERSION + 1}; this one reads up to {VERSION}"):
        asyncio.run(at_once(SqliteJournal(path), a_run("next")))
    assert path.read_bytes() == before
