"""What `toolspeak mcp serve` offers, and how clients reach it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import click

from toolspeak import mcp
from toolspeak.agent import Agent, Approval
from toolspeak.agent.interceptors import AnyInterceptor
from toolspeak.changes.change_recorder import recorders
from toolspeak.cli.configuration import configuration
from toolspeak.cli.options.agents_option import load_agents
from toolspeak.cli.options.journal_option import journal_of
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.listening_socket import listen
from toolspeak.gateway.settings.api_keys import Key, find_key, keys_of, read_keys
from toolspeak.gateway.settings.gateway_settings import LOOPBACK
from toolspeak.journal import Journal
from toolspeak.project.configuration.sandbox_settings import open_command_sandbox
from toolspeak.project.hidden_environment import hide_environment
from toolspeak.project.own_tools import load_tools
from toolspeak.project.user_files.rules_file import RulesFile
from toolspeak.providers.model_strings import CONFIGURED_PROVIDERS
from toolspeak.sandbox.process_default import use_by_default
from toolspeak.tools import Tool
from toolspeak.tools.builtin import WORKSPACE_TOOLS, workspace_tools
from toolspeak.ui import printable

_AT_A_TERMINAL = """\
toolspeak mcp: a client starts this command and talks to it over standard input and output (JSON-RPC). The guide "Serve
tools and agents over MCP" says what to write into the client's settings. Ctrl-C ends it."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options that say what is served, and who decides about calls."""

    tools: tuple[str, ...]
    agents: tuple[str, ...]
    builtin: bool
    workspace: str
    env: tuple[str, ...]
    approve: Literal["ask", "all", "none"]
    rules: str | None
    sandbox: Mapping[str, Any] = field(default_factory=dict[str, Any])


async def serve(
    offer: ServeOptions, journal_place: str | None, http: str | None, key_file: str | None, hosts: Sequence[str]
) -> None:
    """Serves until the client closes standard input, or until SIGTERM."""
    address = None if http is None else _address(http)
    keys = (*(read_keys(key_file) if key_file else ()), *keys_of(os.environ)) if address else ()
    if address is None and (key_file or hosts):
        raise ConfigurationError("--api-keys and --host are for --http: over standard input there is one client")
    if address is not None and address[0] not in LOOPBACK and not keys:
        raise ConfigurationError(
            f"others can reach {address[0]}, and there are no API keys: name a file of keys (--api-keys FILE), set "
            "TOOLSPEAK_API_KEYS, or listen on 127.0.0.1"
        )
    if address is None:
        if cast("object", sys.stdin) is None:  # `<&-`
            raise ConfigurationError("standard input is closed: a client starts this command, and keeps it open")
        if sys.stdin.isatty():
            click.echo(_AT_A_TERMINAL, err=True)
    hide_environment()
    CONFIGURED_PROVIDERS.set(configuration(offer.workspace, asks=False).providers)
    async with AsyncExitStack() as opened_parts:
        journal = journal_of(journal_place)
        opened_parts.push_async_callback(journal.aclose)
        tools_and_agents, interceptors = await _tools_and_agents(offer, journal, opened_parts)
        app = mcp.McpApp(
            tools_and_agents,
            journal=journal,
            approve=Approval(
                None if offer.approve == "ask" else offer.approve,
                rules=RulesFile(offer.rules) if offer.rules else None,
                in_doubt="ask" if offer.approve == "ask" else "report",
            ),
            interceptors=interceptors,
            principal=_principal_of(keys) if keys else None,
            hosts=hosts or None,
        )
        if address is None:
            await app.serve_stdio()
        else:
            serving = importlib.import_module("toolspeak.mcp.serving.http_serving")  # not for standard input
            host, port = address
            sock = listen(host, port, backlog=128, option="port")
            name = f"[{host}]" if ":" in host else host
            with suppress(OSError):  # a closed standard error must not stop the server
                click.echo(f"toolspeak serves MCP at http://{name}:{sock.getsockname()[1]}/mcp", err=True)
            await serving.serve_http(app, sock)


async def _tools_and_agents(
    offer: ServeOptions, journal: Journal, opened_parts: AsyncExitStack
) -> tuple[list[Tool[..., Any] | Agent[Any, Any]], list[AnyInterceptor]]:
    """The tools and agents that the options name, and their interceptors. The stack closes what they opened."""
    commands, line = await open_command_sandbox(offer.workspace, is_attended=False, **offer.sandbox)
    opened_parts.push_async_callback(commands.sandbox.aclose)
    tools_and_agents: list[Tool[..., Any] | Agent[Any, Any]] = []
    interceptors: list[AnyInterceptor] = []
    if offer.builtin:
        click.echo(f"toolspeak mcp: {printable(line)}", err=True)
        # Not `read_result`: each call is a run of its own, without earlier results. Nor is a file open in an editor.
        tools_and_agents += [
            tool
            for tool in workspace_tools(offer.workspace, env=offer.env, sandbox=commands)
            if tool.name in WORKSPACE_TOOLS
        ]
        interceptors += opened_parts.enter_context(recorders(offer.workspace, journal))
    use_by_default(commands)
    tools_and_agents += load_tools(offer.tools, [os.getcwd()])
    for place in offer.agents:
        for agent in load_agents(place):
            tools_and_agents.append(agent)
            opened_parts.push_async_callback(agent.aclose)
            if agent.journal is not None and agent.journal is not journal:
                opened_parts.push_async_callback(agent.journal.aclose)
    return tools_and_agents, interceptors


def _principal_of(keys: Sequence[Key]) -> Callable[[Mapping[str, Any]], str]:
    def principal(scope: Mapping[str, Any]) -> str:
        key = find_key(scope["headers"], keys)
        if key is None:
            raise PermissionError("send one of the server's API keys: Authorization: Bearer KEY")
        return key.name

    return principal


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"--http {text!r}: write HOST:PORT, for instance 127.0.0.1:8666")
    return host, int(port)
