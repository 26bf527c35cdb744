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
from toolspeak.chat.terminal.front import ChatTerminal
from toolspeak.cli.options.run_options import (
    approve_option,
    code_mode_option,
    continue_option,
    defer_option,
    dialect_choice_option,
    mcp_option,
    memory_option,
    model_option,
    own_tools_option,
    prices_option,
    rules_option,
    session_option,
    thoughts_option,
    window_option,
    workspace_option,
)
from toolspeak.cli.options.sandbox_options import sandbox_options
from toolspeak.cli.options.web_options import web_options
from toolspeak.cli.signals import run_to_end

_OWN = ("workspace", "journal", "session", "continue_last", "thoughts")
"""The options that are no settings of a run."""


@click.command("chat")
@model_option
@dialect_choice_option
@workspace_option
@approve_option
@rules_option
@sandbox_options
@web_options
@mcp_option
@own_tools_option
@defer_option
@memory_option
@code_mode_option
@prices_option
@window_option
@click.option(
    "--journal",
    envvar="TOOLSPEAK_JOURNAL",
    metavar="FILE|URL",
    help="Where the conversation is recorded: a file, a postgresql:// URL, or `none` (default: toolspeak.db in your "
    "data folder).",
)
@session_option
@continue_option
@thoughts_option
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

    Everything is recorded: if the program or the machine dies, `toolspeak chat -c` continues where it stopped. /help
    lists the commands. Without a terminal this is `toolspeak run -`: the task comes from standard input.
    """
    explicit = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if not has_two_way_terminal():
        run = importlib.import_module("toolspeak.cli.run_commands.run_command").run_command
        run.main([*_option_words(context, explicit), "-"], prog_name="toolspeak run", standalone_mode=False)
        return
    choices = {name: context.params[name] for name in explicit.difference(_OWN)}

    async def hold(front: ChatTerminal, lines: asyncio.Queue[str]) -> None:
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
