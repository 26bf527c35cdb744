"""A connection to a server that its tools share. It reconnects when the server is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp import Client, MCPError, types
from pydantic import ValidationError

from toolspeak.errors import McpError, ToolError
from toolspeak.mcp.link import Link, ResultT, about, describe
from toolspeak.mcp.server_questions import ServerQuestions
from toolspeak.mcp.servers_file import Server
from toolspeak.sandbox.processes import finish_work
from toolspeak.tools.files.text_format import visible


class McpConnection:
    """Calls the tools of one server.

    If a server has ended, or does not answer after a call ran out of time, the next call connects to it (or starts it)
    once more. Concurrent calls share this attempt. A call that the server may have received is never sent again.
    """

    def __init__(
        self,
        server: Server,
        connect_timeout: float,
        probe_timeout: float,
        questions: ServerQuestions | None = None,
        call_timeout: float | None = None,
    ) -> None:
        self.server = server
        self._questions = questions
        self._call_timeout = call_timeout if questions is not None else None
        self._probe_timeout = probe_timeout
        self.listed_tools: tuple[types.Tool, ...] = ()
        self.stale = False
        """The server's tools may have changed since `listed_tools` was read."""
        self.unreadable: Mapping[str, str] = {}
        """The names of listed tools that cannot be read, and why."""
        self.prompts: tuple[types.Prompt, ...] = ()
        self.has_resources = False
        self._by_now: dict[str, types.Tool] = {}
        self._unread = False
        self._connect_timeout = connect_timeout
        self._link: Link | None = None
        self._open_task: asyncio.Task[Link] | None = None
        self._closed: bool = False

    async def open(self) -> None:
        """Connects, and lists the server's tools. Raises McpError."""
        link = await self._open()
        self.listed_tools, self.unreadable = link.listed_tools, dict(link.unreadable)
        self.prompts, self.has_resources = link.prompts, link.has_resources

    def definition(self, mcp_tool: types.Tool) -> types.Tool:
        """The tool's definition in the server's latest listing."""
        return self._by_now.get(mcp_tool.name, mcp_tool)

    def boundary(self) -> str:
        """What holds the server's processes; "" for a server that is not started here."""
        return "" if self._link is None else self._link.boundary

    async def close(self) -> None:
        """Ends the connection, and a server that was started, within 5 seconds. Cancellation does not stop it."""
        self._closed = True
        await finish_work(self._end())

    async def _end(self) -> None:
        open_task = self._open_task
        if open_task is not None and not open_task.done():
            open_task.cancel()
            await asyncio.wait([open_task])
        if self._link is not None:
            await self._link.close()

    async def refresh(self) -> bool:
        """Lists the tools again if the server has reported a change. Returns whether it has. Raises McpError."""
        if not self.stale:
            return False
        link = await self._usable()
        self.stale = False
        try:
            await self._read(link)
        except (MCPError, ValidationError) as error:
            self.stale = True
            raise McpError(f"{about(self.server)} does not list its tools: {describe(error)}") from None
        self.listed_tools, self.unreadable = link.listed_tools, dict(link.unreadable)
        return True

    async def _read(self, link: Link) -> None:
        """Lists the tools again, for `definition`."""
        self._unread = False
        link.listed_tools = await link.tools()
        self._by_now = {tool.name: tool for tool in link.listed_tools}

    async def call(
        self, tool: types.Tool, arguments: dict[str, Any], progress: Callable[[str], None] | None = None
    ) -> types.CallToolResult:
        """The server's answer. `tool` is the definition for which the call was approved. Raises ToolError, for the
        model, also if the server has changed that definition."""
        try:
            link = await self._usable()
            if self._unread:
                await self._read(link)
        except McpError as error:
            raise ToolError(str(error)) from None
        except (MCPError, ValidationError) as error:
            raise ToolError(f"{about(self.server)} does not list its tools: {describe(error)}") from None
        self._check_definition(tool)
        try:
            result = await self._send(link, tool, arguments, progress)
        except MCPError as error:
            raise await self._call_error(link, error) from None
        except TimeoutError:
            raise ToolError(f"{about(self.server)} did not answer within {self._call_timeout:g} seconds") from None
        except ValidationError as error:
            count = f"{error.error_count()} problems"
            raise ToolError(f"{about(self.server)} sent an answer that is not an MCP result ({count})") from None
        return result

    async def ask(self, work: Callable[[Client], Awaitable[ResultT]]) -> ResultT:
        """Does some work with the connection that changes nothing. Raises ToolError."""
        try:
            link = await self._usable()
            return await link.ask(work, self._call_timeout)
        except McpError as error:
            raise ToolError(str(error)) from None
        except (MCPError, ValidationError) as error:
            raise ToolError(f"{about(self.server)} did not answer as it should: {describe(error)[:500]}") from None
        except TimeoutError:
            raise ToolError(f"{about(self.server)} did not answer within {self._call_timeout:g} seconds") from None

    def _check_definition(self, tool: types.Tool) -> None:
        if self.definition(tool) != tool:
            raise ToolError(
                f"{about(self.server)} has changed the definition of {tool.name!r}. This call was approved for the old "
                "one, and did not run. Make it again if it is still right; it needs approval again"
            )

    async def _send(
        self, link: Link, tool: types.Tool, arguments: dict[str, Any], progress: Callable[[str], None] | None
    ) -> types.CallToolResult:
        try:
            return await link.call(tool.name, arguments, progress, self._call_timeout)
        except MCPError as error:
            # In both cases the server refused the request before it read the call.
            if error.code == types.HEADER_MISMATCH:
                await self._read(link)  # the listing says which arguments become headers
            elif _is_forgotten_session(error):
                await link.close()
                link = await self._usable_or_error()
            else:
                raise
        self._check_definition(tool)
        return await link.call(tool.name, arguments, progress, self._call_timeout)

    async def _usable_or_error(self) -> Link:
        try:
            return await self._usable()
        except McpError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None

    async def _call_error(self, link: Link, error: MCPError) -> ToolError:
        who = about(self.server)
        if error.code != types.CONNECTION_CLOSED:
            return ToolError(f"{who} refused the call: {visible(error.message)}")
        await link.close()
        why = link.why() or visible(error.message)
        return ToolError(f"{who} was gone before it answered; it is not known whether the call took effect ({why})")

    async def _usable(self) -> Link:
        """The connection, or a new one if it is gone. Raises McpError."""
        while True:
            link = self._link
            if link is not None and link.alive:
                # Other calls may still wait for answers on a doubtful connection: then it is not replaced.
                if not link.doubtful or link.under_way or await self._answers(link):
                    return link
                if link is not self._link:
                    continue  # another call has replaced it meanwhile
            return await self._open()

    async def _answers(self, link: Link) -> bool:
        if await link.answers(self._probe_timeout):
            link.doubtful = False
            return True
        return False

    async def _open(self) -> Link:
        if self._closed:
            raise McpError(f"{about(self.server)} is no longer connected: its McpServers is closed")
        if self._open_task is None or self._open_task.done():
            self._open_task = asyncio.create_task(self._replace())
        # A cancelled caller must not end the attempt that others share.
        return await asyncio.shield(self._open_task)

    async def _replace(self) -> Link:
        before, self._link = self._link, None
        if before is not None:
            await before.close()
        link = Link(self.server, self._connect_timeout, self._mark_stale, self._questions)
        await link.open()
        if self.listed_tools and link.listed_tools != self.listed_tools:
            self.stale = True
        self._by_now = {tool.name: tool for tool in link.listed_tools}
        self._link = link
        return link

    def _mark_stale(self) -> None:
        self.stale = self._unread = True


def _is_forgotten_session(error: MCPError) -> bool:
    """Whether a server over HTTP does not know the session, because it was restarted. (The SDK's message for a 404, for
    which it has no error class.)"""
    return error.code == types.INVALID_REQUEST and error.message == "Session terminated"
