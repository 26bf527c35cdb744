"""What `run` and `resume` share: they drive a run with the built-in tools, and show it to a person."""

from __future__ import annotations

import asyncio
import ctypes
import io
import logging
import sys
import time
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
from toolspeak.cli.timeline_file import write_timeline
from toolspeak.data.codec import dumps
from toolspeak.data.events import Record
from toolspeak.data.messages import JSON
from toolspeak.data.prices import Price, read_prices
from toolspeak.data.protected import protect
from toolspeak.data.run_values import PAUSED
from toolspeak.data.values import quick
from toolspeak.dialects import Section, get_dialect
from toolspeak.dialects.base import PromptListing
from toolspeak.errors import ConfigurationError, ProviderError, RunError
from toolspeak.execute import Approver, InDoubtPolicy, ScheduleName
from toolspeak.journal import Journal, MemoryJournal
from toolspeak.tools import Tool, Toolset
from toolspeak.tools.builtin import recall_tool, workspace_tools
from toolspeak.ui import AnnouncingApprover, InStep, Renderer, make_console, printable, summary, watch
from toolspeak.ui.format import count
from toolspeak.ui.lanes import batches
from toolspeak.ui.terminal_approver import has_terminal, terminal_approver

ApproveOption = Literal["ask", "all", "all+repaired", "none"]

AGENT_NAME = "agent"
"""Of the agent of every run of `toolspeak run`."""

_INSTRUCTIONS = """\
You work in a folder of the user's machine, with the tools below. Do the task with them: look before you change
something, and check your work afterwards. Your last message, without a call, is your answer: say what you found or
did, in a few sentences."""


@quick()
class Setup:
    """The settings of a run's agent. The run's first record holds them, so that `resume` uses them again."""

    model: str
    dialect: str
    workspace: str
    approve: ApproveOption
    schedule: ScheduleName | Literal["native"]
    starts_in: Section
    listing: PromptListing | None = None
    repair: Literal["yes", "no"] = "no"
    rules: str = ""
    window: int | None = None
    prices: str = ""
    mcp: str = ""
    record: str = ""
    """The file of the run's cassette."""
    recording: str = ""
    """The cassette's id."""
    env: str = ""
    """Names of environment variables, with spaces between them."""
    active_file: str = ""

    def as_json(self) -> dict[str, JSON]:
        """The settings as JSON, with absolute paths: the run may be resumed from another folder."""
        return {
            **asdict(self),
            "model": with_absolute_path(self.model),
            "workspace": str(Path(self.workspace).resolve()),
        }

    @classmethod
    def of(cls, run_id: str, setup_json: Mapping[str, JSON]) -> Setup:
        """The settings of a run, from its first record. Raises ConfigurationError for a run of another program."""
        optional = {
            field.name for field in fields(cls) if field.default is not MISSING and field.name not in setup_json
        }
        # All fields are text, but for these two, which may be null too.
        names = [field.name for field in fields(cls) if field.name not in optional | {"window", "listing"}]
        window, listing = setup_json.get("window"), setup_json.get("listing")
        texts = all(isinstance(setup_json.get(name), str) for name in names)
        if not texts or not isinstance(window, int | None) or not isinstance(listing, str | None):
            raise ConfigurationError(
                f"run {run_id} was not started by `toolspeak run`: resume it with the program that started it"
            )
        return cls(**{name: setup_json[name] for name in names}, window=window, listing=cast("PromptListing", listing))


def with_absolute_path(model: str) -> str:
    """The model string, valid in any folder."""
    kind, _, name = model.partition(":")
    return f"{kind}:{Path(name).resolve()}" if kind == "scripted" else model


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


def _prices(file: str) -> Mapping[str, Price]:
    protect(file, "the list of prices")  # `resume` reads the file again
    return read_prices(read_json(file), file)


def hide_environment() -> None:
    """Hides this process's environment, which holds keys, from the commands it starts (`/proc/PID/environ`). Only on
    Linux, and not from root.

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
    hide_environment()
    if not setup.mcp:
        return await _work(setup, journal, begin, display, in_doubt, cassette, ())
    # Results and errors hold every problem; the SDK would also write tracebacks between the lines.
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
            # `--approve all` does not mean that someone has checked whether the call took effect.
            in_doubt="report" if in_doubt == "ask" and setup.approve != "ask" else in_doubt,
        ),
        execution=Execution(schedule=setup.schedule),
        window=setup.window,
        prices=_prices(setup.prices) if setup.prices else {},
        name=AGENT_NAME,
        journal=journal,
        cassette=cassette,
    )
    show = _print_record if display.as_json else Renderer(live, thoughts=display.thoughts).show
    try:
        run = await begin(agent)
        try:
            state = await watch(run, show, approver if isinstance(approver, InStep) else None)
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
    finally:
        await agent.aclose()
    _print_summary(state)
    result = result_of(run)
    if cassette is not None and cassette.requests_left:
        requests = count(cassette.requests_left, "model request")
        click.echo(f"toolspeak: the run ended before its recording, which holds {requests} more", err=True)
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
            # It still announces each call, unless the output is JSON: previews take time.
            announcing = AnnouncingApprover(live, f"--approve {approve}", approve == "all+repaired")
            return approve if as_json else InStep(announcing)
        case "ask":
            # Without a terminal the run pauses: it does not refuse the call, and the exit code differs.
            return InStep(terminal_approver(live, setup.rules, waits=True)) if has_terminal() else None


def _print_record(item: Watched) -> None:
    if isinstance(item, Record):
        sys.stdout.write(dumps(item) + "\n")
        sys.stdout.flush()


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
        return SUSPENDED
    if result.status == "suspended":
        click.echo(f"toolspeak: suspended: {resuming(result.run_id)} continues it", err=True)
        return SUSPENDED
    if result.answer and not as_json and not sys.stdout.isatty():
        write_text(result.answer + "\n")
    return ANSWERED if result.status == "answered" else NO_ANSWER


def _print_waiting_calls(result: RunResult) -> None:
    names = ((each.call.name if each.call else "?", each.call_id) for each in result.requests)
    waiting = ", ".join(f"{printable(name)} ({printable(call_id)})" for name, call_id in names)
    if isinstance(result.journal, MemoryJournal):
        how = ", and no journal for the run: start again with one of them, or with --approve all or --approve none"
    else:
        how = f": run {resuming(result.run_id)} at a terminal, or with --approve all or --approve none"
    click.echo(f"toolspeak: waiting for approval: {waiting}. There is no terminal for the question{how}.", err=True)
