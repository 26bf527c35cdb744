"""Listings that never end, and schemas for which a check would take hours, or all memory."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from mcp_helpers import call, mcp_servers

from toolspeak.mcp import StdioServer

ODD = str(Path(__file__).with_name("odd_server.py"))


def odd(folder: Path, what: str) -> StdioServer:
    return StdioServer("s", sys.executable, (ODD, str(folder), what))


def nested_schema(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.over_a_second
def test_arguments_that_a_recursive_schema_can_look_at_in_very_many_ways_are_refused_in_time(tmp_path):
    async def main():
        async with mcp_servers(odd(tmp_path, "two ways down")) as servers:
            deep = await call(servers.tools, "s__bad", a=nested_schema(40))
            flat = await call(servers.tools, "s__bad", a={"a": {}})
            good = await call(servers.tools, "s__bad", a={"x": 1}, x=1)
            return deep, flat, good

    deep, flat, good = asyncio.run(main())
    assert "does not match the schema; finding where takes too long" in deep.text
    assert "is not valid under any of the schemas" in flat.text
    assert "fine" in good.text


@pytest.mark.over_a_second
def test_a_result_whose_schema_takes_for_ever_is_left_out_with_a_note(tmp_path):
    async def main():
        async with mcp_servers(odd(tmp_path, "a heavy result")) as servers:
            return await call(servers.tools, "s__bad")

    result = asyncio.run(main())
    assert "fine" in result.text
    assert "takes too long" in result.text
    assert result.structured is None


def test_a_server_that_lists_the_same_without_end_has_each_tool_once(tmp_path):
    async def main():
        async with mcp_servers(odd(tmp_path, "lists without end")) as servers:
            return [tool.name for tool in servers.tools], (await call(servers.tools, "s__ok")).text, servers.left_out

    assert asyncio.run(main()) == (["s__ok"], "fine", ())
