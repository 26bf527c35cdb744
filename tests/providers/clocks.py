"""Time and chance that a test decides."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class TestClock:
    """`sleeps` holds the seconds that were waited for; nothing is."""

    __test__ = False

    chance: float = 0.5
    time: float = 1_790_000_000.0
    sleeps: list[float] = field(default_factory=list[float])

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return self.chance

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time += seconds
