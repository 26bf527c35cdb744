"""`toolspeak sessions`: lists, searches and changes sessions."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from toolspeak.agent.storage.exports import export_session, import_closed, import_session
from toolspeak.agent.storage.sessions import fork_session
from toolspeak.cli.changes_upkeep import delete_changes
from toolspeak.cli.options.command_options import write_json, write_text
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.errors import ConfigurationError, ToolspeakError
from toolspeak.journal import Journal, RunInfo, SessionInfo
from toolspeak.project.recorded_setup import folder_of, setup_of, setup_of_run
from toolspeak.project.run_lookup import (
    SHORT,
    find_run,
    find_session,
    short_id,
    status_of,
    use_of,
)
from toolspeak.ui import printable
from toolspeak.ui.format import count, one_line
from toolspeak.ui.terminal_approver import confirm

_COLUMNS = ("session, run", "last used, status", "folder, model", "title")
_COLUMN_WIDTH = 22
"""The most characters of a folder or a model's name in the list; `--json` does not shorten them."""


@click.group("sessions", invoke_without_command=True)
@journal_option
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The most sessions to list.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_context
def sessions_command(context: click.Context, journal: str | None, limit: int, as_json: bool) -> None:
    """List the sessions with their runs, the most recent first; or change one."""
    context.obj = journal
    if context.invoked_subcommand is None:
        _do(context, lambda run_journal: _list(run_journal, limit, as_json))


def _do(context: click.Context, work: Callable[[Journal], Awaitable[None]]) -> None:
    async def main() -> None:
        journal = journal_of(context.obj)
        try:
            await work(journal)
        finally:
            await journal.aclose()

    run_to_end(main())


async def _list(journal: Journal, limit: int, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    cells: list[tuple[str, str, str, str]] = []
    cell_text = _end_of if sys.stdout.isatty() else str
    table = Table(*_COLUMNS, box=None)
    for column in table.columns[:-1]:
        column.no_wrap = True
    for session, runs, use_time in await _latest(journal, limit):
        title = session.title if session else runs[0].title
        session_id = session.session_id if session else None
        setup = await (setup_of(journal, session) if session else setup_of_run(journal, runs[0].run_id))
        run_rows = [
            {"run_id": run.run_id, "status": status_of(run), "records": run.records, "model": run.model} for run in runs
        ]
        rows.append(
            {
                "session_id": session_id,
                "title": title,
                "updated": use_time,
                "folder": folder_of(setup),
                "runs": run_rows,
            }
        )
        folder = cell_text(printable(_from_home(folder_of(setup))))
        used_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(use_time))
        if session is not None:
            cells.append((session.session_id[:SHORT], used_at, folder, one_line(title)))
        else:
            cells.append(("(none)", used_at, folder, ""))
        for run in runs:
            status = f"{status_of(run).replace('_', ' ')}, {count(run.records, 'record')}"
            cells.append(("  " + short_id(run.run_id), status, cell_text(one_line(run.model)), one_line(run.title)))
    if as_json:
        write_json(rows)
    elif not cells:
        click.echo("toolspeak: there are no sessions yet: `toolspeak` begins a conversation", err=True)
    elif not sys.stdout.isatty():  # whole, for other programs
        for row in (_COLUMNS, *cells):
            write_text("\t".join(row) + "\n")
    else:
        for row in cells:
            table.add_row(*row)
        Console(markup=False, highlight=False, emoji=False).print(table)


def _from_home(folder: str) -> str:
    home = str(Path.home())
    return "~" + folder.removeprefix(home) if folder == home or folder.startswith(home + os.sep) else folder


def _end_of(text: str) -> str:
    """The end of a path or of a model's name, as much as fits into its column: the end says the most."""
    return text if len(text) <= _COLUMN_WIDTH else "…" + text[1 - _COLUMN_WIDTH :]


