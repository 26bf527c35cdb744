"""`toolspeak demo`: a scripted model fixes a real bug with real tools, once in each dialect."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import click
from rich.console import Console
from rich.table import Table

from toolspeak.agent import Agent, RunState
from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.cli.demo_project import ALIAS, FILES, FIXED_FILES, TASK, TEST_ARGUMENTS, TOOLS_USED, playbook
from toolspeak.cli.demo_schedules import compare_schedules
from toolspeak.cli.exit_codes import NO_ANSWER, SUCCESS
from toolspeak.cli.signals import run_to_end
from toolspeak.data.deltas import Delta
from toolspeak.data.events import ModelAnswered, Record, ToolFinished
from toolspeak.data.messages import JsonPart, ToolCall, ToolResult
from toolspeak.dialects import PROTOCOLS, Dialect, get_dialect
from toolspeak.errors import ConfigurationError, ToolspeakError
from toolspeak.providers import Capabilities, ModelRequest, Provider
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools.builtin import workspace_tools
from toolspeak.ui import AfterDisplayApprover, AnnouncingApprover, Renderer, make_console, watch
from toolspeak.ui.console import write
from toolspeak.ui.format import count

_CHUNK = 5  # characters: about a token
_PAUSE = 0.01  # seconds: a model of some 100 tokens a second


@click.command("demo")
@click.option("--dialect", metavar="NAME", help="Use only this dialect (default: each of the three protocols).")
@click.option("--fast", is_flag=True, help="Do not pause between chunks of text.")
@click.option("--schedules", is_flag=True, help="Run one batch under each of the three schedules instead, and compare.")
@click.option(
    "--timeline",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="With --schedules: draw the three schedules as an SVG picture.",
)
def demo_command(dialect: str | None, fast: bool, schedules: bool, timeline: str | None) -> None:
    """Watch a scripted model find and fix a bug with real tools, without a model, a key or a network.

    Exits with 0 only if the project's tests fail at first and pass in the end, in every dialect (with --schedules: if
    the default schedule has the same outcome as running the calls one by one).
    """
    if schedules:
        sys.exit(run_to_end(compare_schedules(make_console(sys.stdout), timeline)))
    if timeline is not None:
        raise ConfigurationError("--timeline needs --schedules: add it")
    dialects = PROTOCOLS if dialect is None else (get_dialect(dialect),)
    sys.exit(run_to_end(_demo(dialects, 0.0 if fast else _PAUSE)))


async def _demo(dialects: Sequence[Dialect], pause: float) -> int:
    console = make_console(sys.stdout)
    write(console, f"Task: {TASK}", "bold")
    outcomes: list[DemoOutcome] = []
    for dialect in dialects:
        write(console, f"\n━━ {dialect.name}: {dialect.info.summary}\n", "bold magenta")
        outcomes.append(await play(dialect, console, pause=pause))
    write(console, "")
    console.print(_table(outcomes), soft_wrap=False)
    failures = [outcome for outcome in outcomes if outcome.problems]
    for outcome in failures:
        write(console, f"{outcome.dialect}: {'; '.join(outcome.problems)}", "red")
    return NO_ANSWER if failures else SUCCESS


@dataclass(slots=True)
class DemoOutcome:
    """The outcome of one dialect's run. `problems` is empty if everything is right."""

    dialect: str
    steps: int = 0
    calls: int = 0
    recoveries: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list[str])


async def play(
    dialect: Dialect, console: Console, *, pause: float = 0.0, files: Mapping[str, str] = FILES
) -> DemoOutcome:
    """Plays the demo in one dialect on a project with these files, and checks the outcome."""
    outcome = DemoOutcome(dialect.name)
    start_time = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="toolspeak-demo-") as folder:
        root = Path(folder)
        _lay_out(root, files)
        tools = workspace_tools(root)
        model = _SlowProvider(ScriptedProvider(playbook(dialect, tools.specs), chunk=_CHUNK), pause)
        approver = AfterDisplayApprover(AnnouncingApprover(console, "the demo"))
        agent = Agent(model, tools, dialect=dialect, approve=approver)
        run, log = agent.start(TASK), _Log(Renderer(console))
        try:
            state = await watch(run, log.show, approver)
        except ToolspeakError as error:
            outcome.problems.append(str(error))
        else:
            outcome.steps, outcome.calls = state.step, state.totals.calls
            outcome.recoveries = sum(1 for result in log.results if result.status == "failure")
            outcome.problems += [*_check_run(state, log), *await _check_project(root)]
    outcome.seconds = time.perf_counter() - start_time
    return outcome


