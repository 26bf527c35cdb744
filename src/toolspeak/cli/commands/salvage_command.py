"""`toolspeak salvage`: go on with what is left of a journal that lost some of what was recorded."""

from __future__ import annotations

import click

from toolspeak.agent.storage.runs import close_run
from toolspeak.cli.journal_option import journal_of, journal_option
from toolspeak.cli.run_lookup import SHORT
from toolspeak.cli.signals import run_to_end
from toolspeak.data.events import UNFINISHED
from toolspeak.errors import ConfigurationError
from toolspeak.journal import SqliteJournal
from toolspeak.ui import printable


@click.command("salvage")
@journal_option
def salvage_command(journal: str | None) -> None:
    """Go on with what is left of a journal file whose write-ahead log (FILE-wal) is damaged or missing.

    The files are copied first, as they are. Runs that had not ended are closed for good, for they may have done more
    than is recorded: nothing of them runs again, and their sessions go on.
    """
    opened = journal_of(journal)
    if not isinstance(opened, SqliteJournal):
        raise ConfigurationError("only a journal in a file can be salvaged: a database server sees to its own")
    run_to_end(_salvage(opened))


async def _salvage(journal: SqliteJournal) -> None:
    if not journal.path.exists():
        raise ConfigurationError(f"there is no journal {journal.path}")
    for copy in journal.salvage():
        click.echo(f"kept as it was: {copy}")
    try:
        # Again and again: with a run those are closed that its calls wait for.
        while unfinished := [info for status in UNFINISHED for info in await journal.runs(status=status, limit=1)]:
            await close_run(journal, unfinished[0].run_id, doubtful=True)
            title = printable(unfinished[0].title)
            click.echo(f"closed: run {unfinished[0].run_id[:SHORT]} ({title}); it may have done more than `show` tells")
    finally:
        await journal.aclose()
