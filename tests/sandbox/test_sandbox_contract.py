"""Every sandbox keeps the contract of `toolspeak.testing.sandbox`."""

from __future__ import annotations

import asyncio

import pytest
from sandbox_levels import LEVELS, open_level

from toolspeak.sandbox.unconfined import Unconfined
from toolspeak.testing.sandbox import PROCESS_CHECKS, SANDBOX_CHECKS


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("check", SANDBOX_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check, level: str):
    asyncio.run(check(open_level(level)))


@pytest.mark.parametrize("check", PROCESS_CHECKS, ids=lambda check: check.__name__)
def test_without_a_boundary_processes_start_and_end_in_the_same_way(check):
    async def open_sandbox() -> Unconfined:
        return Unconfined()

    asyncio.run(check(open_sandbox))


@pytest.mark.parametrize("check", SANDBOX_CHECKS[len(PROCESS_CHECKS) + 1 :], ids=lambda check: check.__name__)
def test_each_check_of_the_boundary_finds_that_there_is_none(check):
    async def open_sandbox() -> Unconfined:
        return Unconfined()

    if check.__name__ == "check_a_list_of_hosts_lets_those_through_and_no_other":
        pytest.skip("without a boundary there are no lists of hosts, and the check asks for none")
    with pytest.raises(AssertionError):
        asyncio.run(check(open_sandbox))
