"""`toolspeak deliver`: brings an outside event to a run, one of whose calls waits for it."""

from __future__ import annotations

import asyncio
import json

import click

from toolspeak.cli.options.agents_option import engine_option
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.data.messages import JSON
from toolspeak.engines import RunClient, open_engine
from toolspeak.journal import Journal
from toolspeak.project.run_lookup import find_run, short_id
from toolspeak.ui import printable


@click.command("deliver")
@click.argument("run")
@click.argument("event")
@click.argument("payload", required=False)
@click.option("--key", help="A key of this delivery: several deliveries with one key count once.")
@engine_option
@journal_option
def deliver_command(
    run: str, event: str, payload: str | None, key: str | None, engine: str | None, journal: str | None
) -> None:
    """Deliver EVENT to RUN (the beginning of its id is enough), with PAYLOAD, which is JSON.

    A call that waits for the event gets the payload, even if it begins to wait later. A worker continues the run.
    """
    try:
        data: JSON = None if payload is None else json.loads(payload)
    except ValueError as error:
        raise click.UsageError(f"PAYLOAD is not JSON: {error}") from error
    run_to_end(_deliver(run, event, data, key, engine, journal_of(journal)))


async def _deliver(prefix: str, event: str, payload: JSON, key: str | None, url: str | None, journal: Journal) -> None:
    client = RunClient(journal, open_engine(url, journal) if url else None)
    try:
        info = await find_run(journal, prefix)
        is_new = await client.deliver(info.run_id, event, payload, key=key)
        again = "" if is_new else " was delivered under this key before, and counts once"
        click.echo(printable(f"toolspeak: {event} for run {short_id(info.run_id)}{again or ' is delivered'}"), err=True)
    finally:
        await asyncio.gather(client.aclose(), journal.aclose())
