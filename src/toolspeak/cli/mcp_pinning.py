"""What `toolspeak mcp list`, `diff` and `pin` do with the tools of MCP servers and their pinned definitions."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from toolspeak import mcp
from toolspeak.cli.options.command_options import write_text
from toolspeak.errors import ConfigurationError
from toolspeak.mcp.servers_file import Server
from toolspeak.project.configuration.configured_servers import servers_of_run, user_pins
from toolspeak.project.run_setup import Setup
from toolspeak.ui import printable
from toolspeak.ui.format import count

_WIDTH = 100
"""The most characters of a description on its line."""


async def list_tools(setup: Setup, name: str | None) -> None:
    """Prints the tools of the servers, each with the state of its pin."""
    for server in _servers(setup, name):
        async with _connection(server) as (servers, pins):
            states = _states(server, servers, pins)
            write_text(f"{printable(server.name)}: {count(len(states), 'tool')}\n")
            for tool, (state, definition) in states.items():
                description = " ".join(str(definition.get("description", "")).split())[:_WIDTH]
                write_text(f"  {state:<8}{printable(tool)}  {printable(description)}\n")
            for each in servers.left_out:
                write_text(f"  {'left out':<8}{printable(str(each))}\n")


async def show_changes(setup: Setup, name: str | None) -> bool:
    """Prints how the tools differ from their pinned definitions. Returns whether any does."""
    has_changes = False
    for server in _servers(setup, name):
        async with _connection(server) as (servers, pins):
            before = pins.pins(server)
            for tool, (state, definition) in _states(server, servers, pins).items():
                if state != "changed":
                    continue
                has_changes = True
                pinned_definition = before[tool].definition
                write_text(f"{printable(server.name)}: {printable(tool)}\n")
                if pinned_definition is None:
                    write_text("  the pinned definition was too long to keep: only its digest is known\n")
                    continue
                lines = difflib.unified_diff(
                    _lines(pinned_definition), _lines(definition), "pinned", "now", lineterm=""
                )
                write_text("".join(f"  {printable(line)}\n" for line in lines))
            for tool in before.keys() - _states(server, servers, pins).keys():
                write_text(f"{printable(server.name)}: {printable(tool)} is no longer listed\n")
    return has_changes


async def pin_tools(setup: Setup, name: str | None, tools: Sequence[str]) -> None:
    """Pins the tools as they are now: all, or those of these names."""
    missing = set(tools)
    for server in _servers(setup, name):
        async with _connection(server) as (servers, pins):
            states = _states(server, servers, pins)
            listing = [each for each in servers.listed_tools(server.name) if not tools or each.name in tools]
            pins.pin(server, listing)
            for each in listing:
                missing.discard(each.name)
                if states[each.name][0] != "pinned":
                    write_text(f"pinned {printable(server.name)}: {printable(each.name)}\n")
    if missing:
        raise ConfigurationError(f"no server lists a tool {', '.join(sorted(missing))}; see `toolspeak mcp list`")


def _servers(setup: Setup, name: str | None) -> Sequence[Server]:
    servers = [server for part in servers_of_run(setup) for server in part]
    if not servers:
        raise ConfigurationError("there are no MCP servers: configure some (mcp = …), or name their file (--mcp FILE)")
    matches = [server for server in servers if name in (None, server.name)]
    if not matches:
        names = ", ".join(server.name for server in servers)
        raise ConfigurationError(f"there is no MCP server {name!r}; there are: {names}")
    return matches


@asynccontextmanager
async def _connection(server: Server) -> AsyncGenerator[tuple[mcp.McpServers, mcp.ToolPins]]:
    pins = user_pins()
    if pins is None:
        raise ConfigurationError("there is no home folder for the pins; set HOME or XDG_DATA_HOME")
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
    async with mcp.McpServers([server]) as servers:  # without pins: looking at a tool does not pin it
        yield servers, pins


def _states(server: Server, servers: mcp.McpServers, pins: mcp.ToolPins) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The state of each tool's pin (new, pinned, changed), and the tool's definition, by its name at the server."""
    before = pins.pins(server)
    states: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for tool in servers.listed_tools(server.name):
        pin = before.get(tool.name)
        state = "new" if pin is None else "pinned" if pin.digest == mcp.digest_of(tool) else "changed"
        states[tool.name] = (state, mcp.definition_of(tool))
    return states


def _lines(definition: Mapping[str, Any]) -> list[str]:
    """A definition as lines, one for each line of its texts, so that a diff shows what changed in a long one."""
    text = json.dumps(definition, indent=1, sort_keys=True, ensure_ascii=False)
    return [line for part in text.split("\n") for line in part.replace("\\n", "\\n\n").split("\n")]
