"""`toolspeak journal`: what operators do with a journal."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from toolspeak.agent.storage.archives import Removal, erase_from_archives, export_group, import_group, read_groups
from toolspeak.agent.storage.archives import archive as archive_groups
from toolspeak.agent.storage.archives import prune as prune_groups
from toolspeak.cli.command_options import CommandT, write_json, write_text
from toolspeak.cli.exit_codes import NO_ANSWER
from toolspeak.cli.journal_option import journal_of, journal_option
from toolspeak.cli.run_lookup import find_run, status_of
from toolspeak.cli.signals import run_to_end
from toolspeak.cli.terminal_approver import confirm
from toolspeak.errors import ConfigurationError, FormatError, RunConflict, ToolspeakError
from toolspeak.gateway.erasure import erase_key
from toolspeak.gateway.settings.gateway_settings import read_config
from toolspeak.journal import SqliteJournal
from toolspeak.journal.check import CheckProgress, check_journal
from toolspeak.journal.maintenance import MaintainedJournal, RunGroup
from toolspeak.ui import printable
from toolspeak.ui.format import count

ResultT = TypeVar("ResultT")


@click.group("journal")
def journal_command() -> None:
    """Check a journal, count what it holds, move old runs out of it, and erase runs.

    See the guide about operating a journal.
    """


def _with_journal(
    where: str | None, work: Callable[[MaintainedJournal], Awaitable[ResultT]], *, create: bool = False
) -> ResultT:
    async def main() -> ResultT:
        journal = journal_of(where)
        if not isinstance(journal, MaintainedJournal):
            raise ConfigurationError("a journal in memory has nothing to operate on: name a file or a URL (--journal)")
        if isinstance(journal, SqliteJournal) and not create and not journal.path.exists():
            raise ConfigurationError(f"there is no journal {journal.path}")
        try:
            return await work(journal)
        finally:
            await journal.aclose()

    return run_to_end(main())


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

    The exit code is 0 if the journal is whole, and 1 if not. A note reports what is unusual, and nothing that is lost.
    Workers can go on meanwhile.
    """
    raise SystemExit(_with_journal(journal, lambda opened: _check(opened, as_json)))


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
    facts = _with_journal(journal, _statistics)
    if as_json:
        write_json(facts)
        return
    free = "" if facts["free_bytes"] is None else f", of which {size_of(facts['free_bytes'])} are free"
    records = f"{count(facts['records'], 'record')} of {size_of(facts['record_bytes'])}"
    contents = f"{count(facts['contents'], 'large content')} of {size_of(facts['content_bytes'])}"
    lines = [
        f"{facts['journal']}: {size_of(facts['bytes'])}{free}",
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
    started = time.monotonic()
    before, after = _with_journal(journal, lambda opened: opened.vacuum(full=full))
    seconds = time.monotonic() - started
    click.echo(f"{size_of(before)} before, {size_of(after)} after, in {seconds:.1f} seconds")


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    """A time span such as `90d`, as seconds."""
    match = re.fullmatch(r"(\d{1,6})([hdw])", value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r}: write a number and h, d or w (hours, days, weeks), such as 90d")
    return float(match[1]) * {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}[match[2]]


def _selecting(command: CommandT) -> CommandT:
    older = click.option(
        "--older-than",
        "age",
        callback=_seconds,
        metavar="AGE",
        required=True,
        help="How long ago a run or session must have changed last: 90d, 12h, 8w.",
    )
    principal = click.option("--principal", metavar="NAME", help="Only what acts on behalf of this principal.")
    return journal_option(older(principal(command)))


@journal_command.command
@_selecting
@click.option(
    "--to", "folder", metavar="FOLDER", type=click.Path(path_type=Path), required=True, help="Where the files go."
)
def archive(journal: str | None, age: float, principal: str | None, folder: Path) -> None:
    """Move finished runs out of the journal into files, one for each month of their end: FOLDER/runs-2026-08.jsonl.

    A run is deleted from the journal after its file was synced to the disk and read back. If the command is
    interrupted, nothing is lost: call it again. `journal import` reads the files. A session moves as a whole, once all
    of its runs have ended; a run moves with those that its tools started.
    """
    _with_journal(journal, lambda opened: _archive(opened, folder, time.time() - age, principal))


async def _archive(journal: MaintainedJournal, folder: Path, before: float, principal: str | None) -> None:
    file_count = 0
    async for removal in archive_groups(journal, folder, before=before, principal=principal):
        file_count += 1
        click.echo(f"{removal.place}: {_removed(removal)}")
    if not file_count:
        click.echo("nothing to archive")


def _removed(removal: Removal) -> str:
    text = f"{count(removal.runs, 'run')}, {count(removal.records, 'record')}"
    return f"{text}; {removal.busy} changed meanwhile and stay in the journal" if removal.busy else text


@journal_command.command
@_selecting
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(journal: str | None, age: float, principal: str | None, yes: bool) -> None:
    """Delete finished runs for good.

    Prints how many those are, and asks at a terminal. Without a terminal, use --yes. A session is deleted as a whole,
    once all of its runs have ended; a run is deleted with those that its tools started.
    """
    _with_journal(journal, lambda opened: _prune(opened, time.time() - age, principal, yes))


async def _prune(journal: MaintainedJournal, before: float, principal: str | None, yes: bool) -> None:
    if not yes:
        expected = Removal()
        async for group in journal.groups(before=before, principal=principal):
            if group.is_finished:
                expected.add(group)
        click.echo(f"toolspeak: {_removed(expected)}", err=True)
        await _confirm()
    removal = await prune_groups(journal, before=before, principal=principal)
    click.echo(f"deleted: {_removed(removal)}")


async def _confirm() -> None:
    """Asks at a terminal. Raises ToolspeakError for a no, and ConfigurationError without a terminal."""
    if not sys.stdin.isatty():
        raise ConfigurationError("nothing was deleted: there is no terminal to ask at, so write --yes")
    if not await confirm("Delete for good?"):
        raise ToolspeakError("nothing was deleted")


@journal_command.command
@click.argument("run", required=False)
@journal_option
@click.option("--principal", metavar="NAME", help="Only what acts on behalf of this principal.")
@click.option(
    "--output", metavar="FILE", type=click.Path(dir_okay=False), default="-", help="Where to write (standard output)."
)
def export(run: str | None, journal: str | None, principal: str | None, output: str) -> None:
    """Print RUN (the beginning of its id is enough), or all runs, as lines of JSON.

    Each run is printed with those that its tools started, and a run of a session with the whole session: its messages
    are in the runs before it. `toolspeak show RUN --json` prints the records of one run alone.
    """
    if run is not None and principal is not None:
        raise ConfigurationError("name a RUN or a --principal, not both")
    _with_journal(journal, lambda opened: _export(opened, run, principal, output))


async def _export(journal: MaintainedJournal, run: str | None, principal: str | None, output: str) -> None:
    with click.open_file(output, "w", encoding="utf-8") as stream:
        if run is not None:
            group = await journal.group_of((await find_run(journal, run)).run_id)
            if group is not None:
                await _write_group(journal, group, stream)
            return
        async for group in journal.groups(principal=principal):
            await _write_group(journal, group, stream)


async def _write_group(journal: MaintainedJournal, group: RunGroup, stream: IO[str]) -> None:
    async for line in export_group(journal, group):
        stream.write(line + "\n")


@journal_command.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@journal_option
@click.option(
    "--trust",
    is_flag=True,
    help="Trust the files: their unfinished runs can be resumed, with the settings and decisions in them. By default"
    " they are closed, and none of their calls runs.",
)
def import_(files: tuple[str, ...], journal: str | None, trust: bool) -> None:
    """Add the runs in FILES, which `archive` or `export` wrote (`-` is standard input).

    Runs that the journal has already are left out, so the command can be repeated.
    """
    _with_journal(journal, lambda opened: _import(opened, files, trust), create=True)


async def _import(journal: MaintainedJournal, files: Sequence[str], trust: bool) -> None:
    for file in files:
        added = present = closed = 0
        try:
            with click.open_file(file, encoding="utf-8") as stream:
                for group in read_groups(stream):
                    outcome = await import_group(journal, group, trust=trust)
                    runs = len({record.run_id for record in group.records})
                    if outcome is None:
                        present += runs
                    else:
                        added, closed = added + runs, closed + outcome
        except (OSError, UnicodeDecodeError, FormatError, RunConflict) as error:
            raise ToolspeakError(f"{file}: {error}; {count(added, 'run')} before that were imported") from error
        notes = [f"{present} were there already"] if present else []
        notes += [f"{closed} had not ended and were closed"] if closed else []
        click.echo("; ".join([f"{file}: {count(added, 'run')} imported", *notes]))


@journal_command.command
@click.option("--principal", metavar="NAME", required=True, help="On whose behalf the runs act.")
@journal_option
@click.option(
    "--archives",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Erase from the files of `journal archive` in FOLDER, too.",
)
@click.option(
    "--gateway",
    "config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The gateway's configuration: erase the usage and the stored responses of the key with this name, too.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def erase(principal: str, journal: str | None, archives: Path | None, config: str | None, yes: bool) -> None:
    """Erase everything of one principal for good: runs in any state, sessions, and what their tools started.

    No text of them remains in a journal's file or its log. The file must not be open in another process: stop the
    workers first. Backups, exports, logs and telemetry are yours to erase.
    """
    if not yes:
        click.echo(f"toolspeak: everything of {printable(principal)} in {journal_of(journal)}", err=True)
        run_to_end(_confirm())
    runs, sessions = _with_journal(journal, lambda opened: opened.erase_principal(principal))
    click.echo(f"{journal_of(journal)}: {count(runs, 'run')} and {count(sessions, 'session')} erased")
    if archives is not None:
        removal = erase_from_archives(archives, principal)
        click.echo(f"{archives}: {count(removal.runs, 'run')} erased")
    if config is not None:
        rows, responses = run_to_end(erase_key(read_config(config, os.environ), principal))
        click.echo(f"{config}: {count(rows, 'row')} of usage and {count(responses, 'stored response')} erased")
    opened = journal_of(journal)
    for copy in (
        sorted(opened.path.parent.glob(f"{opened.path.name}*.damaged-*")) if isinstance(opened, SqliteJournal) else ()
    ):
        click.echo(f"toolspeak: {copy} is a copy by `salvage`, and was not changed: delete it", err=True)
