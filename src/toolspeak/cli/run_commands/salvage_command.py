"""`toolspeak salvage`: recovers what is left of a journal that lost records."""

from __future__ import annotations

import click

from toolspeak.agent.storage.runs import close_run
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.errors import ConfigurationError
from toolspeak.journal import SqliteJournal
from toolspeak.project.run_lookup import short_id
from toolspeak.ui import printable


@click.command("salvage")
@journal_option
def salvage_command(journal: str | None) -> None:
    """Recover what is left of a journal file whose write-ahead log (FILE-wal) is damaged or missing.

    Copies the files first. Closes all runs that have not ended, because they may have done more than the journal
    shows. None of their calls runs again, and their sessions can be continued.
    """
    run_journal = journal_of(journal)
    if not isinstance(run_journal, SqliteJournal):
        raise ConfigurationError(
            "only a journal in a file can be salvaged: for a PostgreSQL journal use the server's own recovery"
        )
    run_to_end(_salvage(run_journal))


async def _salvage(journal: SqliteJournal) -> None:
    if not journal.path.exists():
        raise ConfigurationError(f"there is no journal {journal.path}")
    for copy in journal.salvage():
        click.echo(f"unchanged copy: {copy}")
    try:
        # One at a time: closing a run closes its sub-runs too.
        while unfinished_runs := [
            info for status in UNFINISHED_STATUSES for info in await journal.runs(status=status, limit=1)
        ]:
            await close_run(journal, unfinished_runs[0].run_id, doubtful=True)
            title = printable(unfinished_runs[0].title)
            click.echo(
                f"closed: run {short_id(unfinished_runs[0].run_id)} ({title}); it may have done more than `show` lists"
            )
    finally:
        await journal.aclose()
