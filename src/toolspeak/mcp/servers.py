"""The MCP servers of a program: connected together, their tools as a Toolset."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Self

from toolspeak.errors import ConfigurationError, McpError
from toolspeak.mcp.connection import McpConnection
from toolspeak.mcp.mcp_tools import LeftOut, tool_name, tool_of
from toolspeak.mcp.servers_file import Server, read_servers
from toolspeak.tools import Tool, Toolset
from toolspeak.tools.builtin.processes import finished


class McpServers:
    """MCP servers and what they offer.

        async with McpServers.from_file(".mcp.json") as servers:
            agent = Agent("openai:qwen3", tools=[*servers.tools])

    Entering connects to all of them at the same time, and starts those that are programs; leaving ends them. A tool is
    named `server__tool`. `connect_timeout` is for one server to be ready, `call_timeout` for one call, in seconds; a
    call that is cancelled or out of time is cancelled in the server too. A server that ended is connected once more
    for the next call; so is one that gives no answer within `probe_timeout` after a call ran out of time.

    Raises ConfigurationError for two servers of one name; entering raises McpError, naming all that cannot be used.
    """

    def __init__(
        self,
        servers: Iterable[Server],
        *,
        connect_timeout: float = 30.0,
        call_timeout: float | None = 120.0,
        probe_timeout: float = 5.0,
    ) -> None:
        listed = tuple(servers)
        names = [server.name for server in listed]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(f"two MCP servers are named {twice[0]!r}; rename one")
        self._connections = tuple(McpConnection(server, connect_timeout, probe_timeout) for server in listed)
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
        """The servers that a file lists; see `read_servers`. Raises ConfigurationError."""
        return cls(
            read_servers(path, environ),
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
            probe_timeout=probe_timeout,
        )

    @property
    def tools(self) -> Toolset:
        """What the servers offer, in the order of the servers and of their listings."""
        return self._tools

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The tools that cannot be offered, and why."""
        return self._left_out

    def origin_of(self, tool: str) -> tuple[str, str] | None:
        """The name of the server that has the tool of this name, and the tool's name there."""
        return self._origins.get(tool)

    async def refresh(self) -> bool:
        """Takes up what servers said of changed tools; whether `tools` are others now. To be called between runs: an
        agent that was made before keeps those it was given. Raises McpError."""
        changed = await asyncio.gather(*(connection.refresh() for connection in self._connections))
        if any(changed):
            self._list()
        return any(changed)

    async def aclose(self) -> None:
        """Ends every connection, and every server that was started, within 5 seconds. Being cancelled does not change
        that, and is heard of afterwards."""
        await finished(self._end())

    async def _end(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))

    async def __aenter__(self) -> Self:
        opening = [asyncio.create_task(connection.open()) for connection in self._connections]
        try:
            outcomes = await asyncio.gather(*opening, return_exceptions=True)
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
            for listed in connection.listed:
                name = tool_name(server, listed.name, tools)
                made = tool_of(server, listed, name, connection.call, self._call_timeout, connection.definition)
                if isinstance(made, LeftOut):
                    left_out.append(made)
                else:
                    tools[name], origins[name] = made, (server, listed.name)
        self._tools, self._left_out, self._origins = Toolset(tools.values()), tuple(left_out), origins
