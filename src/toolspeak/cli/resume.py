"""`toolspeak resume`: go on with a run that was interrupted, or that waits for approval."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import cast

import click

from toolspeak.agent import Agent, Run
from toolspeak.cli.exits import ANSWERED
from toolspeak.cli.find import SHORT, find_run, unfinished
from toolspeak.cli.loop import run_to_end
from toolspeak.cli.options import journal_of, journal_option
from toolspeak.cli.work import Approve, Setup, Shown, open_streams, work
from toolspeak.data.events import RunStarted
from toolspeak.errors import RunBusy, ToolspeakError, UsageError
from toolspeak.execute import InDoubt
from toolspeak.journal import Journal, RunInfo


@click.command
@click.argument("run", required=False)
@click.option("--all", "every", is_flag=True, help="Every run that was interrupted, one after the other.")
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
@click.option("--json", "as_json", is_flag=True, help="Print the new records, one JSON object a line.")
def resume(
    run: str | None, every: bool, approve: Approve | None, in_doubt: InDoubt, journal: str | None, as_json: bool
) -> None:
    """Go on with RUN (the beginning of its id is enough; default: the newest that has not ended).

    Nothing that has a result runs again. Calls that were started and have none follow their tools: what only reads, or
    may run twice, runs again.
    """
    if run and every:
        raise UsageError("name a run or say --all, not both")
    open_streams()
    sys.exit(run_to_end(_resume(run, every, approve, in_doubt, journal_of(journal), as_json)))


async def _resume(
    run: str | None, every: bool, approve: Approve | None, in_doubt: InDoubt, journal: Journal, as_json: bool
) -> int:
    try:
        if run is not None:
            return await _go_on(journal, await find_run(journal, run), approve, in_doubt, as_json)
        waiting = await unfinished(journal)
        if not every:
            if not waiting:
                raise UsageError("there is no run that has not ended")
            return await _go_on(journal, waiting[0], approve, in_doubt, as_json)
        worst = ANSWERED
        for info in waiting:
            if info.status != "running":
                continue  # it waits for a person, who names it
            click.echo(f"toolspeak: resuming {info.run_id[:SHORT]}: {info.title}", err=True)
            try:
                worst = max(worst, await _go_on(journal, info, approve, in_doubt, as_json))
            except RunBusy as error:
                click.echo(f"toolspeak: {error}", err=True)
            except ToolspeakError as error:
                click.echo(f"toolspeak: {error}", err=True)
                worst = max(worst, 1)
        return worst
    finally:
        await journal.aclose()


async def _go_on(journal: Journal, info: RunInfo, approve: Approve | None, in_doubt: InDoubt, as_json: bool) -> int:
    started = cast("RunStarted", (await journal.read(info.run_id))[0].event)
    setup = Setup.of(info.run_id, started.setup)
    if approve is not None:
        setup = replace(setup, approve=approve)

    async def begin(agent: Agent) -> Run:
        return agent.resumed(info.run_id)

    return await work(setup, journal, begin, Shown(as_json), in_doubt=in_doubt)
