"""`toolspeak dialects`: lists the dialects."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from toolspeak.cli.model_commands.tools_command import listed_tools, tools_option
from toolspeak.cli.options.command_options import listing_option, write_text
from toolspeak.dialects import DIALECTS, Listing, get_dialect


@click.command("dialects")
@click.option("--show", metavar="NAME", help="Print this dialect's instructions for the tools.")
@click.option("--model", metavar="MODEL", help="Print the dialect of this model, by its name on a hub or a server.")
@listing_option
@tools_option
def dialects_command(show: str | None, model: str | None, listing: Listing | None, tools_file: str | None) -> None:
    """List the dialects, find a model's dialect, or show a dialect's instructions for the model."""
    if show is not None:
        specs = listed_tools(tools_file, ".")
        text = get_dialect(show, model=model).instructions(specs, listing=listing or "trained")
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
