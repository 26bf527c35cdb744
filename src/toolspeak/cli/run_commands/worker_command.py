"""`toolspeak worker`: drives the submitted runs of the user's agents until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from toolspeak.cli.configuration import configuration
from toolspeak.cli.options.agents_option import engine_option, load_agents, load_function
from toolspeak.cli.options.sandbox_options import sandbox_fields, sandbox_options
from toolspeak.cli.options.web_options import after_web_option
from toolspeak.engines import Worker, WorkLimits, open_engine
from toolspeak.errors import ConfigurationError
from toolspeak.execute import AfterWeb
from toolspeak.execute.approval.after_web import use_after_web_by_default
from toolspeak.journal.maintenance import MaintainedJournal
from toolspeak.project.configuration.sandbox_settings import open_command_sandbox
from toolspeak.providers.model_strings import CONFIGURED_PROVIDERS
from toolspeak.sandbox.process_default import use_by_default
from toolspeak.telemetry import part
from toolspeak.ui import printable


def _refuse_journal(_context: click.Context, _option: click.Parameter, journal: str | None) -> None:
    if journal is not None:
        raise click.UsageError(
            "a worker uses the journal of its agents: Agent(…, journal=open_journal(…)) in your module, which may read"
            " TOOLSPEAK_JOURNAL"
        )


@click.command("worker")
@click.argument("agents", metavar="MODULE[:ATTRIBUTE]")
@engine_option
@click.option("--concurrency", type=click.IntRange(1), default=50, show_default=True, help="Runs at the same time.")
@click.option(
    "--per-agent",
    metavar="NAME=COUNT",
    multiple=True,
    help="Runs of one agent at the same time. May be given several times.",
)
@click.option("--per-principal", type=click.IntRange(1), help="Runs of one principal at the same time.")
@click.option(
    "--deps",
    metavar="MODULE:FUNCTION",
    help="A function, sync or async, that gets a run's RunInfo and returns the deps of its tools.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="After a SIGTERM: how many seconds the current turn or calls of each run may take to end.",
)
@sandbox_options
@after_web_option
@click.option("--quiet", is_flag=True, help="Print errors only.")
@click.option("--journal", hidden=True, expose_value=False, callback=_refuse_journal)
def worker_command(
    agents: str,
    engine: str | None,
    concurrency: int,
    per_agent: Sequence[str],
    per_principal: int | None,
    deps: str | None,
    drain: float,
    quiet: bool,
    after_web: AfterWeb | None,
    **sandbox: Any,
) -> None:
    """Drive the submitted runs of the agents at MODULE:ATTRIBUTE (a module or the path of a .py file).

    ATTRIBUTE is an Agent, several Agents, or a function that returns them; without it, all agents of the module. They
    share one journal, and each has a name of its own.

    SIGTERM and Ctrl-C drain: the worker takes no further run, each run under way stops before its next turn or call,
    and another worker goes on with it. Then the exit code is 0. A second signal ends the worker at once (130).
    """
    use_after_web_by_default(after_web or "ask")
    limits = WorkLimits(concurrency, _counts(per_agent), per_principal)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("toolspeak: %(message)s"))
    handler.setLevel(logging.ERROR if quiet else logging.INFO)
    log = logging.getLogger("toolspeak.worker")
    log.addHandler(handler)
    log.setLevel(min(log.getEffectiveLevel(), logging.INFO))
    is_measured = bool(click.get_current_context().find_root().params.get("telemetry"))
    asyncio.run(_work(agents, engine, limits, deps, drain, is_measured, sandbox_fields(sandbox)))


def _counts(per_agent: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in per_agent:
        name, _, number = each.rpartition("=")
        if not name or not number.isdigit() or not int(number):
            raise ConfigurationError(f"--per-agent {each}: write NAME=COUNT, with a count of 1 or more")
        counts[name] = int(number)
    return counts


async def _work(
    place: str,
    url: str | None,
    limits: WorkLimits,
    deps: str | None,
    drain_seconds: float,
    is_measured: bool,
    sandbox: Mapping[str, Any],
) -> None:
    CONFIGURED_PROVIDERS.set(configuration(".", asks=False).providers)
    commands, line = await open_command_sandbox(".", is_attended=False, **sandbox)
    use_by_default(commands)
    logging.getLogger("toolspeak.worker").info("%s", printable(line))
    agents = load_agents(place)
    journal = agents[0].journal
    if journal is None:
        raise ConfigurationError(f"the agent {agents[0].name!r} has no journal: Agent(journal=…)")
    unknown_agents = (limits.per_agent or {}).keys() - {agent.name for agent in agents}
    if unknown_agents:
        raise ConfigurationError(f"--per-agent: {place} has no agent {', '.join(sorted(unknown_agents))}")
    engine = open_engine(url, journal)
    deps_of = None if deps is None else load_function(deps)
    worker = Worker(agents, journal, engine, limits=limits, deps=deps_of, drain_seconds=drain_seconds)
    counting: asyncio.Future[None] | None = None
    if is_measured and isinstance(journal, MaintainedJournal):
        counting = asyncio.ensure_future(part("journal_gauges").JournalGauges().follow(journal))
    working = asyncio.ensure_future(worker.run())
    loop, signals = asyncio.get_running_loop(), 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            click.echo("toolspeak: draining; a second signal ends the worker at once", err=True)
            worker.stop()
        else:
            working.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # Windows has no such handlers: Ctrl-C ends the worker at once there
            loop.add_signal_handler(number, stop)
    names = ", ".join(agent.name for agent in agents)
    click.echo(f"toolspeak: driving runs of {names} from {journal} ({engine.name})", err=True)
    try:
        await working
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        if counting is not None:
            counting.cancel()
            await asyncio.wait([counting])
        await engine.aclose()
        for agent in agents:
            await agent.aclose()
        await journal.aclose()
        await commands.sandbox.aclose()
