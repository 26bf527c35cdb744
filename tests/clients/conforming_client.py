"""A program that uses all tools of an MCP server, for the protocol's conformance tests: `conforming_client.py URL`."""

from __future__ import annotations

import asyncio
import sys

from toolspeak import Decision, Executor, ToolCall
from toolspeak.execute import ApprovalRequest
from toolspeak.mcp import HttpServer, McpServers

ARGUMENTS = {"server__add_numbers": {"a": 5, "b": 3}}
FOCUS = "json_schema_2020_12_tool"  # whose schema the protocol's tests look at


async def agree(request: ApprovalRequest, /) -> Decision:
    return Decision(True)


async def main(url: str) -> None:
    async with McpServers([HttpServer("server", url)], questions=agree) as servers:
        executor = Executor(servers.tools, approve="all")
        schemas = {each.name: each.input_schema for each in servers.listed_tools("server")}
        for tool in servers.tools:
            # It is sent back a schema as this side has it.
            is_echo = tool.name == "server__json_schema_echo"
            arguments = {"schema": schemas[FOCUS]} if is_echo else ARGUMENTS.get(tool.name, {})
            batch = await executor.run([ToolCall("one", tool.name, arguments)])
            print(tool.name, batch.results[0].text)


asyncio.run(main(sys.argv[-1]))
