"""A run's state from the journal alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolspeak.agent.history import paired
from toolspeak.agent.log import Log
from toolspeak.agent.state import RunState, fold
from toolspeak.data.events import HistoryCompacted, Record, RunStarted
from toolspeak.data.messages import Message
from toolspeak.errors import RunError
from toolspeak.journal.base import Journal


async def load_state(journal: Journal, run_id: str, count: int | None = None, *, whole: bool = False) -> RunState:
    """The state after the run's first `count` records (None: all of them), behind the runs it follows.

    `whole`: with the history as it was said, without the compactions that the model's window made necessary.
    Raises RunError if the journal does not have them.
    """
    chain: list[Sequence[Record]] = []
    wanted: str | None = run_id
    while wanted is not None:
        records = await journal.read(wanted)
        if not records or len(records) < (count or 1):
            raise RunError(f"the journal has no run {wanted}, or not all of it; `toolspeak sessions` lists what it has")
        taken = records[:count]
        if whole:
            taken = [record for record in taken if not isinstance(record.event, HistoryCompacted)]
        chain.append(taken)
        first = records[0].event
        wanted, count = (first.follows, first.follows_seq) if isinstance(first, RunStarted) else (None, None)
    before: Log[Message] = Log()
    for records in reversed(chain[1:]):
        before = closed(fold(records, before))
    return fold(chain[0], before)


def closed(state: RunState) -> Log[Message]:
    """The state's messages, fit to be followed by others: each call has its result."""
    history: Any = state.history
    if not state.batch:
        return history
    # Only the last batch can be open: what came before it was waited for.
    results = {result.call_id: result for result in state.results}
    last = Message("assistant", state.batch)
    *_, message = paired([last, Message("tool", tuple(results.values()))] if results else [last])
    return history.append(message)
