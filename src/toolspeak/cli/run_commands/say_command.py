"""`toolspeak say`: sends a message to a run that another process drives, or that waits."""

from __future__ import annotations

import asyncio
import sys

import click

from toolspeak.cli.options.agents_option import engine_option
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.engines import RunClient, open_engine
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal
from toolspeak.project.run_lookup import find_run, short_id, status_of
from toolspeak.ui import printable

_WHEN = {
    "running": "the run reads it at its next step",
    "queued": "the run reads it when a worker begins",
    "waiting": "the run reads it now, if a worker runs",
    "awaiting_approval": "the run reads it once the open question is decided",
    "suspended": "the run reads it once it is resumed",
    "interrupted": "the run reads it once it is resumed",
}
"""When a run of a status reads a message."""


@click.command("say")
@click.argument("run")
@click.argument("text")
@click.option("--key", help="A key of this message: of several messages with one key, only the first counts.")
@engine_option
@journal_option
def say_command(run: str, text: str, key: str | None, engine: str | None, journal: str | None) -> None:
    """Send TEXT to RUN (the beginning of its id is enough), whichever process drives it. `-` reads TEXT from standard
    input.

    The model reads the message at the run's next step. A run that waits reads it when it goes on.
    """
    words = sys.stdin.read() if text == "-" else text
    if not words.strip():
        raise click.UsageError("TEXT is empty: write what the run is to read")
    run_to_end(_say(run, words, key, engine, journal_of(journal)))


async def _say(prefix: str, text: str, key: str | None, url: str | None, journal: Journal) -> None:
    client = RunClient(journal, open_engine(url, journal) if url else None)
    try:
        info = await find_run(journal, prefix)
        short, status = short_id(info.run_id), status_of(info)
        if info.status not in UNFINISHED_STATUSES:
            session = info.session_id
            remedy = f"to continue its conversation: toolspeak run --session {session[:8]} TASK" if session else ""
            problem = f"run {short} is over ({status.replace('_', ' ')}) and reads no message"
            raise ConfigurationError(f"{problem}; {remedy or 'start another one'}")
        is_new = await client.say(info.run_id, text, key=key)
        outcome = _WHEN[status] if is_new else "a message of this key was sent before, and counts once"
        click.echo(printable(f"toolspeak: sent to run {short}: {outcome}"), err=True)
    finally:
        await asyncio.gather(client.aclose(), journal.aclose())
