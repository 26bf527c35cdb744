"""The MCP servers of a program, with their tools as one Toolset."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Self

from mcp import types

from toolspeak.data.messages import Message
from toolspeak.errors import ConfigurationError, McpError, ToolError
from toolspeak.execute import ApprovalRequest, Escalate
from toolspeak.mcp.connection import McpConnection
from toolspeak.mcp.mcp_tools import LeftOut, tool_name, tool_of
from toolspeak.mcp.server_questions import QuestionApprover, ServerQuestions
from toolspeak.mcp.server_resources import ServerPrompt, prompt_messages, prompts_of, resource_tools
from toolspeak.mcp.servers_file import Server, read_servers
from toolspeak.mcp.tool_pins import ChangedTool, Pin, ToolPins, definition_of, digest_of
from toolspeak.sandbox.processes import finish_work
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
    `pins`: the pinned definitions. Each call of a tool that was changed since needs approval, and `pin_policy` leaves
    it to a person.
    `questions`: the approver that gets what servers ask the person (see `ServerQuestions`). Its time does not count as
    time of a call. None: servers read that nobody can be asked.

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
        pins: ToolPins | None = None,
        questions: QuestionApprover | None = None,
    ) -> None:
        server_list = tuple(servers)
        names = [server.name for server in server_list]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(f"two MCP servers have the name {twice[0]!r}; rename one")
        self._connections = tuple(
            McpConnection(
                server,
                connect_timeout,
                probe_timeout,
                None if questions is None else ServerQuestions(server.name, questions),
                call_timeout,
            )
            for server in server_list
        )
        self._call_timeout = call_timeout if questions is None else None  # the connection's, which can stand still
        self._pins = pins
        self._pins_stamp: tuple[int, int, int] | None = None
        self._changed_tools: Mapping[str, ChangedTool] = MappingProxyType({})
        self._looks: Mapping[str, Callable[[], ChangedTool | None]] = MappingProxyType({})
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
        pins: ToolPins | None = None,
        questions: QuestionApprover | None = None,
    ) -> Self:
        """The servers in a file; see `read_servers`. Raises ConfigurationError."""
        return cls(
            read_servers(path, environ),
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
            probe_timeout=probe_timeout,
            pins=pins,
            questions=questions,
        )

    @property
    def tools(self) -> Toolset:
        """The servers' tools, in the order of the servers and of their listings."""
        return self._tools

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The tools that cannot be used, and why."""
        return self._left_out

    @property
    def changed_tools(self) -> Mapping[str, ChangedTool]:
        """The tools that are not as they were pinned, by their names here."""
        return self._changed_tools

    def pin_policy(self, request: ApprovalRequest) -> Escalate | None:
        """A policy for `Approval`: a person decides about calls of changed tools, whatever else approves them."""
        tool = self.changed_tool(request.tool.name)
        return None if tool is None else Escalate(tool.reason, person=True)

    def changed_tool(self, name: str) -> ChangedTool | None:
        """How a tool has changed since it was pinned, as its server lists it now; None if it has not. `name`: here."""
        return self._looks[name]() if name in self._looks else None

    @property
    def prompts(self) -> tuple[ServerPrompt, ...]:
        """The prompts that the servers offer, for a person to choose."""
        return tuple(each for one in self._connections for each in prompts_of(one.server.name, one.prompts))

    async def prompt_messages(self, prompt: ServerPrompt, fields: Mapping[str, str]) -> tuple[Message, ...]:
        """The messages of a prompt with these fields. Raises McpError."""
        connection = next((each for each in self._connections if each.server.name == prompt.server), None)
        if connection is None:
            raise McpError(f"there is no MCP server {prompt.server!r}")
        try:
            return await connection.ask(lambda client: prompt_messages(client, prompt.name, fields))
        except ToolError as error:
            raise McpError(str(error)) from None

    def listed_tools(self, server: str) -> Sequence[types.Tool]:
        """The definitions of a server's tools, as the server lists them; empty for an unknown server."""
        return next((each.listed_tools for each in self._connections if each.server.name == server), ())

    def origin_of(self, tool: str) -> tuple[str, str] | None:
        """The name of the server of this tool, and the tool's name there; None for an unknown tool."""
        return self._origins.get(tool)

    async def refresh(self) -> bool:
        """Lists the tools again where servers have reported changes, or somebody has pinned tools. Returns whether
        `tools` may have changed. Call it between runs: an existing agent keeps its tools. Raises McpError, and
        ConfigurationError for a file of pins that cannot be used."""
        changes = await asyncio.gather(*(connection.refresh() for connection in self._connections))
        if any(changes) or (self._pins is not None and self._pins.stamp() != self._pins_stamp):
            self._list()
            return True
        return False

    async def aclose(self) -> None:
        """Ends every connection, and every server that was started, within 5 seconds. Cancellation does not stop it:
        CancelledError is raised afterwards."""
        await finish_work(self._end())

    async def _end(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))

    async def __aenter__(self) -> Self:
        open_tasks = [asyncio.create_task(connection.open()) for connection in self._connections]
        try:
            outcomes = await asyncio.gather(*open_tasks, return_exceptions=True)
            failures = [error for error in outcomes if isinstance(error, BaseException)]
            for error in failures:
                if not isinstance(error, McpError):
                    raise error
            if failures:
                raise McpError("\n".join(str(error) for error in failures))
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
        changed_tools: dict[str, ChangedTool] = {}
        looks: dict[str, Callable[[], ChangedTool | None]] = {}
        self._pins_stamp = None if self._pins is None else self._pins.stamp()  # before the pins are read
        for connection in self._connections:
            server = connection.server.name
            left_out += [LeftOut(server, tool, reason) for tool, reason in connection.unreadable.items()]
            pins = {} if self._pins is None else self._pins.pin_new(connection.server, connection.listed_tools)
            for mcp_tool in connection.listed_tools:
                name = tool_name(server, mcp_tool.name, tools)
                pin = pins.get(mcp_tool.name)
                is_pinned = partial(_is_pinned, self._pins is not None, pin, mcp_tool)
                look = partial(_changed_tool, server, pin, mcp_tool, connection.definition, is_pinned)
                new_tool = tool_of(
                    server, mcp_tool, name, connection.call, self._call_timeout, connection.definition, is_pinned
                )
                if isinstance(new_tool, LeftOut):
                    left_out.append(new_tool)
                    continue
                tools[name] = replace(new_tool, sandbox=connection.boundary)
                origins[name] = (server, mcp_tool.name)
                looks[name] = look
                if (changed_tool := look()) is not None:
                    changed_tools[name] = changed_tool
            for each in resource_tools(
                server,
                connection.ask,
                tools,
                has_resources=connection.has_resources,
                prompts=connection.prompts,
                timeout=self._call_timeout,
            ):
                tools[each.name] = replace(each, sandbox=connection.boundary)
        self._tools, self._left_out, self._origins = Toolset(tools.values()), tuple(left_out), origins
        self._changed_tools, self._looks = changed_tools, looks


def _is_pinned(has_pins: bool, pin: Pin | None, listed_tool: types.Tool, now: types.Tool) -> bool:
    """Whether a tool is as it was pinned; one that was listed first here is pinned as it was listed."""
    if not has_pins:
        return True
    return digest_of(now) == (digest_of(listed_tool) if pin is None else pin.digest)


def _changed_tool(
    server: str,
    pin: Pin | None,
    listed_tool: types.Tool,
    definition: Callable[[types.Tool], types.Tool],
    is_pinned: Callable[[types.Tool], bool],
) -> ChangedTool | None:
    """How a tool differs now from its pin, or from how it was listed first; None if it does not."""
    now = definition(listed_tool)
    if is_pinned(now):
        return None
    before = Pin(digest_of(listed_tool), definition_of(listed_tool)) if pin is None else pin
    return ChangedTool(server, listed_tool.name, before, now)
