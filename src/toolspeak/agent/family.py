"""Runs that were started by a tool of another run: what they use counts as their parent's, and so do the questions they
wait with."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from toolspeak.agent.recorder import Recorder
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.state import RunState
from toolspeak.data.codec import dumps
from toolspeak.data.events import SubRunUsed
from toolspeak.data.messages import Message, Usage
from toolspeak.errors import ToolspeakError
from toolspeak.execute import ApprovalRequest, Decision
from toolspeak.execute.approval.decisions import decision_of
from toolspeak.execute.sub_runs import ENTERED, SubRun, SubRuns
from toolspeak.journal.base import Journal
from toolspeak.journal.memory_journal import MemoryJournal

_GOING_ON: dict[str, Spending] = {}
"""The runs that go on in this process, by id: a sub-run knows no more of its parent than that (`parent_run_id`)."""


class Spending:
    """What a run uses: told to its parent as often as it comes to rest, and its own sub-runs' handed to its recorder,
    in its event loop, while it goes on."""

    def __init__(self, run_id: str, recorder: Recorder, journal: Journal) -> None:
        self._run_id = run_id
        self.recorder = recorder
        self.journal = journal
        self.loop: asyncio.AbstractEventLoop | None = None
        self._told_usage, self._told_spent = Usage(), 0.0

    def begin(self, parent_run_id: str | None) -> None:
        """From here on sub-runs may tell what they use, and the parent's observers are told of this run too."""
        parent = _GOING_ON.get(parent_run_id or "")
        if parent is not None:
            own = self.recorder.observers
            self.recorder.observers += tuple(each for each in parent.recorder.observers if each not in own)
        self.loop = asyncio.get_running_loop()
        _GOING_ON[self._run_id] = self

    def end(self) -> None:
        """Of a sub-run that outlives the run nothing more is heard."""
        if _GOING_ON.get(self._run_id) is self:
            del _GOING_ON[self._run_id]

    def has_told(self, state: RunState | None) -> None:
        """A run that is resumed has told of what it used before."""
        if state is not None:
            self._told_usage, self._told_spent = state.totals.usage, state.totals.known_cost

    async def tell(self, state: RunState | None, agent: str) -> None:
        """Tells the run's parent, if it goes on in this process; it is recorded there when this returns. Being
        cancelled does not keep it from being told."""
        parent = _GOING_ON.get(state.parent_run_id or "") if state is not None else None
        if state is None or parent is None or state.totals.usage == self._told_usage:
            return
        usage, spent = state.totals.usage.since(self._told_usage), state.totals.known_cost - self._told_spent
        self.has_told(state)
        used = SubRunUsed(state.run_id, agent, usage, state.totals.estimated, None if state.totals.unpriced else spent)
        telling = asyncio.ensure_future(_hand(parent, used))
        try:
            await asyncio.shield(telling)
        except asyncio.CancelledError:
            await asyncio.wait([telling])
            raise


async def _hand(parent: Spending, used: SubRunUsed) -> None:
    async def added() -> None:
        # A parent whose journal fails, or that was taken over, says so itself.
        with suppress(ToolspeakError):
            await parent.recorder.add_sub_run(used)

    if parent.loop is None or parent.loop is asyncio.get_running_loop():
        await added()
        return
    work = added()
    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, parent.loop))
    except RuntimeError:  # its loop is closed: it is over
        work.close()


def parent_call(parent_run_id: str | None) -> SubRuns | None:
    """The call whose function starts a run here and now, if it is one of that run."""
    call = ENTERED.get()
    return call if call is not None and parent_run_id is not None and call.run_id == parent_run_id else None


def sub_run_id(call: SubRuns, agent: str, messages: Sequence[Message]) -> str:
    """The id of a run that a call's function starts: the same when the function is entered again, so that the run is
    found and not started anew. The second run with the same task has another one."""
    task = hashlib.sha256("\n".join([agent, *map(dumps, messages)]).encode("utf-8", "surrogatepass")).hexdigest()
    number = call.started[task]
    call.started[task] += 1
    return hashlib.sha256(f"{call.run_id}\n{call.call_id}\n{task}\n{number}".encode()).hexdigest()[:32]


def journal_of_parent(parent_run_id: str | None) -> Journal | None:
    """Where the parent's records are, if a run in this event loop can be kept there too."""
    parent = _GOING_ON.get(parent_run_id or "")
    if parent is None:
        return None
    with suppress(RuntimeError):  # there is no event loop yet
        if parent.loop is asyncio.get_running_loop():
            return parent.journal
    return parent.journal if isinstance(parent.journal, MemoryJournal) else None


def decided_by_parent(state: RunState) -> dict[str, Decision]:
    """What was decided, in the run's parent, about the questions it waits with."""
    parent = _GOING_ON.get(state.parent_run_id or "")
    if parent is None or parent.recorder.current is None:
        return {}
    waiting, found = state.approvals.undecided, dict[str, Decision]()
    for fact in parent.recorder.current.approvals.decisions:
        run, _, call_id = fact.call_id.partition("/")
        if run == state.run_id[:_SHORT] and call_id in waiting and fact.digest == waiting[call_id].digest:
            found[call_id] = decision_of(fact)
    return found


def asked_of_parent(run: SubRun) -> list[ApprovalRequest]:
    """The questions a run waits with as its parent asks them: their ids begin with the run's."""
    short = run.run_id[:_SHORT]
    return [
        replace(
            request,
            call=replace(request.call, id=f"{short}/{request.call.id}"),
            reason=f"{run.agent}: {request.reason}",
            _revise=None,  # what would evaluate other arguments is gone with the run
        )
        for request in run.pending
    ]


def at_rest(
    state: RunState | None, settings: RunSettings, run_id: str, call: SubRuns, pending: tuple[ApprovalRequest, ...]
) -> SubRun:
    """What the call whose function drove a run is told of it."""
    if state is None or state.parent_run_id != call.run_id:
        return SubRun(run_id, settings.agent, "failed", "")
    kept = settings.keeps or settings.journal is journal_of_parent(state.parent_run_id)
    return SubRun(run_id, settings.agent, state.status, state.reason, pending, kept)


_SHORT = 8
"""How much of a run's id stands in front of its questions."""
