"""Makes the agent of a run from the run's settings and what the project brings."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from toolspeak import dialects
from toolspeak.agent import DEFAULT_DIALECT, Agent, Approval, Cassette, CodeMode, DialectSettings, Execution
from toolspeak.agent.interceptors import AnyInterceptor
from toolspeak.changes.change_recorder import recorders
from toolspeak.data.prices import Price, read_prices
from toolspeak.data.protected_files import protect
from toolspeak.data.values import evolve, quick
from toolspeak.dialects import get_dialect
from toolspeak.execute import Approve, Approver, BatchApprover, InDoubtPolicy, Observer
from toolspeak.execute.approval.approvers import StandingApprover
from toolspeak.journal import Journal
from toolspeak.mcp.servers_file import Server
from toolspeak.project.configuration.configured_servers import RunServers, open_servers
from toolspeak.project.configuration.sandbox_settings import open_command_sandbox
from toolspeak.project.configuration.web_settings import web_tools
from toolspeak.project.deferral import with_deferral
from toolspeak.project.hidden_environment import hide_environment
from toolspeak.project.hook_interceptors import HookRunner, with_permission_hooks
from toolspeak.project.hook_settings import read_hooks
from toolspeak.project.instruction_files import NearerInstructions
from toolspeak.project.own_tools import load_tools
from toolspeak.project.project_files import read_project_files
from toolspeak.project.run_setup import Setup
from toolspeak.project.sub_agents import SubAgent, report_calls, resolved_sub_model, task_tool, unknown_tools
from toolspeak.project.user_files.json_file import read_json
from toolspeak.project.user_files.memory_folder import memory_files
from toolspeak.project.user_files.rules_file import RulesFile
from toolspeak.providers.model_strings import CONFIGURED_PROVIDERS
from toolspeak.providers.server_probe import served_window
from toolspeak.tools import ToolLike, Toolset
from toolspeak.tools.builtin import Workspace, memory_tool, recall_tool, todo_tool, workspace_tools
from toolspeak.tools.builtin.shell import RunCommand

_LOG = logging.getLogger("toolspeak.project")

AGENT_NAME = "agent"
"""Of the agent of every run of the command line."""

_DIRECT_TOOLS = ("todo",)
"""The tools that a model calls without a program in code mode: what it does is for the person who watches."""

_INSTRUCTIONS = """\
You work in a folder of the user's machine, with the tools below. Do the task with them: look before you change
something, and check your work afterwards. Your last message, without a call, is your answer: say what you found or
did, in a few sentences."""


@quick()
class OpenedAgent:
    """An agent, with everything that it needs open."""

    agent: Agent
    warnings: tuple[str, ...] = ()
    """What the person should know, such as a tool that was left out. The texts may come from a server."""
    sandbox: str = ""
    """What commands run in, as a line; "" for a replay."""
    window: int | None = None
    """How many tokens the model reads, as the settings or its name say; None if neither does."""
    servers: RunServers = RunServers()
    """The MCP servers that the agent is connected to."""
    is_confined: bool = False
    """Whether a sandbox holds commands."""
    program_tools: Toolset = Toolset()
    """The tools that programs of code mode may call; none without code mode."""


@asynccontextmanager
async def open_agent(
    setup: Setup,
    journal: Journal,
    approver: Approve,
    *,
    cassette: Cassette | None = None,
    in_doubt: InDoubtPolicy = "ask",
    observers: Sequence[Observer] = (),
    interceptors: Sequence[AnyInterceptor] = (),
    tools: Sequence[ToolLike[Any]] = (),
    open_files: Workspace | None = None,
    run_command: RunCommand | None = None,
    tell: Callable[[str], object] = _LOG.warning,
    is_attended: bool = True,
    server_questions: Approver | BatchApprover | None = None,
    servers_besides: Sequence[Server] = (),
) -> AsyncGenerator[OpenedAgent]:
    """The agent of these settings: its model, the built-in tools, MCP servers, rules and prices. It closes all of them
    at the end, but for the journal.

    `approver`: decides about calls (see `Approval`). `cassette` records the run or replays it. `tools` follow the
    built-in ones; MCP servers' tools come last. `open_files`, `run_command`: see `workspace_tools`. `tell` shows the
    person a line while the agent works, such as what a hook says; its text may come from a command.
    `server_questions`: gets what MCP servers ask the person (see `McpServers`), at any time of a call; None: they read
    that nobody can be asked. `servers_besides`: MCP servers besides those of the settings; one that cannot be started
    is left out, as a configured one.
    `is_attended`: a person can be asked. Without one, and unless the settings say otherwise, commands need a
    sandbox, and nothing may change once the run has read the web.

    What calls change in files is kept for `toolspeak undo`, unless the journal is in memory.

    Hides this process's environment from the commands that the agent starts. Raises ConfigurationError for settings
    that it cannot use, and McpError for a server of `setup.mcp` that it cannot start.
    """
    hide_environment()
    warnings: list[str] = []
    is_replay = cassette is not None and cassette.replays
    async with AsyncExitStack() as opened_parts:
        files = read_project_files(setup.workspace, setup.folders)
        warnings += files.problems
        commands, sandbox_line = await open_command_sandbox(
            setup.workspace,
            is_attended=is_attended,
            sandbox="off" if is_replay else setup.sandbox,  # a replay calls no tool
            allow_net=setup.allow_net,
            sandbox_write=(*setup.sandbox_write, *setup.folders),
            sandbox_read=setup.sandbox_read,
            unasked_reads=setup.unasked_reads,
        )
        opened_parts.push_async_callback(commands.sandbox.aclose)
        memory = memory_files()
        memory.guard(None)
        after_web = setup.after_web or ("allow" if is_attended else "ask")
        profile = memory.prompt(None, after_web=after_web == "allow") if setup.memory == "yes" else ""
        users_tools = load_tools(setup.tools, setup.tool_folders)
        toolset = Toolset(
            [
                *workspace_tools(
                    setup.workspace,
                    active_file=setup.active_file or None,
                    env=setup.env.split(),
                    open_files=open_files,
                    run_command=run_command,
                    also_read=files.folders_to_read,
                    folders=setup.folders,
                    sandbox=commands,
                ),
                recall_tool(journal),
                todo_tool(),
                *([memory_tool(memory)] if setup.memory == "yes" else []),
                *web_tools(
                    os.environ,
                    fetches=setup.web == "yes",
                    search=setup.search,
                    allow=setup.web_allow,
                    robots=setup.robots == "yes",
                ),
                *files.tools,
                *users_tools,
                *tools,
            ]
        )
        servers = await open_servers(setup, opened_parts, server_questions, servers_besides)
        warnings += servers.warnings
        toolset = toolset + Toolset(servers.tools)
        added_names = frozenset(each.name for each in (*users_tools, *servers.tools))
        if not is_replay:
            for folder in (setup.workspace, *setup.folders):
                interceptors = [*interceptors, *opened_parts.enter_context(recorders(folder, journal))]
        CONFIGURED_PROVIDERS.set(setup.providers)
        toolset = Toolset(map(NearerInstructions(Path(setup.workspace)).of_tool, toolset))
        speech = DialectSettings(
            dialects.with_repair(get_dialect(_written_in(setup.dialect))) if setup.repair == "yes" else setup.dialect,
            listing=setup.listing,
            starts_in=setup.starts_in,
        )
        hooks = HookRunner(read_hooks(setup.hooks), setup.workspace, setup.env.split(), tell)
        opened_parts.push_async_callback(hooks.end)
        reads_web = setup.web == "yes" or bool(setup.search)
        if reads_web and not is_attended and after_web == "ask" and setup.approve in ("all", "all+repaired"):
            warnings.append(
                "once the run has read the web, calls that change something are refused: --approve does not"
                " approve them (--after-web allow lets them pass)"
            )
        approval = Approval(
            with_permission_hooks(approver, hooks),
            servers.policy(asks=setup.approve == "ask"),
            rules=RulesFile(setup.rules) if setup.rules else None,
            # `--approve all` does not mean that someone has checked whether the call took effect.
            in_doubt="report" if in_doubt == "ask" and setup.approve != "ask" else in_doubt,
            after_web=after_web,
        )
        prices: Mapping[str, Price] = _prices(setup)

        def sub_agent(file: SubAgent, own_tools: Toolset) -> Agent:
            model, problem = resolved_sub_model(file, setup.model, setup.aliases)
            warnings.extend(filter(None, (problem, *unknown_tools(file, [each.name for each in toolset]))))
            worker = Agent(
                model,
                with_deferral(own_tools, setup, added_names),
                dialect=speech if model == setup.model else "auto",
                instructions="\n\n".join(
                    filter(None, (file.instructions, setup.instructions, files.instructions, setup.surroundings))
                ),
                # A person answers the questions of a sub-run in the run above it, which shows them.
                approve=evolve(approval, approver=approver if isinstance(approver, str | StandingApprover) else None),
                execution=Execution(schedule=setup.schedule),
                window=setup.window if model == setup.model else None,
                interceptors=(*hooks.interceptors(file.name), *interceptors),
                observers=(report_calls,),
                prices=prices,
                name=file.name,
                journal=journal,
            )
            opened_parts.push_async_callback(worker.aclose)
            return worker

        if files.sub_agents:
            toolset = toolset + Toolset([task_tool(files.sub_agents, toolset, sub_agent)])
        agent = Agent(
            setup.model,
            with_deferral(toolset, setup, added_names),
            code_mode=setup.code_mode == "yes" and CodeMode(direct=_DIRECT_TOOLS),
            dialect=speech,
            instructions="\n\n".join(
                filter(None, (_INSTRUCTIONS, setup.instructions, files.instructions, profile, setup.surroundings))
            ),
            approve=approval,
            execution=Execution(schedule=setup.schedule),
            window=setup.window,
            interceptors=(*hooks.interceptors(), *interceptors),
            observers=observers,
            prices=prices,
            name=AGENT_NAME,
            journal=journal,
            cassette=cassette,
        )
        opened_parts.push_async_callback(agent.aclose)
        capabilities = getattr(getattr(agent.driver, "provider", None), "capabilities", None)
        window = setup.window or getattr(capabilities, "context", None)
        line = "" if is_replay else sandbox_line
        functions = toolset if setup.code_mode == "yes" else Toolset()
        yield OpenedAgent(agent, tuple(warnings), line, window, servers, commands.is_enforced, functions)


async def window_of_agent(opened_agent: OpenedAgent) -> int:
    """How many tokens the model reads, as the settings, its name or its server say; 0 if none of them does. Asks the
    server once, for at most 5 seconds: ask when it has answered."""
    provider = getattr(opened_agent.agent.driver, "provider", None)
    if opened_agent.window or provider is None:
        return opened_agent.window or 0
    return (await served_window(provider))[0]


def _prices(setup: Setup) -> Mapping[str, Price]:
    prices = read_prices(setup.price_table, "prices") if setup.price_table else {}
    if setup.prices:
        protect(setup.prices, "the list of prices")  # `resume` reads the file again
        prices |= read_prices(read_json(setup.prices), setup.prices)
    return prices


def _written_in(dialect: str) -> str:
    return DEFAULT_DIALECT if dialect == "auto" else dialect
