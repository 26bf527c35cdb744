"""The states and the charts of the runs that somebody looks at, folded once for all of them."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from toolspeak.agent.charts.run_chart import ChartBuilder, RunChart
from toolspeak.agent.drivers.request_parts import TOOLS
from toolspeak.agent.state.fold import apply
from toolspeak.agent.state.state import RunState
from toolspeak.data.events import ApprovalRequested, ModelAsked
from toolspeak.data.messages import JSON
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.journal.base import Journal

_MOST_RUNS = 32
_PAGE = 500
_MOST_SCHEMA = 50_000
"""The longest schema of a tool's arguments, as JSON, that a page gets."""


@dataclass(slots=True)
class RunFold:
    """What a run's records until now say.

    - `questions`: the numbers of the records that ask, by call id.
    - `tools`: the tools of the last turn as JSON; "" if the run did not record them.
    """

    state: RunState | None = None
    builder: ChartBuilder = field(default_factory=ChartBuilder)
    questions: dict[str, int] = field(default_factory=dict[str, int])
    tools: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    cached_chart: RunChart | None = None

    def chart(self, now: float | None) -> RunChart:
        """The chart of the records until now. `now` (Unix seconds): until then what goes on is drawn; None: until the
        last record."""
        if now is not None and (self.state is None or self.state.status in UNFINISHED_STATUSES):
            return self.builder.chart(now)
        if self.cached_chart is None or self.cached_chart.records != self.builder.records:
            self.cached_chart = self.builder.chart()
        return self.cached_chart

    def parameters(self, call_id: str) -> JSON:
        """The schema of the arguments of a call of the last turn; None if the run did not record it."""
        if self.state is None or not self.tools:
            return None
        name = next((call.name for call in self.state.pending.calls if call.id == call_id), None)
        return None if name is None else _schemas(self.tools).get(name)


@lru_cache(maxsize=8)
def _schemas(tools: str) -> Mapping[str, JSON]:
    """The schemas of the arguments of tools that are recorded as JSON, by their names; without long ones. A page asks
    for them again and again, for each question."""
    specs = cast("list[dict[str, JSON]]", json.loads(tools))
    schemas = {cast("str", spec.get("name")): spec.get("parameters") for spec in reversed(specs)}
    return {name: schema for name, schema in schemas.items() if len(json.dumps(schema)) <= _MOST_SCHEMA}


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
                    elif isinstance(record.event, ModelAsked):
                        fold.tools = record.event.request_parts.get(TOOLS, fold.tools)
                if len(page) < _PAGE:
                    break
                await asyncio.sleep(0)
        if fold.state is None:
            self._folds.pop(run_id, None)
        while len(self._folds) > _MOST_RUNS:
            self._folds.popitem(last=False)
        return fold
