"""`toolspeak resume`: go on with a run that was interrupted or suspended, or that waits for approval."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import click

from toolspeak.agent import Agent, Run
from toolspeak.cli.attended_run import Approve, Display, Setup, open_streams, recording_of, work
from toolspeak.cli.command_options import thoughts_option
from toolspeak.cli.exit_codes import ANSWERED
from toolspeak.cli.journal_option import journal_of, journal_option
from toolspeak.cli.run_lookup import SHORT, find_run, folder_of, setup_of_run, unfinished
from toolspeak.cli.signals import run_to_end
from toolspeak.data.events import UNFINISHED
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, RunBusy, ToolspeakError
from toolspeak.execute import InDoubtPolicy
from toolspeak.journal import Journal, RunInfo
from toolspeak.journal.rules import is_held
from toolspeak.ui import printable

_LOOK = 1.0
"""Seconds between two looks for runs that were interrupted."""


@click.command("resume")
@click.argument("run", required=False)
@click.option("--all", "every", is_flag=True, help="Every run that was interrupted, one after the other.")
@click.option("--watch", is_flag=True, help="Stay, and go on with each run whose process dies; with --all.")
@click.option(
    "--approve",
    type=click.Choice(["ask", "all", "all+repaired", "none"]),
    help="Instead of what the run was started with.",
)
@click.option(
    "--in-doubt",
    type=click.Choice(["ask", "report", "repeat"]),
    default="ask",
    help="A call that was started, has no result and must not simply run again: ask you (default), tell the model that"
    " the outcome is unknown, or run it again.",
)
@journal_option
@thoughts_option
@click.option("--json", "as_json", is_flag=True, help="Print the new records, one JSON object a line.")
def resume_command(
    run: str | None,
    every: bool,
    watch: bool,
    approve: Approve | None,
    in_doubt: InDoubtPolicy,
    journal: str | None,
    thoughts: bool,
    as_json: bool,
) -> None:
    """Go on with RUN (the beginning of its id is enough; default: the newest that has not ended).

    Nothing that has a result runs again. Calls that were started and have none follow their tools: what only reads, or
    may run twice, runs again.
    """
    if run and every:
        raise ConfigurationError("name a run or say --all, not both")
    if watch and not every:
        raise ConfigurationError("--watch goes with --all: it goes on with every run that was interrupted")
    open_streams()
    how = _How(approve, in_doubt, as_json, thoughts)
    sys.exit(run_to_end(_resume(run, every, watch, how, journal_of(journal))))


@quick()
class _How:
    """What is said for every run that is resumed."""

    approve: Approve | None
    in_doubt: InDoubtPolicy
    as_json: bool
    thoughts: bool


async def _resume(run: str | None, every: bool, watch: bool, how: _How, journal: Journal) -> int:
    try:
        if run is not None:
            info = await find_run(journal, run)
            if info.parent_run_id:
                parent = info.parent_run_id[:SHORT]
                raise ConfigurationError(
                    f"run {info.run_id[:SHORT]} was started by a tool of run {parent}: resume that one"
                )
            return await _go_on(journal, info, how)
        if watch:
            return await _watch(journal, how)
        if every:
            return await _go_on_with_all(journal, how)
        waiting = await unfinished(journal)
        if not waiting:
            raise ConfigurationError("there is no run that has not ended")
        # Not one that a process is at work on, or whose question is open at another terminal, if there is another.
        return await _go_on(journal, next((each for each in waiting if not is_held(each)), waiting[0]), how)
    finally:
        await journal.aclose()


async def _watch(journal: Journal, how: _How) -> int:
    """Looks for interrupted runs until it is stopped (Ctrl-C)."""
    failed: dict[str, int] = {}
    click.echo("toolspeak: watching for runs that were interrupted; Ctrl-C ends it", err=True)
    while True:
        await _go_on_with_all(journal, how, failed)
        await asyncio.sleep(_LOOK)


async def _go_on_with_all(journal: Journal, how: _How, failed: dict[str, int] | None = None) -> int:
    """Goes on with every run whose process is gone. Whoever looks again and again gives what `failed`: a run with as
    many records as when it failed is left alone, and one that is held passed over without a word."""
    worst = ANSWERED
    for listed in await unfinished(journal):
        info = await journal.run(listed.run_id)  # as it is by now: another process may have gone on with it
        if info is None or info.status != "running":
            continue  # it waits for a person, or was suspended by one, who names it
        if failed is not None and (is_held(info) or failed.get(info.run_id) == info.records):
            continue
        try:
            worst = max(worst, await _go_on(journal, info, how))
        except RunBusy as error:
            click.echo(f"toolspeak: {error}", err=True)
        except ToolspeakError as error:
            click.echo(f"toolspeak: {error}", err=True)
            worst = max(worst, 1)
            current = await journal.run(info.run_id)
            if failed is not None and current is not None:
                failed[info.run_id] = current.records
    return worst


async def _go_on(journal: Journal, info: RunInfo, how: _How) -> int:
    recorded = await setup_of_run(journal, info.run_id)
    if info.status in UNFINISHED:
        # A question about a command does not say in which folder it would run, and that need not be this one.
        where = f" in {folder}" if (folder := folder_of(recorded)) else ""
        click.echo(printable(f"toolspeak: resuming {info.run_id[:SHORT]}{where}: {info.title}"), err=True)
    setup = Setup.of(info.run_id, recorded)
    if how.approve is not None:
        setup = replace(setup, approve=how.approve)

    async def begin(agent: Agent) -> Run:
        return agent.resumed(info.run_id)

    display, cassette = Display(how.as_json, thoughts=how.thoughts), recording_of(setup)
    return await work(setup, journal, begin, display, in_doubt=how.in_doubt, cassette=cassette)
