"""`toolspeak dialects` and `toolspeak tools`: what there is."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from toolspeak.cli.options import workspace_option, write_json, write_text
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, get_dialect
from toolspeak.errors import UnknownTool, suggest
from toolspeak.tools.builtin import workspace_tools


@click.command
@click.option("--show", metavar="NAME", help="Print this dialect's instructions for the built-in tools.")
def dialects(show: str | None) -> None:
    """List the dialects, or show what one tells a model."""
    if show is not None:
        write_text(get_dialect(show).instructions(workspace_tools(".").specs) + "\n")
        return
    table = Table("name", "how the model writes calls", "native schedule", "specification", box=None)
    for dialect in DIALECTS:
        info = dialect.info
        table.add_row(info.name, info.summary, info.native_schedule, info.source)
    Console(markup=False, highlight=False).print(table)


@click.command
@workspace_option
@click.option("--show", metavar="NAME", help="Print this tool's definition as JSON.")
def tools(workspace: str, show: str | None) -> None:
    """List the built-in tools, or show one."""
    specs = {spec.name: spec for spec in workspace_tools(workspace).specs}
    if show is not None:
        if show not in specs:
            raise UnknownTool(f"There is no built-in tool {suggest(show, specs)}")
        spec = specs[show]
        write_json({"name": spec.name, "description": spec.description, "parameters": spec.parameters})
        return
    table = Table("name", "asks first", "arguments", "what it does", box=None)
    for spec in specs.values():
        asks = "no" if spec.effects.read_only and not spec.effects.external else "yes"
        table.add_row(spec.name, asks, _signature(spec), spec.description.split("\n")[0])
    Console(markup=False, highlight=False).print(table)


def _signature(spec: ToolSpec) -> str:
    required = set(spec.parameters.get("required", ()))
    return ", ".join(name if name in required else f"{name}?" for name in spec.properties)
