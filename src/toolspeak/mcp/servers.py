"""The MCP servers of a program, with their tools as one Toolset."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Self

from toolspeak.errors import ConfigurationError, McpError
from toolspeak.mcp.connection import McpConnection
from toolspeak.mcp.mcp_tools import LeftOut, tool_name, tool_of
from toolspeak.mcp.servers_file import Server, read_servers
from toolspeak.sandbox.processes import finished
from toolspeak.tools import Tool, Toolset


class McpServers:
    """MCP servers and their tools.

        async with McpServers.from_file(".mcp.json") as servers:
            agent = Agent("openai:qwen3", tools=[*servers.tools])

    Entering connects to all servers at the same time, and starts those that are programs; leaving ends them. A tool's
    name is `server__tool`. A call that is cancelled or runs out of time is cancelled in the server too. If a server has
    ended, the next call connects to it once more.

    `connect_timeout`: seconds until a server is ready.
    `call_timeout`: seconds of one call; None is no limit.
    `probe_timeout`: seconds in which a server must answer a probe after a call ran out of time. Otherwise the next call
    connects to it once more.

    Raises ConfigurationError for two servers with the same name. Entering raises McpError, which names all servers that
    cannot be used.
    """

    def __init__(
        self,
        servers: Iterable[Server],
        *,
        connect_timeout: float = 30.0,
        call_timeout: float | None = 120.0,
        probe_timeout: float = 5.0,
    ) -> None:
        server_list = tuple(servers)
        names = [server.name for server in server_list]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(f"two MCP servers have the name {twice[0]!r}; rename one")
        self._connections = tuple(McpConnection(server, connect_timeout, probe_timeout) for server in server_list)
        self._call_timeout = call_timeout
        self._tools = Toolset()
        self._left_out: tuple[LeftOut, ...] = ()
        self._origins: Mapping[str, tuple[str, str]] = MappingProxyType({})

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        environ: Mapping[str, str] | None = None,
        *,
        connect_timeout: float = 30.0,
        call_timeout: float | None = 120.0,
        probe_timeout: float = 5.0,
    ) -> Self:
        """The servers in a file; see `read_servers`. Raises ConfigurationError."""
        return cls(
            read_servers(path, environ),
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
            probe_timeout=probe_timeout,
        )

    @property
    def tools(self) -> Toolset:
        """The servers' tools, in the order of the servers and of their listings."""
        return self._tools

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The tools that cannot be used, and why."""
        return self._left_out

    def origin_of(self, tool: str) -> tuple[str, str] | None:
        """The name of the server of this tool, and the tool's name there; None for an unknown tool."""
        return self._origins.get(tool)

    async def refresh(self) -> bool:
        """Lists the tools again where servers have reported changes. Returns whether `tools` has changed. Call it
        between runs: an existing agent keeps its tools. Raises McpError."""
        changed = await asyncio.gather(*(connection.refresh() for connection in self._connections))
        if any(changed):
            self._list()
        return any(changed)

    async def aclose(self) -> None:
        """Ends every connection, and every server that was started, within 5 seconds. Cancellation does not stop it:
        CancelledError is raised afterwards."""
        await finished(self._end())

    async def _end(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))

    async def __aenter__(self) -> Self:
        open_tasks = [asyncio.create_task(connection.open()) for connection in self._connections]
        try:
            outcomes = await asyncio.gather(*open_tasks, return_exceptions=True)
            failed = [error for error in outcomes if isinstance(error, BaseException)]
            for error in failed:
                if not isinstance(error, McpError):
                    raise error
            if failed:
                raise McpError("\n".join(str(error) for error in failed))
        except BaseException:
            await self.aclose()
            raise
        self._list()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _list(self) -> None:
        tools: dict[str, Tool] = {}
        left_out: list[LeftOut] = []
        origins: dict[str, tuple[str, str]] = {}
        for connection in self._connections:
            server = connection.server.name
            left_out += [LeftOut(server, tool, reason) for tool, reason in connection.unreadable.items()]
            for mcp_tool in connection.listed_tools:
                name = tool_name(server, mcp_tool.name, tools)
                new_tool = tool_of(server, mcp_tool, name, connection.call, self._call_timeout, connection.definition)
                if isinstance(new_tool, LeftOut):
                    left_out.append(new_tool)
                else:
                    tools[name] = replace(new_tool, sandbox=connection.boundary)
                    origins[name] = (server, mcp_tool.name)
        self._tools, self._left_out, self._origins = Toolset(tools.values()), tuple(left_out), origins
