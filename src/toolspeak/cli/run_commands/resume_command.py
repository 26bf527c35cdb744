"""`toolspeak resume`: continues a run that was interrupted or suspended, or that waits for approval."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from toolspeak.agent import Agent, Run
from toolspeak.cli.attended_run import Display, open_streams, recording_of, work
from toolspeak.cli.exit_codes import NO_ANSWER, SUCCESS
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.options.run_options import thoughts_option
from toolspeak.cli.options.sandbox_options import sandbox_fields, sandbox_options
from toolspeak.cli.options.web_options import after_web_option
from toolspeak.cli.signals import run_to_end
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.data.values import quick
from toolspeak.engines import Delivery, EmbeddedEngine, WorkLimits
from toolspeak.errors import ConfigurationError, RunBusy, ToolspeakError
from toolspeak.execute import AfterWeb, InDoubtPolicy
from toolspeak.journal import Journal, RunInfo
from toolspeak.journal.leases import is_held
from toolspeak.project.agent_builder import AGENT_NAME
from toolspeak.project.recorded_setup import folder_of, setup_of_run
from toolspeak.project.run_lookup import find_run, short_id, unfinished_runs
from toolspeak.project.run_setup import ApproveOption, Setup
from toolspeak.ui import printable

_AGAIN_SECONDS = 1.0
"""After which `--watch` looks again at a run that it could not continue."""


@click.command("resume")
@click.argument("run", required=False)
@click.option("--all", "every", is_flag=True, help="Continue every interrupted run, one after the other.")
@click.option("--watch", is_flag=True, help="With --all: keep running, and continue each run whose process dies.")
@click.option(
    "--approve",
    type=click.Choice(["ask", "all", "all+repaired", "none"]),
    help="Replace the --approve that the run was started with.",
)
@click.option(
    "--in-doubt",
    type=click.Choice(["ask", "report", "repeat"]),
    default="ask",
    help="What to do with a call that was started, has no result and is not safe to repeat: ask you (ask, the default),"
    " tell the model that the outcome is unknown (report), or run it again (repeat).",
)
@sandbox_options
@after_web_option
@journal_option
@thoughts_option
@click.option("--json", "as_json", is_flag=True, help="Print the new records, one JSON object per line.")
def resume_command(
    run: str | None,
    every: bool,
    watch: bool,
    approve: ApproveOption | None,
    in_doubt: InDoubtPolicy,
    journal: str | None,
    thoughts: bool,
    as_json: bool,
    after_web: AfterWeb | None,
    **sandbox: Any,
) -> None:
    """Continue RUN (the beginning of its id is enough; default: the newest run that has not ended).

    A call with a result never runs again. About a call that was started and has no result, its tool's `verify` says
    what happened. Without that, it runs again if it is idempotent, or only reads and stays on this machine. For any
    other call --in-doubt decides.
    """
    if run and every:
        raise ConfigurationError("use a run or --all, not both")
    if watch and not every:
        raise ConfigurationError("--watch needs --all: it continues every interrupted run")
    open_streams()
    changes = sandbox_fields(sandbox) | ({} if after_web is None else {"after_web": after_web})
    how = _How(approve, in_doubt, as_json, thoughts, changes)
    sys.exit(run_to_end(_resume(run, every, watch, how, journal_of(journal))))


@quick()
class _How:
    """The options that apply to every resumed run."""

    approve: ApproveOption | None
    in_doubt: InDoubtPolicy
    as_json: bool
    thoughts: bool
    changes: Mapping[str, Any]
    """Fields of the run's settings to replace."""


async def _resume(run: str | None, every: bool, watch: bool, how: _How, journal: Journal) -> int:
    try:
        if run is not None:
            info = await find_run(journal, run)
            if info.parent_run_id:
                parent = short_id(info.parent_run_id)
                raise ConfigurationError(
                    f"run {short_id(info.run_id)} was started by a tool of run {parent}: resume that one"
                )
            return await _go_on(journal, info, how)
        if watch:
            return await _watch(journal, how)
        if every:
            return await _go_on_with_all(journal, how)
        waiting = await unfinished_runs(journal)
        if not waiting:
            raise ConfigurationError("no run is unfinished: there is nothing to resume")
        # If possible, not one that another process drives, or whose question is open at another terminal.
        return await _go_on(journal, next((each for each in waiting if not is_held(each)), waiting[0]), how)
    finally:
        await journal.aclose()


async def _watch(journal: Journal, how: _How) -> int:
    """Continues every interrupted run, and then until Ctrl-C, one after the other, the runs that are due: those whose
    process dies, and those whose time, event or decision has come."""
    failures: dict[str, int] = {}  # runs, each with the number of its records at its failure

    async def go_on(delivery: Delivery) -> float | None:
        info = await journal.run(delivery.run_id)
        if info is not None and failures.get(info.run_id) != info.records:
            try:
                await _go_on(journal, info, how)
                return None
            except RunBusy:
                pass  # another process was faster
            except ToolspeakError as error:
                click.echo(f"toolspeak: {error}", err=True)
                current = await journal.run(info.run_id)
                failures[info.run_id] = info.records if current is None else current.records
        return time.time() + _AGAIN_SECONDS

    click.echo("toolspeak: watching for interrupted runs; stop with Ctrl-C", err=True)
    await _go_on_with_all(journal, how, watching=True)
    engine = EmbeddedEngine("embedded:", journal)
    await engine.work(go_on, agents=[AGENT_NAME], limits=WorkLimits(concurrency=1), stop=asyncio.Event())
    return SUCCESS


async def _go_on_with_all(journal: Journal, how: _How, *, watching: bool = False) -> int:
    """Continues every run whose process is gone. Returns the worst exit code. `watching`: it is no error that another
    process holds a run."""
    worst = SUCCESS
    for run in await unfinished_runs(journal):
        info = await journal.run(run.run_id)  # read again: another process may have continued it
        if info is None or info.status != "running" or (watching and is_held(info)):
            continue  # it waits for a person, who resumes it by its id
        try:
            worst = max(worst, await _go_on(journal, info, how))
        except ToolspeakError as error:
            click.echo(f"toolspeak: {error}", err=True)
            worst = max(worst, SUCCESS if isinstance(error, RunBusy) else NO_ANSWER)
    return worst


async def _go_on(journal: Journal, info: RunInfo, how: _How) -> int:
    setup_json = await setup_of_run(journal, info.run_id)
    if info.status in UNFINISHED_STATUSES:
        # A question about a command does not show the folder in which it would run, which may not be this one.
        where = f" in {folder}" if (folder := folder_of(setup_json)) else ""
        click.echo(printable(f"toolspeak: resuming {short_id(info.run_id)}{where}: {info.title}"), err=True)
    setup = Setup.of(info.run_id, setup_json)
    if how.approve is not None:
        setup = replace(setup, approve=how.approve)
    setup = replace(setup, **how.changes)

    async def begin(agent: Agent) -> Run:
        return agent.reopen(info.run_id)

    display, cassette = Display(how.as_json, thoughts=how.thoughts), recording_of(setup)
    return await work(setup, journal, begin, display, in_doubt=how.in_doubt, cassette=cassette)
