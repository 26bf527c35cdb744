"""`toolspeak agents`: lists the sub-agents."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from toolspeak.cli.exit_codes import NO_ANSWER, SUCCESS
from toolspeak.cli.options.run_options import workspace_option
from toolspeak.project.sub_agents import find_sub_agents, unknown_tools
from toolspeak.tools.builtin import WORKSPACE_TOOLS
from toolspeak.ui import printable
from toolspeak.ui.format import one_line


@click.command("agents")
@workspace_option
def agents_command(workspace: str) -> None:
    """List the sub-agents that an agent in this folder has, where they come from, and what is wrong with others.

    The exit code is 1 if one cannot be used as its file says. Names of MCP servers' tools are not checked.
    """
    agent_list = find_sub_agents(Path(workspace))
    problems = list(agent_list.problems)
    table = Table("name", "from", "model", "tools", "file", "what it is for", box=None)
    for agent in agent_list.by_name.values():
        mcp_tools = [each for each in agent.tools or () if "__" in each]
        problems += unknown_tools(
            agent, [*WORKSPACE_TOOLS, "recall", "skill", "read_result", "active_file", *mcp_tools]
        )
        tools = "all" if agent.tools is None else ", ".join(agent.tools)
        row = (agent.name, agent.origin, agent.model, tools, str(agent.path), agent.description)
        table.add_row(*map(one_line, row))
    if agent_list.by_name:
        Console(markup=False, highlight=False).print(table)
    for problem in (*problems, *agent_list.name_conflicts):
        click.echo(f"toolspeak: {printable(problem)}", err=True)
    if not agent_list.by_name and not problems:
        click.echo("There are no sub-agents: put them into .agents/agents/NAME.md.")
    sys.exit(NO_ANSWER if problems else SUCCESS)
