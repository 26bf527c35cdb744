"""`toolspeak diff`: shows where two runs differ."""

from __future__ import annotations

import difflib
import sys

import click

from toolspeak.cli.options.command_options import write_text
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.journal import Journal
from toolspeak.project.run_lookup import find_run
from toolspeak.ui import printable
from toolspeak.ui.timeline import timeline


@click.command("diff")
@click.argument("run")
@click.argument("other")
@journal_option
def diff_command(run: str, other: str, journal: str | None) -> None:
    """Show where two runs differ, as a unified diff of their timelines without times, tokens and ids.

    Exits with 0 if the timelines are the same, else with 1.
    """
    sys.exit(run_to_end(_diff(run, other, journal_of(journal))))


async def _diff(run: str, other: str, journal: Journal) -> int:
    try:
        ids = [(await find_run(journal, prefix)).run_id for prefix in (run, other)]
        sides = [list(timeline(await journal.read(run_id), times=False)) for run_id in ids]
    finally:
        await journal.aclose()
    lines = list(difflib.unified_diff(sides[0], sides[1], ids[0], ids[1], lineterm=""))
    for line in lines:
        write_text(printable(line) + "\n")
    return 1 if lines else 0
