"""The commands of `toolspeak`, with a line about each."""

from __future__ import annotations

import importlib

import click

COMMANDS: dict[str, str] = {
    "demo": "Watch a scripted model find and fix a bug.",
    "dialects": "List the dialects, or say which one a model has.",
    "diff": "Show where two runs parted.",
    "exec": "Run the calls of one model reply.",
    "grammar": "Print the grammar of one model turn.",
    "keys": "Make an API key for a client of the gateway.",
    "parse": "Print what the runtime sees in one model reply.",
    "resume": "Go on with a run.",
    "rules": "List or revoke the rules that approve calls.",
    "run": "Do a task with a model and the built-in tools.",
    "salvage": "Go on with what is left of a damaged journal.",
    "serve": "Give every client tool calls, whatever the model.",
    "sessions": "List the sessions with their runs.",
    "show": "Show what happened in a run.",
    "suspend": "Suspend a run, to go on with it later.",
    "tools": "List the built-in tools, or those of a file.",
    "translate": "Turn a conversation into another dialect's.",
    "usage": "Show what the keys of the gateway used.",
}
"""The line of `toolspeak --help` for each command. Command NAME is `NAME_command` in commands/NAME_command.py."""


class LazyCommands(click.Group):
    """A group that imports a command when it is used: listing the commands, or using one, does not load the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        attribute = f"{cmd_name}_command"
        return getattr(importlib.import_module(f"toolspeak.cli.commands.{attribute}"), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
