"""`toolspeak submit`: records a run for a worker."""

from __future__ import annotations

import asyncio
import time

import click

from toolspeak.agent.options import CommonOptions
from toolspeak.cli.agents_option import engine_option
from toolspeak.cli.exit_codes import ANSWERED, NO_ANSWER
from toolspeak.cli.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.engines import RunClient, open_engine
from toolspeak.journal import Journal


@click.command("submit")
@click.argument("agent")
@click.argument("task")
@click.option("--run-id", help="An id of your own. Submitting it twice gives the same run.")
@click.option("--in", "delay", type=click.FloatRange(0), metavar="SECONDS", help="Not before so many seconds from now.")
@click.option("--principal", help="On whose behalf the run acts.")
@click.option("--wait", is_flag=True, help="Wait until the run has ended, and print its answer.")
@engine_option
@journal_option
@click.pass_context
def submit_command(
    context: click.Context,
    agent: str,
    task: str,
    run_id: str | None,
    delay: float | None,
    principal: str | None,
    wait: bool,
    engine: str | None,
    journal: str | None,
) -> None:
    """Record a run of TASK for a worker that has AGENT (its name), and print the run's id."""
    options: CommonOptions = {"principal": principal, "run_id": run_id}
    at = None if delay is None else time.time() + delay
    context.exit(run_to_end(_submit(agent, task, options, at, wait, engine, journal_of(journal))))


async def _submit(
    agent: str, task: str, options: CommonOptions, at: float | None, wait: bool, url: str | None, journal: Journal
) -> int:
    client = RunClient(journal, open_engine(url, journal) if url else None)
    try:
        submitted = await client.submit(agent, task, at=at, **options)
        if not wait:
            click.echo(submitted.run_id)
            return ANSWERED
        click.echo(f"toolspeak: waiting for run {submitted.run_id}; it goes on after Ctrl-C", err=True)
        result = await client.result(submitted.run_id)
        click.echo(str(result))
        return ANSWERED if result.status == "answered" else NO_ANSWER
    finally:
        await asyncio.gather(client.aclose(), journal.aclose())
