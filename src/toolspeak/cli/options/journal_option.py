"""The option `--journal`, for all commands about runs."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
from click.core import ParameterSource

from toolspeak.cli.options.command_options import CommandT
from toolspeak.cli.signals import run_to_end
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal, MemoryJournal, SqliteJournal, open_journal
from toolspeak.journal.maintenance import MaintainedJournal
from toolspeak.project.run_lookup import SHORT, short_id
from toolspeak.project.user_files.user_folders import NO_FOLDER, data_folder

ResultT = TypeVar("ResultT")


def journal_option(command: CommandT) -> CommandT:
    return click.option(
        "--journal",
        envvar="TOOLSPEAK_JOURNAL",
        metavar="FILE|URL",
        help="Where runs are recorded: a file, a postgresql:// URL, or `none` (default: toolspeak.db in your data"
        " folder).",
    )(command)


def journal_of(where: str | None) -> Journal:
    """The journal for the value of `--journal`."""
    if where == "none":
        return MemoryJournal()
    folder = data_folder()
    if not where and folder == NO_FOLDER:
        raise ConfigurationError("there is no home folder for the journal; name a file (--journal), or set HOME")
    return open_journal(where or folder / "toolspeak.db")


def with_journal(
    where: str | None, work: Callable[[MaintainedJournal], Awaitable[ResultT]], *, create: bool = False
) -> ResultT:
    """Opens the journal for operators, runs the work to its end, and closes the journal.

    Raises ConfigurationError for a journal in memory, and for a file that does not exist unless `create`.
    """

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


def resuming(run_id: str) -> str:
    """The command line that resumes a run of this command's journal."""
    return f"`toolspeak resume {short_id(run_id)}{_journal_words()}`"


def continuing(session_id: str) -> str:
    """The command line that continues a session of this command's journal."""
    return f"`toolspeak chat --session {session_id[:SHORT]}{_journal_words()}`"


def _journal_words() -> str:
    """`--journal` as this command got it; empty for the default journal."""
    context = click.get_current_context(silent=True)
    if context is None or context.get_parameter_source("journal") is not ParameterSource.COMMANDLINE:
        return ""
    value = str(context.params["journal"])
    return " --journal URL" if "://" in value else f" --journal {shlex.quote(value)}"  # a URL may hold a password
