"""Servers that are started and misbehave: what they have started, what they say without end."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from mcp_helpers import PATIENT, call, is_running, mcp_servers, traces, wait_for_trace

from toolspeak.mcp import StdioServer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the SDK starts servers elsewhere")

ODD = str(Path(__file__).with_name("odd_server.py"))


def odd(folder: Path, what: str) -> StdioServer:
    return StdioServer("s", sys.executable, (ODD, str(folder), what))


async def wait_for_end(pid: int) -> None:
    """Returns once a process that was killed is gone."""
    async with asyncio.timeout(PATIENT):
        while is_running(pid):  # noqa: ASYNC110 - it is nobody's child here
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("when", ["", " when it is called"])
def test_what_a_server_has_started_ends_with_it_also_when_the_server_ends_by_itself(tmp_path, when):
    async def main():
        async with mcp_servers(odd(tmp_path, f"leaves a child{when}")) as servers:
            await wait_for_trace(tmp_path, "children")
            (first,) = traces(tmp_path, "children")
            if when:
                assert "was gone before it answered" in (await call(servers.tools, "s__ok")).text
                await wait_for_end(int(first))
        await wait_for_end(int(first))

    asyncio.run(main())


@pytest.mark.over_a_second
def test_a_line_that_never_ends_ends_the_connection(tmp_path):
    async def main():
        async with mcp_servers(odd(tmp_path, "never ends its line")) as servers:
            return await call(servers.tools, "s__ok")

    result = asyncio.run(main())
    assert "it is not known whether the call took effect (it wrote a line of more than 16777216 bytes)" in result.text


@pytest.mark.over_a_second
def test_a_server_that_asks_and_does_not_read_is_not_heard_any_more(tmp_path, caplog):
    """Each of its questions is answered, and the answers would fill the memory."""

    async def main():
        async with mcp_servers(odd(tmp_path, "asks without end"), call_timeout=2.0) as servers:
            result = await call(servers.tools, "s__ok")
            return result.text, traces(tmp_path, "all was heard")

    result_text, lines = asyncio.run(main())
    assert "did not finish within 2 seconds" in result_text
    assert not lines
    assert "gave up" not in caplog.text  # to tell it that the call is cancelled, which took 5 seconds
