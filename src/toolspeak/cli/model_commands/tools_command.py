"""`toolspeak tools`: lists the tools."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from toolspeak.cli.options.command_options import listing_option, read_tools, write_json, write_text
from toolspeak.cli.options.run_options import workspace_option
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Listing, list_tools
from toolspeak.errors import UnknownTool, suggest
from toolspeak.tools.builtin import workspace_tools

tools_option = click.option(
    "--tools", "tools_file", metavar="FILE", help="A JSON file of tools to use instead of the built-in ones."
)


def listed_tools(tools_file: str | None, workspace: str) -> tuple[ToolSpec, ...]:
    """The tools in a JSON file; without a file, the built-in tools for a folder. Raises ConfigurationError."""
    return read_tools(tools_file) if tools_file else tuple(workspace_tools(workspace).specs)


@click.command("tools")
@workspace_option
@click.option("--show", metavar="NAME", help="Print this tool's definition as JSON.")
@listing_option
@tools_option
def tools_command(workspace: str, show: str | None, listing: Listing | None, tools_file: str | None) -> None:
    """List the built-in tools, or those of a file; show one; or print them as in a model's prompt."""
    specs = {spec.name: spec for spec in listed_tools(tools_file, workspace)}
    if show is not None and show not in specs:
        raise UnknownTool(f"unknown tool {suggest(show, specs)}")
    if listing is not None:
        write_text(list_tools(list(specs.values()) if show is None else [specs[show]], listing) + "\n")
        return
    if show is not None:
        spec = specs[show]
        write_json({"name": spec.name, "description": spec.description, "parameters": spec.parameters})
        return
    table = Table("name", "asks first", "arguments", "what it does", box=None)
    for spec in specs.values():
        needs_approval = "no" if spec.effects.read_only and not spec.effects.external else "yes"
        table.add_row(spec.name, needs_approval, _signature(spec), spec.description.split("\n")[0])
    Console(markup=False, highlight=False).print(table)


def _signature(spec: ToolSpec) -> str:
    required_names = spec.parameters.get("required", ())
    return ", ".join(name if name in required_names else f"{name}?" for name in spec.properties)
