"""The metrics: one object with every instrument.

Their attributes have few values each: names of agents, models and tools that a developer chose, and words of a closed
list. No run, no call and no text of a user is among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.metrics import Meter

from toolspeak.data.messages import Usage
from toolspeak.telemetry import convention_names as names

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""The conventions' buckets for the duration of a model's operation."""
_LONG_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 14400)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""The conventions' buckets for tokens."""


class Instruments:
    """Every metric that toolspeak records live. See docs/reference/telemetry.md."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, description: str, buckets: Sequence[float]) -> Any:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)

        self.chat_seconds = histogram("gen_ai.client.operation.duration", "s", "Duration of a model turn", _SECONDS)
        self.tokens = histogram("gen_ai.client.token.usage", "{token}", "Tokens of a model turn", _TOKENS)
        self.run_seconds = histogram(
            "gen_ai.invoke_agent.duration", "s", "Time for which a process drove a run", _LONG_SECONDS
        )
        self.tool_seconds = histogram("gen_ai.execute_tool.duration", "s", "Duration of a tool's function", _SECONDS)
        self.step_seconds = histogram(
            "toolspeak.step.duration", "s", "Duration of a step: a model turn and its calls", _SECONDS
        )
        self.request_seconds = histogram(
            "gen_ai.server.request.duration", "s", "Duration of a request to the gateway", _SECONDS
        )
        self.first_token_seconds = histogram(
            "gen_ai.server.time_to_first_token", "s", "Time until the gateway's answer begins", _SECONDS
        )
        self.runs = meter.create_counter("toolspeak.runs", "{run}", "Runs that ended or paused, by their status")
        self.active = meter.create_up_down_counter("toolspeak.runs.active", "{run}", "Runs that a process drives now")
        self.takeovers = meter.create_counter(
            "toolspeak.takeovers", "{run}", "Runs that go on after the process that drove them was lost"
        )
        self.calls = meter.create_counter("toolspeak.calls", "{call}", "Calls with a result, by its status")
        self.malformed_calls = meter.create_counter(
            "toolspeak.malformed_calls", "{call}", "Calls that cannot be read, by dialect"
        )
        self.retries = meter.create_counter("toolspeak.retries", "{request}", "Model requests sent again")
        self.cost = meter.create_counter("toolspeak.cost", "{USD}", "Cost of model turns with a known price")
        self.approvals = meter.create_counter(
            "toolspeak.approvals", "{question}", "Questions about calls, by the answer"
        )
        self.waiting = meter.create_up_down_counter(
            "toolspeak.approvals.waiting", "{question}", "Questions whose approver has not answered yet"
        )

    def count_usage(self, usage: Usage, cost: float | None, labels: dict[str, str]) -> None:
        """Records the tokens and the cost of a turn."""
        for kind, count in (("input", usage.input), ("output", usage.output)):
            if count:
                self.tokens.record(count, {**labels, names.TOKEN_TYPE: kind})
        if cost:
            self.cost.add(cost, labels)
