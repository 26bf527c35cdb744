"""Hooks as interceptors of an agent, and around its approver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from toolspeak.agent import (
    Compaction,
    CompactionInterceptor,
    MessageInterceptor,
    RunInterceptor,
    RunStart,
    StepInterceptor,
)
from toolspeak.agent.interceptors import AnyInterceptor, Step, StepEnd
from toolspeak.agent.state.decide import Finish, decide
from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.messages import JSON, Message, TextPart, ToolCall, ToolResult
from toolspeak.errors import AgentStop, ConfigurationError
from toolspeak.execute import (
    ANSWERED_FROM,
    ApprovalRequest,
    Approve,
    Approver,
    BatchApprover,
    Block,
    HookContext,
    Interceptor,
)
from toolspeak.execute.approval.approvers import StandingApprover, ask, ask_together
from toolspeak.project.hook_commands import HookAnswer, run_hooks
from toolspeak.project.hook_settings import CommandHook
from toolspeak.project.tool_names import with_other_parameters, with_own_parameters
from toolspeak.tools.builtin.shell import command_environment
from toolspeak.tools.context import StateView
from toolspeak.tools.files.text_format import visible

_STOPPED_BEFORE = "stop_hook_active"
"""The metadata of a run that a Stop hook has sent on."""

_STOPS = "stop_hook_blocks"
"""The metadata with the last reasons of Stop hooks, how often they came in a row, and how often there were any."""

_MOST_REASONS = 1_000
"""Characters of the reasons that are compared."""

_MOST_ALIKE, _MOST_STOPS = 3, 10
"""How often Stop hooks may send a run on for the same reason, and for any."""


class HookRunner:
    """Runs the hooks of one agent and its sub-agents.

    - `hooks`: all hooks.
    - `workspace`: the folder where they run.
    - `env`: the names of environment variables that they get besides those of every command.
    - `tell`: shows the person a line. Its text comes from hooks.
    """

    def __init__(
        self, hooks: Sequence[CommandHook], workspace: str, env: Collection[str], tell: Callable[[str], object]
    ) -> None:
        self._hooks = hooks
        self._folder = str(Path(workspace).resolve())
        self._env = env
        self.tell = tell
        self._sessions: dict[str, str] = {}  # of the runs, by their ids; a run outside of sessions is one
        self._first_runs: dict[str, str] = {}  # the sessions that have begun here, each with its first run

    def has(self, *events: str) -> bool:
        """Whether there is a hook of one of these events."""
        return any(hook.event in events for hook in self._hooks)

    async def run(
        self, event: str, name: str, run_id: str, state: StateView | None, data: Mapping[str, JSON]
    ) -> list[HookAnswer]:
        """Runs the hooks of an event that fit a name. Shows the person their messages and problems.

        `state`: of the run; None before its first record.
        """
        session_id = self._session_of(run_id, state)
        hooks = [hook for hook in self._hooks if hook.event == event and hook.name_of(name) is not None]
        if not hooks:
            return []
        names = {"session_id": session_id, "run_id": run_id, "cwd": self._folder, "hook_event_name": event}
        folders = {"TOOLSPEAK_PROJECT_DIR": self._folder, "CLAUDE_PROJECT_DIR": self._folder}
        environment = {**command_environment(self._folder, self._env), **folders}
        all_data = [(hook, _with_names_of(hook, name, {**names, **data})) for hook in hooks]
        answers = [_with_own_names(each, name) for each in await run_hooks(all_data, self._folder, environment)]
        for answer in answers:
            if answer.problem:
                self.tell(f"the {answer.name} {answer.problem}")
            if answer.message:
                self.tell(f"the {answer.name}: {answer.message}")
        return answers

    def _session_of(self, run_id: str, state: StateView | None) -> str:
        """The session of a run. A sub-run has that of the run above it."""
        if run_id not in self._sessions:
            above = None if state is None or state.parent_run_id is None else self._sessions.get(state.parent_run_id)
            self._sessions[run_id] = (None if state is None else state.session_id) or above or run_id
        return self._sessions[run_id]

    async def begin(self, run_id: str, session_id: str | None, source: str) -> list[HookAnswer]:
        """Runs the hooks of SessionStart, once for each session."""
        session_id = self._sessions[run_id] = session_id or run_id
        if session_id in self._first_runs:
            return []
        self._first_runs[session_id] = run_id
        return await self.run("SessionStart", source, run_id, None, {"source": source})

    async def end(self) -> None:
        """Runs the hooks of SessionEnd, for the sessions that have begun."""
        for run_id in self._first_runs.values():
            await self.run("SessionEnd", "other", run_id, None, {"reason": "other"})

    def interceptors(self, sub_agent: str = "") -> list[AnyInterceptor]:
        """The interceptors of an agent that run the hooks. `sub_agent`: the name of a sub-agent, "" for the agent
        itself."""
        interceptors: list[AnyInterceptor] = []
        if self.has("PreToolUse", "PostToolUse", "PostToolUseFailure"):
            interceptors.append(CallHooks(self))
        if self.has("SubagentStop" if sub_agent else "Stop"):
            interceptors.append(StepHooks(self, sub_agent))
        if self.has("PreCompact"):
            interceptors.append(CompactionHooks(self))
        if not sub_agent and self.has("SessionStart", "SessionEnd", "UserPromptSubmit"):
            interceptors.append(RunHooks(self))
        if not sub_agent and self.has("UserPromptSubmit"):
            interceptors.append(MessageHooks(self))
        return interceptors


class CallHooks(Interceptor):
    """Runs the hooks of PreToolUse, PostToolUse and PostToolUseFailure."""

    priority = 50

    def __init__(self, runner: HookRunner) -> None:
        self._runner = runner
        self._contexts: dict[tuple[str, str], list[str]] = {}

    async def before(self, call: ToolCall, context: HookContext) -> ToolCall:
        """Returns the call as the hooks changed it, and decides about its approval as they do."""
        data: dict[str, JSON] = {"tool_name": call.name, "tool_input": call.arguments, "tool_use_id": call.id}
        answers = await self._runner.run("PreToolUse", call.name, context.run_id, context.state, data)
        _stop_if_asked(answers)
        by_decision = {answer.decision: answer for answer in answers}
        if answer := by_decision.get("deny"):
            context.decide(Decision(False, answer.reason, by=answer.name))
        elif answer := by_decision.get("ask"):
            context.decide(Escalate(answer.reason or f"the {answer.name} asks"))
        elif answer := by_decision.get("allow"):
            context.decide(Decision(True, answer.reason, by=answer.name))
        self._contexts[context.run_id, call.id] = _contexts_of(answers)
        for answer in answers:
            if answer.arguments is not None:
                call = replace(call, arguments=answer.arguments)
        return call

    async def after(self, call: ToolCall, result: ToolResult, context: HookContext) -> ToolResult:
        """Returns the result with what the hooks say about it."""
        texts = self._contexts.pop((context.run_id, call.id), [])
        event = ""
        if ANSWERED_FROM not in result.extra:
            event = "PostToolUse" if result.status == "success" else "PostToolUseFailure"
        if event and (result.status == "success" or result.code in ("exception", "timeout")):
            data: dict[str, JSON] = {"tool_name": call.name, "tool_input": call.arguments, "tool_use_id": call.id}
            if result.status == "success":
                data["tool_response"] = result.text if result.structured is None else result.structured
            else:
                data["error"] = result.text
            answers = await self._runner.run(event, call.name, context.run_id, context.state, data)
            _stop_if_asked(answers)
            texts = [*texts, *_reasons_of(answers), *_contexts_of(answers)]
        return replace(result, content=(*result.content, *map(TextPart, texts))) if texts else result


class StepHooks(StepInterceptor):
    """Runs the hooks of Stop or SubagentStop before the run has its answer."""

    priority = 50

    def __init__(self, runner: HookRunner, sub_agent: str) -> None:
        self._runner, self._sub_agent = runner, sub_agent

    async def after(self, step: Step, end: StepEnd, context: HookContext) -> StepEnd:
        """Returns what the model reads next, if a hook sends it on."""
        match decide(end.state):
            case Finish("answered", answer) if end.state.limit is None and not end.say:
                return await self._before_stop(answer, end, context)
            case _:
                return end

    async def _before_stop(self, answer: str, end: StepEnd, context: HookContext) -> StepEnd:
        event = "SubagentStop" if self._sub_agent else "Stop"
        data: dict[str, JSON] = {
            "stop_hook_active": context.metadata.get(_STOPPED_BEFORE) is True,
            "last_assistant_message": answer,
            **({"agent_type": self._sub_agent} if self._sub_agent else {}),
        }
        answers = await self._runner.run(event, self._sub_agent, context.run_id, context.state, data)
        if any(each.stop is not None for each in answers):
            return end
        texts = [*_reasons_of(answers), *_contexts_of(answers)] if _reasons_of(answers) else []
        if texts:
            context.set(_STOPPED_BEFORE, True)
            reasons = "".join(_reasons_of(answers))[:_MOST_REASONS]
            last, alike, in_all = cast("tuple[str, int, int]", context.metadata.get(_STOPS, ("", 0, 0)))
            alike, in_all = alike + 1 if reasons == last else 1, in_all + 1
            if alike > _MOST_ALIKE or in_all > _MOST_STOPS:
                count_text = f"{alike - 1} times with the same reason" if alike > _MOST_ALIKE else f"{in_all - 1} times"
                self._runner.tell(f"the {event} hook has blocked {count_text}: the answer counts now.{reasons}")
                return end
            context.set(_STOPS, [reasons, alike, in_all])
        return replace(end, say=(*end.say, *(text.strip() for text in texts)))


class RunHooks(RunInterceptor):
    """Runs the hooks of SessionStart, and those of UserPromptSubmit for the task."""

    priority = 50

    def __init__(self, runner: HookRunner) -> None:
        self._runner = runner

    async def before(self, start: RunStart, context: HookContext) -> RunStart | Block:
        """Returns the messages with what the hooks add to the task, or blocks the run."""
        answers = await self._runner.begin(context.run_id, start.session_id, "startup")
        if not start.messages:
            return start
        *others, task = start.messages
        verdict = await _pass_to_hooks(self._runner, task, context, answers)
        return verdict if isinstance(verdict, Block) else replace(start, messages=(*others, verdict))

    async def around(self, start: RunStart, proceed: Any, context: HookContext) -> Finish:
        """Proceeds. Of a run that is resumed, the session begins here."""
        session_id = None if context.state is None else context.state.session_id
        await self._runner.begin(context.run_id, session_id, "resume")
        return await proceed(start)


class MessageHooks(MessageInterceptor):
    """Runs the hooks of UserPromptSubmit for what the user says while the model works."""

    priority = 50

    def __init__(self, runner: HookRunner) -> None:
        self._runner = runner

    async def before(self, message: Message, context: HookContext) -> Message | Block:
        """Returns the message with what the hooks add, or leaves it out."""
        verdict = await _pass_to_hooks(self._runner, message, context)
        if isinstance(verdict, Block):
            text = visible(message.text[:80]).replace("\n", " ")
            self._runner.tell(f"a UserPromptSubmit hook blocks your message `{text}`: {verdict.reason}")
        return verdict


async def _pass_to_hooks(
    runner: HookRunner, message: Message, context: HookContext, answers: Sequence[HookAnswer] = ()
) -> Message | Block:
    """A message of the user as the hooks of UserPromptSubmit let it pass. `answers`: those of other hooks, which add to
    it too."""
    data = {"prompt": message.text}
    answers = [*answers, *await runner.run("UserPromptSubmit", "", context.run_id, context.state, data)]
    _stop_if_asked(answers)
    if reasons := [each.reason for each in answers if each.decision == "deny"]:
        return Block("; ".join(reasons))
    texts = _contexts_of(answers)
    return replace(message, parts=(*message.parts, *(TextPart(f"\n{text}") for text in texts))) if texts else message


class CompactionHooks(CompactionInterceptor):
    """Runs the hooks of PreCompact before the history of a run is made shorter."""

    priority = 50

    def __init__(self, runner: HookRunner) -> None:
        self._runner = runner

    async def before(self, compaction: Compaction, context: HookContext) -> Compaction | Block:
        """Returns the compaction, or leaves the history as it is."""
        data: dict[str, JSON] = {"trigger": compaction.trigger, "tokens": compaction.tokens}
        answers = await self._runner.run("PreCompact", compaction.trigger, context.run_id, context.state, data)
        _stop_if_asked(answers)
        denials = [each for each in answers if each.decision == "deny"]
        for each in denials:
            self._runner.tell(f"the {each.name} keeps the conversation as it is: {each.reason}")
        return Block(denials[0].reason) if denials else compaction


def with_permission_hooks(approver: Approve, runner: HookRunner) -> Approve:
    """The approver, which asks the hooks of PermissionRequest first. An approver that asks nobody stays as it is."""
    if not runner.has("PermissionRequest") or isinstance(approver, str | StandingApprover):
        return approver
    if isinstance(approver, BatchApprover):
        return BatchPermissionHooks(runner, approver)
    return PermissionHooks(runner, approver)


class PermissionHooks:
    """An `Approver` that asks the hooks of PermissionRequest, and then another one."""

    def __init__(self, runner: HookRunner, approver: Approver | None) -> None:
        self._runner, self._approver = runner, approver

    async def __call__(self, request: ApprovalRequest, /) -> Decision | Escalate:
        """The decision of a hook, else of the other approver."""
        decision = await decision_of_hooks(self._runner, request)
        if decision is not None:
            return decision
        return Escalate() if self._approver is None else await ask(self._approver, request)


class BatchPermissionHooks:
    """A `BatchApprover` that asks the hooks of PermissionRequest, and then another one about the rest."""

    def __init__(self, runner: HookRunner, approver: BatchApprover) -> None:
        self._runner, self._approver = runner, approver

    async def together(self, requests: Sequence[ApprovalRequest], /) -> Sequence[Decision | Escalate]:
        """The decisions of hooks, else of the other approver."""
        decisions = await asyncio.gather(*(decision_of_hooks(self._runner, request) for request in requests))
        rest = [request for request, decision in zip(requests, decisions, strict=True) if decision is None]
        answers = iter(await ask_together(self._approver, rest) if rest else ())
        return [next(answers) if decision is None else decision for decision in decisions]


async def decision_of_hooks(runner: HookRunner, request: ApprovalRequest) -> Decision | None:
    """What the hooks of PermissionRequest decide; None if they have no opinion."""
    call, run_id = request.call, "" if request.state is None else request.state.run_id
    data: dict[str, JSON] = {"tool_name": call.name, "tool_input": call.arguments, "tool_use_id": call.id}
    data |= {"reason": request.reason, "preview": request.preview}
    answers = await runner.run("PermissionRequest", call.name, run_id, request.state, data)
    by_decision = {answer.decision: answer for answer in answers}
    if answer := by_decision.get("deny"):
        return Decision(False, answer.reason, answer.name, ends_run=answer.stop is not None)
    answer = by_decision.get("allow")
    if answer is None or "ask" in by_decision:
        return None
    if answer.arguments is None:
        return Decision(True, answer.reason, answer.name)
    try:
        revision = await request.revise(answer.arguments)
    except ConfigurationError as error:
        runner.tell(f"the {answer.name} wrote an updatedInput that cannot be used: {error}")
        return None
    return Decision(True, answer.reason, answer.name, arguments=answer.arguments, digest=revision.digest)


def _with_names_of(hook: CommandHook, tool: str, data: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """The data of an event, with the names that the hook has for the tool and its parameters."""
    if not hook.names or "tool_input" not in data:
        return data
    arguments = cast("Mapping[str, JSON]", data["tool_input"])
    return {**data, "tool_name": hook.name_of(tool), "tool_input": with_other_parameters(tool, arguments)}


def _with_own_names(answer: HookAnswer, tool: str) -> HookAnswer:
    """The answer, with our names of the parameters that it changes."""
    if not answer.hook.names or answer.arguments is None:
        return answer
    return replace(answer, arguments=with_own_parameters(tool, answer.arguments))


def _stop_if_asked(answers: Sequence[HookAnswer]) -> None:
    for answer in answers:
        if answer.stop is not None:
            raise AgentStop(f"{answer.name}: {answer.stop}")


def _reasons_of(answers: Sequence[HookAnswer]) -> list[str]:
    return [f"\n[The {each.hook.event} hook blocks: {each.reason}]" for each in answers if each.decision == "deny"]


def _contexts_of(answers: Sequence[HookAnswer]) -> list[str]:
    return [f"\n[The {each.hook.event} hook adds: {each.context}]" for each in answers if each.context]
