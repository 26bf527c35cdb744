"""The states and the charts of the runs that somebody looks at, folded once for all of them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from toolspeak.agent.pictures.run_chart import ChartBuilder, RunChart
from toolspeak.agent.state.fold import apply
from toolspeak.agent.state.state import RunState
from toolspeak.data.events import ApprovalRequested
from toolspeak.journal.base import Journal

_MOST_RUNS = 32
_PAGE = 500


@dataclass(slots=True)
class RunFold:
    """What a run's records until now say. `questions`: the numbers of the records that ask, by call id."""

    state: RunState | None = None
    builder: ChartBuilder = field(default_factory=ChartBuilder)
    questions: dict[str, int] = field(default_factory=dict[str, int])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    drawn: RunChart | None = None

    def chart(self) -> RunChart:
        """The chart of the records until now."""
        if self.drawn is None or self.drawn.records != self.builder.records:
            self.drawn = self.builder.chart()
        return self.drawn


class RunFolds:
    """The folds of the runs that were looked at last."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._folds: OrderedDict[str, RunFold] = OrderedDict()

    async def of(self, run_id: str) -> RunFold:
        """The run's fold, with all records that the journal has. Its `state` is None for a run that is not there, and
        has no messages of earlier runs of its session."""
        fold = self._folds.setdefault(run_id, RunFold())
        self._folds.move_to_end(run_id)
        async with fold.lock:
            while True:
                page = await self._journal.read(run_id, fold.builder.records, _PAGE)
                for record in page:
                    fold.state = apply(fold.state, record)
                    fold.builder.add(record)
                    if isinstance(record.event, ApprovalRequested):
                        fold.questions[record.event.call_id] = record.seq
                if len(page) < _PAGE:
                    break
                await asyncio.sleep(0)
        if fold.state is None:
            self._folds.pop(run_id, None)
        while len(self._folds) > _MOST_RUNS:
            self._folds.popitem(last=False)
        return fold
