"""Options of `run` that `chat`, `acp` or `submit` have too. They import click alone: the first screen of a
conversation, and the first answer to an editor, do not wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


LIMIT_OPTIONS: Mapping[str, str] = {"max_steps": "steps", "max_seconds": "seconds", "max_cost": "cost"}
"""The options of `limit_options`, with the fields of `Limits` that they set."""


def workspace_option(command: CommandT) -> CommandT:
    return click.option(
        "--workspace",
        default=".",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        help="The folder that the tools may use (default: the current one).",
    )(command)


def rules_option(command: CommandT) -> CommandT:
    text = "Store the calls that you always approve as rules in FILE, and apply them (see `toolspeak rules`)."
    return click.option("--rules", metavar="FILE", type=click.Path(dir_okay=False), help=text)(command)


def thoughts_option(command: CommandT) -> CommandT:
    text = "Show the model's reasoning, dimmed (default: show only that the model is thinking, and only in a terminal)."
    return click.option("--thoughts/--no-thoughts", default=False, help=text)(command)


def model_option(command: CommandT) -> CommandT:
    return click.option(
        "--model",
        envvar="TOOLSPEAK_MODEL",
        metavar="MODEL",
        help="PROVIDER:NAME (openai:gpt-5, anthropic:…, ollama:…), a bare name for openai, or scripted:FILE.",
    )(command)


def dialect_choice_option(command: CommandT) -> CommandT:
    return click.option(
        "--dialect", default="auto", metavar="NAME", help="How the model writes calls (default: auto)."
    )(command)


def approve_option(command: CommandT) -> CommandT:
    return click.option(
        "--approve",
        type=click.Choice(["ask", "all", "all+repaired", "none"]),
        default="ask",
        help="Calls that write or leave the machine. ask: you decide (default); all: approve everything except "
        "repaired calls; all+repaired: approve everything; none: approve nothing.",
    )(command)


def prices_option(command: CommandT) -> CommandT:
    return click.option(
        "--prices",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help='A file with prices in USD per million tokens: {"openai:NAME": {"input": 1, "output": 4, "cached": 0.1}}.',
    )(command)


def window_option(command: CommandT) -> CommandT:
    return click.option(
        "--window",
        type=click.IntRange(min=1),
        metavar="TOKENS",
        help="The size of the model's context window. A conversation that fills it is shortened (default: unknown, "
        "never shorten).",
    )(command)


def mcp_option(command: CommandT) -> CommandT:
    return click.option(
        "--mcp",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Add the tools of the MCP servers in FILE (.mcp.json, or VS Code's mcp.json).",
    )(command)


def session_option(command: CommandT) -> CommandT:
    return click.option(
        "--session",
        metavar="ID",
        help="Continue this session (the beginning of its id is enough), with its model unless --model names another.",
    )(command)


def continue_option(command: CommandT) -> CommandT:
    return click.option(
        "-c",
        "--continue",
        "continue_last",
        is_flag=True,
        help="Continue the most recent session of this folder (--workspace), with its model unless --model names "
        "another.",
    )(command)


def defer_option(command: CommandT) -> CommandT:
    text = (
        "Tools of which the model reads only the names, until it finds them with find_tools: `auto` (default: those"
        " of --mcp and --tools, if their definitions would fill a tenth of --window, or 8,000 tokens without one),"
        " `none`, or patterns of names with commas between them, such as 'github__*,jira__*'."
    )
    return click.option("--defer", metavar="WHICH", help=text)(command)


def code_mode_option(command: CommandT) -> CommandT:
    text = (
        "Let the model write Python programs that call the tools, instead of single calls (needs toolspeak[code]). You"
        " are asked about each call of a program as about any other."
    )
    return click.option("--code-mode", is_flag=True, help=text)(command)


def memory_option(command: CommandT) -> CommandT:
    text = (
        "Let the model remember facts about you, with the tool `memory` (see `toolspeak memory`): it reads them in"
        " every run, and each change of them asks you."
    )
    return click.option("--memory", is_flag=True, help=text)(command)


def own_tools_option(command: CommandT) -> CommandT:
    text = (
        "Add your own Python tools: MODULE:NAME or FILE.py:NAME of a function, a Tool, a Toolset, a list of these, or "
        "a function that returns them. May be given several times."
    )
    return click.option("--tools", "tools", multiple=True, metavar="PLACE", help=text)(command)


def limit_options(command: CommandT) -> CommandT:
    """The parameters of `chosen_limits`. None: the option was left out."""
    steps = "Maximum number of model turns (default: 50)."
    seconds = "The time after which the run must wrap up; the answer may take a minute more."
    cost = "The cost in US dollars after which the run must wrap up."
    for option in (
        click.option("--max-cost", type=click.FloatRange(0, min_open=True), metavar="USD", help=cost),
        click.option("--max-seconds", type=click.FloatRange(0, min_open=True), help=seconds),
        click.option("--max-steps", type=click.IntRange(1), help=steps),
    ):
        command = option(command)
    return command


def chosen_limits(options: Mapping[str, Any]) -> dict[str, float]:
    """The fields of `Limits` that these options of the command line set."""
    return {
        LIMIT_OPTIONS[name]: limit for name, limit in options.items() if name in LIMIT_OPTIONS and limit is not None
    }
