"""A program that uses all tools of an MCP server, for the protocol's conformance tests: `conforming_client.py URL`."""

from __future__ import annotations

import asyncio
import sys

from toolspeak import Decision, Executor, ToolCall
from toolspeak.execute import ApprovalRequest
from toolspeak.mcp import HttpServer, McpServers

ARGUMENTS = {"server__add_numbers": {"a": 5, "b": 3}}


async def agree(request: ApprovalRequest, /) -> Decision:
    return Decision(True)


async def main(url: str) -> None:
    async with McpServers([HttpServer("server", url)], questions=agree) as servers:
        executor = Executor(servers.tools, approve="all")
        for tool in servers.tools:
            batch = await executor.run([ToolCall("one", tool.name, ARGUMENTS.get(tool.name, {}))])
            print(tool.name, batch.results[0].text)


asyncio.run(main(sys.argv[-1]))
