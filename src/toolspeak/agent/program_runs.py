"""Code mode: the tool with which a model runs programs that call the agent's other tools.

A program is a sub-run whose model is the interpreter (`ProgramDriver`). The loop, the executor and the journal do for
its calls what they do for those of any model.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any, TypeAlias, cast

from toolspeak import programs
from toolspeak.agent.child_runs import parent_call
from toolspeak.agent.drivers.program_driver import PROGRAM, ProgramDriver
from toolspeak.agent.handoffs import effects_of_tools
from toolspeak.agent.options import Approval, Execution
from toolspeak.agent.state.state import RunState
from toolspeak.agent.validation import toolset_of, turn_tools_of
from toolspeak.data.events import Limits, UserMessageQueued
from toolspeak.data.messages import JSON, Message, TextPart
from toolspeak.data.prices import Price
from toolspeak.data.tools import CALLS_WITHIN
from toolspeak.data.values import evolve
from toolspeak.errors import AgentStop, ConfigurationError, ToolError, UnknownTool, suggest
from toolspeak.execute import BatchExecutor, StandingRules, resolve_approver
from toolspeak.execute.approval.approvers import StandingApprover
from toolspeak.execute.approval.policy_rules import tools_called
from toolspeak.execute.calls.observe import ToolCallStarted
from toolspeak.programs.code_mode import CodeMode
from toolspeak.tools import RunContext, Tool, ToolList, Toolset, TurnTools, tool
from toolspeak.tools.returned_values import ReturnValue
from toolspeak.tools.stored_results import READ_RESULT
from toolspeak.tools.tool_catalogue import FIND_TOOLS

RUN_CODE = "run_code"
"""The name of the tool."""

_ALWAYS_DIRECT = (FIND_TOOLS, READ_RESULT)
"""The tools that a model calls itself: what they bring is for its own next turns."""

_PROGRESS_LENGTH = 160
"""How many characters of a call's arguments the progress shows."""

_SECONDS = 86_400.0
"""The time limit of a call that runs a program, whose computing has a limit of its own."""

_MOST_AT_ONCE = 8
"""How many programs of one run go on at the same time: each has a process, and a turn may hold hundreds of calls."""

_DESCRIPTION = """\
Run a Python program that calls tools. Use it when you need several calls, or a part of a long result: one program
instead of many turns.

Only what the program prints, and the value of its last expression, comes back to you. Print what you need, not whole
results. The tools are these async functions. Write `await` before each call, and `await asyncio.gather(…)` for calls
that do not depend on each other. A call that fails raises an exception.

```python
{stubs}
```

The interpreter is a part of Python: functions, classes, comprehensions, `try`, and the modules asyncio, json, re, math,
datetime, collections, itertools, functools, random, csv, base64, hashlib, decimal, dataclasses and typing. There are no
other packages, no files and no network but by the tools, and no `yield`. Calls are checked against the types above
before anything runs. Variables do not survive to the next program."""

_TURN_TOOLS: ContextVar[Toolset] = ContextVar("toolspeak_turn_tools")
"""The tools of the turn whose program runs here, of an agent that computes them for each turn."""

_PROGRESS: ContextVar[Callable[[str], None] | None] = ContextVar("toolspeak_program_progress", default=None)
"""Takes a line about each call of the program that runs here."""

AgentMaker: TypeAlias = Callable[..., Any]
"""Makes an `Agent`."""


def with_programs(
    make_agent: AgentMaker,
    mode: CodeMode | bool,
    tools: ToolList | TurnTools[Any],
    approval: Approval,
    rules: StandingRules,
    execution: Execution | BatchExecutor,
    **settings: Any,
) -> ToolList | TurnTools[Any]:
    """The tools that a model gets in code mode in place of these: `run_code`, and those that it may call directly.

    `settings`: those of the agent that runs the programs, besides. Raises ConfigurationError for an executor of one's
    own, and a value that is no CodeMode; UnknownTool for a direct tool that is not there.
    """
    if not isinstance(cast("object", mode), CodeMode | bool):
        raise ConfigurationError(f"code_mode must be True, False or a CodeMode, not {mode!r}")
    mode = CodeMode() if isinstance(mode, bool) else mode
    if not isinstance(execution, Execution):
        raise ConfigurationError("code_mode needs execution=Execution(…): its programs run calls with other limits")
    approver = resolve_approver(approval.approver)
    driver = ProgramDriver(mode, {})
    tools_of = turn_tools_of(tools)
    agent = make_agent(
        driver,
        tools if tools_of is None else _tools_of_turn,
        # A person answers the questions of a program in the run above it, which shows them.
        approve=evolve(approval, rules=rules, approver=approver if isinstance(approver, StandingApprover) else None),
        execution=evolve(execution, max_result_bytes=mode.result_bytes, early_start=False),
        prices={PROGRAM: Price(0, 0)},
        name=PROGRAM,
        observers=(_report_call,),
        **settings,
    )
    if tools_of is None:
        return _tools_for_model(agent, mode, driver, toolset_of(cast("ToolList", tools)))

    async def of_turn(context: RunContext[Any]) -> Toolset:
        turn_tools = tools_of(context)
        turn_tools = await turn_tools if isawaitable(turn_tools) else turn_tools
        return _tools_for_model(agent, mode, driver, toolset_of(turn_tools))

    return of_turn


