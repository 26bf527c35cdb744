"""`toolspeak mcp`: serves tools and agents to MCP clients."""

from __future__ import annotations

from typing import Any, Literal

import click

from toolspeak.cli.journal_option import journal_option
from toolspeak.cli.mcp_serving import Offer, serve
from toolspeak.cli.run_options import own_tools_option, rules_option, workspace_option
from toolspeak.cli.sandbox_options import sandbox_fields, sandbox_options
from toolspeak.cli.signals import run_to_end


@click.group("mcp")
def mcp_command() -> None:
    """Serve tools and agents to MCP clients."""


@mcp_command.command("serve")
@own_tools_option
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="MODULE[:ATTRIBUTE]",
    help="Serve your agent as a tool that takes a task. It needs a description and a journal. May be given several "
    "times.",
)
@click.option(
    "--builtin", is_flag=True, help="Serve the built-in tools as well (default: only without --tools and --agent)."
)
@workspace_option
@click.option(
    "--env",
    multiple=True,
    metavar="NAME",
    help="Pass the environment variable NAME to `shell` commands, in addition to PATH, HOME, LANG and the like.",
)
@click.option(
    "--approve",
    type=click.Choice(["ask", "all", "none"]),
    default="ask",
    help="Calls that write or leave the machine. ask: the client asks its user (default); all: approve everything, for "
    "a client that asks its user itself; none: approve nothing.",
)
@rules_option
@sandbox_options
@journal_option
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve streamable HTTP at http://HOST:PORT/mcp instead of standard input and output; port 0 is any free port.",
)
@click.option(
    "--api-keys",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="API keys or their digests, one per line: with --http, a client needs one (or TOOLSPEAK_API_KEYS).",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="With --http: a name under which clients reach the server, as in their Host header (default: this machine's "
    "own, and any with API keys). Repeatable.",
)
def serve_command(
    tools: tuple[str, ...],
    agents: tuple[str, ...],
    builtin: bool,
    workspace: str,
    env: tuple[str, ...],
    approve: Literal["ask", "all", "none"],
    rules: str | None,
    journal: str | None,
    http: str | None,
    api_keys: str | None,
    hosts: tuple[str, ...],
    **sandbox: Any,
) -> None:
    """Serve the built-in tools, your own or your agents to MCP clients.

    Over standard input and output, for a client that starts this command (Claude Code, codex, editors), or over HTTP.
    Each call is a run of the journal: `toolspeak show` shows it, `toolspeak undo` undoes what it changed.
    """
    offer = Offer(
        tools, agents, builtin or not (tools or agents), workspace, env, approve, rules, sandbox_fields(sandbox)
    )
    run_to_end(serve(offer, journal, http, api_keys, hosts))
