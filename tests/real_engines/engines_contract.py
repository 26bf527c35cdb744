"""The contract of engines, on each that needs a server."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from engine_place import open_place
from engine_servers import EngineServer

from toolspeak.testing import ENGINE_CHECKS
from toolspeak.testing.engines import EngineCheck


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_an_engine_keeps_the_contract(server: EngineServer, check: EngineCheck):
    asyncio.run(check(partial(open_place, server.url, server.journal)))
