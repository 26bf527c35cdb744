"""The agent: a model, its tools, and the settings of its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias, Unpack, cast, overload

from toolspeak.agent.cassettes.cassette import Cassette
from toolspeak.agent.child_runs import journal_of_parent, parent_call, sub_run_id
from toolspeak.agent.compaction import compact_run
from toolspeak.agent.drivers.base import Driver
from toolspeak.agent.drivers.choose import choose_driver
from toolspeak.agent.handoffs import agent_tool, check_family, family_of, handoff_tools
from toolspeak.agent.interceptors import AnyInterceptor, by_level
from toolspeak.agent.options import Approval, CommonOptions, DepsT, DialectSettings, Execution, Instructions, RunOptions
from toolspeak.agent.program_runs import with_programs
from toolspeak.agent.result import Resumption, RunResult, result_of, resumed_run, stored_run, with_answer
from toolspeak.agent.run import Run
from toolspeak.agent.run_starter import RunStarter
from toolspeak.agent.settings import USUAL_EXECUTION, RunSettings, executor_of
from toolspeak.agent.state.history import Window
from toolspeak.agent.state.output import Output, OutputT, choose_output, with_output
from toolspeak.agent.storage.runs import suspend_run
from toolspeak.agent.storage.sessions import SessionTip
from toolspeak.agent.submission import IdempotentStart, prepared_start, submit_run
from toolspeak.agent.sync import run_sync
from toolspeak.agent.validation import (
    all_tools_of,
    approval_of,
    check_deps,
    check_settings,
    checked_choice,
    secrets_of,
    toolset_of,
    turn_tools_of,
)
from toolspeak.data.events import HistoryCompacted, Limits
from toolspeak.data.messages import Message, ToolChoice
from toolspeak.data.prices import PRICES, Price, price_of
from toolspeak.data.run_values import PAUSED_STATUSES
from toolspeak.data.values import evolve
from toolspeak.dialects import Dialect
from toolspeak.errors import ConfigurationError, ProviderError, SubRunPaused
from toolspeak.execute import (
    ApprovalRequest,
    Approve,
    BatchExecutor,
    Decision,
    Observer,
    Secrets,
    StandingRules,
    resolve_approver,
)
from toolspeak.execute.approval.approvers import read_decisions
from toolspeak.execute.approval.policy_rules import may_need_approval
from toolspeak.execute.calls.prepare import new_id
from toolspeak.journal import Journal, MemoryJournal
from toolspeak.programs.code_mode import CodeMode
from toolspeak.providers.base import Provider
from toolspeak.tools import Tool, ToolLike, ToolList, ToolOptions, Toolset, TurnTools

Decisions: TypeAlias = Mapping[str, bool | Decision]
"""Decisions by call id."""

_NO_TOOLS = Toolset()
_NO_DECISIONS: Decisions = MappingProxyType({})
_NO_HANDOFFS: Mapping[str, str] = MappingProxyType({})


class Agent(RunStarter[DepsT, OutputT]):
    """Runs tasks with a model and tools.

        agent = Agent("openai:qwen3", tools=[read, write], approve="all")
        print(agent.run_sync("Summarise notes.md").answer)

    - `model`: a string (`openai:NAME`, a bare name, `scripted:FILE`), a Provider, or a Driver.
    - `tools`: functions, Tools, or a Toolset; or a function of the RunContext that returns them before each turn.
    - `dialect`: how the model writes calls: a name, a Dialect, or `DialectSettings`.
    - `instructions`: the agent's part of the system prompt, or a function of the RunContext that returns it before
      each turn.
    - `code_mode`: whether the model calls the tools from programs (extra `code`), or a `CodeMode`.
    - `description`: what the agent is for, as the models of other agents read it (`handoffs`, `as_tool`).
    - `handoffs`: agents that the model may hand the conversation to, by the tools `transfer_to_NAME`. The run continues
      with the other agent's model, instructions and tools. A string names one that another agent of these leads to.
    - `output`: the type of the answer, or `Output`. `RunResult.output` is the value.
    - `deps_type`: the type of the `deps` that runs are given for their tools.
    - `tool_choice`: "auto", "required" (call some tool first), "none", a tool's name, or a `ToolChoice`. A model that
      does not follow it is reminded once.
    - `approve`: who decides about calls that write or leave the machine: "all", "none", an async function, None (the
      run pauses and waits for `resume`), or `Approval`.
    - `limits`: when a run ends with a wrap-up answer. A limit in USD (`Limits.cost`) needs the model's price.
    - `execution`: how calls run, or an executor of your own, which has these settings itself.
    - `window`: how many tokens the model reads, or a `Window`. A conversation that fills it is made shorter.
    - `interceptors`: wrap calls, model requests, steps and runs.
    - `observers`: functions that get every event (see `RunEvent`), also those of runs that tools start.
    - `journal`: where runs are recorded. None: each run in a journal of its own, in memory.
    - `cassette`: records the model's turns, the tools' results and the decisions in a file, or plays them.
    - `secrets`: values by name. The model reads placeholders.
    - `prices`: by `provider:model`. They come before those of `data.prices`.
    - `name`: the agent's name in records.
    - `clock`: returns Unix seconds.

    Raises ConfigurationError (or UnknownDialect, UnknownProvider, ToolDefinitionError) for a value that it cannot use.
    """

    def __init__(
        self,
        model: str | Provider | Driver,
        tools: Toolset | Iterable[ToolLike[DepsT]] | TurnTools[DepsT] = _NO_TOOLS,
        *,
        dialect: str | Dialect | DialectSettings = "auto",
        instructions: Instructions[DepsT] = "",
        code_mode: bool | CodeMode = False,
        description: str = "",
        handoffs: Sequence[Agent[DepsT, OutputT] | Agent[None, OutputT] | str] | None = None,
        output: type[OutputT] | Output[OutputT] | None = None,
        deps_type: type[DepsT] | None = None,
        tool_choice: str | ToolChoice = "auto",
        approve: Approve | Approval = None,
        limits: Limits = Limits(),
        execution: Execution | BatchExecutor = USUAL_EXECUTION,
        window: int | Window | None = None,
        interceptors: Sequence[AnyInterceptor] = (),
        observers: Sequence[Observer] = (),
        journal: Journal | None = None,
        cassette: Cassette | None = None,
        secrets: Secrets | Mapping[str, str] | None = None,
        prices: Mapping[str, Price] = MappingProxyType({}),
        name: str = "agent",
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_settings(
            limits=limits,
            interceptors=interceptors,
            observers=observers,
            journal=journal,
            window=window,
            instructions=instructions,
            name=name,
            description=description,
            handoffs=handoffs,
            prices=prices,
            cassette=cassette,
            clock=clock,
        )
        approval = approval_of(approve)
        speech = dialect if isinstance(dialect, DialectSettings) else DialectSettings(dialect)
        executor = None if isinstance(execution, Execution) else execution
        self.secrets = secrets_of(getattr(executor, "secrets", None) if secrets is None else secrets)
        approver = resolve_approver(approval.approver)
        kin_approver = approver = getattr(executor, "approver", None) if approver is None else approver
        recording = None if cassette is None else cassette.recording
        if recording is not None:
            model, approver = recording.attach(name, model, approver, self.secrets)
        self.driver, text = choose_driver(
            model, speech.dialect, speech.starts_in, probes_server=True, listing=speech.listing
        )
        rules: StandingRules | None = approval.rules if executor is None else getattr(executor, "rules", None)
        self.rules = StandingRules() if rules is None else rules
        by_levels = by_level(interceptors)
        if code_mode:
            common = {"interceptors": by_levels["call"], "journal": journal, "secrets": self.secrets, "clock": clock}
            tools = with_programs(Agent, code_mode, tools, approval, self.rules, execution, **common)
        tools_of = turn_tools_of(tools)
        tool_list = () if tools_of is not None else cast("ToolList", tools)
        own = toolset_of(tool_list if tools or executor is None else getattr(executor, "tools", ()))
        agents, names, transfers = handoff_tools(handoffs or ())
        answer_type = choose_output(output, self.driver, tools=len(own) + len(transfers) > 0 or tools_of is not None)
        self.toolset = with_output(Toolset([*own, *transfers]) if transfers else own, answer_type)
        instruction_text = instructions if isinstance(instructions, str) else ""
        if answer_type is not None and answer_type.instructions:
            instruction_text = "\n\n".join(filter(None, (instruction_text, answer_type.instructions)))
        if recording is not None and recording.replayer is not None:
            self.rules = StandingRules(self.rules)  # a copy: rules that a replay adds were kept when it was recorded
        self.description = description
        self._deps_type = deps_type
        self._all_tools = all_tools_of(self.toolset, tools_of)
        self._journal = journal
        runs, policy = executor_of(
            execution,
            self.toolset,
            approval,
            by_levels["call"],
            self.secrets,
            self.rules,
            recording,
            text,
            adds_tools=tools_of is None and self.toolset is not own,
        )
        self._settings = RunSettings(
            driver=self.driver,
            toolset=self.toolset,
            executor=runs,
            journal=self._run_journal(),
            keeps=journal is not None,
            needs_approval=partial(may_need_approval, approver, policy),
            secrets=self.secrets,
            approver=approver,
            kin_approver=kin_approver,
            instructions=self.secrets.hide_text(instruction_text),
            instructions_of=None if isinstance(instructions, str) else instructions,
            tools_of=tools_of,
            agent=name,
            handoffs=dict(zip([each.name for each in transfers], names, strict=True)) if names else _NO_HANDOFFS,
            choice=checked_choice(tool_choice, self._all_tools),
            all_tools=self._all_tools,
            limits=limits,
            rules=self.rules,
            interceptors={level: of_level for level, of_level in by_levels.items() if of_level},
            in_doubt_policy=approval.in_doubt,
            output=answer_type,
            window=Window(window) if isinstance(window, int) else window,
            price=price_of(self.driver.name, {**PRICES, **prices} if prices else PRICES),
            recording=recording,
            observers=tuple(observers),
            clock=clock if recording is None else recording.clock(clock),
        )
        if agents:
            family = family_of(self._settings, [each._settings for each in agents.values()])
            self._settings = evolve(self._settings, family=family)

    def start_after(self, place: SessionTip | None, task: str | Message, options: RunOptions) -> Run[OutputT]:
        """As `start`, in a session: the run follows the messages of the session until this place."""
        check_deps(self._settings.toolset, options.get("deps"), self._deps_type)
        if self._settings.handoffs or self._settings.recording is not None:
            check_family(self._settings, options.get("deps"))
        run_id, parent = options.get("run_id"), options.get("parent_run_id")
        call = None if place is not None else parent_call(parent)
        journal = self._run_journal(None if call is None else call.run_id)
        settings, run_start = prepared_start(evolve(self._settings, journal=journal), task, options, place)
        before = place.before if place else ()
        if call is not None:
            run_id = sub_run_id(call, settings.agent, run_start.messages)
        elif run_id is None:
            return Run(settings, new_id(), [run_start], before=before)
        start = IdempotentStart(Resumption(settings, run_id, {}), run_start, is_sub_run=call is not None)
        return Run(settings, run_id, (), memory=call and call.memory, before=before, load=start.load)

    async def submit(
        self, task: str | Message, *, at: float | None = None, **options: Unpack[CommonOptions]
    ) -> RunResult[OutputT]:
        """Records a run that no process drives yet: its status is `queued`. A worker of this agent's name drives it
        (`toolspeak worker`), from the time `at` on (Unix seconds; None: at once). Options as in `start`, but for
        `deps`, which the worker has.

        With a `run_id` it is the same run however often it is submitted; then this returns how the run stands, its
        answer if it has one. Raises RunConflict if that id has another task, and ConfigurationError for an agent
        without a journal.
        """
        return await self.submit_after(None, task, at, cast("RunOptions", options))

    async def submit_after(
        self, place: SessionTip | None, task: str | Message, at: float | None, options: RunOptions
    ) -> RunResult[OutputT]:
        """As `submit`, in a session."""
        if self._journal is None:
            raise ConfigurationError("to submit a run, give the agent the journal of its workers: Agent(journal=…)")
        _, run_start = prepared_start(self._settings, task, options, place)
        return with_answer(await submit_run(self._journal, self.name, run_start, options, at), self._settings.output)

    @overload
    async def resume(
        self: Agent[None, OutputT], run: RunResult[OutputT] | str, decisions: Decisions = ..., *, deps: None = None
    ) -> RunResult[OutputT]: ...

    @overload
    async def resume(
        self, run: RunResult[OutputT] | str, decisions: Decisions = ..., *, deps: DepsT
    ) -> RunResult[OutputT]: ...

    async def resume(
        self, run: RunResult[OutputT] | str, decisions: Decisions = _NO_DECISIONS, *, deps: Any = None
    ) -> RunResult[OutputT]:
        """Goes on with a run that waits for approval, is suspended or was interrupted. Parameters as in `reopen`."""
        return await self.finish(self.reopen(run, decisions, deps=deps))

    @overload
    def reopen(
        self: Agent[None, OutputT],
        run: RunResult[OutputT] | str,
        decisions: Decisions = ...,
        *,
        deps: None = None,
        most_attempts: int | None = None,
    ) -> Run[OutputT]: ...

    @overload
    def reopen(
        self,
        run: RunResult[OutputT] | str,
        decisions: Decisions = ...,
        *,
        deps: DepsT,
        most_attempts: int | None = None,
    ) -> Run[OutputT]: ...

    def reopen(
        self,
        run: RunResult[OutputT] | str,
        decisions: Decisions = _NO_DECISIONS,
        *,
        deps: Any = None,
        most_attempts: int | None = None,
    ) -> Run[OutputT]:
        """Returns the run for `resume`, not yet driven.

        A run id is looked up in the agent's journal: any process may continue it, from its last record. `decisions`
        are by call id. Raises RunError for a run that has ended and for an unknown call id, RunBusy while another
        process drives the run.
        """
        decisions_by_id = read_decisions(decisions)
        check_deps(self._settings.toolset, deps, self._deps_type)
        if self._settings.handoffs or self._settings.recording is not None:
            check_family(self._settings, deps)
        if isinstance(run, str):
            if self._journal is None:
                raise ConfigurationError("to resume a run by its id, give the agent its journal: Agent(journal=…)")
            settings = evolve(self._settings, journal=self._journal, deps=deps)
            return Run(settings, run, (), load=Resumption(settings, run, decisions_by_id, most_attempts).load)
        return resumed_run(run, decisions_by_id, self._settings, deps)

    def as_tool(
        self, *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
    ) -> Tool[..., Any]:
        """Makes a tool that runs this agent with a task, as a sub-run, and returns its answer.

        Usage, limits of tokens and cost, and approvals are shared with the run that calls it, and a journal holds both.
        The agent's tools get the `deps` of that run. Its interceptors are its own.

        - `name`, `description`: the agent's, unless they are given.
        - `options`: as of `@tool`. Without `effects` the tool touches what the agent's tools may touch together; its
          time limit is a day. A tool whose `effects` is a function may touch anything, unless its `effects_bound` says
          the most: with such a tool each call of the agent needs approval.

        Raises ToolDefinitionError if neither the agent nor the call says what it is for.
        """
        about = self.description if description is None else description
        return agent_tool(self.name, about, self._all_tools, self.run, name, options)

    async def compact(
        self, run_id: str, trigger: Literal["auto", "manual"] = "manual", *, thorough: bool = False
    ) -> HistoryCompacted | None:
        """Makes the history that a run leaves to the next one shorter, as `compact_run`; see `Session.compact`."""
        return await compact_run(self._settings, self._run_journal(), run_id, trigger, thorough=thorough)

    async def suspend(self, run_id: str) -> bool:
        """Suspends a run of the agent's journal, in whichever process it runs. Returns and raises as `suspend_run`."""
        if self._journal is None:
            raise ConfigurationError("to suspend a run by its id, give the agent its journal: Agent(journal=…)")
        return await suspend_run(self._journal, run_id)

    async def loads(self, text: str) -> RunResult[OutputT]:
        """Reads a run that `RunResult.dumps` wrote; pass it to `resume`. An approval counts only if the agent's tool
        and the call are still those of the question; otherwise the question is asked again.

        A run that is in the agent's journal continues there. Raises RunConflict if it has continued since, RunError for
        a session's run that is not in the agent's journal, FormatError for any other text.
        """
        return await stored_run(text, self._journal)

    async def aclose(self) -> None:
        """Closes the model's connections."""
        await self.driver.aclose()

    def close(self) -> None:
        """As `aclose`, for code without an event loop."""
        run_sync(self.aclose())

    @property
    def name(self) -> str:
        """The agent's name in records."""
        return self._settings.agent

    @property
    def all_tools(self) -> Toolset:
        """The tools of any turn, deferred ones too; without those of a function that only the run can call."""
        return self.toolset if self._all_tools is None else self._all_tools

    @property
    def journal(self) -> Journal | None:
        """Where the agent's runs are recorded. None: each run in a journal of its own, in memory."""
        return self._journal

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def finish(self, run: Run[OutputT]) -> RunResult[OutputT]:
        """Drives a run until it ends or pauses. Raises as `run`."""
        try:
            await run.finish()
            result = result_of(run)
        except ProviderError as error:
            error.result = result_of(run)
            raise
        if result.status in PAUSED_STATUSES and run.is_sub_run:
            raise SubRunPaused(f"the run of {self._settings.agent} is {result.status.replace('_', ' ')}", result)
        return result

    def _run_journal(self, parent_run_id: str | None = None) -> Journal:
        # Each run has a journal of its own, so that an agent that lives long does not grow. A sub-run is recorded in
        # its parent's journal, where it is looked up when the parent's call is entered again.
        if self._journal is not None:  # an empty one may be false
            return self._journal
        of_parent = None if parent_run_id is None else journal_of_parent(parent_run_id)
        return MemoryJournal() if of_parent is None else of_parent


__all__ = ["Agent", "ApprovalRequest", "RunResult", "result_of"]
