"""The commands of `toolspeak`, with one line of help for each."""

from __future__ import annotations

import importlib
import shlex

import click

from toolspeak.cli.environment_variables import VARIABLES

COMMANDS: dict[str, str] = {
    "acp": "Be the agent of an editor.",
    "agents": "List the sub-agents of a folder.",
    "changes": "Show what a run changed in files, as a patch.",
    "chat": "Talk with a model that uses tools in a folder.",
    "config": "Show the configuration and its origins; trust or edit it.",
    "decide": "Decide about a call that waits for approval.",
    "deliver": "Bring an event to a run.",
    "demo": "Watch a scripted model find and fix a bug.",
    "dialects": "List the dialects, or find a model's dialect.",
    "diff": "Show where two runs differ.",
    "doctor": "Check what a run needs, and say what to do.",
    "exec": "Run the calls of one model reply.",
    "grammar": "Print the grammar of one model turn.",
    "journal": "Check a journal, and move or erase runs.",
    "keys": "Make an API key for a client of the gateway.",
    "mcp": "Serve tools to MCP clients; pin those of servers.",
    "memory": "Show, edit or delete what models remember.",
    "parse": "Parse one model reply, and print its calls and text.",
    "resume": "Continue a run.",
    "rules": "List or revoke the rules that approve calls.",
    "run": "Do a task with a model and the built-in tools.",
    "salvage": "Recover what is left of a damaged journal.",
    "say": "Send a message to a run.",
    "serve": "Serve any model to any client, with tool calls.",
    "sessions": "List the sessions with their runs.",
    "show": "Show what happened in a run.",
    "skills": "List the skills of a folder.",
    "submit": "Record a run for a worker.",
    "suspend": "Suspend a run, to continue it later.",
    "tools": "List the built-in tools, or those of a file.",
    "trace": "Export a recorded run as OpenTelemetry spans.",
    "translate": "Translate a conversation into another dialect.",
    "ui": "Show runs in a browser, and decide there.",
    "undo": "Undo what a run changed in files.",
    "usage": "Show the usage of each key of the gateway.",
    "worker": "Drive the submitted runs of your agents.",
}
"""The line in `toolspeak --help` for each command. The command NAME is `NAME_command` in commands/NAME_command.py."""


class LazyCommands(click.Group):
    """A group that imports a command at its first use. Listing the commands, or using one, imports no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        attribute = f"{cmd_name}_command"
        return getattr(importlib.import_module(f"toolspeak.cli.commands.{attribute}"), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and " " in args[0] and args[0] not in COMMANDS:
            remedy = f"to do a task: toolspeak run {shlex.quote(args[0])}"
            raise click.UsageError(f"there is no command {args[0]!r}; {remedy}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        with formatter.section("Environment variables"):
            formatter.write_dl(list(VARIABLES.items()), col_max=36)
