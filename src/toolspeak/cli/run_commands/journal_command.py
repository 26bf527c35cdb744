"""`toolspeak journal`: what operators do with a journal."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from toolspeak.changes.change_store import store_beside
from toolspeak.changes.run_changes import store_of
from toolspeak.changes.store_upkeep import backup_store, damaged_contents, size_of_store
from toolspeak.cli.exit_codes import NO_ANSWER
from toolspeak.cli.journal_removals import REMOVALS
from toolspeak.cli.options.command_options import write_json, write_text
from toolspeak.cli.options.journal_option import journal_option, with_journal
from toolspeak.errors import ConfigurationError
from toolspeak.journal import SqliteJournal
from toolspeak.journal.check import CheckProgress, check_journal
from toolspeak.journal.maintenance import MaintainedJournal
from toolspeak.project.run_lookup import status_of
from toolspeak.ui import printable
from toolspeak.ui.format import count


@click.group("journal")
def journal_command() -> None:
    """Check a journal, count what it holds, move old runs out of it, and erase runs.

    See the guide about operating a journal.
    """


def size_of(size: int) -> str:
    """A number of bytes for people."""
    value, unit = float(size), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


@journal_command.command
@journal_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(journal: str | None, as_json: bool) -> None:
    """Read every record, and print what is wrong: records that cannot be read, missing ones, runs that others need.

    The exit code is 0 if the journal is whole, and 1 if not. A note reports something unusual, but no loss.
    Workers can go on meanwhile.
    """
    raise SystemExit(with_journal(journal, lambda open_journal: _check(open_journal, as_json)))


async def _check(journal: MaintainedJournal, as_json: bool) -> int:
    progress = CheckProgress()
    counts: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    async for finding in check_journal(journal, progress):
        counts[finding.kind] += 1
        if as_json:
            rows.append({"kind": finding.kind, "run_id": finding.run_id, "text": finding.text})
        else:
            write_text(f"{finding.kind}: {printable(finding.text)}\n")
    store = store_of(journal)
    if store is not None and store.exists():
        try:
            for text in damaged_contents(store):
                counts["damage"] += 1
                if as_json:
                    rows.append({"kind": "damage", "run_id": None, "text": text})
                else:
                    write_text(f"damage: {printable(text)}\n")
        finally:
            store.close()
    is_whole = not counts["damage"]
    if as_json:
        write_json({"whole": is_whole, "runs": progress.runs, "records": progress.records, "findings": rows})
    else:
        verdict = "whole" if is_whole else f"not whole: {count(counts['damage'], 'finding')} of damage"
        what = f"{count(progress.runs, 'run')}, {count(progress.records, 'record')}"
        write_text(f"{what}: {verdict}\n")
    return 0 if is_whole else NO_ANSWER


@journal_command.command
@journal_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stats(journal: str | None, as_json: bool) -> None:
    """Count runs, records and bytes, by status and by the month in which runs began (UTC)."""
    facts = with_journal(journal, _statistics)
    if as_json:
        write_json(facts)
        return
    free = "" if facts["free_bytes"] is None else f", of which {size_of(facts['free_bytes'])} are free"
    changes = f"; {size_of(facts['changes_bytes'])} of kept file changes" if facts["changes_bytes"] else ""
    records = f"{count(facts['records'], 'record')} of {size_of(facts['record_bytes'])}"
    contents = f"{count(facts['contents'], 'large content')} of {size_of(facts['content_bytes'])}"
    lines = [
        f"{facts['journal']}: {size_of(facts['bytes'])}{free}{changes}",
        f"{count(facts['sessions'], 'session')}, {count(facts['runs'], 'run')}, {records}, {contents}",
    ]
    for status, number in facts["statuses"].items():
        since = f", the oldest since {_day(facts['oldest'][status])}" if status in facts["oldest"] else ""
        lines.append(f"{status.replace('_', ' ')}: {number}{since}")
    if facts["due"]:
        lines.append(f"due and not driven by a worker: {facts['due']}, the first since {_day(facts['due_since'])}")
    write_text("".join(f"{printable(line)}\n" for line in lines))
    table = Table("month", "status", box=None)
    for name in ("runs", "records", "bytes"):
        table.add_column(name, justify="right")
    for row in facts["months"]:
        numbers = f"{row['runs']:,}", f"{row['records']:,}", size_of(row["bytes"])
        table.add_row(row["month"], row["status"].replace("_", " "), *numbers)
    Console(markup=False, highlight=False, emoji=False).print(table)


async def _statistics(journal: MaintainedJournal) -> dict[str, Any]:
    store = store_of(journal)
    facts, open_runs = await journal.statistics(), await journal.open_runs()
    statuses: Counter[str] = Counter()
    for each in facts.months:
        statuses[each.status] += each.runs
    # A database cannot see whether a process is alive.
    running = Counter(status_of(info) for info in await journal.runs(status="running"))
    statuses.pop("running", None)
    statuses.update(running)
    return {
        "journal": str(journal),
        "schema": facts.schema,
        "bytes": facts.size,
        "changes_bytes": 0 if store is None else size_of_store(store),
        "free_bytes": facts.free,
        "sessions": facts.sessions,
        "runs": sum(each.runs for each in facts.months),
        "records": sum(each.records for each in facts.months),
        "record_bytes": sum(each.size for each in facts.months),
        "contents": facts.contents,
        "content_bytes": facts.contents_size,
        "statuses": dict(sorted(statuses.items())),
        "oldest": {status: since for status, since in open_runs.waiting_since.items() if status != "running"},
        "due": open_runs.due,
        "due_since": open_runs.due_since,
        "months": [
            {"month": each.month, "status": each.status, "runs": each.runs, "records": each.records, "bytes": each.size}
            for each in facts.months
        ],
    }


def _day(seconds: float | None) -> str:
    """A time for people, in UTC."""
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


@journal_command.command
@journal_option
@click.option(
    "--full",
    is_flag=True,
    help="Rebuild the journal, without anything that was deleted. A file must not be open in another process; in"
    " PostgreSQL workers wait meanwhile.",
)
def vacuum(journal: str | None, full: bool) -> None:
    """Give the space of deleted runs back to the system. Workers can go on meanwhile."""
    start_time = time.monotonic()
    before, after = with_journal(journal, lambda open_journal: open_journal.vacuum(full=full))
    seconds = time.monotonic() - start_time
    click.echo(f"{size_of(before)} before, {size_of(after)} after, in {seconds:.1f} seconds")


@journal_command.command
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@journal_option
def backup(file: Path, journal: str | None) -> None:
    """Copy a journal that is a file to FILE, as it is at this moment. Workers can go on meanwhile.

    The recorded changes of files are copied to FILE.files.

    Copying the file by other means misses what is in its log. For PostgreSQL use pg_dump.
    """
    with_journal(journal, lambda open_journal: _backup(open_journal, file))
    click.echo(f"{file}: {size_of(file.stat().st_size)}")


async def _backup(journal: MaintainedJournal, file: Path) -> None:
    if not isinstance(journal, SqliteJournal):
        raise ConfigurationError("only a journal in a file is copied so: for a PostgreSQL journal use pg_dump")
    await journal.backup(file)
    store = store_of(journal)
    if store is not None and store.exists():
        copy = store_beside(file)
        try:
            backup_store(store, copy)
        finally:
            store.close()
            copy.close()


for _each in REMOVALS:
    journal_command.add_command(_each)
