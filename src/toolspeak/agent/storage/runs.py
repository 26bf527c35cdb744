"""Runs in a journal: the lease of a run in progress, a run's state, and suspending or closing a run by its id."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from toolspeak.agent.state.fold import apply, fold
from toolspeak.agent.state.history import unstarted_result
from toolspeak.agent.state.state import Log, RunState
from toolspeak.agent.state.steps import memory_after
from toolspeak.data.events import (
    Event,
    HistoryCompacted,
    MetadataSet,
    ModelAnswered,
    Record,
    RunFinished,
    RunPaused,
    RunStarted,
    ToolFinished,
)
from toolspeak.data.messages import JSON, Message
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.data.values import quick
from toolspeak.errors import JournalError, LeaseLost, RunBusy, RunError
from toolspeak.journal.base import Journal, Lease
from toolspeak.journal.leases import new_owner
from toolspeak.tools.stored_results import keep

LEASE_SECONDS = 30.0
"""How long a lease lasts without renewal: so long a run whose process died on another machine cannot be taken over."""

RENEW_SECONDS = 3.0
"""Between two renewals. A renewal also reads whether the run is to be suspended."""


_GOES_ON = ("running", "queued", "waiting")
"""The statuses of runs that go on without a person."""


class LeaseKeeper:
    """A run's lease, renewed until it is released.

    - `suspend`: called when another process asks for the run to be suspended.
    - `publish`: called when another process follows the run.
    - `read`: called when a message came for the run.
    - `seconds`: how long the lease lasts without renewal.
    - `engine`: the name of the engine that delivered the run, None for a run of this process alone.
    - `takes_over`: whether to take the lease of an earlier delivery of the engine.
    """

    def __init__(
        self,
        journal: Journal,
        run_id: str,
        suspend: Callable[[], None],
        seconds: float = LEASE_SECONDS,
    ) -> None:
        self.engine: str | None = None
        self.takes_over = False
        self.publish: Callable[[], None] | None = None
        self.read: Callable[[], None] | None = None
        self._journal = journal
        self._run_id = run_id
        self._suspend = suspend
        self._seconds = seconds
        self._lease: Lease | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self) -> Lease:
        """Takes the lease and returns it. Raises RunBusy if another process has it."""
        takes_over = self.engine if self.takes_over else None
        owner = new_owner(self.engine)
        lease = self._lease = await self._journal.acquire(self._run_id, owner, self._seconds, takes_over=takes_over)
        # A timer and no task: most runs end before the first renewal.
        self._timer = asyncio.get_running_loop().call_later(RENEW_SECONDS, self._due, lease)
        return lease

    async def release(self) -> None:
        """Releases the lease, if it was taken."""
        lease, self._lease, self.publish, self.read = self._lease, None, None, None
        if lease is None:
            return
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._stop_timer()
        # An error of the journal was raised before; the lease expires on its own.
        with suppress(JournalError):
            await self._journal.release(lease)

    async def __aenter__(self) -> Lease:
        return await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    def _due(self, lease: Lease) -> None:
        self._task = asyncio.get_running_loop().create_task(self._renew(lease))

    async def _renew(self, lease: Lease) -> None:
        try:
            requests = await self._journal.renew(lease, self._seconds)
            if requests.suspend:
                self._suspend()
            if requests.follow and self.publish is not None:
                self.publish()
            if requests.read and self.read is not None:
                self.read()
        except LeaseLost:
            return  # the journal refuses the next record
        except JournalError:
            pass  # a locked file, for example: a later renewal may succeed
        self._timer = asyncio.get_running_loop().call_later(RENEW_SECONDS, self._due, lease)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


@quick()
class LoadedRun:
    """The state of a run."""

    state: RunState | None
    """None for a run without records."""
    records: Sequence[Record]
    before: Sequence[Message]
    """The messages of the runs that it follows, and of the session that its session was forked from."""
    memory: dict[str, Any]
    """The tools' memory, with the results that `read_result` pages through."""
    first_events: Sequence[Event] = ()
    """What is recorded first when the run continues."""

    @property
    def existing_state(self) -> RunState:
        """The state. Only for a run that has records."""
        assert self.state is not None, "the journal has no such run"
        return self.state


LoadRun: TypeAlias = Callable[[], Awaitable[LoadedRun]]
"""Reads the state of a run, while this process holds its lease."""


async def load_whole(journal: Journal, run_id: str) -> LoadedRun:
    """Reads a run from the journal. Raises RunError if the journal does not have it."""
    records = await journal.read(run_id)
    state, before = await _load(journal, run_id, own_records=records)
    memory: dict[str, Any] = memory_after(state.memory)
    for record in records:
        if isinstance(record.event, ToolFinished) and record.event.whole is not None:
            keep(memory, record.event.result.call_id, record.event.whole)
    return LoadedRun(state, records, before, memory)


async def load_state(journal: Journal, run_id: str, count: int | None = None, *, whole: bool = False) -> RunState:
    """The state after the run's first `count` records (None: all), with the messages of the runs that it follows.

    `whole` leaves out compactions, so that the history is complete. Raises RunError if the journal does not have the
    run, or not as many records of it.
    """
    return (await _load(journal, run_id, count, whole=whole))[0]