def _lay_out(root: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")


@dataclass(slots=True)
class _Log:
    """Shows a run, and collects its calls, results and notes for the checks."""

    renderer: Renderer
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    results: list[ToolResult] = field(default_factory=list[ToolResult])
    notes: set[str] = field(default_factory=set[str])

    def show(self, item: StreamItem) -> None:
        self.renderer.show(item)
        if isinstance(item, Record) and isinstance(item.event, ModelAnswered):
            self.calls += [call for call in item.event.message.calls if isinstance(call, ToolCall)]
            self.notes.update(item.event.notes)
        if isinstance(item, Record) and isinstance(item.event, ToolFinished):
            self.results.append(item.event.result)


def _check_run(state: RunState, log: _Log) -> list[str]:
    """The problems of the run itself."""
    failures = [result.code for result in log.results if result.status == "failure"]
    exits = [_exit_code(result) for result in log.results if result.name == "shell"]
    tool_names = {call.name for call in log.calls}
    uses_alias = any(call.name == "read" and ALIAS in call.arguments for call in log.calls)
    checks = {
        f"the run ended as {state.status}": state.status == "answered",
        f"the tests' exit codes were {exits}, not 1 and then 0": exits == [1, 0],
        f"the failed calls were {failures}, not one to an unknown tool": failures == ["unknown_tool"],
        f"the tools called were {sorted(tool_names)}, not {sorted(TOOLS_USED)}": tool_names == set(TOOLS_USED),
        "the code fence was not noticed": "code_fence" in log.notes,
        f"{ALIAS!r} was not used for 'path'": uses_alias,
        "a call has no result": len(log.results) == len(log.calls) == state.totals.calls,
    }
    return [problem for problem, right in checks.items() if not right]


def _exit_code(result: ToolResult) -> object:
    values = [part.value for part in result.content if isinstance(part, JsonPart)]
    return values[0].get("exit_code") if values else None


async def _check_project(root: Path) -> list[str]:
    """The problems of the project after the run."""
    problems = [
        f"{name} has unexpected content"
        for name, content in FIXED_FILES.items()
        if (root / name).read_text(encoding="utf-8") != content
    ]
    tests = await asyncio.to_thread(subprocess.run, TEST_ARGUMENTS, cwd=root, capture_output=True, check=False)
    return [*problems, *(["the tests fail"] if tests.returncode else [])]


class _SlowProvider:
    """A Provider that pauses before each delta, so that a person can follow the run."""

    def __init__(self, provider: Provider, pause: float) -> None:
        self._provider = provider
        self._pause = pause

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def capabilities(self) -> Capabilities:
        return self._provider.capabilities

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        stream = cast("AsyncGenerator[Delta]", self._provider.stream(request))
        async with aclosing(stream):
            async for delta in stream:
                if self._pause:
                    await asyncio.sleep(self._pause)
                yield delta

    async def aclose(self) -> None:
        await self._provider.aclose()


def _table(outcomes: Sequence[DemoOutcome]) -> Table:
    table = Table("dialect", title="One bug, fixed and verified in every dialect")
    for heading in ("steps", "calls", "failed calls recovered", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("result")
    for outcome in outcomes:
        numbers = (outcome.steps, outcome.calls, outcome.recoveries)
        result = count(len(outcome.problems), "problem") if outcome.problems else "tests pass"
        table.add_row(
            outcome.dialect,
            *map(str, numbers),
            f"{outcome.seconds:.1f}",
            result,
            style="red" if outcome.problems else "green",
        )
    return table
