"""`toolspeak suspend`: have a run stop where nothing is under way, whichever process is at work on it."""

from __future__ import annotations

import asyncio

import click

from toolspeak.agent.storage.runs import suspend_run
from toolspeak.cli.journal_option import journal_of, journal_option
from toolspeak.cli.run_lookup import SHORT, find_run, status_of
from toolspeak.cli.signals import run_to_end
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal, RunInfo
from toolspeak.journal.rules import is_held
from toolspeak.ui import printable

_LOOK = 0.1
"""Seconds between two looks at a run that is asked to stop."""


@click.command("suspend")
@click.argument("run", required=False)
@click.option("--no-wait", is_flag=True, help="Ask, and do not wait until the run has stopped.")
@journal_option
def suspend_command(run: str | None, no_wait: bool, journal: str | None) -> None:
    """Suspend RUN (the beginning of its id is enough; default: the newest that a process is at work on).

    The model's turn or the calls that are under way come to their end and are recorded; nothing new is begun. `resume`
    goes on with it, as if nothing had happened.
    """
    run_to_end(_suspend(run, no_wait, journal_of(journal)))


async def _suspend(run: str | None, no_wait: bool, journal: Journal) -> None:
    try:
        info = await _wanted(journal, run)
        if not await suspend_run(journal, info.run_id):
            short = info.run_id[:SHORT]
            click.echo(
                f"toolspeak: run {short} was interrupted, and is suspended now: {printable(info.title)}", err=True
            )
            return
        if no_wait:
            return
        click.echo(f"toolspeak: waiting for run {info.run_id[:SHORT]} to stop; Ctrl-C leaves it asked to", err=True)
        while True:
            current = await journal.run(info.run_id)
            if current is None or not is_held(current):
                break
            await asyncio.sleep(_LOOK)
        status = "gone" if current is None else status_of(current).replace("_", " ")
        click.echo(f"toolspeak: run {info.run_id[:SHORT]} is {status}", err=True)
    finally:
        await journal.aclose()


async def _wanted(journal: Journal, run: str | None) -> RunInfo:
    if run is not None:
        return await find_run(journal, run)
    running = [info for info in await journal.runs(status="running") if not info.parent_run_id]
    held = [info for info in running if is_held(info)]
    if held:
        return held[0]
    hint = f"; {running[0].run_id[:SHORT]} was interrupted: name it to suspend it" if running else ""
    raise ConfigurationError(f"there is no run that goes on{hint}")
