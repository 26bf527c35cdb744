"""What `run` and `resume` share: they drive a run, and show it to a person."""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

import click
from rich.console import Console

from toolspeak.agent import (
    Agent,
    Cassette,
    Run,
    RunResult,
    RunState,
)
from toolspeak.agent.agent import result_of
from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.cli.exit_codes import AWAITING_APPROVAL, NO_ANSWER, SUCCESS, SUSPENSION
from toolspeak.cli.json_input import JsonInput
from toolspeak.cli.options.command_options import write_text
from toolspeak.cli.options.journal_option import resuming
from toolspeak.cli.timeline_file import write_timeline
from toolspeak.data.codec import dumps
from toolspeak.data.events import Record
from toolspeak.data.run_values import PAUSED_STATUSES
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ProviderError, RunError
from toolspeak.execute import Approver, InDoubtPolicy
from toolspeak.journal import Journal, MemoryJournal
from toolspeak.project.agent_builder import open_agent
from toolspeak.project.run_setup import Setup
from toolspeak.ui import (
    AfterDisplayApprover,
    AnnouncingApprover,
    Renderer,
    SerialApprover,
    make_console,
    printable,
    summary,
    watch,
)
from toolspeak.ui.format import count
from toolspeak.ui.lanes import batches
from toolspeak.ui.terminal_approver import has_terminal, terminal_approver


def recording_of(setup: Setup) -> Cassette | None:
    """The cassette of a run that is resumed. If it cannot be continued, prints why and returns None."""
    if not setup.record:
        return None
    try:
        cassette = Cassette.record(setup.record, go_on=True)
        problem = "" if cassette.id == setup.recording else "the file now holds another run"
    except ConfigurationError as error:
        cassette, problem = None, str(error)
    if problem:
        click.echo(f"toolspeak: the rest is not recorded to {setup.record}: {printable(problem)}", err=True)
        return None
    return cassette


@quick()
class Display:
    """How to show a run."""

    as_json: bool
    """Print the records."""
    timeline: str | None = None
    """The file for the picture of the run's batches."""
    thoughts: bool = False
    """Show the model's reasoning."""
    deltas: bool = False
    """Print the pieces of a turn between the records."""


def open_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character outside the locale must not end the run


async def work(
    setup: Setup,
    journal: Journal,
    begin: Callable[[Agent], Awaitable[Run]],
    display: Display,
    *,
    in_doubt: InDoubtPolicy = "ask",
    cassette: Cassette | None = None,
) -> int:
    """Drives the run that `begin` makes, and shows it. Returns the command's exit code. `cassette` records the run or
    replays it."""
    live = make_console(sys.stdout if sys.stdout.isatty() and not display.as_json else sys.stderr, setup.theme)
    person = SerialApprover(terminal_approver(live, setup.rules, waits=True)) if has_terminal() else None
    approver = _approver(setup, live, display.as_json, person)
    renderer = Renderer(live, thoughts=display.thoughts)

    def tell(text: str) -> None:
        renderer.end_line()
        click.echo(f"toolspeak: {printable(text)}", err=True)

    async with open_agent(
        setup,
        journal,
        approver,
        cassette=cassette,
        in_doubt=in_doubt,
        tell=tell,
        is_attended=has_terminal(),
        server_questions=person if setup.approve == "ask" else None,
    ) as ready_agent:
        if ready_agent.sandbox:
            click.echo(f"toolspeak: {printable(ready_agent.sandbox)}", err=True)
        for warning in ready_agent.warnings:
            click.echo(f"toolspeak: {printable(warning)}", err=True)
        show = printer(display) if display.as_json else renderer.show
        run = await begin(ready_agent.agent)
        try:
            state = await watch(run, show, approver if isinstance(approver, AfterDisplayApprover) else None)
        except ProviderError:
            _print_summary(run.state)
            raise
        except (asyncio.CancelledError, KeyboardInterrupt):
            _print_how_to_resume(run, journal)
            raise
        finally:
            if display.timeline is not None:
                info = await journal.run(run.run_id)
                title = "" if info is None else info.title
                write_timeline(display.timeline, batches(await journal.read(run.run_id)), title)
    _print_summary(state)
    result = result_of(run)
    if cassette is not None and cassette.requests_left:
        requests = count(cassette.requests_left, "model request")
        click.echo(f"toolspeak: the run ended before its recording, which holds {requests} more", err=True)
    for hint in result.hints:
        click.echo(f"toolspeak: {printable(hint)}", err=True)
    if cassette is not None and cassette.replays and result.status in PAUSED_STATUSES:
        click.echo("toolspeak: the recording ends here: the run was not resumed, or not with --record", err=True)
        return AWAITING_APPROVAL if result.status == "awaiting_approval" else SUSPENSION
    return _finish(result, display.as_json)


