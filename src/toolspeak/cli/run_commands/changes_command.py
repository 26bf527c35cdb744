"""`toolspeak changes`: shows what runs changed in files."""

from __future__ import annotations

import sys
from typing import Any

import click

from toolspeak.changes.change_store import ChangeStore
from toolspeak.changes.file_states import ChangeSet
from toolspeak.changes.git_patch import PathPatch, patch_of, path_patches, visible_name
from toolspeak.changes.run_changes import change_sets_of, net_changes, of_call, root_runs, store_of, uncovered_by
from toolspeak.cli.options.command_options import write_json, write_text
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal
from toolspeak.project.run_lookup import find_run, find_session
from toolspeak.tools.builtin import Workspace
from toolspeak.ui.format import count

_MOST_UNCOVERED = 10


@click.command("changes")
@click.argument("run", required=False)
@click.option("--session", metavar="ID", help="The changes of all runs of a session.")
@click.option("--call", metavar="ID", help="Only the changes of this call, and of the runs that it started.")
@click.option("--stat", is_flag=True, help="Print one line for each file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: each file, and which call changed it.")
@click.option("--binary", is_flag=True, help="Write binary files too, as `git apply` reads them; `patch` does not.")
@journal_option
def changes_command(
    run: str | None,
    session: str | None,
    call: str | None,
    stat: bool,
    as_json: bool,
    binary: bool,
    journal: str | None,
) -> None:
    """Print what RUN (the beginning of its id is enough; default: the last run of this folder) changed in files.

    The output is one patch, which `git apply` and `patch -p1` take. Its first lines name what it does not hold: binary
    files, and folders. The changes of a run's sub-runs are among its own.
    """
    if run is not None and session is not None:
        raise ConfigurationError("name a run or a session, not both")
    change_sets, parts = run_to_end(_changes(run, session, call, journal_of(journal), binary=binary))
    if as_json:
        write_json(_as_json(change_sets, parts))
    elif stat:
        write_text("".join(f"{_line(part)}\n" for part in parts) + _total(parts))
    else:
        sys.stdout.buffer.write(patch_of(parts))
        sys.stdout.buffer.flush()
    print_uncovered(change_sets)


async def _changes(
    run: str | None, session: str | None, call: str | None, journal: Journal, *, binary: bool
) -> tuple[list[ChangeSet], list[PathPatch]]:
    try:
        store = open_store(journal)
        try:
            change_sets = await find_change_sets(journal, store, run, session)
            if call is not None:
                change_sets = of_call(change_sets, call)
            return change_sets, list(path_patches(net_changes(change_sets), store.content, binary=binary))
        finally:
            store.close()
    finally:
        await journal.aclose()


def open_store(journal: Journal) -> ChangeStore:
    """The store of changes of a journal. Raises ConfigurationError for a journal in memory."""
    store = store_of(journal)
    if store is None:
        raise ConfigurationError("a journal in memory keeps no changes: name a file or a URL (--journal)")
    return store


async def find_change_sets(
    journal: Journal, store: ChangeStore, run: str | None, session: str | None, workspace: Workspace | None = None
) -> list[ChangeSet]:
    """The change sets of a run, of a session, or of the last run of this folder. Raises ConfigurationError if there is
    no such run. `workspace`: where it is now, if it has moved."""
    run_id = None if run is None else (await find_run(journal, run)).run_id
    session_id = None if session is None else (await find_session(journal, session)).session_id
    return change_sets_of(store, await root_runs(journal, store, run_id=run_id, session_id=session_id), workspace)


def print_uncovered(change_sets: list[ChangeSet]) -> None:
    """Prints what the change sets do not cover, and which of them are not certain, on standard error."""
    reasons = uncovered_by(change_sets)
    by_reason: dict[str, list[str]] = {}
    for path, reason in list(reasons.items())[:_MOST_UNCOVERED]:
        by_reason.setdefault(reason, []).append(visible_name(path))
    parts = [f"{', '.join(paths)} ({reason})" for reason, paths in by_reason.items()]
    if len(reasons) > _MOST_UNCOVERED:
        parts.append(f"{len(reasons) - _MOST_UNCOVERED} more")
    if parts:
        click.echo(f"toolspeak: not covered: {'; '.join(parts)}", err=True)
    for each in change_sets:
        if each.is_recovered:
            text = f"the process died during the call {each.call_id}: changes by others since then count as its own"
            click.echo(f"toolspeak: {visible_name(text)}", err=True)


def _line(part: PathPatch) -> str:
    lines = part.note or ("binary" if part.lines_added is None else f"+{part.lines_added} -{part.lines_removed}")
    return f"{part.kind:8} {lines:>12}  {visible_name(part.path)}"


def _total(parts: list[PathPatch]) -> str:
    added_lines = sum(part.lines_added or 0 for part in parts)
    removed_lines = sum(part.lines_removed or 0 for part in parts)
    return f"{count(len(parts), 'path')}, +{added_lines} -{removed_lines}\n"


def _as_json(change_sets: list[ChangeSet], parts: list[PathPatch]) -> dict[str, Any]:
    return {
        "changes": [
            {
                "path": part.path,
                "kind": part.kind,
                "added": part.lines_added,
                "removed": part.lines_removed,
                "note": part.note,
            }
            for part in parts
        ],
        "calls": [
            {
                "run_id": each.run_id,
                "call_id": each.call_id,
                "tool": each.tool,
                "workspace": each.workspace,
                "time": each.end_time,
                "recovered": each.is_recovered,
                "paths": [change.path for change in each.changes],
                "shared": {change.path: [*change.sharing_calls] for change in each.changes if change.sharing_calls},
            }
            for each in change_sets
        ],
        "uncovered": uncovered_by(change_sets),
    }
