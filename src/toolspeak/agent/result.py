"""The result of a run that has ended or pauses: as a value, as text, and how the run continues from there."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, cast

from toolspeak.agent.run import Run
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.fold import fold
from toolspeak.agent.state.output import AnswerT, AnswerType, OutputT
from toolspeak.agent.state.state import RunState
from toolspeak.agent.state.steps import RunRecords, RunStep
from toolspeak.agent.state.turn_notes import WRAP_UP
from toolspeak.agent.storage.runs import LoadedRun, load_whole
from toolspeak.data.codec import dumps, loads
from toolspeak.data.end_reasons import END_REASONS
from toolspeak.data.events import (
    ApprovalRequested,
    CallSuspended,
    Event,
    Record,
    RunResumed,
    RunStarted,
)
from toolspeak.data.messages import Message, ToolCall, Usage
from toolspeak.data.run_values import PAUSED_STATUSES, UNFINISHED_STATUSES, RunStatus
from toolspeak.data.values import evolve, quick
from toolspeak.errors import ConfigurationError, FormatError, RunConflict, RunError, RunStuck
from toolspeak.execute import Decision, ToolExecution, Wait, hints, waits
from toolspeak.execute.approval.approvers import decision_facts
from toolspeak.journal.base import Journal
from toolspeak.journal.memory_journal import MemoryJournal
from toolspeak.tools.returned_values import Unserialisable, jsonable


@quick()
class RunResult(Generic[AnswerT]):
    """How a run ended, or why it pauses. Pass it to `Agent.resume`, with decisions for the calls that wait."""

    run_id: str
    status: RunStatus
    answer: str
    """Empty if no answer was given."""
    reason: str
    """Why the run has this status, in a word; see `RunFinished`."""
    waiting: tuple[str, ...]
    """The ids of the calls that wait for approval."""
    requests: tuple[ApprovalRequested, ...]
    """What each of these calls would do, and why it waits."""
    state: RunState
    memory: dict[str, Any]
    """What the run's tools keep between calls."""
    journal: Journal
    """Holds the run's records."""
    run_records: RunRecords
    _output: Any = None

    @property
    def output(self) -> AnswerT:
        """The answer as the agent's output type; None for an agent without one. Raises RunError if the run has not
        answered."""
        if self.status != "answered":
            why = self.error or f"it is {self.status.replace('_', ' ')}"
            raise RunError(f"run {self.run_id} has no output: {why}. Look at the run's status first")
        return self._output

    @property
    def agent(self) -> str:
        """The name of the agent that answered, or that the run stands at: another one than the run's first after a
        hand-off."""
        return self.state.agent or self.run_records.records[-1].agent

    @property
    def error(self) -> str:
        """Why there is no answer, in a sentence: what failed, who stopped the run, or which limit was reached. Empty
        for a run that has answered or pauses."""
        return why_unanswered(self.state) if self.status in ("failed", "no_answer") else ""

    @property
    def steps(self) -> tuple[RunStep, ...]:
        """The run's steps: each model turn with its input, its message, and its calls with their results."""
        return self.run_records.steps

    @property
    def failures(self) -> tuple[ToolExecution, ...]:
        """The calls that failed, in order. `exception` is set where the tool raised one."""
        return tuple(call for step in self.steps for call in step.executions if call.has_error)

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation as the model reads it. Pass it to the next run as `history` to continue."""
        return self.state.messages

    @property
    def usage(self) -> Usage:
        """Tokens of all turns. Some are estimates if `state.totals.estimated`."""
        return self.state.totals.usage

    @property
    def cost(self) -> float | None:
        """USD of all turns, by the agent's prices; None if the price of some is not known. Like `usage` it includes the
        runs that the run's tools started (`parent_run_id`)."""
        return self.state.totals.cost

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Which calls waited for which."""
        return waits(self.state.started_calls)

    @property
    def hints(self) -> tuple[str, ...]:
        """Where a tool that declares its effects would have let calls overlap."""
        return hints(self.state.started_calls)

    async def dumps(self) -> str:
        """Writes the run as text, for `Agent.loads` in another process. The text holds the run's records, those of the
        sub-runs that its calls wait for, and the JSON in the tools' memory."""
        records, waiting = list(await self.journal.read(self.run_id)), list(self.state.pending.sub_runs)
        while waiting:
            of_sub_run = await self.journal.read(waiting.pop())
            records += of_sub_run
            if of_sub_run:
                waiting += fold(of_sub_run).pending.sub_runs
        return _dump_run(records, self.memory)

    def _repr_html_(self) -> str:
        """The run's timeline, for notebooks."""
        pictures = importlib.import_module("toolspeak.agent.charts.chart_svg")  # of no use to other programs
        return pictures.run_svg(self.run_records.records, str(self) or self.run_id)

    def __str__(self) -> str:
        return self.answer or (f"({self.status}: {self.error})" if self.error else "")


