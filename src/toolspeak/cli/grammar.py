"""`toolspeak grammar`: what a model may write, for a matcher that holds it to that."""

from __future__ import annotations

import click

from toolspeak.cli.options import dialect_option, read_tools, starts_in_option
from toolspeak.data.messages import ToolChoice
from toolspeak.dialects import TARGETS, Section, Target, get_dialect

_MODES = ("auto", "required", "none")


@click.command
@dialect_option
@click.option("--tools", "tools_file", metavar="FILE", required=True, help="The tools as JSON.")
@click.option("--target", type=click.Choice(TARGETS), required=True, help="The matcher the grammar is for.")
@click.option(
    "--choice", default="auto", show_default=True, metavar="auto|required|none|NAME", help="NAME: call this tool."
)
@click.option("--max-calls", type=click.IntRange(1), metavar="N", help="At most so many calls in a turn.")
@click.option("--reasoning/--no-reasoning", default=True, show_default=True, help="The turn may think first.")
@starts_in_option
def grammar(
    dialect: str,
    tools_file: str,
    target: Target,
    choice: str,
    max_calls: int | None,
    reasoning: bool,
    starts_in: Section,
) -> None:
    """Print the grammar of one model turn: its free text, its calls of these tools, or both."""
    asked = ToolChoice(choice) if choice in _MODES else ToolChoice("specific", choice)
    made = get_dialect(dialect).grammar(
        read_tools(tools_file),
        asked,
        target=target,
        max_calls=max_calls,
        starts_in=starts_in,
        reasoning=reasoning,
    )
    click.echo(made.source.rstrip("\n"))
