"""`toolspeak run`: a task, a model, the built-in tools, and a person who watches."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import Literal

import click
from rich.console import Console

from toolspeak.agent import Agent, Run, RunResult, RunState
from toolspeak.agent.agent import result_of
from toolspeak.agent.run import Watched
from toolspeak.cli.ask import has_terminal, terminal_approver
from toolspeak.cli.exits import ANSWERED, AWAITING_APPROVAL, NO_ANSWER
from toolspeak.cli.loop import run_to_end
from toolspeak.cli.options import read_reply, starts_in_option, workspace_option, write_text
from toolspeak.cli.timeline import write_timeline
from toolspeak.data.codec import dumps
from toolspeak.data.events import Limits, Record
from toolspeak.dialects import Section
from toolspeak.errors import ProviderError, UsageError
from toolspeak.execute import Approver, ScheduleName
from toolspeak.tools.builtin import workspace_tools
from toolspeak.ui import AnnouncingApprover, InStep, Renderer, make_console, printable, summary, watch
from toolspeak.ui.timeline import batches

_INSTRUCTIONS = """\
You work in a folder of the user's machine, with the tools below. Do the task with them: look before you change
something, and check your work afterwards. Your last message, without a call, is your answer: say what you found or
did, in a few sentences."""

_NO_MODEL = """\
no model was named. Write --model openai:NAME (or set TOOLSPEAK_MODEL) and say where it is served:
  OPENAI_API_KEY=… toolspeak run --model openai:gpt-4o …
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 toolspeak run --model qwen3:8b …     (Ollama)
`toolspeak demo` needs no model."""


@dataclass(frozen=True, slots=True)
class _Options:
    model: str
    dialect: str
    workspace: str
    approve: Literal["ask", "all", "none"]
    schedule: ScheduleName | Literal["native"]
    limits: Limits
    starts_in: Section
    as_json: bool
    timeline: str | None


@click.command("run")
@click.argument("task")
@click.option("--model", envvar="TOOLSPEAK_MODEL", metavar="MODEL", help="openai:NAME, a bare name, or scripted:FILE.")
@click.option("--dialect", default="auto", metavar="NAME", help="How the model writes calls (default: auto).")
@workspace_option
@click.option(
    "--approve",
    type=click.Choice(["ask", "all", "none"]),
    default="ask",
    help="Who answers for calls that write or leave the machine: you at the terminal (default), always yes, always no.",
)
@click.option(
    "--schedule",
    type=click.Choice(["serializable", "parallel", "sequential", "native"]),
    default="serializable",
    help="How the calls of one turn run (default: together, unless their effects conflict).",
)
@click.option("--max-steps", type=click.IntRange(1), default=Limits().steps, show_default=True, help="Model turns.")
@click.option(
    "--max-seconds",
    type=click.FloatRange(0, min_open=True),
    help="Time until the run must wrap up; the answer may take a minute more.",
)
@starts_in_option
@click.option(
    "--timeline",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Draw when each call ran, and which it waited for, as an SVG picture.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the journal's records, one JSON object a line.")
def run(
    task: str,
    model: str | None,
    dialect: str,
    workspace: str,
    approve: Literal["ask", "all", "none"],
    schedule: ScheduleName | Literal["native"],
    max_steps: int,
    max_seconds: float | None,
    starts_in: Section,
    as_json: bool,
    timeline: str | None,
) -> None:
    """Do TASK with a model and the built-in tools; `-` reads the task from standard input.

    The answer goes to standard output; what happens on the way is shown there too if it is a terminal, else on
    standard error. Ctrl-C ends the run and everything it started.
    """
    if not model:
        raise UsageError(_NO_MODEL)
    text = read_reply() if task == "-" else task
    if not text.strip():
        raise UsageError("the task is empty: say what is to be done")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a model's odd character must not end the run
    limits = Limits(steps=max_steps, seconds=max_seconds)
    options = _Options(model, dialect, workspace, approve, schedule, limits, starts_in, as_json, timeline)
    sys.exit(run_to_end(_run(text, options)))


async def _run(task: str, options: _Options) -> int:
    live = make_console(sys.stdout if sys.stdout.isatty() and not options.as_json else sys.stderr)
    approver = _approver(options, live)
    agent = Agent(
        options.model,
        workspace_tools(options.workspace),
        dialect=options.dialect,
        instructions=_INSTRUCTIONS,
        approve=approver,
        schedule=options.schedule,
        limits=options.limits,
        starts_in=options.starts_in,
    )
    run = agent.start(task)
    show = _print_record if options.as_json else Renderer(live).show
    try:
        state = await watch(run, show, approver if isinstance(approver, InStep) else None)
    except ProviderError:
        _say_how_it_ended(run.state)
        raise
    finally:
        await agent.aclose()
        if options.timeline is not None:
            await _draw_timeline(run, options.timeline, task)
    _say_how_it_ended(state)
    result = result_of(run, state)
    for hint in result.hints:
        click.echo(f"toolspeak: {printable(hint)}", err=True)
    return _finish(result, options)


async def _draw_timeline(run: Run, path: str, task: str) -> None:
    write_timeline(path, batches(await run.journal.read(run.run_id)), task)


def _approver(options: _Options, live: Console) -> Approver | Literal["all", "none"] | None:
    match options.approve:
        case "none":
            return "none"
        case "all":
            # Shown all the same, unless nobody watches: previews take time.
            return "all" if options.as_json else InStep(AnnouncingApprover(live, "--approve all"))
        case "ask":
            # With nobody to ask the run pauses: that is no refusal, and the exit code says so.
            return InStep(terminal_approver(live)) if has_terminal() else None


def _print_record(item: Watched) -> None:
    if isinstance(item, Record):
        sys.stdout.write(dumps(item) + "\n")
        sys.stdout.flush()


def _say_how_it_ended(state: RunState) -> None:
    click.echo(f"toolspeak: {summary(state)}", err=True)


def _finish(result: RunResult, options: _Options) -> int:
    """Prints the answer, or which calls wait; the exit code."""
    if result.status == "awaiting_approval":
        _say_what_waits(result)
        return AWAITING_APPROVAL
    if result.answer and not options.as_json and not sys.stdout.isatty():
        write_text(result.answer + "\n")
    return ANSWERED if result.status == "answered" else NO_ANSWER


def _say_what_waits(result: RunResult) -> None:
    names = {call.id: call.name or "?" for call in result.state.batch}
    waiting = ", ".join(f"{printable(names[call_id])} ({call_id})" for call_id in result.waiting)
    click.echo(
        f"toolspeak: waiting for approval: {waiting}. There is no terminal to ask at: "
        "run it from one, or say --approve all or --approve none.",
        err=True,
    )
