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
from conversations import CLIENTS, have, task_of
from loopback_server import serve
from serving import LOG, START_SECONDS, gateway, log_end
from upstream import CALLS, DIALECTS, Upstream


@pytest.fixture(scope="session")
def upstream() -> Iterator[tuple[Upstream, str]]:
    """The model server, in a thread: what it was asked, and its address."""
    played, ready, over = Upstream(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    address: list[str] = []

    async def run() -> None:
        async with serve(played) as server:
            address.append(server.base_url.removesuffix("/v1"))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(START_SECONDS)
        yield played, address[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.fixture(scope="session")
def gateways(upstream: tuple[Upstream, str]) -> Iterator[dict[str, str]]:
    """The address of a gateway for each dialect, as a user starts it."""
    root = upstream[1]
    LOG.unlink(missing_ok=True)
    with ExitStack() as stack:
        yield {
            dialect: stack.enter_context(gateway("--upstream", f"{root}/{dialect}/v1", "--dialect", dialect))
            for dialect in DIALECTS
        }


@pytest.fixture(scope="session")
def told(gateways: dict[str, str]) -> Callable[[str], dict[str, Any]]:
    """What a client saw of all its conversations, by the task; it has them once, whichever test asks first."""

    @functools.cache
    def all_of(client: str) -> dict[str, Any]:
        return have(
            CLIENTS[client],
            [
                {"url": root, "task": task_of(topic, client, dialect, stream), "stream": stream}
                for dialect, root in gateways.items()
                for topic in CALLS
                for stream in (False, True)
            ],
        )

    return all_of


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and "gateways" in getattr(item, "fixturenames", ()):
        report.sections.append((f"the end of {LOG}", log_end()))
    return report