async def _latest(journal: Journal, limit: int) -> Sequence[tuple[SessionInfo | None, Sequence[RunInfo], float]]:
    """The sessions with their runs, and the runs outside of sessions, each with the time of its last use; the most
    recent first. Runs that the tools of other runs started, such as programs, are a part of those."""
    entries: list[tuple[SessionInfo | None, Sequence[RunInfo], float]] = []
    for session in await journal.sessions(limit=limit):
        runs = await journal.runs(session_id=session.session_id)
        entries.append((session, runs, (await use_of(journal, session)).time))
    entries += [(None, [run], run.updated) for run in await journal.runs(alone=True, limit=limit)]
    entries.sort(key=lambda entry: entry[2], reverse=True)
    return entries[:limit]


@sessions_command.command
@click.argument("session")
@click.argument("title")
@click.pass_context
def rename(context: click.Context, session: str, title: str) -> None:
    """Give SESSION another TITLE."""

    async def work(journal: Journal) -> None:
        info = await find_session(journal, session)
        await journal.rename_session(info.session_id, title, info.version)

    _do(context, work)


@sessions_command.command
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(context: click.Context, session: str, yes: bool) -> None:
    """Delete SESSION with its runs, for good.

    Prints what it will delete, and asks at a terminal. Without a terminal, give the whole id of SESSION, or use --yes.
    """

    async def work(journal: Journal) -> None:
        info = await find_session(journal, session)
        runs = await journal.runs(session_id=info.session_id)
        used_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.updated))
        count = sum(run.records for run in runs)
        what = f"session {info.session_id}, last used {used_at}: {len(runs)} runs with {count} records, {info.title!r}"
        click.echo(f"toolspeak: {printable(what)}", err=True)
        if not yes and sys.stdin.isatty():
            if not await confirm("Delete it for good?"):
                raise ToolspeakError("nothing was deleted")
        elif not yes and session != info.session_id:
            raise ConfigurationError(
                "nothing was deleted: without a terminal to ask at, write the session's whole id, or --yes"
            )
        await journal.delete_session(info.session_id)
        await delete_changes(journal)

    _do(context, work)


@sessions_command.command
@click.argument("session")
@click.option("--run", metavar="RUN", help="The last run that the fork contains (default: the session's last).")
@click.option("--at", "count", type=int, help="How many of that run's records the fork contains (default: all).")
@click.pass_context
def fork(context: click.Context, session: str, run: str | None, count: int | None) -> None:
    """Make a new session that begins with the conversation of SESSION, and print its id."""

    async def work(journal: Journal) -> None:
        info = await find_session(journal, session)
        run_id = (await find_run(journal, run)).run_id if run else None
        write_text((await fork_session(journal, info.session_id, run_id, count)).session_id + "\n")

    _do(context, work)


@sessions_command.command
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The most places to show.")
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int) -> None:
    """Find the messages in all sessions that contain all WORDS. The last of them may be the beginning of a word."""

    async def work(journal: Journal) -> None:
        for hit in await journal.search(" ".join(words), limit=limit):
            session = (hit.session_id or "")[:SHORT]
            write_text(printable(f"{session} {short_id(hit.run_id)} {hit.role}: {hit.snippet}") + "\n")

    _do(context, work)


@sessions_command.command("export")
@click.argument("session")
@click.pass_context
def export(context: click.Context, session: str) -> None:
    """Print the whole SESSION as lines of JSON."""

    async def work(journal: Journal) -> None:
        async for line in export_session(journal, (await find_session(journal, session)).session_id):
            write_text(line + "\n")

    _do(context, work)


@sessions_command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--trust",
    is_flag=True,
    help="Trust the file: its unfinished runs can be resumed, with the settings and decisions in it. By default they "
    "are closed, and none of their calls runs.",
)
@click.pass_context
def import_(context: click.Context, file: str, trust: bool) -> None:
    """Add the session in FILE, which `export` wrote (`-` is standard input), and print its id."""
    try:
        with click.open_file(file, encoding="utf-8") as stream:
            lines = stream.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: {error}") from None

    async def work(journal: Journal) -> None:
        if trust:
            info, closed_runs = await import_session(journal, lines), 0
        else:
            info, closed_runs = await import_closed(journal, lines)
        if closed_runs:
            note = f"closed {count(closed_runs, 'unfinished run')}; if you trust the file, --trust keeps them open"
            click.echo(f"toolspeak: {note}", err=True)
        write_text(info.session_id + "\n")

    _do(context, work)
