"""One PostgreSQL server for all tests of journals; it is started when the first one wants it."""

import pytest
from postgres_server import postgres


@pytest.fixture(scope="session")
def postgres_url():
    with postgres() as url:
        yield url
