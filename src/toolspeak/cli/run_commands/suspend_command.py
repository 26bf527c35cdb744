"""`toolspeak suspend`: stops a run between two steps, in whichever process it runs."""

from __future__ import annotations

import asyncio

import click

from toolspeak.agent.storage.runs import suspend_run
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal, RunInfo
from toolspeak.journal.leases import is_held
from toolspeak.project.run_lookup import find_run, short_id, status_of
from toolspeak.ui import printable

_POLL_SECONDS = 0.1
"""Seconds between two checks whether the run has stopped."""


@click.command("suspend")
@click.argument("run", required=False)
@click.option("--no-wait", is_flag=True, help="Do not wait until the run has stopped.")
@journal_option
def suspend_command(run: str | None, no_wait: bool, journal: str | None) -> None:
    """Suspend RUN (the beginning of its id is enough; default: the newest run in progress).

    The current model turn or calls finish and are recorded; nothing new starts. `resume` continues the run as if
    nothing had happened.
    """
    run_to_end(_suspend(run, no_wait, journal_of(journal)))


async def _suspend(run: str | None, no_wait: bool, journal: Journal) -> None:
    try:
        info = await _run_to_suspend(journal, run)
        if not await suspend_run(journal, info.run_id):
            short = short_id(info.run_id)
            click.echo(
                f"toolspeak: run {short} was interrupted, and is now suspended: {printable(info.title)}", err=True
            )
            return
        if no_wait:
            return
        short = short_id(info.run_id)
        click.echo(f"toolspeak: waiting for run {short} to stop; after Ctrl-C it still stops", err=True)
        while True:
            current = await journal.run(info.run_id)
            if current is None or not is_held(current):
                break
            await asyncio.sleep(_POLL_SECONDS)
        status = "gone" if current is None else status_of(current).replace("_", " ")
        click.echo(f"toolspeak: run {short} is {status}", err=True)
    finally:
        await journal.aclose()


async def _run_to_suspend(journal: Journal, run: str | None) -> RunInfo:
    if run is not None:
        return await find_run(journal, run)
    running = [info for info in await journal.runs(status="running") if not info.parent_run_id]
    running_elsewhere = [info for info in running if is_held(info)]
    if running_elsewhere:
        return running_elsewhere[0]
    hint = f"; {short_id(running[0].run_id)} was interrupted: name it to suspend it" if running else ""
    raise ConfigurationError(f"no run is in progress{hint}")
