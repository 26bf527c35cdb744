"""Sub-agents: agents that a project or its user describes in Markdown files, and the tool `task` that runs them.

There is one tool for all of them. A model reads one definition however many agents there are, and models know the shape
from other programs. A call of it is a sub-run of the agent that it names (`Agent.as_tool`), with the effects of that
agent's tools: two calls of agents that only read run at the same time and ask nobody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

from toolspeak.agent import Agent, RunEvent
from toolspeak.agent.handoffs import effects_of_tools
from toolspeak.data.messages import JSON
from toolspeak.data.tools import Effects
from toolspeak.data.values import evolve, quick
from toolspeak.errors import ConfigurationError, ToolError, suggest
from toolspeak.execute import ToolCallStarted
from toolspeak.project.definitions import Definitions, find_definitions, text_field
from toolspeak.project.folders import FileSource, Origin
from toolspeak.project.frontmatter import read_markdown
from toolspeak.project.tool_names import OTHER_NAMES
from toolspeak.tools import RunContext, Tool, Toolset, tool
from toolspeak.tools.files.text_format import visible

TASK = "task"

INHERIT = "inherit"
"""The `model` of a sub-agent that has the model of the agent that runs it."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_NOT_FOR_SUB_AGENTS = frozenset({TASK, "todo"})
_MOST_BODY = 64 * 1024
_MOST_LISTED = 8 * 1024  # bytes of names and descriptions in the tool's description
_SECONDS = 86_400.0
"""The time limit of a call, which has the limits of its run."""

_REPORT: ContextVar[Callable[[str], None] | None] = ContextVar("toolspeak_sub_agent_report", default=None)


@quick()
class SubAgent:
    """An agent as its file describes it.

    - `tools`: the names of its tools; None for all that the agent has which runs it.
    - `model`: `inherit`, an alias, or a model string.
    """

    name: str
    description: str
    instructions: str
    tools: tuple[str, ...] | None
    model: str
    path: Path
    origin: Origin


def find_sub_agents(workspace: Path) -> Definitions[SubAgent]:
    """The sub-agents of the project and its user. Of two with one name the nearest counts."""
    return find_definitions("agents", workspace, lambda path: path.suffix == ".md", read_sub_agent)


def read_sub_agent(path: Path, source: FileSource) -> SubAgent:
    """Reads the file of a sub-agent. Raises ConfigurationError, with the place and the remedy, for a file that does not
    follow the format."""
    file = read_markdown(path, source.top)
    name = text_field(file.fields, "name", path, 64)
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{path}: name: {visible(repr(name))} must consist of lowercase letters, digits, `-` and `_`"
        )
    description = text_field(file.fields, "description", path, 4096)
    model = text_field(file.fields, "model", path, 200, optional=True) or INHERIT
    if not file.body.strip():
        raise ConfigurationError(f"{path}: there are no instructions; write them below the fields")
    if len(file.body) > _MOST_BODY:
        raise ConfigurationError(
            f"{path}: the instructions have {len(file.body):,} characters, and at most {_MOST_BODY:,} are read"
        )
    return SubAgent(name, description, file.body, _tool_names(file.fields, path), model, path, source.origin)


def _tool_names(fields: Mapping[str, JSON], path: Path) -> tuple[str, ...] | None:
    value = fields.get("tools")
    if value is None:
        return None
    names: Sequence[JSON] = re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else ()
    if isinstance(value, list):
        names = cast("list[JSON]", value)
    texts = [each for each in names if isinstance(each, str)]
    if len(texts) < len(names) or not isinstance(value, str | list):
        raise ConfigurationError(f"{path}: tools must be names with commas between them, or a list of names")
    if texts == ["*"]:
        return None
    return tuple(dict.fromkeys(OTHER_NAMES.get(each, each) for each in texts if each))


def unknown_tools(agent: SubAgent, names: Collection[str]) -> list[str]:
    """What is wrong with the tools of a sub-agent, if the tools have these names."""
    others = [each for each in agent.tools or () if each not in names and each not in _NOT_FOR_SUB_AGENTS]
    return [
        f"{agent.path}: tools: the agent goes without {visible(repr(each))}: there is no tool {suggest(each, names)}"
        for each in others
    ]


