"""The MCP servers of a run: those of its configuration, and those of the file of `--mcp`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack

from toolspeak import mcp
from toolspeak.errors import McpError
from toolspeak.mcp.servers_file import Server, confined, read_servers, servers_of
from toolspeak.project.run_setup import Setup
from toolspeak.tools import Tool


async def open_servers(setup: Setup, opened_parts: AsyncExitStack) -> tuple[Sequence[Tool], Sequence[str]]:
    """Connects to the MCP servers of a run, and starts those that are programs. Returns their tools, and what the
    person should know. `opened_parts` closes them.

    A configured server that cannot be started is left out, so that it holds up no other work. Raises McpError for one
    of the file that the person named for this run, and ConfigurationError.
    """
    named_servers, configured_servers = servers_of_run(setup)
    if not named_servers and not configured_servers:
        return (), ()
    # Results and errors hold every problem; the SDK would also write tracebacks between the lines.
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
    groups = [mcp.McpServers([server]) for server in configured_servers]
    for group in groups:
        opened_parts.push_async_callback(group.aclose)
    outcomes = await asyncio.gather(*map(_opening_problem, groups))
    warnings = [f"{problem}; the run goes on without its tools" for problem in outcomes if problem]
    groups = [group for group, problem in zip(groups, outcomes, strict=True) if not problem]
    if named_servers:
        groups.append(await opened_parts.enter_async_context(mcp.McpServers(named_servers)))
    warnings += [str(each) for group in groups for each in group.left_out]
    return [tool for group in groups for tool in group.tools], warnings


def servers_of_run(setup: Setup) -> tuple[Sequence[Server], Sequence[Server]]:
    """The MCP servers of the file that the person named for a run, and those of the configuration. Raises
    ConfigurationError."""
    named_servers = read_servers(setup.mcp) if setup.mcp else ()
    configured_servers = servers_of(setup.mcp_servers, "mcp", setup.workspace)
    if setup.sandbox == "required":
        return confined(named_servers), confined(configured_servers)
    return named_servers, configured_servers


async def _opening_problem(servers: mcp.McpServers) -> str:
    """Why the servers cannot be used; "" if they can."""
    try:
        await servers.__aenter__()
    except McpError as error:
        return str(error)
    return ""