def result_of(run: Run[OutputT]) -> RunResult[OutputT]:
    """The result of a run that has ended or pauses. Raises RunError before the run's first record."""
    result: RunResult[Any] = result_from(run.run_id, run.state, run.memory, run.journal, run.run_records)
    return with_answer(result, run.answer_type)


def with_answer(result: RunResult[OutputT], answer_type: AnswerType | None) -> RunResult[OutputT]:
    """The result with the value of its answer, if it has answered and the agent's answers have a type. Raises
    ConfigurationError if an interceptor gave the answer and it is not of that type."""
    if answer_type is None or result.status != "answered":
        return result
    answer = answer_type.check(result.answer)
    if answer.problems:  # an answer of the model is checked before the run ends
        problems = "; ".join(answer.problems)
        raise ConfigurationError(f"an interceptor gave the run an answer that is not of the output type: {problems}")
    return evolve(result, _output=answer.value)


def result_from(
    run_id: str, state: RunState, memory: dict[str, Any], journal: Journal, run_records: RunRecords
) -> RunResult[Any]:
    """The result of a run in this state."""
    open_requests = state.approvals.open_requests if state.status in PAUSED_STATUSES else {}
    return RunResult(
        run_id=run_id,
        status=state.status,
        answer=state.answer or "",
        reason=state.reason,
        waiting=tuple(open_requests),
        requests=tuple(open_requests.values()),
        state=state,
        memory=memory,
        journal=journal,
        run_records=run_records,
    )


def why_unanswered(state: RunState) -> str:
    """Why a run has ended without an answer, in a sentence."""
    stop = state.stop
    if state.error:
        return state.error
    if stop is not None:
        call = next((each for each in state.started_calls if each.call_id == stop.call_id), None)
        at = "" if call is None or stop.reason == "stopped" else f"{call.name}: "
        return f"{at}{stop.message}" or f"the run was ended ({stop.reason})"
    if state.limit is not None:
        limit = getattr(state.limits, state.limit)
        return WRAP_UP[state.limit].format(allowed=limit, used=limit) + " The model gave no answer after that."
    return END_REASONS.get(state.reason, state.reason.replace("_", " "))


def resumed_run(run: RunResult[Any], decisions: Mapping[str, Decision], settings: RunSettings, deps: Any) -> Run[Any]:
    """The run of a result, which continues with these decisions. Raises as `resume_events`, and ConfigurationError or
    RunError if it is not the result of a run that can continue."""
    if not isinstance(cast("object", run), RunResult):
        raise ConfigurationError(f"resume takes a RunResult or a run's id, not {run!r}")
    if run.status not in PAUSED_STATUSES:
        raise RunError(
            f"run {run.run_id} is {run.status}; only a run that awaits approval or is suspended can be resumed"
        )
    settings = evolve(
        settings,
        journal=run.journal,
        deps=deps,
        principal=run.state.principal,
        traceparent=run.state.traceparent,
        parent_run_id=run.state.parent_run_id,
    )
    first_events = resume_events(run.state, decisions, settings)
    return Run(settings, run.run_id, first_events, run.state, run.memory, run_records=run.run_records)


def _dump_run(records: Iterable[Record], memory: dict[str, Any]) -> str:
    """A JSON object per line: the run's records, then the JSON in the tools' memory."""
    metadata: dict[str, Any] = {}
    for key, value in memory.items():
        try:
            metadata[key] = jsonable(value)
        except Unserialisable:
            continue  # an open connection, for example: the tool opens it again
    return "".join(dumps(record) + "\n" for record in records) + json.dumps({"memory": metadata}) + "\n"


def _load_run(text: str) -> tuple[list[Record], dict[str, Any]]:
    """The records and the memory that `_dump_run` wrote. Raises FormatError for anything else."""
    if not isinstance(cast("object", text), str):
        raise FormatError(f"expected the text that `RunResult.dumps` returns, not {type(text).__name__}")
    *lines, last = [line for line in text.splitlines() if line.strip()] or [""]
    records = [loads(line) for line in lines]
    if not records or not all(isinstance(record, Record) for record in records):
        raise FormatError("expected a JSON object a line: the records of a run, then its memory")
    try:
        last_line: object = json.loads(last)
    except ValueError as error:
        raise FormatError(f"the last line is not JSON: {error}; is the text whole?") from error
    memory = cast("dict[str, Any]", last_line).get("memory") if isinstance(last_line, dict) else None
    if not isinstance(memory, dict):
        raise FormatError("the last line is not the run's memory; is the text whole?")
    return records, cast("dict[str, Any]", memory)


