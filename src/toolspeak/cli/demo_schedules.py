"""`toolspeak demo --schedules`: runs one batch under each of the three schedules, and compares outcomes and times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from toolspeak.cli.exit_codes import NO_ANSWER, SUCCESS
from toolspeak.cli.timeline_file import write_timeline
from toolspeak.data.events import Event, ModelAnswered, Record
from toolspeak.data.messages import JSON, Message, ToolCall
from toolspeak.data.tools import Effects
from toolspeak.data.values import quick
from toolspeak.execute import BatchContext, Executor, ScheduleName, approve_all
from toolspeak.tools import Toolset, tool
from toolspeak.ui.console import write
from toolspeak.ui.lanes import BatchLanes, as_text, batches

_UNIT = 0.15  # seconds of a lookup; a change takes twice as long
_SCHEDULES: Mapping[ScheduleName, str] = {
    "sequential": "one by one",
    "parallel": "all at once",
    "serializable": "at once, unless their effects conflict (the default)",
}
_CALLS: tuple[tuple[str, dict[str, JSON]], ...] = (
    ("price", {"item": "bike"}),
    ("price", {"item": "lamp"}),
    ("discount", {"item": "bike", "percent": 10}),
    ("price", {"item": "tent"}),
    ("order", {"item": "bike"}),
    ("order", {"item": "lamp"}),
    ("total", {}),
)


def _reads_price(item: str) -> Effects:
    return Effects(reads={f"price:{item}"})


def _writes_price(item: str) -> Effects:
    return Effects(writes={f"price:{item}"})


def _orders(item: str) -> Effects:
    return Effects(reads={f"price:{item}"}, writes={f"order:{item}"})


class _Shop:
    """Prices and orders. A lookup takes a moment, a change twice as long."""

    def __init__(self) -> None:
        self.prices = {"bike": 500, "lamp": 40, "tent": 120}
        self.orders: dict[str, int] = {}

    def tools(self) -> Toolset:
        @tool(effects=_reads_price)
        async def price(item: str) -> int:
            await asyncio.sleep(_UNIT)
            return self.prices[item]

        @tool(effects=_writes_price)
        async def discount(item: str, percent: int) -> int:
            before = self.prices[item]
            await asyncio.sleep(2 * _UNIT)
            self.prices[item] = before * (100 - percent) // 100
            return self.prices[item]

        @tool(effects=_orders)
        async def order(item: str) -> int:
            cost = self.prices[item]
            await asyncio.sleep(2 * _UNIT)
            self.orders[item] = cost
            return cost

        @tool(effects=Effects(reads={"order:"}))
        async def total() -> int:
            await asyncio.sleep(_UNIT)
            return sum(self.orders.values())

        return Toolset([price, discount, order, total])


@quick()
class _ScheduleOutcome:
    """The outcome of the batch under one schedule."""

    values: Sequence[JSON]
    orders: Mapping[str, int]
    seconds: float
    lanes: BatchLanes

    def same_as(self, other: _ScheduleOutcome) -> bool:
        return (self.values, self.orders) == (other.values, other.orders)


async def compare_schedules(console: Console, timeline: str | None) -> int:
    """Runs the batch under each schedule and prints the outcomes. Returns the exit code."""
    write(console, "One batch of calls, as a model may write it:", "bold")
    for name, arguments in _CALLS:
        write(console, f"  {name}({', '.join(map(str, arguments.values()))})", "cyan")
    outcomes: dict[ScheduleName, _ScheduleOutcome] = {name: await _play(name) for name in _SCHEDULES}
    right = outcomes["sequential"]
    longest = max(each.lanes.seconds for each in outcomes.values())
    write(console, "")
    console.print(_table(outcomes, right), soft_wrap=False)
    for name, description in _SCHEDULES.items():
        write(console, f"\n{name}: {description}", "bold")
        for line in as_text(outcomes[name].lanes, seconds=longest):
            write(console, f"  {line}")
    write(console, "\n█ runs  ░ waits for an earlier call", "dim")
    if timeline is not None:
        write_timeline(timeline, [each.lanes for each in outcomes.values()], ", ".join(outcomes))
    return SUCCESS if outcomes["serializable"].same_as(right) else NO_ANSWER


async def _play(schedule: ScheduleName) -> _ScheduleOutcome:
    shop, records = _Shop(), list[Record]()
    calls = tuple(ToolCall(f"call_{i}", name, arguments) for i, (name, arguments) in enumerate(_CALLS))
    step = list(_SCHEDULES).index(schedule) + 1

    async def emit(event: Event) -> None:
        records.append(Record(event, schedule, len(records), step, time.perf_counter()))

    await emit(ModelAnswered(Message("assistant", calls), "stop"))
    start_time = time.perf_counter()
    executor = Executor(shop.tools(), schedule=schedule)
    batch = await executor.run(calls, emit=emit, context=BatchContext(schedule), approver=approve_all)
    seconds = time.perf_counter() - start_time
    (lanes,) = batches(records)
    named_lanes = replace(lanes, name=schedule)
    return _ScheduleOutcome([result.structured for result in batch.results], shop.orders, seconds, named_lanes)


def _table(outcomes: Mapping[ScheduleName, _ScheduleOutcome], right: _ScheduleOutcome) -> Table:
    table = Table("schedule", title="The same batch under three schedules")
    table.add_column("seconds", justify="right")
    for heading in ("results", "orders in the end", "outcome"):
        table.add_column(heading)
    for name, each in outcomes.items():
        same = each.same_as(right)
        outcome = "right" if name == "sequential" else "the same" if same else "other: WRONG"
        table.add_row(
            name,
            f"{each.seconds:.2f}",
            ", ".join(map(str, each.values)),
            ", ".join(f"{item} {cost}" for item, cost in sorted(each.orders.items())),
            outcome,
            style="green" if same else "red",
        )
    return table
