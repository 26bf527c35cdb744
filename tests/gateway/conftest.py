"""The databases that a gateway may be given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from postgres_server import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def usage_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of usage."""
    if request.param == "sqlite":
        return str(tmp_path / "usage.db")
    url = request.getfixturevalue("postgres_url")
    asyncio.run(_drop_usage_schema(url))
    return url


async def _drop_usage_schema(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("DROP SCHEMA IF EXISTS toolspeak_usage CASCADE")
    await connection.close()
