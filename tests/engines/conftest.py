"""Stores that two journals open as two processes do, and one PostgreSQL server for all of these tests."""

import asyncio
import uuid

import asyncpg
import pytest
from postgres_server import postgres

from toolspeak.journal import MemoryJournal, open_journal


@pytest.fixture(scope="session")
def server_url():
    with postgres() as url:
        yield url


@pytest.fixture
def postgres_url(server_url):
    """The URL of a new database: a worker of one test must not find the runs of another."""
    name = f"runs_{uuid.uuid4().hex}"

    async def create():
        connection = await asyncpg.connect(server_url)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    asyncio.run(create())
    return server_url.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def open_store(request, tmp_path):
    """A function that opens the same store again and again."""
    journals, shared_journal = [], MemoryJournal()
    place = tmp_path / "runs.db"
    if request.param == "postgres":
        place = request.getfixturevalue("postgres_url")

    def store():
        journals.append(shared_journal if request.param == "memory" else open_journal(place))
        return journals[-1]

    def run(main):
        """Runs a coroutine, and closes in its event loop what was opened there."""

        async def whole():
            try:
                return await main()
            finally:
                for journal in journals:
                    await journal.aclose()

        return asyncio.run(whole())

    store.run, store.place = run, str(place)
    return store
