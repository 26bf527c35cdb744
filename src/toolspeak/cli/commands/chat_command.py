"""`toolspeak chat`: a conversation with a model that uses tools in a folder."""

from __future__ import annotations

import asyncio
import gc
import importlib
from pathlib import Path
from typing import cast

import click
from click.core import ParameterSource

from toolspeak.chat.chat_app import has_two_way_terminal, open_chat
from toolspeak.chat.front import Front
from toolspeak.cli.sandbox_options import NAMES, sandbox_options
from toolspeak.cli.signals import run_to_end

_SETTINGS = ("model", "dialect", "approve", "rules", "mcp", "prices", "tools", "window", *NAMES)


@click.command("chat")
@click.option(
    "--model",
    envvar="TOOLSPEAK_MODEL",
    metavar="MODEL",
    help="PROVIDER:NAME (openai:gpt-5, anthropic:…, ollama:…), a bare name for openai, or scripted:FILE.",
)
@click.option("--dialect", default="auto", metavar="NAME", help="How the model writes calls (default: auto).")
@click.option(
    "--workspace",
    default=".",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="The folder that the tools may use (default: the current one).",
)
@click.option(
    "--approve",
    type=click.Choice(["ask", "all", "all+repaired", "none"]),
    default="ask",
    help="Calls that write or leave the machine. ask: you decide (default); all: approve everything except repaired "
    "calls; all+repaired: approve everything; none: approve nothing.",
)
@click.option(
    "--rules",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Store the calls that you always approve as rules in FILE, and apply them (see `toolspeak rules`).",
)
@click.option(
    "--mcp",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Add the tools of the MCP servers in FILE (.mcp.json, or VS Code's mcp.json).",
)
@click.option(
    "--prices",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help='A file with prices in USD per million tokens: {"openai:NAME": {"input": 1, "output": 4, "cached": 0.1}}.',
)
@click.option(
    "--window",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="The size of the model's context window. A conversation that fills it is shortened (default: unknown, never "
    "shorten).",
)
@click.option(
    "--tools",
    multiple=True,
    metavar="PLACE",
    help="Add your own Python tools: MODULE:NAME or FILE.py:NAME (see `toolspeak run`).",
)
@sandbox_options
@click.option(
    "--journal",
    envvar="TOOLSPEAK_JOURNAL",
    metavar="FILE|URL",
    help="Where the conversation is recorded: a file, a postgresql:// URL, or `none` (default: toolspeak.db in your "
    "data folder).",
)
@click.option(
    "--session",
    metavar="ID",
    help="Continue this session (the beginning of its id is enough), with its model unless --model names another.",
)
@click.option(
    "-c",
    "--continue",
    "continue_last",
    is_flag=True,
    help="Continue the most recent session of this folder (--workspace), with its model unless --model names another.",
)
@click.option("--thoughts/--no-thoughts", default=False, help="Show the model's reasoning (Ctrl-T changes it).")
@click.pass_context
def chat_command(
    context: click.Context,
    workspace: str,
    journal: str | None,
    session: str | None,
    continue_last: bool,
    thoughts: bool,
    **_of_setup: object,
) -> None:
    """Talk with a model that reads, writes and runs things in a folder, as you allow.

    Everything is recorded: if the program or the machine dies, `toolspeak chat -c` goes on where it was. /help lists
    the commands. Without a terminal this is `toolspeak run -`: the task comes from standard input.
    """
    explicit = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if not has_two_way_terminal():
        run = importlib.import_module("toolspeak.cli.commands.run_command").run_command
        run.main([*_option_words(context, explicit), "-"], prog_name="toolspeak run", standalone_mode=False)
        return
    choices = {name: context.params[name] for name in _SETTINGS if name in explicit}

    async def hold(front: Front, lines: asyncio.Queue[str]) -> None:
        # In a thread, so that the person can write meanwhile.
        work = await asyncio.to_thread(importlib.import_module, "toolspeak.cli.chat_work")
        gc.freeze()  # what was imported stays: a pass of the collector over it would hold a key's echo up
        await work.hold_conversation(
            front,
            lines,
            workspace,
            choices,
            journal=journal,
            session=session,
            continue_last=continue_last,
            thoughts=thoughts,
        )

    run_to_end(open_chat(hold, Path(workspace)))


def _option_words(context: click.Context, explicit: set[str]) -> list[str]:
    """The options of the command line, for another command that has them too."""
    words: list[str] = []
    for parameter in context.command.params:
        if parameter.name not in explicit:
            continue
        value = context.params[parameter.name]
        if isinstance(value, bool):
            words += [parameter.opts[-1]] if value else parameter.secondary_opts[:1]
        elif isinstance(value, tuple):
            for each in cast("tuple[str, ...]", value):
                words += [parameter.opts[-1], each]
        else:
            words += [parameter.opts[-1], str(value)]
    return words
