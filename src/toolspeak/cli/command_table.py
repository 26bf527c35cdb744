"""The commands of `toolspeak`, with one line of help for each."""

from __future__ import annotations

import importlib
import shlex

import click

from toolspeak.cli.environment_variables import VARIABLES

COMMANDS_BY_FOLDER: dict[str, dict[str, str]] = {
    "run_commands": {
        "changes": "Show what a run changed in files, as a patch.",
        "chat": "Talk with a model that uses tools in a folder.",
        "decide": "Decide about a call that waits for approval.",
        "deliver": "Deliver an event to a run.",
        "demo": "Watch a scripted model find and fix a bug.",
        "diff": "Show where two runs differ.",
        "journal": "Check a journal, and move or erase runs.",
        "resume": "Continue a run.",
        "run": "Do a task with a model and the built-in tools.",
        "salvage": "Recover what is left of a damaged journal.",
        "say": "Send a message to a run.",
        "sessions": "List the sessions with their runs.",
        "show": "Show what happened in a run.",
        "submit": "Record a run for a worker.",
        "suspend": "Suspend a run, to continue it later.",
        "trace": "Export a recorded run as OpenTelemetry spans.",
        "undo": "Undo what a run changed in files.",
        "worker": "Drive the submitted runs of your agents.",
    },
    "model_commands": {
        "dialects": "List the dialects, or find a model's dialect.",
        "exec": "Run the calls of one model reply.",
        "grammar": "Print the grammar of one model turn.",
        "parse": "Parse one model reply, and print its calls and text.",
        "tools": "List the built-in tools, or those of a file.",
        "translate": "Translate a conversation into another dialect.",
    },
    "project_commands": {
        "agents": "List the sub-agents of a folder.",
        "config": "Show the configuration and its origins; trust or edit it.",
        "doctor": "Check what a run needs, and say what to do.",
        "memory": "Show, edit or delete what models remember.",
        "rules": "List or revoke the rules that approve calls.",
        "skills": "List the skills of a folder.",
    },
    "server_commands": {
        "acp": "Serve as the agent of an editor.",
        "keys": "Make an API key for a client of the gateway.",
        "mcp": "Serve tools to MCP clients; pin tools of MCP servers.",
        "serve": "Serve any model to any client, with tool calls.",
        "ui": "Show runs in a browser, and decide there.",
        "usage": "Show the usage of each key of the gateway.",
    },
}
"""The line in `toolspeak --help` for each command, by folders. The command NAME is `NAME_command` in
FOLDER/NAME_command.py."""

COMMANDS: dict[str, str] = dict(sorted(line for lines in COMMANDS_BY_FOLDER.values() for line in lines.items()))
"""The same for all commands, as `toolspeak --help` lists them."""


def load_command(name: str) -> click.Command:
    """Imports a command. Raises KeyError if there is none of that name."""
    folders = {command: folder for folder, lines in COMMANDS_BY_FOLDER.items() for command in lines}
    attribute = f"{name}_command"
    return getattr(importlib.import_module(f"toolspeak.cli.{folders[name]}.{attribute}"), attribute)


class LazyCommands(click.Group):
    """A group that imports a command at its first use. Listing the commands, or using one, imports no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

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
