"""The MCP servers of a run: those of its configuration, and those of the file of `--mcp`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from toolspeak import mcp
from toolspeak.data.values import quick
from toolspeak.errors import McpError
from toolspeak.execute import ApprovalRequest, Approver, BatchApprover, Decision, Escalate, Policy
from toolspeak.mcp.servers_file import Server, confine_servers, read_servers, servers_of
from toolspeak.project.run_setup import Setup
from toolspeak.project.user_files.user_folders import NO_FOLDER, data_folder
from toolspeak.tools import Tool


@quick()
class RunServers:
    """The MCP servers that a run is connected to.

    - `groups`: the connections.
    - `warnings`: what the person should know. The texts may come from a server.
    """

    groups: tuple[mcp.McpServers, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of all servers."""
        return [tool for group in self.groups for tool in group.tools]

    @property
    def prompts(self) -> Mapping[mcp.ServerPrompt, mcp.McpServers]:
        """The prompts of all servers, each with what it is asked of (`McpServers.prompt_messages`)."""
        return {prompt: group for group in self.groups for prompt in group.prompts}

    def policy(self, *, asks: bool) -> Policy | None:
        """Leaves calls of tools that were changed since they were pinned to a person, or refuses them unless one is
        asked about calls (`asks`). None if no tool was changed."""
        if not any(group.changed_tools for group in self.groups):
            return None

        def of_changed_tools(request: ApprovalRequest) -> Decision | Escalate | None:
            answers = (group.pin_policy(request) for group in self.groups)
            question = next((answer for answer in answers if answer is not None), None)
            return question if asks or question is None else Decision(False, question.reason, by="pins")

        return of_changed_tools


async def open_servers(
    setup: Setup,
    opened_parts: AsyncExitStack,
    questions: Approver | BatchApprover | None = None,
    others: Sequence[Server] = (),
) -> RunServers:
    """Connects to the MCP servers of a run, and starts those that are programs. `opened_parts` closes them. `questions`
    gets what they ask the person. `others` are treated as configured ones.

    A configured server that cannot be started is left out, so that it holds up no other work. Raises McpError for one
    of the file that the person named for this run, and ConfigurationError.
    """
    named_servers, configured_servers = servers_of_run(setup)
    configured_servers = (*configured_servers, *(confine_servers(others) if setup.sandbox == "required" else others))
    if not named_servers and not configured_servers:
        return RunServers()
    # Results and errors hold every problem; the SDK would also write tracebacks between the lines.
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
    pins = user_pins()
    groups = [mcp.McpServers([server], pins=pins, questions=questions) for server in configured_servers]
    for group in groups:
        opened_parts.push_async_callback(group.aclose)
    outcomes = await asyncio.gather(*map(_opening_problem, groups))
    warnings = [f"{problem}; the run goes on without its tools" for problem in outcomes if problem]
    groups = [group for group, problem in zip(groups, outcomes, strict=True) if not problem]
    if named_servers:
        groups.append(
            await opened_parts.enter_async_context(mcp.McpServers(named_servers, pins=pins, questions=questions))
        )
    warnings += [str(each) for group in groups for each in group.left_out]
    warnings += [each.reason for group in groups for each in group.changed_tools.values()]
    return RunServers(tuple(groups), tuple(warnings))


def user_pins() -> mcp.ToolPins | None:
    """The user's pinned definitions of MCP tools; None where the user has no home folder."""
    folder = data_folder()
    return None if folder == NO_FOLDER else mcp.ToolPins(folder / "mcp-pins.json")


def servers_of_run(setup: Setup) -> tuple[Sequence[Server], Sequence[Server]]:
    """The MCP servers of the file that the person named for a run, and those of the configuration. Raises
    ConfigurationError."""
    named_servers = read_servers(setup.mcp) if setup.mcp else ()
    configured_servers = servers_of(setup.mcp_servers, "mcp", setup.workspace)
    if setup.sandbox == "required":
        return confine_servers(named_servers), confine_servers(configured_servers)
    return named_servers, configured_servers


async def _opening_problem(servers: mcp.McpServers) -> str:
    """Why the servers cannot be used; "" if they can."""
    try:
        await servers.__aenter__()
    except McpError as error:
        return str(error)
    return ""
