"""The commands of `toolspeak`: where each is, and what it is for."""

from __future__ import annotations

import importlib

import click

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo:demo", "Watch a scripted model find and fix a bug."),
    "dialects": ("listing:dialects", "List the dialects, or say which one a model has."),
    "diff": ("show:diff", "Show where two runs parted."),
    "exec": ("exec:execute", "Run the calls of one model reply."),
    "grammar": ("grammar:grammar", "Print the grammar of one model turn."),
    "keys": ("keys:keys", "Make an API key for a client of the gateway."),
    "parse": ("parse:parse", "Print what the runtime sees in one model reply."),
    "resume": ("resume:resume", "Go on with a run."),
    "rules": ("rules:rules", "List or revoke the rules that approve calls."),
    "run": ("run:run", "Do a task with a model and the built-in tools."),
    "salvage": ("salvage:salvage", "Go on with what is left of a damaged journal."),
    "serve": ("serve:serve", "Give every client tool calls, whatever the model."),
    "sessions": ("sessions:sessions", "List the sessions with their runs."),
    "show": ("show:show", "Show what happened in a run."),
    "suspend": ("suspend:suspend", "Suspend a run, to go on with it later."),
    "tools": ("listing:tools", "List the built-in tools, or those of a file."),
    "translate": ("translate:translate_conversation", "Turn a conversation into another dialect's."),
    "usage": ("usage:usage", "Show what the keys of the gateway used."),
}
"""By name: module and attribute below `toolspeak.cli`, and a line for `toolspeak --help`."""


class LazyCommands(click.Group):
    """A group whose commands are imported when they are used: listing them, or using one, does not pay for all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(f"toolspeak.cli.{module}"), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, told) in COMMANDS.items()])
