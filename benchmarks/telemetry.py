"""Measures what telemetry adds to a step, as a ratio to the same step without it, in one process.

    python benchmarks/telemetry.py [--rounds 41] [--steps 200]

A run has `--steps` turns with one call each, and a journal in memory. The model is scripted, so only the loop's cost is
measured, in CPU time. The kinds take turns, in a different order each round. A figure is the median over the rounds of
the ratio to the plain run next to it. The 95 % interval of the median comes from a bootstrap over the rounds.

- `no SDK`: `telemetry.instrument()` without OpenTelemetry's SDK. The target is at most 1.03.
- `sampled out`: an SDK whose sampler drops every trace.
- `metrics`: an SDK that collects only metrics.
- `traces`: an SDK that collects only traces and drops each span when it ends.
- `all`: both, with messages and results on the spans.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider

from toolspeak import Agent, Limits, Usage, tool
from toolspeak.data.deltas import ArgumentsDelta, BatchEnded, CallCompleted, CallStarted, Delta, TextDelta, TurnEnded
from toolspeak.providers import Capabilities, ModelRequest
from toolspeak.telemetry.live_tracer import Telemetry

LIMITS = Limits(steps=None, tokens=None, seconds=None, calls=None, repeats=None, failures=None)


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


class Model:
    """Calls `add` in every turn except the last."""

    name = "fake:model"
    capabilities = Capabilities(tools=True)

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.turns = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.turns += 1
        if self.turns > self._steps:
            yield TextDelta("done")
            yield TurnEnded("stop", Usage(1, 1))
            return
        call_id = f"c{self.turns}"
        yield CallStarted(0, "add", call_id)
        yield ArgumentsDelta(0, '{"a": 1, "b": 2}')
        yield CallCompleted(0, "add", {"a": 1, "b": 2}, call_id)
        yield BatchEnded((0,), ok=True)
        yield TurnEnded("tool_calls", Usage(1, 1))

    async def aclose(self) -> None:
        """Does nothing: no connection is open."""


def kinds() -> dict[str, Telemetry | None]:
    off, meters = NoOpTracerProvider(), NoOpMeterProvider()
    return {
        "plain": None,
        "no SDK": Telemetry(),
        "sampled out": Telemetry(tracer_provider=TracerProvider(sampler=ALWAYS_OFF), meter_provider=meters),
        "metrics": Telemetry(tracer_provider=off, meter_provider=MeterProvider([InMemoryMetricReader()])),
        "traces": Telemetry(tracer_provider=TracerProvider(), meter_provider=meters),
        "all": Telemetry(
            content=True,
            tracer_provider=TracerProvider(),
            meter_provider=MeterProvider([InMemoryMetricReader()]),
        ),
    }


def a_run(telemetry: Telemetry | None, steps: int) -> float:
    """Returns microseconds of CPU time per step."""
    model = Model(steps)
    agent = Agent(model, [add], limits=LIMITS, observers=[] if telemetry is None else [telemetry])
    gc.collect()
    gc.disable()  # a garbage collection would hit one kind by chance
    start = time.process_time()
    result = asyncio.run(agent.run("go"))
    seconds = time.process_time() - start
    gc.enable()
    assert result.answer == "done"
    assert model.turns == steps + 1
    return seconds / steps * 1e6


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Returns the 95 % interval of the median, from a bootstrap."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    every = kinds()
    times: dict[str, list[float]] = {name: [] for name in every}
    chance = random.Random(0)
    for number in range(options.rounds + 1):
        order = list(every)
        chance.shuffle(order)
        for name in order:
            cost = a_run(every[name], options.steps)
            if number:
                times[name].append(cost)
    print(f"{'':12} {'µs a step':>10} {'by plain':>9}  95 % interval")
    for name, each in times.items():
        ratios = [one / plain for one, plain in zip(each, times["plain"], strict=True)]
        low, high = interval(ratios)
        print(f"{name:12} {statistics.median(each):10.1f} {statistics.median(ratios):9.3f}  {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
