"""How a run ended, or where it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolspeak.agent.run import Run
from toolspeak.agent.state.fold import WRAP_UP, fold
from toolspeak.agent.state.state import RunState
from toolspeak.agent.state.steps import RunStep, Trail
from toolspeak.agent.storage.paused import dump_run
from toolspeak.data.events import PAUSED, ApprovalRequested, RunStatus
from toolspeak.data.messages import Message, Usage
from toolspeak.data.values import quick
from toolspeak.execute import ToolExecution, Wait, hints, waits
from toolspeak.journal.base import Journal


@quick()
class RunResult:
    """How a run ended, or where it waits.

    `reason` says why in a word (see `RunFinished`), `error` in a sentence. `waiting` are the ids of the calls that
    wait for approval; hand the result to `Agent.resume` with their decisions; `requests` say what each would do and why
    it waits.
    `journal` holds the run's records, `output` is the answer as the type the agent was told (None if there is none).
    """

    run_id: str
    status: RunStatus
    answer: str
    reason: str
    waiting: tuple[str, ...]
    requests: tuple[ApprovalRequested, ...]
    state: RunState
    memory: dict[str, Any]
    journal: Journal
    trail: Trail
    output: Any = None

    @property
    def error(self) -> str:
        """Why there is no answer, in a sentence: what failed, who stopped the run, which limit was reached; "" for a
        run that has answered or waits."""
        return why_unanswered(self.state) if self.status in ("failed", "no_answer") else ""

    @property
    def steps(self) -> tuple[RunStep, ...]:
        """The run's steps: each model turn with what it read, what it wrote, and its calls with their results."""
        return self.trail.steps

    @property
    def failed(self) -> tuple[ToolExecution, ...]:
        """The calls that failed, in their order; `exception` has the traceback of those whose tool raised."""
        return tuple(call for step in self.steps for call in step.executions if call.has_error)

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation as the model reads it; give it to the next run as `history` to continue."""
        return self.state.messages

    @property
    def usage(self) -> Usage:
        """Tokens of all turns; estimated in part if `state.totals.estimated`."""
        return self.state.totals.usage

    @property
    def cost(self) -> float | None:
        """USD of all turns, as the agent's prices say; None if some have no known price. With `usage` it holds what
        runs have used that were started by the run's tools (`parent_run_id`)."""
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
        """The run as text, for `Agent.loads` in another process: its records, with those of the runs that its calls
        wait for, and the tools' memory as far as it is JSON."""
        records, waiting = list(await self.journal.read(self.run_id)), list(self.state.pending.sub_runs)
        while waiting:
            of_sub_run = await self.journal.read(waiting.pop())
            records += of_sub_run
            if of_sub_run:
                waiting += fold(of_sub_run).pending.sub_runs
        return dump_run(records, self.memory)

    def __str__(self) -> str:
        return self.answer or (f"({self.status}: {self.error})" if self.error else "")


def result_of(run: Run, state: RunState) -> RunResult:
    """The result of a run that has ended or waits."""
    return result_from(run.run_id, state, run.memory, run.journal, run.trail)


def result_from(run_id: str, state: RunState, memory: dict[str, Any], journal: Journal, trail: Trail) -> RunResult:
    """The result of a run that stands at this state."""
    open_requests = state.approvals.undecided if state.status in PAUSED else {}
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
        trail=trail,
    )


_REASONS = {
    "empty_answer": "the model's replies were empty",
    "forged_results": "the model made up results of tools, again and again",
    "invalid_output": "the model's answers are not of the type that was asked for",
    "no_answer": "an interceptor ended the run before its first step",
    "content_filter": "the model API held the answer back (content filter)",
    "refusal": "the model refused to answer",
    "cancelled": "the model API cancelled the turn",
}


def why_unanswered(state: RunState) -> str:
    """Why a run that has ended has no answer, in a sentence."""
    stop = state.stop
    if state.error:
        return state.error
    if stop is not None:
        call = next((each for each in state.started_calls if each.call_id == stop.call_id), None)
        at = "" if call is None or stop.reason == "stopped" else f"{call.name}: "
        return f"{at}{stop.message}" or f"the run was ended ({stop.reason})"
    if state.limit is not None:
        allowed = getattr(state.limits, state.limit)
        return WRAP_UP[state.limit].format(allowed=allowed, used=allowed) + " The model gave no answer after that."
    return _REASONS.get(state.reason, state.reason.replace("_", " "))
