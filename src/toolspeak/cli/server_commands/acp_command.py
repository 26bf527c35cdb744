"""`toolspeak acp`: the agent of an editor that speaks the Agent Client Protocol."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, cast

import click

from toolspeak.acp.client_messages import ClientCapabilities
from toolspeak.acp.editor_choices import EditorChoices
from toolspeak.acp.editor_connection import EditorConnection, EditorRequests
from toolspeak.acp.json_rpc import Peer
from toolspeak.acp.standard_streams import StandardStreams
from toolspeak.cli.exit_codes import SUCCESS
from toolspeak.cli.options.run_options import (
    LIMIT_OPTIONS,
    chosen_limits,
    code_mode_option,
    defer_option,
    limit_options,
    memory_option,
    own_tools_option,
    prices_option,
    rules_option,
    window_option,
)
from toolspeak.cli.options.sandbox_options import sandbox_options
from toolspeak.cli.options.web_options import web_options
from toolspeak.cli.signals import run_to_end
from toolspeak.errors import ConfigurationError

_AT_A_TERMINAL = """\
toolspeak: an editor starts `toolspeak acp` and talks to it over standard input and output (JSON-RPC).
At a terminal use `toolspeak run`. The guide "Work in an editor" says what to write into the editor's settings."""


@click.command("acp")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    help="PROVIDER:NAME (openai:gpt-5, anthropic:…, ollama:…), a bare name for openai, or scripted:FILE. If it is "
    "given several times, the user can choose among these models in the editor; the first is the default.",
)
@click.option(
    "--mode",
    type=click.Choice(["ask", "accept_edits", "approve_all", "plan"]),
    help="Which calls the user is asked about, until the editor chooses another mode (default: ask).",
)
@click.option("--dialect", metavar="NAME", help="How the model writes calls (default: auto).")
@click.option(
    "--journal",
    envvar="TOOLSPEAK_JOURNAL",
    metavar="FILE|URL",
    help="Where sessions are recorded: a file, a postgresql:// URL, or `none` (default: toolspeak.db in your data"
    " folder).",
)
@rules_option
@click.option(
    "--mcp",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Add the tools of the MCP servers in FILE (.mcp.json, or VS Code's mcp.json) to those of the editor.",
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME",
    help="Pass the environment variable NAME to `shell` commands, in addition to PATH, HOME, LANG and the like.",
)
@own_tools_option
@defer_option
@memory_option
@code_mode_option
@window_option
@prices_option
@sandbox_options
@web_options
@limit_options
def acp_command(models: tuple[str, ...], mode: str | None, journal: str | None, **options: Any) -> None:
    """Serve as the agent of an editor that speaks the Agent Client Protocol: Zed, JetBrains, Neovim, Emacs and others.

    The editor starts this command and shows its sessions. They are in the journal, so `toolspeak sessions` lists them,
    and a session that was interrupted goes on in any editor. Settings without an option come from your configuration
    (`toolspeak config`).
    """
    settings = {name: value for name, value in options.items() if value and name not in LIMIT_OPTIONS}
    choices = EditorChoices(models, mode, settings, chosen_limits(options))
    if cast("object", sys.stdin) is None:  # `<&-`
        raise ConfigurationError("standard input is closed: an editor starts this command, and keeps it open")
    if sys.stdin.isatty():
        click.echo(_AT_A_TERMINAL, err=True)
    run_to_end(_serve(choices, journal))
    sys.exit(SUCCESS)


def import_agent() -> tuple[Any, Any]:
    """The modules of the journal and the agent. They are not at the top: the editor waits for its first answer."""
    modules = ("toolspeak.cli.options.journal_option", "toolspeak.acp.agent_server")
    journal_option, agent_server = map(importlib.import_module, modules)
    return journal_option, agent_server


async def _serve(choices: EditorChoices, journal: str | None) -> None:
    def open_requests(peer: Peer, capabilities: ClientCapabilities) -> EditorRequests:
        journal_option, agent_server = import_agent()
        return agent_server.AgentServer(peer, journal_option.journal_of(journal), choices, capabilities)

    has_model = bool(choices.models or os.environ.get("TOOLSPEAK_MODEL"))
    streams = await StandardStreams.open()
    try:
        await EditorConnection(streams, open_requests, import_agent, has_model=has_model).serve()
    finally:
        await streams.aclose()
