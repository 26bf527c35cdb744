"""`toolspeak dialects` and `toolspeak tools`: what there is."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from toolspeak.cli.options import listing_option, read_tools, workspace_option, write_json, write_text
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Listing, get_dialect, list_tools
from toolspeak.errors import UnknownTool, suggest
from toolspeak.tools.builtin import workspace_tools


def _specs(tools_file: str | None, workspace: str) -> tuple[ToolSpec, ...]:
    return read_tools(tools_file) if tools_file else tuple(workspace_tools(workspace).specs)


tools_option = click.option(
    "--tools", "tools_file", metavar="FILE", help="These tools, as JSON, not the built-in ones."
)


@click.command
@click.option("--show", metavar="NAME", help="Print this dialect's instructions for the tools.")
@click.option("--model", metavar="MODEL", help="Print which dialect a model has, as a hub or a server names it.")
@listing_option
@tools_option
def dialects(show: str | None, model: str | None, listing: Listing | None, tools_file: str | None) -> None:
    """List the dialects, say which one a model has, or show what one tells a model."""
    if show is not None:
        text = get_dialect(show, model=model).instructions(_specs(tools_file, "."), listing=listing or "trained")
        write_text(text + "\n")
        return
    if model is not None:
        write_text(get_dialect("auto", model=model).name + "\n")
        return
    table = Table("name", "how the model writes calls", "native schedule", "specification", box=None)
    for dialect in DIALECTS:
        info = dialect.info
        table.add_row(info.name, info.summary, info.native_schedule, info.source)
    Console(markup=False, highlight=False).print(table)


@click.command
@workspace_option
@click.option("--show", metavar="NAME", help="Print this tool's definition as JSON.")
@listing_option
@tools_option
def tools(workspace: str, show: str | None, listing: Listing | None, tools_file: str | None) -> None:
    """List the built-in tools, or those of a file; show one; or print them as a model is told of them."""
    specs = {spec.name: spec for spec in _specs(tools_file, workspace)}
    if show is not None and show not in specs:
        raise UnknownTool(f"There is no tool {suggest(show, specs)}")
    if listing is not None:
        write_text(list_tools(list(specs.values()) if show is None else [specs[show]], listing) + "\n")
        return
    if show is not None:
        spec = specs[show]
        write_json({"name": spec.name, "description": spec.description, "parameters": spec.parameters})
        return
    table = Table("name", "asks first", "arguments", "what it does", box=None)
    for spec in specs.values():
        asks = "no" if spec.effects.read_only and not spec.effects.external else "yes"
        table.add_row(spec.name, asks, _signature(spec), spec.description.split("\n")[0])
    Console(markup=False, highlight=False).print(table)


def _signature(spec: ToolSpec) -> str:
    required = spec.parameters.get("required", ())
    return ", ".join(name if name in required else f"{name}?" for name in spec.properties)
