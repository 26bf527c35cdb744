"""`toolspeak submit`: records a run for a worker."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import click

from toolspeak.agent.options import CommonOptions
from toolspeak.cli.exit_codes import NO_ANSWER, SUCCESS, SUSPENSION
from toolspeak.cli.options.agents_option import engine_option
from toolspeak.cli.options.command_options import read_reply
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.options.run_options import chosen_limits, limit_options
from toolspeak.cli.signals import run_to_end
from toolspeak.data.run_values import Limits
from toolspeak.engines import RunClient, open_engine
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal
from toolspeak.project.run_lookup import find_session


@click.command("submit")
@click.argument("agent")
@click.argument("task")
@click.option("--run-id", help="An id of your own. Submitting it twice gives the same run.")
@click.option(
    "--in", "delay", type=click.FloatRange(0), metavar="SECONDS", help="Not before this many seconds from now."
)
@click.option("--principal", help="On whose behalf the run acts.")
@click.option("--session", metavar="ID", help="Continue this session (the beginning of its id is enough).")
@limit_options
@click.option("--wait", is_flag=True, help="Wait until the run has ended or is suspended, and print its answer.")
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
    session: str | None,
    wait: bool,
    engine: str | None,
    journal: str | None,
    **limits: Any,
) -> None:
    """Record a run of TASK for a worker that has AGENT (its name), and print the run's id. `-` reads the task from
    standard input.

    The worker's agent has its own model, tools, instructions and approvals; a submission chooses none of them. A limit
    that you name takes the place of all of the agent's limits.
    """
    text = read_reply() if task == "-" else task
    if not text.strip():
        raise ConfigurationError("the task is empty: write what to do")
    options: CommonOptions = {"principal": principal, "run_id": run_id}
    if limit_choices := chosen_limits(limits):
        options["limits"] = replace(Limits(), **limit_choices)
    at = None if delay is None else time.time() + delay
    context.exit(run_to_end(_submit(agent, text, options, at, session, wait, engine, journal_of(journal))))


async def _submit(
    agent: str,
    task: str,
    options: CommonOptions,
    at: float | None,
    session: str | None,
    wait: bool,
    url: str | None,
    journal: Journal,
) -> int:
    client = RunClient(journal, open_engine(url, journal) if url else None)
    try:
        session_id = (await find_session(journal, session)).session_id if session else None
        submission = await client.submit(agent, task, at=at, session_id=session_id, **options)
        if not wait:
            click.echo(submission.run_id)
            return SUCCESS
        click.echo(f"toolspeak: waiting for run {submission.run_id}; it goes on after Ctrl-C", err=True)
        result = await client.result(submission.run_id, or_suspended=True)
        if result.status == "suspended":
            click.echo(
                f"toolspeak: run {result.run_id} is suspended, by somebody or by a worker that gave it up: the worker's"
                " log says why. RunClient.resume, or the web view, lets a worker go on with it",
                err=True,
            )
            return SUSPENSION
        click.echo(str(result))
        return SUCCESS if result.status == "answered" else NO_ANSWER
    finally:
        await asyncio.gather(client.aclose(), journal.aclose())
