"""Agents that other agents use: as a tool, or by a hand-off, after which another agent continues the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from toolspeak.agent.settings import RunSettings
from toolspeak.agent.validation import check_deps
from toolspeak.data.tools import EVERYTHING, UNDECLARED_EFFECTS, Effects
from toolspeak.data.values import evolve
from toolspeak.errors import ConfigurationError, RunError, ToolDefinitionError, ToolError
from toolspeak.execute.approval.policy_rules import may_need_approval
from toolspeak.tools import RunContext, Tool, ToolOptions, Toolset, tool

_ODD = re.compile(r"[^A-Za-z0-9_-]+")
_SECONDS = 86_400.0
"""The time limit of a call that runs an agent, which has limits of its own."""


def agent_tool(
    agent: str,
    description: str,
    tools: Toolset | None,
    run: Callable[..., Any],
    name: str | None,
    options: ToolOptions,
) -> Tool[..., Any]:
    """The tool that runs an agent. See `Agent.as_tool`.

    `tools`: those of the agent, None if it computes them for each turn; `run`: its `Agent.run`.
    """
    if not description:
        raise ToolDefinitionError(
            f"the agent {agent!r} has no description, so no model would know what it is for: give one to "
            "Agent(description=…) or as_tool(description=…)"
        )

    async def ask(task: str, ctx: RunContext[Any]) -> Any:
        parent = ctx.state
        of_parent = {} if parent is None else {"parent_run_id": parent.run_id, "principal": parent.principal}
        result = await run(task, deps=ctx.deps, **of_parent)
        if result.status != "answered":
            raise ToolError(f"{agent} gave no answer: {result.error}")
        return result.answer if result.output is None else result.output

    tool_options = ToolOptions(timeout=_SECONDS)
    if "effects" not in options and not options.get("read_only"):
        tool_options["effects"] = (
            evolve(UNDECLARED_EFFECTS, idempotent=True) if tools is None else effects_of_tools(tools)
        )
        note = "" if tools is None else _note_on_effects(agent, tools)
        if note:
            tool_options["preview"] = lambda: note
    tool_options.update(options)
    ask_tool = tool(ask, name=name or _ODD.sub("_", agent), description=description, **tool_options)
    properties: Any = {"task": {"type": "string", "description": "What to do, with all that must be known for it."}}
    parameters = {**ask_tool.spec.parameters, "properties": properties}
    deps = next((each.deps for each in tools or () if each.deps), "")
    return evolve(ask_tool, spec=evolve(ask_tool.spec, parameters=parameters), deps=deps)


def effects_of_tools(tools: Toolset) -> Effects:
    """What an agent with these tools may touch. It may run twice: a call that is entered again finds its run."""
    bounds = [spec.effects for spec in tools.specs]
    if not all(each.declared for each in bounds):
        return evolve(UNDECLARED_EFFECTS, idempotent=True, external=any(each.external for each in bounds))
    return Effects(
        frozenset[str]().union(*(each.reads for each in bounds)),
        frozenset[str]().union(*(each.writes for each in bounds)),
        external=any(each.external for each in bounds),
        idempotent=True,
        destructive=any(each.destructive for each in bounds if each.writes),
    )


def _note_on_effects(agent: str, tools: Toolset) -> str:
    """Why a call of the agent may touch anything although its tools say more, for the person who must approve it; ""
    if it may not."""
    unbounded_tools = [spec.name for spec in tools.specs if spec.effects.declared and EVERYTHING in spec.effects.writes]
    undeclared_tools = [spec.name for spec in tools.specs if not spec.effects.declared]
    if not unbounded_tools and not undeclared_tools:
        return ""
    parts = [f"The agent {agent} may touch anything, as far as its tools say. Its own calls ask for approval, too."]
    if unbounded_tools:
        names = ", ".join(unbounded_tools)
        parts.append(f"Tools whose arguments decide what they touch: {names}; @tool(effects_bound=…) states the most.")
    if undeclared_tools:
        parts.append(
            f"Tools that do not declare what they touch: {', '.join(undeclared_tools)}; @tool(effects=…) does."
        )
    return "\n".join(parts)


def handoff_tools(handoffs: Sequence[Any]) -> tuple[dict[str, Any], list[str], list[Tool[..., Any]]]:
    """The agents among these hand-offs by name, the names of all, and the tools that lead to them, in order."""
    agents = {each.name: each for each in handoffs if not isinstance(each, str)}
    names = [each if isinstance(each, str) else each.name for each in handoffs]
    return agents, names, [_handoff_tool(each, agents[each].description if each in agents else "") for each in names]


def _handoff_tool(agent: str, description: str) -> Tool[..., Any]:
    """The tool by which a model hands the conversation to this agent."""

    async def transfer() -> str:
        return f"{agent} continues the conversation."

    about = f": {description}" if description else "."
    # It touches nothing. A step that hands off twice in the same way counts as a repetition, so cycles end.
    effects = Effects(idempotent=True, destructive=False)
    name = f"transfer_to_{_ODD.sub('_', agent)}"
    return tool(transfer, name=name, description=f"Hands the conversation to the agent {agent}{about}", effects=effects)


def family_of(own: RunSettings, others: Sequence[RunSettings]) -> dict[str, RunSettings]:
    """The settings of all agents that hand-offs to `others` lead to, by name.

    Raises ConfigurationError for two agents of one name, and for one whose runs could not continue with this agent's.
    """
    family: dict[str, RunSettings] = {}
    for other in others:
        for each in (other, *other.family.values()):
            if each.agent == own.agent or family.setdefault(each.agent, each) is not each:
                raise ConfigurationError(
                    f"handoffs: two agents are named {each.agent!r}; give each a name of its own, Agent(name=…). To "
                    "hand back to an agent that is not made yet, name it: handoffs=['NAME']"
                )
            if each.secrets is not own.secrets and (each.secrets.has_values or own.secrets.has_values):
                raise ConfigurationError(
                    f"handoffs: the agents {own.agent!r} and {each.agent!r} have other secrets, and one would show the "
                    "other's; give both the same object, secrets=Secrets({…})"
                )
            types = [None if one.output is None else one.output.type for one in (own, each)]
            if types[0] != types[1]:
                raise ConfigurationError(
                    f"handoffs: the agents {own.agent!r} and {each.agent!r} have different output types, and a run has "
                    "one; give both the same output="
                )
            if own.recording is not each.recording:
                raise ConfigurationError(
                    f"handoffs: the agents {own.agent!r} and {each.agent!r} have different cassettes, and a run has "
                    "one; give both the same object, cassette=…"
                )
    return family


def check_family(first: RunSettings, deps: object) -> None:
    """Checks that a run that this agent starts or resumes can continue as each agent that its hand-offs lead to.

    Raises ConfigurationError for a name that no agent has, and for tools that need other `deps` (see `check_deps`).
    """
    names = {first.agent, *first.family}
    others = () if first.recording is None else [each for each in first.recording.agents if each not in names]
    if others:
        raise ConfigurationError(
            f"cassette: it also belongs to {', '.join(map(repr, others))}, to which hand-offs of {first.agent!r} do not"
            " lead; give agents that do not continue each other's runs a cassette each"
        )
    if not first.handoffs:
        return
    for each in (first, *first.family.values()):
        check_deps(each.toolset, deps)
        for agent in each.handoffs.values():
            if agent not in names:
                raise ConfigurationError(
                    f"the agent {each.agent!r} hands off to {agent!r}, which no agent that {first.agent!r} leads to is "
                    f"named; known: {', '.join(sorted(names))}"
                )


def settings_of(first: RunSettings, agent: str) -> RunSettings:
    """The settings with which a run of `first` continues as another agent: journal, deps, observers and clock are the
    run's, everything else is the agent's. If the agent has no approver, the first agent's gets its questions.

    Raises RunError for an agent that no hand-off leads to.
    """
    own = first if agent == first.agent else first.family.get(agent)
    if own is None:
        names = ", ".join(sorted({first.agent, *first.family}))
        raise RunError(
            f"the run was handed to the agent {agent!r}, and hand-offs of {first.agent!r} do not lead there (known: "
            f"{names}); resume it with an agent whose handoffs do"
        )
    # A cassette gives each agent an approver, which records that there is none.
    approver = first.approver if own.kin_approver is None else own.approver
    return evolve(
        own,
        journal=first.journal,
        keeps=first.keeps,
        deps=first.deps,
        principal=first.principal,
        traceparent=first.traceparent,
        parent_run_id=first.parent_run_id,
        approver=approver,
        kin_approver=own.kin_approver or first.kin_approver,
        needs_approval=partial(may_need_approval, approver, getattr(own.executor, "policy", None)),
        observers=first.observers,
        clock=first.clock,
    )
