"""`toolspeak mcp`: serves tools and agents to MCP clients; lists and pins the tools of MCP servers."""

from __future__ import annotations

from typing import Any, Literal

import click

from toolspeak.cli.configuration import configuration
from toolspeak.cli.exit_codes import NO_ANSWER
from toolspeak.cli.mcp_pinning import list_tools, pin_tools, show_changes
from toolspeak.cli.mcp_serving import ServeOptions, serve
from toolspeak.cli.options.journal_option import journal_option
from toolspeak.cli.options.run_options import CommandT, mcp_option, own_tools_option, rules_option, workspace_option
from toolspeak.cli.options.sandbox_options import sandbox_fields, sandbox_options
from toolspeak.cli.signals import run_to_end
from toolspeak.project.configuration.configured_setup import configured_setup
from toolspeak.project.run_setup import Setup


@click.group("mcp")
def mcp_command() -> None:
    """Serve tools and agents to MCP clients; list and pin the tools of MCP servers."""


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
    offer = ServeOptions(
        tools, agents, builtin or not (tools or agents), workspace, env, approve, rules, sandbox_fields(sandbox)
    )
    run_to_end(serve(offer, journal, http, api_keys, hosts))


def _server_options(command: CommandT) -> CommandT:
    """The argument and options that say which servers."""
    return click.argument("server", required=False)(workspace_option(mcp_option(command)))


def _setup(workspace: str, mcp: str | None) -> Setup:
    return configured_setup(configuration(workspace), workspace, **({"mcp": mcp} if mcp else {}))


@mcp_command.command("list")
@_server_options
def list_command(server: str | None, workspace: str, mcp: str | None) -> None:
    """List the tools of the configured MCP servers, or of one, each with the state of its pin.

    pinned: the tool is as it was at its first use. changed: its definition differs; you are asked about each call.
    new: not used yet.
    """
    run_to_end(list_tools(_setup(workspace, mcp), server))


@mcp_command.command("diff")
@_server_options
def diff_command(server: str | None, workspace: str, mcp: str | None) -> None:
    """Show how tools differ from their pinned definitions. The exit code is 1 if any does."""
    if run_to_end(show_changes(_setup(workspace, mcp), server)):
        raise SystemExit(NO_ANSWER)


@mcp_command.command("pin")
@_server_options
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Pin only the tool of this name. Repeatable.")
def pin_command(server: str | None, workspace: str, mcp: str | None, tools: tuple[str, ...]) -> None:
    """Pin tools as their servers define them now: you are no longer asked about their calls because of a change."""
    run_to_end(pin_tools(_setup(workspace, mcp), server, tools))