def _report_call(event: object) -> None:
    """Shows a program's calls as the progress of the call of `run_code` that runs it."""
    report = _PROGRESS.get()
    if report is not None and isinstance(event, ToolCallStarted) and event.run.agent == PROGRAM:
        report(f"{event.tool} {json.dumps(dict(event.args), ensure_ascii=False, default=str)[:_PROGRESS_LENGTH]}")


def _tools_of_turn(_context: RunContext[Any]) -> Toolset:
    return _TURN_TOOLS.get()


def _tools_for_model(agent: Any, mode: CodeMode, driver: ProgramDriver, tools: Toolset) -> Toolset:
    for name in mode.direct:
        if name not in tools:
            raise UnknownTool(f"CodeMode(direct=…): there is no tool {suggest(name, [each.name for each in tools])}")
    if RUN_CODE in tools:
        raise ConfigurationError(f"code mode has the tool {RUN_CODE!r} itself: give yours another name")
    direct_names = {*mode.direct, *_ALWAYS_DIRECT}
    functions = tools.filter(lambda each: each.name != FIND_TOOLS)
    return_types = {each.name: programs.type_returned_by(each) for each in tools}
    driver.return_types = {**driver.return_types, **return_types}
    return Toolset(
        [_program_tool(agent, mode, functions, return_types), *(each for each in tools if each.name in direct_names)]
    )


def _program_tool(agent: Any, mode: CodeMode, tools: Toolset, return_types: Mapping[str, str]) -> Tool:
    async def run_code(code: str, ctx: RunContext[Any]) -> ReturnValue:
        parent = cast("RunState | None", ctx.state)
        call = None if parent is None else parent_call(parent.run_id)
        if parent is None or call is None or call.pause is None:
            raise ToolError("a program runs in an agent's run only")
        calls_left = None if parent.limits.calls is None else max(0, parent.limits.calls - parent.totals.calls)
        calls = mode.calls if calls_left is None else min(mode.calls, calls_left)
        limits = Limits(steps=None, calls=calls, repeats=parent.limits.repeats, failures=parent.limits.failures)
        call.memory, pause = ctx.memory, call.pause
        pending = itertools.takewhile(lambda each: each.id != ctx.call.id, parent.pending.calls)
        earlier = sorted({*tools_called(parent.messages), *(each.name or "" for each in pending)})
        task = Message("user", (TextPart(code),), extra={CALLS_WITHIN: [*earlier]} if earlier else {})
        run = agent.start(task, deps=ctx.deps, parent_run_id=parent.run_id, principal=parent.principal, limits=limits)

        def pause_program() -> None:  # with the run, between two of the program's calls
            run.suspend() if pause.reason == "suspended" else run.step_aside()

        tokens = _TURN_TOOLS.set(tools), _PROGRESS.set(ctx.progress)
        pause.callbacks.append(pause_program)
        try:
            result = await agent.finish(run)
        finally:
            pause.callbacks.remove(pause_program)
            _TURN_TOOLS.reset(tokens[0])
            _PROGRESS.reset(tokens[1])
        stop = result.state.stop
        if stop is not None and stop.reason == "stopped":
            raise AgentStop(stop.message, answer=stop.answer)
        events = (record.event for record in result.run_records.records)
        notes = [event.message.text for event in events if isinstance(event, UserMessageQueued)]  # of interceptors
        names = sorted({*tools_called(result.messages[1:])})
        extra: Mapping[str, JSON] = {CALLS_WITHIN: [*names]} if names else {}
        if result.reason != "answer":
            failure_text = result.answer or f"The program gave no result: {result.error}"
            raise ToolError("\n".join([failure_text, *notes]), extra=extra)
        return ReturnValue((TextPart("\n".join([result.answer, *notes])),), extra=extra)

    stubs = programs.ToolFunctions(tools.specs, return_types).stubs_for_model()
    run_tool = tool(
        run_code,
        name=RUN_CODE,
        description=_DESCRIPTION.format(stubs=stubs),
        effects=evolve(effects_of_tools(tools), delegates=True),
        timeout=_SECONDS,
        max_concurrent=_MOST_AT_ONCE,
    )
    properties = {"code": {"type": "string", "description": "The program."}}
    deps = next((each.deps for each in tools if each.deps), "")
    parameters = {**run_tool.spec.parameters, "properties": properties}
    return evolve(run_tool, spec=evolve(run_tool.spec, parameters=parameters), deps=deps)
