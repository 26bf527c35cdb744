"""`toolspeak undo`: undoes what runs changed in files."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import click

from toolspeak.changes.change_store import ChangeStore
from toolspeak.changes.file_states import ChangeSet
from toolspeak.changes.git_patch import visible_name
from toolspeak.changes.run_changes import by_workspace, from_call, net_changes
from toolspeak.changes.undo import UndoReport, undo_changes
from toolspeak.cli.exit_codes import NO_ANSWER
from toolspeak.cli.options.command_options import write_json, write_text
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.run_commands.changes_command import find_change_sets, open_store, print_uncovered
from toolspeak.cli.signals import run_to_end
from toolspeak.errors import ConfigurationError, ToolspeakError
from toolspeak.journal import Journal
from toolspeak.project.run_lookup import short_id
from toolspeak.tools.builtin import Workspace
from toolspeak.ui.format import count
from toolspeak.ui.terminal_approver import confirm


@click.command("undo")
@click.argument("run", required=False)
@click.option("--session", metavar="ID", help="Undo the changes of all runs of a session.")
@click.option(
    "--to",
    metavar="CALL",
    help="Undo this call and everything after its beginning. `undo-1` is the first undo of the run: undoing it brings"
    " the changes back.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: what became of each file.")
@click.option(
    "--workspace",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="Where the run's folder is now, if it has moved.",
)
@journal_option
def undo_command(
    run: str | None,
    session: str | None,
    to: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    workspace: str | None,
    journal: str | None,
) -> None:
    """Bring files back to their state before RUN (the beginning of its id is enough; default: the last run of this
    folder).

    A file that somebody changed since is left as it is. Each file is replaced as a whole or not at all. The command
    needs no git, and does not touch a repository. The exit code is 0 if everything is as before, and 1 if
    something is left.
    """
    if run is not None and session is not None:
        raise ConfigurationError("name a run or a session, not both")
    reports = run_to_end(_undo(run, session, to, workspace, journal_of(journal), dry_run, yes))
    if as_json:
        write_json([_as_json(report) for report in reports])
    else:
        for report in reports:
            _print(report, dry_run)
    sys.exit(0 if all(report.is_complete for report in reports) else NO_ANSWER)


async def _undo(
    run: str | None,
    session: str | None,
    to: str | None,
    folder: str | None,
    journal: Journal,
    dry_run: bool,
    yes: bool,
) -> list[UndoReport]:
    try:
        store = open_store(journal)
        try:
            change_sets = await find_change_sets(
                journal, store, run, session, None if folder is None else Workspace(folder)
            )
            if to is not None:
                change_sets = from_call(change_sets, to)
            print_uncovered(change_sets)
            if not net_changes(change_sets):
                return []
            groups = by_workspace(change_sets, folder)
            if not dry_run and not yes:
                await _confirm(store, groups)
            # In a thread, so that Ctrl-C waits for the file that is being replaced.
            return [
                await asyncio.to_thread(undo_changes, store, each, place, dry_run=dry_run) for place, each in groups
            ]
        finally:
            store.close()
    finally:
        await journal.aclose()


async def _confirm(store: ChangeStore, groups: Sequence[tuple[Workspace, list[ChangeSet]]]) -> None:
    """Shows what would be done, and asks. Raises ToolspeakError for a no."""
    if not sys.stdin.isatty():
        raise ConfigurationError("nothing was changed: there is no terminal to ask at, so write --yes or --dry-run")
    for place, change_sets in groups:
        _print(undo_changes(store, change_sets, place, dry_run=True), True, err=True)
    if not await confirm("Undo these changes?"):
        raise ToolspeakError("nothing was changed")


def _print(report: UndoReport, dry_run: bool, *, err: bool = False) -> None:
    lines: list[str] = []
    for entry in report.entries:
        outcome = {"undone": "undo" if dry_run else "undone", "already": "as before"}.get(entry.outcome, "left")
        lines.append(f"{outcome:9} {visible_name(entry.path)}{f': {entry.reason}' if entry.reason else ''}")
    undone_paths = sum(entry.outcome == "undone" for entry in report.entries)
    summary = f"{count(undone_paths, 'path')} {'to undo' if dry_run else 'undone'} in {visible_name(report.workspace)}"
    if report.name:
        summary += f"; `toolspeak undo {short_id(report.root_id)} --to {report.name}` brings the changes back"
    text = "".join(f"{line}\n" for line in [*lines, summary])
    if err:
        click.echo(text, nl=False, err=True)
    else:
        write_text(text)


def _as_json(report: UndoReport) -> dict[str, object]:
    return {
        "name": report.name,
        "run_id": report.root_id,
        "workspace": report.workspace,
        "complete": report.is_complete,
        "paths": [{"path": entry.path, "outcome": entry.outcome, "reason": entry.reason} for entry in report.entries],
    }
