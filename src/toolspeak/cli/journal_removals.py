"""The commands of `toolspeak journal` by which runs leave a journal or come into it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import click

from toolspeak.agent.storage.archives import (
    Removal,
    erase_from_archives,
    export_group,
    read_groups,
)
from toolspeak.agent.storage.archives import archive as archive_groups
from toolspeak.agent.storage.archives import prune as prune_groups
from toolspeak.agent.storage.imports import import_groups
from toolspeak.agent.storage.runs import close_run
from toolspeak.changes.run_changes import store_of
from toolspeak.cli.changes_upkeep import (
    archive_changes,
    archive_files,
    copy_changes,
    delete_changes,
    erase_archived_changes,
    import_changes,
)
from toolspeak.cli.options.command_options import CommandT
from toolspeak.cli.options.journal_option import journal_of, journal_option, with_journal
from toolspeak.cli.signals import run_to_end
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.errors import ConfigurationError, FormatError, RunBusy, RunConflict, RunError, ToolspeakError
from toolspeak.gateway.erasure import erase_key
from toolspeak.gateway.settings.gateway_settings import read_config
from toolspeak.journal import SqliteJournal
from toolspeak.journal.maintenance import MaintainedJournal, RunGroup
from toolspeak.project.run_lookup import find_run
from toolspeak.project.user_files.memory_folder import memory_files
from toolspeak.ui import printable
from toolspeak.ui.format import count
from toolspeak.ui.terminal_approver import confirm


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
    principal = click.option("--principal", metavar="NAME", help="Only runs and sessions on behalf of this principal.")
    return journal_option(older(principal(command)))


@click.command
@_selecting
@click.option(
    "--to", "folder", metavar="FOLDER", type=click.Path(path_type=Path), required=True, help="Where the files go."
)
def archive(journal: str | None, age: float, principal: str | None, folder: Path) -> None:
    """Move finished runs out of the journal into files, one for each month in which runs ended:
    FOLDER/runs-2026-08.jsonl.

    A run is deleted from the journal after its file was synced to the disk and read back. If the command is
    interrupted, nothing is lost: call it again. `journal import` reads the files. A session moves as a whole, once all
    of its runs have ended; a run moves with those that its tools started.
    """
    with_journal(journal, lambda open_journal: _archive(open_journal, folder, time.time() - age, principal))


async def _archive(journal: MaintainedJournal, folder: Path, before: float, principal: str | None) -> None:
    files: list[Path] = []
    async for removal in archive_groups(journal, folder, before=before, principal=principal):
        if removal.place is not None:
            files.append(removal.place)
        click.echo(f"{removal.place}: {_removal_text(removal)}")
    # The other files too: an earlier archiving may have been interrupted before it moved the changes.
    await archive_changes(journal, [*files, *archive_files(folder)])
    if not files:
        click.echo("nothing to archive")


def _removal_text(removal: Removal) -> str:
    text = f"{count(removal.runs, 'run')}, {count(removal.records, 'record')}"
    return f"{text}; {removal.busy} changed meanwhile and stay in the journal" if removal.busy else text


@click.command
@_selecting
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(journal: str | None, age: float, principal: str | None, yes: bool) -> None:
    """Delete finished runs for good.

    Prints how many runs these are, and asks at a terminal. Without a terminal, use --yes. A session is deleted as a
    whole, once all of its runs have ended; a run is deleted with those that its tools started.
    """
    with_journal(journal, lambda open_journal: _prune(open_journal, time.time() - age, principal, yes))


async def _prune(journal: MaintainedJournal, before: float, principal: str | None, yes: bool) -> None:
    if not yes:
        expected = Removal()
        async for group in journal.groups(before=before, principal=principal):
            if group.is_finished:
                expected.add(group)
        click.echo(f"toolspeak: {_removal_text(expected)}", err=True)
        await _confirm()
    removal = await prune_groups(journal, before=before, principal=principal)
    await delete_changes(journal)
    click.echo(f"deleted: {_removal_text(removal)}")


async def _confirm(question: str = "Delete for good?") -> None:
    """Asks at a terminal. Raises ToolspeakError for a no, and ConfigurationError without a terminal."""
    if not sys.stdin.isatty():
        raise ConfigurationError("nothing was changed: there is no terminal to ask at, so write --yes")
    if not await confirm(question):
        raise ToolspeakError("nothing was changed")


@click.command
@click.argument("run", required=False)
@journal_option
@click.option("--principal", metavar="NAME", help="Only runs and sessions on behalf of this principal.")
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
    with_journal(journal, lambda open_journal: _export(open_journal, run, principal, output))


async def _export(journal: MaintainedJournal, run: str | None, principal: str | None, output: str) -> None:
    ids: list[str] = []
    with click.open_file(output, "w", encoding="utf-8") as stream:
        if run is not None:
            group = await journal.group_of((await find_run(journal, run)).run_id)
            if group is not None:
                ids += await _write_group(journal, group, stream)
        else:
            async for group in journal.groups(principal=principal):
                ids += await _write_group(journal, group, stream)
    if output != "-" and (store := store_of(journal)) is not None:
        try:
            copy_changes(store, Path(output), ids)
        finally:
            store.close()


async def _write_group(journal: MaintainedJournal, group: RunGroup, stream: IO[str]) -> list[str]:
    """Writes a group, and returns the ids of its runs."""
    async for line in export_group(journal, group):
        stream.write(line + "\n")
    return [info.run_id for info in group.runs]


@click.command("import")
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
    with_journal(journal, lambda open_journal: _import(open_journal, files, trust), create=True)


async def _import(journal: MaintainedJournal, files: Sequence[str], trust: bool) -> None:
    for file in files:
        added_runs = present = closed_runs = 0
        ids: set[str] = set()
        try:
            with click.open_file(file, encoding="utf-8") as stream:
                async for group, outcome in import_groups(journal, read_groups(stream), trust=trust):
                    run_ids = {record.run_id for record in group.records}
                    ids |= run_ids
                    runs = len(run_ids)
                    if outcome is None:
                        present += runs
                    else:
                        added_runs, closed_runs = added_runs + runs, closed_runs + outcome
        except (OSError, UnicodeDecodeError, FormatError, RunConflict) as error:
            raise ToolspeakError(f"{file}: {error}; {count(added_runs, 'run')} before that were imported") from error
        if file != "-":
            await import_changes(journal, Path(file), ids)
        notes = [f"{present} were there already"] if present else []
        notes += [f"{closed_runs} had not ended and were closed"] if closed_runs else []
        click.echo("; ".join([f"{file}: {count(added_runs, 'run')} imported", *notes]))


@click.command
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
    """Erase everything of one principal for good: runs in any state, sessions, what their tools started, and the facts
    that models remember.

    No text of them remains in a journal's file or its log. The file must not be open in another process: stop the
    workers first. Backups, exports, logs and telemetry are yours to erase.
    """
    if not yes:
        click.echo(f"toolspeak: everything of {printable(principal)} in {journal_of(journal)}", err=True)
        run_to_end(_confirm())
    runs, sessions = with_journal(journal, lambda open_journal: _erase(open_journal, principal))
    click.echo(f"{journal_of(journal)}: {count(runs, 'run')} and {count(sessions, 'session')} erased")
    if archives is not None:
        removal = erase_from_archives(archives, principal)
        erase_archived_changes(archives)
        click.echo(f"{archives}: {count(removal.runs, 'run')} erased")
    if config is not None:
        rows, responses = run_to_end(erase_key(read_config(config, os.environ), principal))
        click.echo(f"{config}: {count(rows, 'row')} of usage and {count(responses, 'stored response')} erased")
    if facts := memory_files().erase(principal):
        click.echo(f"{count(facts, 'fact')} of the memory erased")
    open_journal = journal_of(journal)
    for copy in (
        sorted(open_journal.path.parent.glob(f"{open_journal.path.name}*.damaged-*"))
        if isinstance(open_journal, SqliteJournal)
        else ()
    ):
        click.echo(f"toolspeak: {copy} is a copy by `salvage`, and was not changed: delete it", err=True)


async def _erase(journal: MaintainedJournal, principal: str) -> tuple[int, int]:
    counts = await journal.erase_principal(principal)
    await delete_changes(journal)
    return counts


@click.command
@_selecting
@click.option(
    "--restored",
    is_flag=True,
    help="The journal is a restored backup: tell the models that any call may have been started since.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def close(journal: str | None, age: float, principal: str | None, restored: bool, yes: bool) -> None:
    """End runs that have not ended, so that none of their calls runs any more.

    Such runs wait for an approval, an event, a worker or a person, or their process died. A run that a process drives
    stays open.
    """
    with_journal(journal, lambda open_journal: _close(open_journal, time.time() - age, principal, restored, yes))


async def _close(journal: MaintainedJournal, before: float, principal: str | None, restored: bool, yes: bool) -> None:
    names = [
        info.run_id
        for status in UNFINISHED_STATUSES
        for info in await journal.runs(status=status, principal=principal)
        if info.updated < before
    ]
    if not yes:
        click.echo(f"toolspeak: {count(len(names), 'run')} that have not ended", err=True)
        await _confirm("Close them?")
    closed_runs = busy = 0
    for name in names:
        try:
            await close_run(journal, name, doubtful=restored)
        except RunBusy:
            busy += 1
        except RunError:
            pass  # it has ended meanwhile, with the run whose tool started it
        else:
            closed_runs += 1
    note = f"; {busy} are driven by a process and stay" if busy else ""
    click.echo(f"closed: {count(closed_runs, 'run')}{note}")


REMOVALS: Sequence[click.Command] = (archive, prune, close, export, import_, erase)