async def _load(
    journal: Journal, run_id: str, count: int | None = None, *, whole: bool = False, own_records: Sequence[Record] = ()
) -> tuple[RunState, Log[Message]]:
    """As `load_state`, with the messages of the runs before. `own_records`: the run's records, if already read."""
    chain: list[Sequence[Record]] = []
    next_id: str | None = run_id
    while next_id is not None:
        records, own_records = own_records or await journal.read(next_id), ()
        if not records or len(records) < (count or 1):
            raise RunError(
                f"the journal has no run {next_id}, or not all of it; `toolspeak sessions` lists what it has"
            )
        kept_records = records[:count]
        if whole:
            kept_records = [record for record in kept_records if not isinstance(record.event, HistoryCompacted)]
        chain.append(kept_records)
        first = records[0].event
        next_id, count = (first.follows, first.follows_seq) if isinstance(first, RunStarted) else (None, None)
    before: Log[Message] = Log()
    eldest = chain[-1][0].event
    if isinstance(eldest, RunStarted) and eldest.session_id is not None:
        session = await journal.session(eldest.session_id)
        before = Log(() if session is None else session.history)  # those of a fork
    for records in reversed(chain[1:]):
        before = closed_history(fold(records, before))
    return fold(chain[0], before), before


def closed_history(state: RunState) -> Log[Message]:
    """The state's messages with a result for each call, so that other messages may follow."""
    history: Any = state.history
    if not state.pending.calls:
        return history
    # Only the last batch can lack results.
    results = {result.call_id: result for result in state.pending.results}
    doubtful = state.pending.doubtful_calls
    for call in state.pending.calls:
        if call.id not in results:
            results[call.id] = unstarted_result(call, has_started=call.id in doubtful)
    return history.append(Message("tool", tuple(results[call.id] for call in state.pending.calls)))


async def suspend_run(journal: Journal, run_id: str) -> bool:
    """Suspends a run. True: the process that drives it was asked to. False: no process drove it (it was interrupted),
    and it is suspended now.

    Raises RunError for a run that does not exist, has ended, waits for approval or is suspended already.
    """
    info = await journal.run(run_id)
    if info is None:
        raise RunError(f"the journal has no run {run_id}; `toolspeak sessions` lists what it has")
    if info.status not in _GOES_ON:
        status = info.status.replace("_", " ")
        raise RunError(f"run {run_id} is {status}: only a run in progress can be suspended")
    if await journal.ask_to_suspend(run_id):
        return True
    try:
        async with LeaseKeeper(journal, run_id, lambda: None) as lease:
            state = await load_state(journal, run_id)
            if state.status not in _GOES_ON:
                raise RunError(f"run {run_id} has ended meanwhile: it is {state.status.replace('_', ' ')}")
            await _append(journal, lease, state, RunPaused("suspended"), info.agent)
    except RunBusy:
        return await journal.ask_to_suspend(run_id)  # another process continued it meanwhile
    return False


async def close_run(
    journal: Journal,
    run_id: str,
    *,
    doubtful: bool = False,
    partial_text: str = "",
    outputs: Mapping[str, str] | None = None,
) -> None:
    """Ends a run that waits for approval, is suspended or was interrupted, and the runs that its calls wait for. Their
    calls never run after that.

    Each call without a result gets one: it was not started, or its outcome is unknown. The run ends as `no_answer`, for
    the reason `closed`. `doubtful`: records may be lost, so any call may have been started. `partial_text`: the text of
    the turn that was interrupted, as the user saw it. The conversation keeps it. `outputs`: what calls that were under
    way had written until then, by id. The model reads it.

    Raises RunError for a run that does not exist or has ended, RunBusy while a process drives it.
    """
    info = await journal.run(run_id)
    if info is None:
        raise RunError(f"the journal has no run {run_id}; `toolspeak sessions` lists what it has")
    async with LeaseKeeper(journal, run_id, lambda: None) as lease:
        state = await load_state(journal, run_id)
        if state.status not in UNFINISHED_STATUSES:
            raise RunError(f"run {run_id} is {state.status.replace('_', ' ')}: it has ended, so it cannot be closed")
        for sub_run in state.pending.sub_runs:
            of_sub_run = await journal.run(sub_run)
            if of_sub_run is not None and of_sub_run.status in UNFINISHED_STATUSES:
                await close_run(journal, sub_run, doubtful=doubtful)
        done_ids = {result.call_id for result in state.pending.results}
        for call in [call for call in state.pending.calls if call.id not in done_ids]:
            has_started = doubtful or call.id in state.pending.doubtful_calls
            result = unstarted_result(call, has_started=has_started, output=(outputs or {}).get(call.id, ""))
            state = await _append(journal, lease, state, ToolFinished(result), info.agent)
        if partial_text and not state.pending.calls:
            turn = ModelAnswered(Message.assistant(partial_text), "cancelled", usage_estimated=True)
            state = await _append(journal, lease, state, turn, info.agent)
        await _append(journal, lease, state, RunFinished("no_answer", "", "closed"), info.agent)


async def set_metadata(journal: Journal, run_id: str, values: Mapping[str, JSON]) -> None:
    """Adds metadata to a run that no process drives. Raises RunBusy if one does, RunError if there is no such run."""
    async with LeaseKeeper(journal, run_id, lambda: None) as lease:
        records = await journal.read(run_id)
        state, _ = await _load(journal, run_id, own_records=records)
        await _append(journal, lease, state, MetadataSet(values), records[-1].agent)


async def _append(journal: Journal, lease: Lease, state: RunState, event: Event, agent: str) -> RunState:
    """Appends an event to a run whose lease we hold. Returns the state after it."""
    record = Record(
        event,
        state.run_id,
        state.seq,
        state.step,
        time.time(),
        agent,
        getattr(event, "call_id", None),
        state.parent_run_id,
        state.principal,
        state.traceparent,
    )
    await journal.append(record, lease)
    return apply(state, record)
