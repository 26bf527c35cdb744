"""`toolspeak exec`: the protocol as a filter, from a model's reply to the results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, cast

import click

from toolspeak.cli.options.command_options import (
    active_file_option,
    chosen_dialect,
    dialect_options,
    env_option,
    file_argument,
    finish_option,
    read_reply,
    repair_option,
    reply_starts_in_option,
    write_text,
)
from toolspeak.cli.options.run_options import own_tools_option, workspace_option
from toolspeak.cli.options.sandbox_options import sandbox_fields, sandbox_options
from toolspeak.cli.signals import run_to_end
from toolspeak.data.deltas import DIALECT_NOTE, other_dialects
from toolspeak.data.messages import ToolResult
from toolspeak.dialects import Dialect, ParsedTurn, Section, get_dialect, read_turn, section_of_reply
from toolspeak.errors import AgentStop, ConfigurationError
from toolspeak.execute import BatchContext, Executor, ScheduleName, resolve_approver
from toolspeak.project.configuration.sandbox_settings import open_command_sandbox
from toolspeak.project.hidden_environment import hide_environment
from toolspeak.project.own_tools import load_tools
from toolspeak.sandbox.command_sandbox import CommandSandbox
from toolspeak.sandbox.no_sandbox import NoSandbox
from toolspeak.tools import Toolset
from toolspeak.tools.builtin import workspace_tools
from toolspeak.tools.files.files_read import KEY as FILES_READ
from toolspeak.ui import printable
from toolspeak.ui.terminal_approver import has_terminal, terminal_approver


@click.command("exec")
@file_argument
@dialect_options
@workspace_option
@env_option
@active_file_option
@own_tools_option
@click.option(
    "--approve",
    type=click.Choice(["ask", "all", "all+repaired", "none"]),
    default="ask",
    help="Calls that write or leave the machine. ask: you decide (default); all: approve everything except repaired "
    "calls; all+repaired: approve everything; none: approve nothing.",
)
@sandbox_options
@click.option(
    "--schedule",
    type=click.Choice(["native", "serializable", "parallel", "sequential"]),
    default="native",
    help="How the calls run (default: native, as in the dialect's specification).",
)
@click.option(
    "--reads",
    metavar="FILE",
    help="Store in FILE which files this conversation has read, so that a later reply may overwrite them.",
)
@reply_starts_in_option
@finish_option
@repair_option
def exec_command(
    file: str,
    dialect: str | None,
    model: str | None,
    strict: bool,
    workspace: str,
    env: tuple[str, ...],
    active_file: str | None,
    tools: tuple[str, ...],
    approve: Literal["ask", "all", "all+repaired", "none"],
    schedule: ScheduleName | Literal["native"],
    reads: str | None,
    starts_in: Section | None,
    finish: Literal["stop", "length"],
    repair: bool,
    **sandbox: Any,
) -> None:
    """Read one model reply from FILE or standard input, run its calls with the built-in tools, and print the results.

    The results are a block of text for the model, in the dialect of --model or --dialect; with `--dialect auto` alone,
    in the dialect of the calls. For a reply without calls, nothing is printed. Standard error lists what was accepted
    leniently or ignored.
    """
    if dialect is None and model is None:
        raise ConfigurationError("the dialect is missing: name the --dialect (auto detects it), or the --model")
    reply_dialect = chosen_dialect(dialect, model=model, strict=strict, repair=repair)
    hide_environment()
    own_tools = load_tools(tools, [os.getcwd()])

    def make_tools(commands: CommandSandbox) -> Toolset:
        return workspace_tools(workspace, active_file=active_file, env=env, sandbox=commands) + own_tools

    toolset = make_tools(CommandSandbox(NoSandbox()))
    reply = read_reply(file)
    starts_in = starts_in or section_of_reply(reply_dialect, reply, toolset.specs)
    turn = read_turn(reply_dialect, reply, toolset.specs, finish=finish, starts_in=starts_in)
    _report(turn)
    if not turn.calls:
        return
    if turn.dialect is not None and model is None:
        reply_dialect = get_dialect(turn.dialect)
    memory = _load_reads(reads)
    order = reply_dialect.info.native_schedule if schedule == "native" else schedule
    results = run_to_end(_run(toolset, make_tools, turn, order, approve, memory, workspace, sandbox_fields(sandbox)))
    _save_reads(reads, memory)
    _print_results(reply_dialect, results)


async def _run(
    toolset: Toolset,
    make_tools: Callable[[CommandSandbox], Toolset],
    turn: ParsedTurn,
    schedule: ScheduleName,
    approve: Literal["ask", "all", "all+repaired", "none"],
    memory: dict[str, Any],
    workspace: str,
    sandbox: Mapping[str, Any],
) -> tuple[ToolResult, ...]:
    """Runs the calls. `make_tools` makes the tools anew, with the sandbox that a command needs."""
    approver = terminal_approver() if approve == "ask" else resolve_approver(approve)
    async with AsyncExitStack() as opened_parts:
        if any(getattr(call, "name", "") == "shell" for call in turn.calls):
            commands, line = await open_command_sandbox(workspace, is_attended=has_terminal(), **sandbox)
            opened_parts.push_async_callback(commands.sandbox.aclose)
            click.echo(f"toolspeak exec: {printable(line)}", err=True)
            toolset = make_tools(commands)
        try:
            # A filter needs no journal: its caller has the reply and the results.
            executor = Executor(toolset, schedule=schedule)
            batch = await executor.run(turn.calls, context=BatchContext(memory=memory), approver=approver)
        except AgentStop as stop:  # the answer `q` to a question: calls that ran before it have results
            batch = stop.batch
        return batch.results


def _print_results(dialect: Dialect, results: tuple[ToolResult, ...]) -> None:
    text = dialect.render_results(results)
    write_text(text if text.endswith("\n") else text + "\n")


def _report(turn: ParsedTurn) -> None:
    lines = [f"read as {dialect}" for dialect in other_dialects(turn.notes)]
    lines += [f"accepted leniently: {note}" for note in turn.notes if not note.startswith(DIALECT_NOTE)]
    lines += [f"accepted leniently: {note} ({call.name})" for call in turn.calls for note in getattr(call, "notes", ())]
    lines += [f"ignored: a call to {entry.call.name or '?'}: {entry.reason}" for entry in turn.ignored_calls]
    lines += ["ignored: results that the model wrote itself"] * len(turn.forged_results)
    if not turn.calls:
        lines.append("no calls in this reply")
    for line in lines:
        click.echo(f"toolspeak exec: {line}", err=True)


def _load_reads(path: str | None) -> dict[str, Any]:
    if path is None or not Path(path).exists():
        return {}
    try:
        reads: object = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--reads {path}: {error}; remove the file to start anew") from None
    if not isinstance(reads, dict):
        raise ConfigurationError(f"--reads {path}: expected a JSON object of paths; remove the file to start anew")
    return {FILES_READ: {str(name): str(digest) for name, digest in cast("dict[str, Any]", reads).items()}}


def _save_reads(path: str | None, memory: dict[str, Any]) -> None:
    if path is None:
        return
    try:
        Path(path).write_text(json.dumps(memory.get(FILES_READ, {}), indent=1) + "\n", "utf-8")
    except OSError as error:
        # The calls have run: their results must reach the caller even without this file.
        print(f"toolspeak exec: --reads {path} was not written: {error}", file=sys.stderr)
