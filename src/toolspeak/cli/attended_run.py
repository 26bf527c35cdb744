"""Doing the work of `run` and `resume`: an agent with the built-in tools, and a person who watches."""

from __future__ import annotations

import asyncio
import ctypes
import io
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Literal, cast

import click
from rich.console import Console

from toolspeak import dialects, mcp
from toolspeak.agent import (
    DEFAULT_DIALECT,
    Agent,
    Approval,
    Cassette,
    DialectSettings,
    Execution,
    Run,
    RunResult,
    RunState,
)
from toolspeak.agent.agent import result_of
from toolspeak.agent.recorder import Watched
from toolspeak.cli.command_options import read_json, write_text
from toolspeak.cli.exit_codes import ANSWERED, AWAITING_APPROVAL, NO_ANSWER, SUSPENDED
from toolspeak.cli.journal_option import resuming
from toolspeak.cli.rules_file import open_rules
from toolspeak.cli.terminal_approver import has_terminal, terminal_approver
from toolspeak.cli.timeline_file import write_timeline
from toolspeak.data.codec import dumps
from toolspeak.data.events import PAUSED, Record
from toolspeak.data.messages import JSON
from toolspeak.data.prices import Price, read_prices
from toolspeak.data.protected import protect
from toolspeak.data.values import quick
from toolspeak.dialects import Section, get_dialect
from toolspeak.dialects.base import PromptListing
from toolspeak.errors import ConfigurationError, ProviderError, RunError
from toolspeak.execute import Approver, InDoubtPolicy, ScheduleName
from toolspeak.journal import Journal, MemoryJournal
from toolspeak.tools import Tool, Toolset
from toolspeak.tools.builtin import recall_tool, workspace_tools
from toolspeak.ui import AnnouncingApprover, InStep, Renderer, make_console, printable, summary, watch
from toolspeak.ui.lanes import batches

Approve = Literal["ask", "all", "all+repaired", "none"]

_INSTRUCTIONS = """\
You work in a folder of the user's machine, with the tools below. Do the task with them: look before you change
something, and check your work afterwards. Your last message, without a call, is your answer: say what you found or
did, in a few sentences."""


@quick()
class Setup:
    """What sets up a run's agent; recorded with the run, so that `resume` can do it again. `record` is the file of its
    cassette, `recording` the cassette's id. `env` are names of environment variables, with spaces between them."""

    model: str
    dialect: str
    workspace: str
    approve: Approve
    schedule: ScheduleName | Literal["native"]
    starts_in: Section
    listing: PromptListing | None = None
    repair: Literal["yes", "no"] = "no"
    rules: str = ""
    window: int | None = None
    prices: str = ""
    mcp: str = ""
    record: str = ""
    recording: str = ""
    env: str = ""
    active_file: str = ""

    def recorded(self) -> dict[str, JSON]:
        """As JSON, good in any folder: it may be resumed from another."""
        return {**asdict(self), "model": anywhere(self.model), "workspace": str(Path(self.workspace).resolve())}

    @classmethod
    def of(cls, run_id: str, recorded: Mapping[str, JSON]) -> Setup:
        """What a run was set up with. Raises ConfigurationError for a run of another program."""
        optional = {field.name for field in fields(cls) if field.default is not MISSING and field.name not in recorded}
        names = [field.name for field in fields(cls) if field.name not in optional | {"window", "listing"}]
        window, listing = recorded.get("window"), recorded.get("listing")
        texts = all(isinstance(recorded.get(name), str) for name in names)
        if not texts or not isinstance(window, int | None) or not isinstance(listing, str | None):
            raise ConfigurationError(
                f"run {run_id} was not started by `toolspeak run`: resume it with the program that did"
            )
        return cls(**{name: recorded[name] for name in names}, window=window, listing=cast("PromptListing", listing))


def anywhere(model: str) -> str:
    """The model's name, good in any folder."""
    kind, _, name = model.partition(":")
    return f"{kind}:{Path(name).resolve()}" if kind == "scripted" else model


def recording_of(setup: Setup) -> Cassette | None:
    """The cassette of a run that goes on; None if it has none any more, which is said."""
    if not setup.record:
        return None
    try:
        cassette = Cassette.record(setup.record, go_on=True)
        problem = "" if cassette.id == setup.recording else "it is another run's by now"
    except ConfigurationError as error:
        cassette, problem = None, str(error)
    if problem:
        click.echo(f"toolspeak: what follows is not recorded to {setup.record}: {printable(problem)}", err=True)
        return None
    return cassette


@quick()
class Display:
    """How a run's work is shown: `as_json` prints the records; `timeline` is the file for its picture; `thoughts`: the
    model's are shown."""

    as_json: bool
    timeline: str | None = None
    thoughts: bool = False


def _prices(file: str) -> Mapping[str, Price]:
    protect(file, "the list of prices")  # it is read again when the run is resumed
    return read_prices(read_json(file), file)


