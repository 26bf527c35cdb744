"""A run's state from the journal alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolspeak.agent.state.fold import fold
from toolspeak.agent.state.history import unstarted_result
from toolspeak.agent.state.memory import remembered
from toolspeak.agent.state.state import Log, RunState
from toolspeak.data.events import Event, HistoryCompacted, Record, RunStarted, ToolFinished
from toolspeak.data.messages import Message
from toolspeak.data.values import quick
from toolspeak.errors import RunError
from toolspeak.journal.base import Journal
from toolspeak.tools.stored_results import keep


@quick()
class LoadedRun:
    """Where a run stands: its state, its `records`, the messages of the runs it follows, and what its tools remember
    (with the results that `read_result` pages through). `opening` is what is recorded when it goes on. `state` is None
    of a run that has no records."""

    state: RunState | None
    records: Sequence[Record]
    before: Sequence[Message]
    memory: dict[str, Any]
    opening: Sequence[Event] = ()

    @property
    def known(self) -> RunState:
        """The state of a run that has records."""
        assert self.state is not None, "the journal has no such run"
        return self.state


async def load_whole(journal: Journal, run_id: str) -> LoadedRun:
    """The run as the journal has it. Raises RunError if the journal does not have it."""
    records = await journal.read(run_id)
    state, before = await _load(journal, run_id, own_records=records)
    memory: dict[str, Any] = remembered(state.memory)
    for record in records:
        if isinstance(record.event, ToolFinished) and record.event.whole is not None:
            keep(memory, record.event.result.call_id, record.event.whole)
    return LoadedRun(state, records, before, memory)


async def load_state(journal: Journal, run_id: str, count: int | None = None, *, whole: bool = False) -> RunState:
    """The state after the run's first `count` records (None: all of them), behind the runs it follows.

    `whole`: with the history as it was said, without the compactions that the model's window made necessary.
    Raises RunError if the journal does not have them.
    """
    return (await _load(journal, run_id, count, whole=whole))[0]


async def _load(
    journal: Journal, run_id: str, count: int | None = None, *, whole: bool = False, own_records: Sequence[Record] = ()
) -> tuple[RunState, Log[Message]]:
    """`load_state`, with the messages of the runs before. `own_records` are the run's records, if already read."""
    chain: list[Sequence[Record]] = []
    next_id: str | None = run_id
    while next_id is not None:
        records, own_records = own_records or await journal.read(next_id), ()
        if not records or len(records) < (count or 1):
            raise RunError(
                f"the journal has no run {next_id}, or not all of it; `toolspeak sessions` lists what it has"
            )
        selected = records[:count]
        if whole:
            selected = [record for record in selected if not isinstance(record.event, HistoryCompacted)]
        chain.append(selected)
        first = records[0].event
        next_id, count = (first.follows, first.follows_seq) if isinstance(first, RunStarted) else (None, None)
    before: Log[Message] = Log()
    for records in reversed(chain[1:]):
        before = closed(fold(records, before))
    return fold(chain[0], before), before


def closed(state: RunState) -> Log[Message]:
    """The state's messages, fit to be followed by others: each call has its result."""
    history: Any = state.history
    if not state.pending.calls:
        return history
    # Only the last batch can be open: what came before it was waited for.
    results = {result.call_id: result for result in state.pending.results}
    doubtful = state.pending.doubtful_calls
    for call in state.pending.calls:
        if call.id not in results:
            results[call.id] = unstarted_result(call, started=call.id in doubtful)
    return history.append(Message("tool", tuple(results[call.id] for call in state.pending.calls)))