def resolved_sub_model(agent: SubAgent, own: str, aliases: Mapping[str, str]) -> tuple[str, str]:
    """The model string of a sub-agent, and what is wrong with the one that its file names.

    - `own`: the model of the agent that runs it.
    - `aliases`: model strings by the names that the configuration has for them. A project's file can name no other
      model: it would decide who receives the conversation.
    """
    if agent.model == INHERIT:
        return own, ""
    if agent.model in aliases:
        return aliases[agent.model], ""
    if agent.origin == "user" and ":" in agent.model:
        return agent.model, ""
    name = visible(repr(agent.model))
    return own, (
        f"{agent.path}: model: {name} is not an alias of your configuration, so the agent has the model of the run; "
        "add the alias, or write `inherit`"
    )


def report_calls(event: RunEvent) -> None:
    """An observer of sub-agents: shows their calls as the progress of the call of `task` that runs them."""
    report = _REPORT.get()
    if report is not None and isinstance(event, ToolCallStarted):
        report(f"{event.tool} {json.dumps(dict(event.args), ensure_ascii=False, default=str)[:160]}")


def task_tool(agents: Sequence[SubAgent], tools: Toolset, make_agent: Callable[[SubAgent, Toolset], Agent]) -> Tool:
    """The tool `task`, which runs the sub-agents.

    - `tools`: those of the agent that has the tool; each sub-agent gets those of them that its file names.
    - `make_agent`: makes the agent of a file, with these tools.
    """
    shared_tools = tools.filter(lambda each: each.name not in _NOT_FOR_SUB_AGENTS)
    own_tools = {
        agent.name: shared_tools.filter(lambda each, own=agent.tools: own is None or each.name in own)
        for agent in agents
    }
    agent_tools = {
        agent.name: make_agent(agent, own_tools[agent.name]).as_tool(description=agent.description) for agent in agents
    }

    def effects(agent: str) -> Effects:
        return agent_tools[agent].spec.effects if agent in agent_tools else Effects(idempotent=True)

    def preview(agent: str, task: str) -> str:
        names = ", ".join(each.name for each in own_tools.get(agent, ())) or "no tools"
        return f"{agent} works on this with {names}. Its own calls ask for approval, too.\n\n{visible(task)}"

    @tool(
        name=TASK,
        aliases={"subagent_type": "agent", "prompt": "task"},
        effects=effects,
        effects_bound=effects_of_tools(Toolset(agent_tools.values())),
        preview=preview,
        timeout=_SECONDS,
    )
    async def task(agent: str, task: str, ctx: RunContext[Any]) -> Any:
        agent_tool: Any = agent_tools.get(agent)
        if agent_tool is None:
            raise ToolError(f"there is no agent {suggest(agent, agent_tools)}")
        token = _REPORT.set(ctx.progress)
        try:
            return await agent_tool.function(task, ctx)
        finally:
            _REPORT.reset(token)

    properties: dict[str, JSON] = {
        "agent": {"type": "string", "enum": [*agent_tools], "description": "The name of the agent."},
        "task": {
            "type": "string",
            "description": "What to do, with all that must be known for it: the agent knows nothing else.",
        },
    }
    parameters = {**task.spec.parameters, "properties": properties}
    return evolve(task, spec=evolve(task.spec, parameters=parameters, description=_description(agents)))


def _description(agents: Sequence[SubAgent]) -> str:
    lines, room = list[str](), _MOST_LISTED
    for agent in agents:
        line = f"- {agent.name}: {visible(' '.join(agent.description.split()))}"
        room -= len(line.encode())
        lines.append(line if room >= 0 else f"- {agent.name}")
    introduction = (
        "Give a task to another agent, which works on it alone and answers once. Use it for work that takes many steps "
        "and whose answer is short. The agents:"
    )
    return "\n".join([introduction, *lines])
