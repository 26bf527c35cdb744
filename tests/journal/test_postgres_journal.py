"""What PostgreSQL alone has: schemas of other versions, and a server that cannot be used."""

import asyncio
from pathlib import Path

import asyncpg
import pytest
from database_network import Network

from toolspeak.data.events import Record, RunResumed
from toolspeak.errors import JournalError
from toolspeak.journal.postgres import PostgresJournal
from toolspeak.testing.journal import a_run, new_id, write

SCHEMA_1 = (Path(__file__).parent / "schema_1_postgres.sql").read_text(encoding="utf-8")


async def execute(url, sql):
    connection = await asyncpg.connect(url)
    await connection.execute(sql)
    await connection.close()


def use(journal, work):
    async def main():
        try:
            return await work()
        finally:
            await journal.aclose()

    return asyncio.run(main())


LATER = {
    2: "ALTER TABLE runs ADD COLUMN indexed BIGINT NOT NULL DEFAULT 0;"
    "CREATE TABLE found (pos BIGINT PRIMARY KEY, words TSVECTOR NOT NULL);"
    "CREATE INDEX found_by_words ON found USING gin (words);",
    3: "ALTER TABLE runs ADD COLUMN suspend BIGINT;",
}
"""What each later version added, as it was released."""


@pytest.mark.parametrize("version", range(1, 4))
def test_a_schema_of_an_earlier_version_is_brought_forward_whole(postgres_url, version):
    later_steps = "".join(
        f"{LATER[number]} UPDATE schema_version SET version = {number};" for number in range(2, version + 1)
    )
    asyncio.run(execute(postgres_url, SCHEMA_1 + later_steps + f"ALTER SCHEMA old RENAME TO old_{version}"))
    journal = PostgresJournal(postgres_url, schema=f"old_{version}")

    async def main():
        (record,) = await journal.read("r1")
        assert record.event.messages[0].text == "What is in notes.md?"
        assert [match.run_id for match in await journal.search("notes")] == ["r1"]
        await journal.append(Record(RunResumed(), "r1", 1, 0, 1.0))
        return await journal.session("s1")

    assert use(journal, main).last_run == "r1"


def test_a_schema_of_a_later_version_is_left_alone(postgres_url):
    sql = "CREATE SCHEMA later; CREATE TABLE later.schema_version AS SELECT 99 AS version"
    asyncio.run(execute(postgres_url, sql))
    journal = PostgresJournal(postgres_url, schema="later")
    with pytest.raises(JournalError, match=r"later toolspeak.*version 99.*upgrade"):
        use(journal, journal.runs)


def test_a_server_that_is_not_there_is_named_with_the_remedy_and_without_the_password(tmp_path):
    journal = PostgresJournal(f"postgresql://user:hunter2@/name?host={tmp_path}")
    with pytest.raises(JournalError, match=r"postgresql:///name.*check that the server runs") as raised_error:
        use(journal, journal.runs)
    assert "hunter2" not in str(raised_error.value)


def test_a_database_that_is_not_there_is_named_with_the_remedy(postgres_url):
    journal = PostgresJournal(postgres_url.replace("/postgres?", "/nobody?"))
    with pytest.raises(JournalError, match=r"nobody.*createdb"):
        use(journal, journal.runs)


def test_a_database_in_another_encoding_is_refused_before_a_record_is(postgres_url):
    asyncio.run(execute(postgres_url, "CREATE DATABASE western ENCODING 'LATIN1' TEMPLATE template0"))
    journal = PostgresJournal(postgres_url.replace("/postgres?", "/western?"))
    with pytest.raises(JournalError, match=r"/western: the database's encoding is LATIN1.*--encoding UTF8"):
        use(journal, journal.runs)


def test_a_server_that_takes_no_changes_is_named_with_the_remedy(postgres_url):
    run_id = new_id()
    journal = PostgresJournal(postgres_url, schema="reading")
    use(journal, lambda: write(journal, a_run(run_id)))
    sql = "CREATE ROLE reader SUPERUSER LOGIN; ALTER ROLE reader SET default_transaction_read_only = on"
    asyncio.run(execute(postgres_url, sql))
    journal = PostgresJournal(postgres_url.replace("tester@", "reader@"), schema="reading")
    with pytest.raises(JournalError, match="takes no changes"):
        use(journal, lambda: journal.append(Record(RunResumed(), run_id, 1, 0, 1.0)))
    assert len(use(journal, lambda: journal.read(run_id))) == 1


def test_two_that_make_the_schema_at_once_make_one(postgres_url):
    async def main():
        journals = [PostgresJournal(postgres_url, schema="fresh") for _ in range(4)]
        await asyncio.gather(*(write(journal, a_run(f"r{i}")) for i, journal in enumerate(journals)))
        assert len(await journals[0].runs()) == 4
        for journal in journals:
            await journal.aclose()

    asyncio.run(main())


def test_a_journal_is_closed_while_its_first_connection_is_opened(postgres_url):
    async def main():
        journal = PostgresJournal(postgres_url, schema="closed")
        reading = asyncio.ensure_future(journal.run("r"))
        await asyncio.sleep(0)
        reading.cancel()
        await journal.aclose()
        await asyncio.wait([reading])
        assert await journal.run("r") is None  # a journal that is used again opens again
        await journal.aclose()

    asyncio.run(main())


def test_connections_that_are_cut_again_and_again_are_told_as_the_journals_failure(postgres_url):
    """Also where they are cut in the middle of a transaction's beginning or end."""
    journal = PostgresJournal(postgres_url, schema="cut")
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolspeak'"
    errors = []

    async def main():
        end = asyncio.Event()

        async def write_on():
            while not end.is_set():
                try:
                    await write(journal, a_run(new_id()))
                except JournalError as error:
                    errors.append(str(error))

        connection = await asyncpg.connect(postgres_url)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(write_on())
            while len(errors) < 100:
                await connection.execute(cut)
            end.set()
        await connection.close()
        run_id = new_id()
        await write(journal, a_run(run_id))
        assert await journal.read(run_id)

    use(journal, main)
    assert all("postgresql:///postgres" in each for each in errors)


@pytest.mark.over_a_second
def test_a_journal_is_closed_although_its_server_does_not_answer(postgres_url, tmp_path):
    async def run() -> None:
        network = Network(postgres_url, tmp_path / "host")
        server = await network.serve()
        journal = PostgresJournal(network.journal)
        await journal.runs()
        cut = asyncio.create_task(network.cut(120, silent=True))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):  # a limit for what hangs
            await journal.aclose()
        cut.cancel()
        network.end()
        server.close()

    asyncio.run(run())
