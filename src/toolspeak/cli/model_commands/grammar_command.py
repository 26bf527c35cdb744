"""`toolspeak grammar`: prints a grammar, with which a server's matcher constrains the model's text."""

from __future__ import annotations

from typing import Any, cast

import click

from toolspeak.cli.options.command_options import HyphenChoice, dialect_option, read_tools, starts_in_option, write_text
from toolspeak.data.messages import ToolChoice
from toolspeak.dialects import TARGETS, Section, SpecialTokens, Target, get_dialect
from toolspeak.errors import ConfigurationError
from toolspeak.project.user_files.json_file import read_json

_MODES = ("auto", "required", "none")


@click.command("grammar")
@dialect_option
@click.option("--tools", "tools_file", metavar="FILE", required=True, help="The tools as JSON.")
@click.option("--target", type=HyphenChoice(TARGETS), required=True, help="The matcher that the grammar is for.")
@click.option(
    "--choice",
    default="auto",
    show_default=True,
    metavar="auto|required|none|NAME",
    help="The tool choice; NAME is a tool that the model must call.",
)
@click.option("--max-calls", type=click.IntRange(1), metavar="N", help="The most calls in a turn.")
@click.option("--reasoning/--no-reasoning", default=True, show_default=True, help="Allow reasoning before the turn.")
@click.option(
    "--special-tokens",
    "special_file",
    metavar="FILE",
    help="For the target lark: the model's special tokens as JSON, `{text: id}` (a tokenizer's added_tokens.json) or "
    "`[text]`.",
)
@starts_in_option
def grammar_command(
    dialect: str,
    tools_file: str,
    target: Target,
    choice: str,
    max_calls: int | None,
    reasoning: bool,
    special_file: str | None,
    starts_in: Section,
) -> None:
    """Print the grammar of one model turn: free text, calls of these tools, or both."""
    tool_choice = ToolChoice(choice) if choice in _MODES else ToolChoice("specific", choice)
    grammar_text = get_dialect(dialect).grammar(
        read_tools(tools_file),
        tool_choice,
        target=target,
        max_calls=max_calls,
        starts_in=starts_in,
        reasoning=reasoning,
        special_tokens=read_special_tokens(special_file),
    )
    write_text(grammar_text.source.rstrip("\n") + "\n")


def read_special_tokens(path: str | None) -> SpecialTokens:
    """The special tokens in a JSON file: an object of ids by text, or an array of texts. Raises ConfigurationError."""
    if path is None:
        return ()
    tool_list: Any = read_json(path)
    if isinstance(tool_list, dict) and all(
        type(number) is int for number in cast("dict[str, Any]", tool_list).values()
    ):
        return cast("dict[str, int]", tool_list)
    if isinstance(tool_list, list) and all(isinstance(text, str) for text in cast("list[Any]", tool_list)):
        return cast("list[str]", tool_list)
    raise ConfigurationError(f'{path}: expected special tokens as {{"<tool_call>": 151657, …}} or ["<tool_call>", …]')