async def stored_run(text: str, journal: Journal | None) -> RunResult[Any]:
    """Reads the run of a text. It continues in `journal` if that has it, so that two processes cannot both continue it,
    and its session knows. Raises as `Agent.loads`."""
    records, memory = _load_run(text)
    run_id = records[0].run_id
    own = [record for record in records if record.run_id == run_id]
    if journal is not None and await journal.run(run_id) is not None:
        loaded_run = await load_whole(journal, run_id)
        if len(loaded_run.records) != len(own):
            raise RunConflict(
                f"run {run_id} has continued since it was stored: it had {len(own)} records then and has "
                f"{len(loaded_run.records)} now. Go on from there with agent.resume({run_id!r})"
            )
        return result_from(
            run_id, loaded_run.existing_state, memory, journal, RunRecords(loaded_run.records, loaded_run.before)
        )
    first_event = own[0].event
    if isinstance(first_event, RunStarted) and first_event.session_id is not None:
        raise RunError(
            f"run {run_id} belongs to session {first_event.session_id}: give the agent the session's journal, "
            "Agent(journal=…)"
        )
    alone = MemoryJournal()
    for record in records:
        await alone.append(record)
    state = fold(own)
    return result_from(run_id, state, memory, alone, RunRecords(own))


@quick()
class Resumption:
    """Resumes a run from its journal, with decisions about its calls.

    `most_attempts`: how many times in a row it may have been resumed without getting further. None: any number.
    """

    settings: RunSettings
    run_id: str
    decisions: Mapping[str, Decision]

    most_attempts: int | None = None

    async def load(self) -> LoadedRun:
        """Reads the run's state, and what is recorded first. Call it while this process holds the run's lease.

        Raises RunError for a run that does not exist or has ended, and for a decision about a call that does not wait;
        RunStuck for one that was resumed `most_attempts` times and got no further, or waits in a tool that is gone.
        """
        loaded_run = await load_whole(self.settings.journal, self.run_id)
        state, memory = (
            loaded_run.existing_state,
            cast("dict[str, Any]", self.settings.secrets.reveal(loaded_run.memory)),
        )
        if state.status not in UNFINISHED_STATUSES:
            raise RunError(f"run {self.run_id} is {state.status}: it has ended, and there is nothing to resume")
        if self.most_attempts is not None and state.resumptions >= self.most_attempts:
            raise RunStuck(
                f"run {self.run_id} was resumed {state.resumptions} times and got no further: the process that drives"
                " it dies or fails each time. Look at its last records (`toolspeak show`) and at the worker's log"
            )
        check_waiting_tools(state, self.settings)
        first_events = resume_events(state, self.decisions, self.settings)
        return evolve(loaded_run, memory=memory, first_events=first_events)


def check_waiting_tools(state: RunState, settings: RunSettings) -> None:
    """Raises RunStuck if a call that waits for a time or an event is of a tool that the agent does not have: it would
    end as a call of an unknown tool, and the event would be lost.

    Not checked where the settings do not say: an interceptor may reroute calls, a function may give other tools for
    each turn, and the run may have been handed to another agent.
    """
    if settings.all_tools is None or settings.interceptors.get("call") or state.agent not in (None, settings.agent):
        return
    wait_ids = {one.call_id for one in state.pending.call_events if isinstance(one, CallSuspended) and one.event}
    wait_ids -= {result.call_id for result in state.pending.results}
    for call in state.pending.calls:
        if call.id in wait_ids and isinstance(call, ToolCall) and settings.all_tools.get(call.name) is None:
            raise RunStuck(
                f"run {state.run_id} waits in its call {call.id} of the tool {call.name!r}, which the agent"
                f" {settings.agent!r} does not have: give the agent a tool of that name again, beside the new"
                " one if it has another name now, and resume the run"
            )


def resume_events(state: RunState, decisions: Mapping[str, Decision], settings: RunSettings) -> Sequence[Event]:
    """The events that are recorded first when a run continues: its decisions, then RunResumed. A run that was
    interrupted while its approver was asked has an open question too. Raises RunError for a decision about a call that
    does not wait, or has changed."""
    return [*decision_facts(decisions, state.approvals.open_requests, settings.secrets), RunResumed()]
