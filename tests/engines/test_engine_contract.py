"""The contract of engines, on the embedded one: `make test-engines` has those that need a server."""

import asyncio
from functools import partial

import pytest
from engine_place import open_place

from toolspeak.engines import EmbeddedEngine, WorkLimits
from toolspeak.journal import open_journal
from toolspeak.testing import ENGINE_CHECKS


# The journals have a contract of their own, so one is enough here.
@pytest.mark.over_a_second
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "check",
    # It waits until the lease of a worker that stands still runs out.
    [pytest.param(each, marks=pytest.mark.slow) if "fenced" in each.__name__ else each for each in ENGINE_CHECKS],
    ids=lambda check: check.__name__,
)
def test_the_embedded_engine_keeps_the_contract(request, tmp_path, store, check):
    place = request.getfixturevalue("postgres_url") if store == "postgres" else tmp_path / "runs.db"
    asyncio.run(check(partial(open_place, "embedded:", str(place))))


class UnlimitedEngine(EmbeddedEngine):
    async def work(self, handler, *, agents, limits, stop):
        await super().work(handler, agents=agents, limits=WorkLimits(), stop=stop)


class Impatient(EmbeddedEngine):
    """Ends its handlers when it stops."""

    async def work(self, handler, *, agents, limits, stop):
        working = asyncio.ensure_future(super().work(handler, agents=agents, limits=limits, stop=asyncio.Event()))
        await stop.wait()
        working.cancel()
        await asyncio.wait([working])


def open_faulty(engine, place):
    journal = open_journal(place)
    return engine("embedded:", journal), journal


@pytest.mark.over_a_second
@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (UnlimitedEngine, "check_limits"),
        (Impatient, "check_a_worker_that_stops_ends_what_it_drives"),
    ],
)
def test_the_contract_finds_a_fault(tmp_path, engine, name):
    (check,) = [each for each in ENGINE_CHECKS if each.__name__ == name]
    with pytest.raises(AssertionError):
        asyncio.run(check(partial(open_faulty, engine, str(tmp_path / "runs.db"))))
