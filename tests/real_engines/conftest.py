"""Every test of this folder runs on every engine. They are no part of `make test`: `make test-engines` installs the
engines and their servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_servers import EngineServer, engine_server

ENGINES = ("embedded", "queue", "restate", "dbos")


@pytest.fixture(scope="session", params=ENGINES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    with engine_server(request.param, tmp_path_factory.mktemp(request.param)) as engine:
        yield engine
