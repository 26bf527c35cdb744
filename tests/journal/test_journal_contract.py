"""The contract of a journal, on every store there is."""

import asyncio

import pytest

from toolspeak.errors import ConfigurationError
from toolspeak.journal import MemoryJournal, SqliteJournal, open_journal
from toolspeak.testing import JOURNAL_CHECKS

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture(scope="module", params=STORES)
def store(request, tmp_path_factory):
    """A function that opens the same store again and again."""
    match request.param:
        case "memory":
            journal = MemoryJournal()
            yield lambda: journal
        case "sqlite":
            path = tmp_path_factory.mktemp("journal") / "folder" / "toolspeak.db"
            yield lambda: SqliteJournal(path)
        case _:
            url = request.getfixturevalue("postgres_url")
            yield lambda: open_journal(url)


@pytest.mark.parametrize("check", JOURNAL_CHECKS, ids=lambda check: check.__name__)
def test_a_journal_keeps_its_contract(store, check):
    journals = []

    def open_store():
        journals.append(store())
        return journals[-1]

    async def main():
        try:
            await check(open_store)
        finally:
            for journal in journals:
                await journal.aclose()

    asyncio.run(main())


def test_a_place_names_a_file_or_a_store_by_its_scheme(tmp_path):
    assert str(open_journal(tmp_path / "runs.db")) == str(tmp_path / "runs.db")
    assert str(open_journal("postgres://me:secret@db/runs")) == "postgresql://db/runs"


def test_a_place_of_an_unknown_scheme_is_refused_with_the_known_ones():
    with pytest.raises(ConfigurationError) as raised_error:
        open_journal("mysql://db/runs")
    assert str(raised_error.value) == (
        "there is no journal for mysql://; write the path of a file, or a URL with postgresql:// or postgres://"
    )
