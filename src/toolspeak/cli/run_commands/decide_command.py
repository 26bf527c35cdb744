"""`toolspeak decide`: answers a run's question about a call, from anywhere."""

from __future__ import annotations

import asyncio
import getpass

import click

from toolspeak.cli.options.agents_option import engine_option
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.engines import RunClient, open_engine
from toolspeak.execute import Decision
from toolspeak.journal import Journal
from toolspeak.project.run_lookup import find_run, short_id
from toolspeak.ui import printable


@click.command("decide")
@click.argument("run")
@click.argument("call")
@click.argument("answer", type=click.Choice(["yes", "no"]))
@click.option("--reason", default="", help="The reason of a refusal, which the model reads.")
@click.option("--end", is_flag=True, help="With `no`: end the run, too.")
@click.option("--by", metavar="NAME", help="Who decides (default: your user name).")
@engine_option
@journal_option
def decide_command(
    run: str,
    call: str,
    answer: str,
    reason: str,
    end: bool,
    by: str | None,
    engine: str | None,
    journal: str | None,
) -> None:
    """Decide about CALL of RUN (the beginning of its id is enough), which waits for approval.

    The decision applies to the question as it is now, and the first decision counts. A worker or `toolspeak resume`
    continues the run. `toolspeak show RUN` shows the question.
    """
    if answer == "yes" and (reason or end):
        raise click.UsageError("--reason and --end are for the answer no")
    decision = Decision(answer == "yes", reason, by or getpass.getuser(), ends_run=end)
    run_to_end(_decide(run, call, decision, engine, journal_of(journal)))


async def _decide(prefix: str, call_id: str, decision: Decision, url: str | None, journal: Journal) -> None:
    client = RunClient(journal, open_engine(url, journal) if url else None)
    try:
        info = await find_run(journal, prefix)
        await client.decide(info.run_id, call_id, decision, principal=decision.by)
        waiting = [each for each in (await client.status(info.run_id)).waiting if each != call_id]
        rest = f"; still waiting: {', '.join(waiting)}" if waiting else ""
        how = "approved" if decision.approved else "refused"
        click.echo(printable(f"toolspeak: {call_id} of run {short_id(info.run_id)} is {how}{rest}"), err=True)
    finally:
        await asyncio.gather(client.aclose(), journal.aclose())