def _approver(
    setup: Setup, live: Console, as_json: bool, person: Approver | None
) -> Approver | Literal["all", "all+repaired", "none"] | None:
    match approve := setup.approve:
        case "none":
            return "none"
        case "all" | "all+repaired":
            # It still announces each call, unless the output is JSON: previews take time.
            person = terminal_approver(live, setup.rules, waits=True) if has_terminal() else None
            announcing = AnnouncingApprover(live, f"--approve {approve}", approve == "all+repaired", person)
            return approve if as_json else AfterDisplayApprover(announcing)
        case "ask":
            # Without a terminal the run pauses: it does not refuse the call, and the exit code differs.
            return None if person is None else AfterDisplayApprover(person)


async def work_on_input(
    setup: Setup,
    journal: Journal,
    begin: Callable[[Agent, str], Awaitable[Run]],
    display: Display,
    source: JsonInput,
    task: str | None,
) -> int:
    """As `work`, for a program that gives tasks, decisions and messages as lines of JSON: each task is the next run of
    the session."""
    approver = source if setup.approve == "ask" else setup.approve

    def end(run: Run) -> int:
        _print_summary(run.state)
        return _finish(result_of(run), as_json=True)

    def tell(text: str) -> None:
        click.echo(f"toolspeak: {printable(text)}", err=True)

    async with open_agent(setup, journal, approver, tell=tell) as ready_agent:
        tell(ready_agent.sandbox)
        for warning in ready_agent.warnings:
            click.echo(f"toolspeak: {printable(warning)}", err=True)
        return await source.converse(begin, ready_agent.agent, printer(display), task, end)


def printer(display: Display) -> Callable[[StreamItem], None]:
    """What prints the records of a run as lines of JSON, and its deltas if they are asked for."""

    def show(item: StreamItem) -> None:
        if display.deltas or isinstance(item, Record):
            sys.stdout.write(dumps(item) + "\n")
            sys.stdout.flush()

    return show


def _print_summary(state: RunState) -> None:
    click.echo(f"toolspeak: {summary(state)}", err=True)


def _print_how_to_resume(run: Run, journal: Journal) -> None:
    """Prints the command that resumes an interrupted run, unless the run's journal ends with this process."""
    with suppress(RunError):  # the run has not started
        if run.state.status == "running" and not isinstance(journal, MemoryJournal):
            click.echo(f"\ntoolspeak: the run is interrupted; {resuming(run.run_id)} continues it", err=True)


def _finish(result: RunResult, as_json: bool) -> int:
    """Prints the answer, or the calls that wait. Returns the exit code."""
    if result.status == "awaiting_approval":
        _print_waiting_calls(result)
        return AWAITING_APPROVAL
    if result.status in ("queued", "waiting"):
        until = (
            "" if result.state.until is None else time.strftime(" until %H:%M:%S", time.localtime(result.state.until))
        )
        click.echo(f"toolspeak: {result.status}{until}: a worker or {resuming(result.run_id)} continues it", err=True)
        return SUSPENSION
    if result.status == "suspended":
        click.echo(f"toolspeak: suspended: {resuming(result.run_id)} continues it", err=True)
        return SUSPENSION
    if result.answer and not as_json and not sys.stdout.isatty():
        write_text(result.answer + "\n")
    return SUCCESS if result.status == "answered" else NO_ANSWER


def _print_waiting_calls(result: RunResult) -> None:
    names = ((each.call.name if each.call else "?", each.call_id) for each in result.requests)
    waiting = ", ".join(f"{printable(name)} ({printable(call_id)})" for name, call_id in names)
    if isinstance(result.journal, MemoryJournal):
        how = ", and no journal for the run: start again with one of them, or with --approve all or --approve none"
    else:
        how = f": run {resuming(result.run_id)} at a terminal, or with --approve all or --approve none"
    click.echo(f"toolspeak: waiting for approval: {waiting}. There is no terminal for the question{how}.", err=True)