def hide_environment() -> None:
    """Makes this process's environment unreadable for the commands it starts (`/proc/PID/environ`), which would find
    its keys there. On Linux, and not for root, who may read all.

    A process that is not "dumpable" belongs to root in /proc (man 2 prctl, PR_SET_DUMPABLE); its children are dumpable
    again.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


_PR_SET_DUMPABLE = 4


def open_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a model's odd character must not end the run


async def work(
    setup: Setup,
    journal: Journal,
    begin: Callable[[Agent], Awaitable[Run]],
    display: Display,
    *,
    in_doubt: InDoubtPolicy = "ask",
    cassette: Cassette | None = None,
) -> int:
    """Drives the run that `begin` makes, shown as it goes on; the command's exit code. `cassette` records it or is
    played to it."""
    hide_environment()
    if not setup.mcp:
        return await _work(setup, journal, begin, display, in_doubt, cassette, ())
    # What goes wrong is said in results and errors; the SDK would also write tracebacks between the lines.
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
    async with mcp.McpServers.from_file(setup.mcp) as servers:
        for server_error in servers.left_out:
            click.echo(f"toolspeak: {printable(str(server_error))}", err=True)
        return await _work(setup, journal, begin, display, in_doubt, cassette, servers.tools)


async def _work(
    setup: Setup,
    journal: Journal,
    begin: Callable[[Agent], Awaitable[Run]],
    display: Display,
    in_doubt: InDoubtPolicy,
    cassette: Cassette | None,
    more_tools: Iterable[Tool],
) -> int:
    live = make_console(sys.stdout if sys.stdout.isatty() and not display.as_json else sys.stderr)
    approver = _approver(setup, live, display.as_json)
    tools = workspace_tools(setup.workspace, active_file=setup.active_file or None, env=setup.env.split())
    agent = Agent(
        setup.model,
        Toolset([*tools, recall_tool(journal), *more_tools]),
        dialect=DialectSettings(
            dialects.repaired(get_dialect(_written_in(setup.dialect))) if setup.repair == "yes" else setup.dialect,
            listing=setup.listing,
            starts_in=setup.starts_in,
        ),
        instructions=_INSTRUCTIONS,
        approve=Approval(
            approver,
            rules=open_rules(setup.rules) if setup.rules else None,
            # A yes to everything is nobody who has looked whether the call took effect.
            in_doubt="report" if in_doubt == "ask" and setup.approve != "ask" else in_doubt,
        ),
        execution=Execution(schedule=setup.schedule),
        window=setup.window,
        prices=_prices(setup.prices) if setup.prices else {},
        journal=journal,
        cassette=cassette,
    )
    show = _print_record if display.as_json else Renderer(live, thoughts=display.thoughts).show
    try:
        run = await begin(agent)
        try:
            state = await watch(run, show, approver if isinstance(approver, InStep) else None)
        except ProviderError:
            _say_how_it_ended(run.state)
            raise
        except (asyncio.CancelledError, KeyboardInterrupt):
            _say_how_to_go_on(run, journal)
            raise
        finally:
            if display.timeline is not None:
                info = await journal.run(run.run_id)
                title = "" if info is None else info.title
                write_timeline(display.timeline, batches(await journal.read(run.run_id)), title)
    finally:
        await agent.aclose()
    _say_how_it_ended(state)
    result = result_of(run, state)
    if cassette is not None and cassette.requests_left:
        click.echo(
            f"toolspeak: the recording goes on: {cassette.requests_left} of its model requests were not asked", err=True
        )
    for hint in result.hints:
        click.echo(f"toolspeak: {printable(hint)}", err=True)
    if cassette is not None and cassette.replays and result.status in PAUSED:
        click.echo("toolspeak: the recording ends here: the run was not resumed, or not with --record", err=True)
        return AWAITING_APPROVAL if result.status == "awaiting_approval" else SUSPENDED
    return _finish(result, display.as_json)


def _written_in(dialect: str) -> str:
    return DEFAULT_DIALECT if dialect == "auto" else dialect


def _approver(setup: Setup, live: Console, as_json: bool) -> Approver | Literal["all", "all+repaired", "none"] | None:
    match approve := setup.approve:
        case "none":
            return "none"
        case "all" | "all+repaired":
            # Shown all the same, unless nobody watches: previews take time.
            announcing = AnnouncingApprover(live, f"--approve {approve}", approve == "all+repaired")
            return approve if as_json else InStep(announcing)
        case "ask":
            # With nobody to ask the run pauses: that is no refusal, and the exit code says so.
            return InStep(terminal_approver(live, setup.rules, waits=True)) if has_terminal() else None


def _print_record(item: Watched) -> None:
    if isinstance(item, Record):
        sys.stdout.write(dumps(item) + "\n")
        sys.stdout.flush()


def _say_how_it_ended(state: RunState) -> None:
    click.echo(f"toolspeak: {summary(state)}", err=True)


def _say_how_to_go_on(run: Run, journal: Journal) -> None:
    """Of a run that is interrupted: nothing of it is lost, unless it is in no journal that outlives the process."""
    with suppress(RunError):  # it has not begun
        if run.state.status == "running" and not isinstance(journal, MemoryJournal):
            click.echo(f"\ntoolspeak: the run is interrupted; {resuming(run.run_id)} goes on with it", err=True)


def _finish(result: RunResult, as_json: bool) -> int:
    """Prints the answer, or which calls wait; the exit code."""
    if result.status == "awaiting_approval":
        _say_what_waits(result)
        return AWAITING_APPROVAL
    if result.status == "suspended":
        click.echo(f"toolspeak: suspended: {resuming(result.run_id)} goes on with it", err=True)
        return SUSPENDED
    if result.answer and not as_json and not sys.stdout.isatty():
        write_text(result.answer + "\n")
    return ANSWERED if result.status == "answered" else NO_ANSWER


def _say_what_waits(result: RunResult) -> None:
    names = ((each.call.name if each.call else "?", each.call_id) for each in result.requests)
    waiting = ", ".join(f"{printable(name)} ({printable(call_id)})" for name, call_id in names)
    if isinstance(result.journal, MemoryJournal):
        how = ", and no journal that keeps the run: begin again with one of them, or --approve all or --approve none"
    else:
        how = f": {resuming(result.run_id)} from one, or with --approve all or --approve none"
    click.echo(f"toolspeak: waiting for approval: {waiting}. There is no terminal to ask at{how}.", err=True)
