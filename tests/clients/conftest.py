"""The gateway in a process of its own before a scripted model server, and the clients in processes of theirs.

They are no part of `make test` (none is named `test_*.py`), for the clients have to be installed: `make test-clients`
does it, and says by the environment where they are.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from conversations import CLIENTS, KEY, LOCKED_GATEWAY, SPECIAL, TALKS, Talk, have
from gateway_process import LOG, LOG_LINES, START_SECONDS, gateway
from loopback_server import serve
from server_process import log_end
from upstream import DIALECTS, Upstream


@pytest.fixture(scope="session")
def upstream() -> Iterator[tuple[Upstream, str]]:
    """The model server, in a thread: what it was asked, and its address."""
    model_server, ready, over = Upstream(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    address: list[str] = []

    async def run() -> None:
        async with serve(model_server) as server:
            address.append(server.base_url.removesuffix("/v1"))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(START_SECONDS)
        yield model_server, address[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.fixture(scope="session")
def gateways(upstream: tuple[Upstream, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of the gateways, as a user starts them: one for each dialect, and those of `SPECIAL`."""
    root = upstream[1]
    LOG.unlink(missing_ok=True)
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"# the clients'\n{KEY}\n", "utf-8")
    arguments = {**{dialect: (dialect,) for dialect in DIALECTS}, **SPECIAL}
    with ExitStack() as stack:
        addresses: dict[str, str] = {}
        for name, (dialect, *others) in arguments.items():
            command = ["--upstream", f"{root}/{dialect}/v1", "--dialect", dialect, "--api-keys", str(keys), *others]
            addresses[name] = stack.enter_context(gateway(*command))
        command = ["--upstream", f"{root}/hermes/v1", "--dialect", "hermes"]
        addresses[LOCKED_GATEWAY] = stack.enter_context(gateway(*command, TOOLSPEAK_API_KEYS="another-key-altogether"))
        yield addresses


@pytest.fixture(scope="session")
def outcome_of(gateways: dict[str, str]) -> Callable[[Talk], dict[str, Any]]:
    """What a client saw of a conversation. It has all of its conversations when it is first asked for one."""

    @functools.cache
    def all_of(client: str) -> dict[str, Any]:
        talks = [talk for talk in TALKS if talk.client == client]
        return have(CLIENTS[client], [talk.case(gateways[talk.gateway]) for talk in talks])

    return lambda talk: all_of(talk.client)[talk.task]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and "gateways" in getattr(item, "fixturenames", ()):
        report.sections.append((f"the end of {LOG}", log_end(LOG, LOG_LINES)))
    return report
